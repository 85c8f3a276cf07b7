//! Whether a device computes what the processor computes, and what speculation does to its texts.

use crate::models::{Encoding, Models};
use crate::runner::{Runner, choice, prompt};
use crate::{CacheType, Device, Setting, WeightType};
use anyhow::Result;
use rand::{Rng as _, SeedableRng as _, rngs::StdRng};

const TEXTS: u64 = 12;
const PROMPT: usize = 40;
const TOKENS: usize = 64;
/// Tokens per proposal, and how often one is what the model would say.
const DRAFT: usize = 3;
const AGREEMENT: f64 = 0.75;

/// What the check finds.
pub(crate) struct Exactness {
    /// The largest difference of a logit, relative to the spread of its row.
    pub(crate) difference: f32,
    /// The share of rows with the same most likely token.
    pub(crate) same_choice: f64,
    /// Texts that are the same with speculation and without.
    pub(crate) same_texts: u64,
    pub(crate) texts: u64,
}

impl Exactness {
    pub(crate) fn of(models: &Models, setting: &Setting, device: &Device) -> Result<Self> {
        let source = models.small(setting.stored);
        let mut reference = Runner::reference(&source)?;
        let mut runner = Runner::new(&source, setting, device)?;
        let (mut difference, mut same, mut rows, mut same_texts) = (0.0_f32, 0, 0, 0);
        for seed in 0..TEXTS {
            let prompt = prompt(PROMPT, seed);
            let plain = plain(&mut runner, &prompt)?;
            same_texts += u64::from(speculative(&mut runner, &prompt, &plain, seed)? == plain);
            let all = [&prompt[..], &plain].concat();
            let expected = reference.append(0, 0, &all, all.len())?;
            let got = runner.append(0, 0, &all, all.len())?;
            for (expected, got) in expected.iter().zip(&got) {
                // A difference that is not a number must not be lost in the comparison.
                difference = [difference, relative(expected, got)]
                    .into_iter()
                    .max_by(f32::total_cmp)
                    .unwrap_or(f32::NAN);
                same += usize::from(choice(expected) == choice(got));
                rows += 1;
            }
        }
        Ok(Self {
            difference,
            same_choice: f64::from(same as u32) / f64::from(rows as u32),
            same_texts,
            texts: TEXTS,
        })
    }

    /// Whether rounding explains the difference.
    pub(crate) fn is_close(&self, setting: &Setting) -> bool {
        let most = match (setting.stored, setting.held, setting.cache) {
            (Encoding::F32, WeightType::Stored, CacheType::F32) => 1e-3,
            // Activations are rounded to 8 bits on one side or on both.
            _ => 1.0,
        };
        self.difference < most && self.same_choice > if most < 0.1 { 0.99 } else { 0.8 }
    }
}

/// The text at temperature 0, a token at a time.
fn plain(runner: &mut Runner, prompt: &[u32]) -> Result<Vec<u32>> {
    let mut text = Vec::with_capacity(TOKENS);
    let mut rows = runner.append(0, 0, prompt, 1)?;
    loop {
        text.push(choice(&rows[0]));
        if text.len() == TOKENS {
            return Ok(text);
        }
        let start = prompt.len() + text.len() - 1;
        rows = runner.append(0, start, &text[text.len() - 1..], 1)?;
    }
}

/// The text at temperature 0 with proposals that are as in `plain`, or not.
fn speculative(runner: &mut Runner, prompt: &[u32], plain: &[u32], seed: u64) -> Result<Vec<u32>> {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut text = vec![choice(&runner.append(1, 0, prompt, 1)?[0])];
    while text.len() < TOKENS {
        let mut step = vec![text[text.len() - 1]];
        for &token in plain[text.len()..].iter().take(DRAFT) {
            step.push(if rng.random_bool(AGREEMENT) {
                token
            } else {
                (token + 1) % 256
            });
        }
        let rows = runner.append(1, prompt.len() + text.len() - 1, &step, step.len())?;
        for (row, logits) in rows.iter().enumerate() {
            let chosen = choice(logits);
            text.push(chosen);
            if step.get(row + 1) != Some(&chosen) {
                break;
            }
        }
    }
    text.truncate(TOKENS);
    Ok(text)
}

fn relative(expected: &[f32], got: &[f32]) -> f32 {
    let count = expected.len() as f32;
    let mean = expected.iter().sum::<f32>() / count;
    let variance = expected.iter().map(|x| (x - mean).powi(2)).sum::<f32>() / count;
    let differences = expected.iter().zip(got).map(|(a, b)| (a - b).abs());
    differences.max_by(f32::total_cmp).unwrap_or(f32::NAN) / variance.sqrt()
}
