//! How fast a device is: steps of few rows, and prefill.

use crate::models::Models;
use crate::runner::{Runner, TEXTS, prompt};
use crate::{Device, Setting};
use anyhow::Result;
use std::time::Instant;

/// Tokens that a text holds before what is measured.
const CONTEXT: usize = 256;
const PREFILL: usize = 512;
/// Of each kind, after [`WARM`] that are not counted; the median is taken.
const STEPS: usize = 9;
const WARM: usize = 2;

/// What the check finds.
pub(crate) struct Speed {
    /// Plain decoding of one text.
    pub(crate) tokens_per_second: f64,
    /// The time of a step of so many rows of one text, over that of one row.
    pub(crate) four_rows: f64,
    pub(crate) eight_rows: f64,
    /// The same for one row of each of eight texts.
    pub(crate) eight_texts: f64,
    /// Tokens per second of prefill.
    pub(crate) prefill: f64,
}

impl Speed {
    pub(crate) fn of(models: &Models, setting: &Setting, device: &Device) -> Result<Self> {
        let mut runner = Runner::new(&models.large(setting.stored), setting, device)?;
        let context = prompt(CONTEXT, 1);
        for text in 0..TEXTS {
            runner.append(text, 0, &context, 0)?;
        }
        let tokens = prompt(8, 2);
        let mut rows =
            |count: usize| median(|| runner.append(0, CONTEXT, &tokens[..count], count).map(drop));
        let (one, four, eight) = (rows(1)?, rows(4)?, rows(8)?);
        let parts: Vec<_> = (0..TEXTS)
            .map(|text| (text, CONTEXT, &tokens[..1]))
            .collect();
        let texts = median(|| runner.step(&parts, 1).map(drop))?;
        let long = prompt(PREFILL, 3);
        let prefill = median(|| runner.append(0, 0, &long, 1).map(drop))?;
        Ok(Self {
            tokens_per_second: 1.0 / one,
            four_rows: four / one,
            eight_rows: eight / one,
            eight_texts: texts / one,
            prefill: PREFILL as f64 / prefill,
        })
    }
}

/// Seconds that `step` takes.
fn median(mut step: impl FnMut() -> Result<()>) -> Result<f64> {
    let mut times = Vec::with_capacity(STEPS);
    for _ in 0..WARM {
        step()?;
    }
    for _ in 0..STEPS {
        let begun = Instant::now();
        step()?;
        times.push(begun.elapsed().as_secs_f64());
    }
    times.sort_by(f64::total_cmp);
    Ok(times[STEPS / 2])
}
