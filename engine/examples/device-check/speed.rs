//! How fast a device is: steps of few rows, and prefill.

use crate::models::Models;
use crate::runner::{Runner, TEXTS, prompt};
use crate::{Device, Setting};
use anyhow::Result;
use std::time::Instant;

/// Tokens that a text holds before what is measured.
const CONTEXT: usize = 256;
const PREFILL: usize = 512;
/// Steps of few rows, of which the median is taken, after one that is not counted; and the same of
/// prefill.
const STEPS: usize = 9;
const PREFILLS: usize = 3;

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
        let mut runner = Runner::new(&models.large(), setting, device)?;
        let context = prompt(CONTEXT, 1);
        for text in 0..TEXTS {
            runner.append(text, 0, &context, 0)?;
        }
        let tokens = prompt(8, 2);
        let mut rows = |count: usize| {
            median(STEPS, || {
                let tokens = &tokens[..count];
                runner.append(0, CONTEXT, tokens, count).map(drop)
            })
        };
        let (one, four, eight) = (rows(1)?, rows(4)?, rows(8)?);
        let parts: Vec<_> = (0..TEXTS)
            .map(|text| (text, CONTEXT, &tokens[..1]))
            .collect();
        let texts = median(STEPS, || runner.step(&parts, 1).map(drop))?;
        let long = prompt(PREFILL, 3);
        let prefill = median(PREFILLS, || runner.append(0, 0, &long, 1).map(drop))?;
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
fn median(steps: usize, mut step: impl FnMut() -> Result<()>) -> Result<f64> {
    step()?;
    let mut times = Vec::with_capacity(steps);
    for _ in 0..steps {
        let begun = Instant::now();
        step()?;
        times.push(begun.elapsed().as_secs_f64());
    }
    times.sort_by(f64::total_cmp);
    Ok(times[steps / 2])
}
