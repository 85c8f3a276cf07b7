//! A target's law as verification looks at it: a few probabilities, and now and then one draw.
//!
//! Under the law of a whole vocabulary neither takes the probability of each id: the sums of its
//! blocks are enough.

use crate::logits::{BLOCK, Logits};
use crate::scores::Scores;
use crate::{Law, Sampling, TokenId};

/// A law that is looked up by id, and walked in runs of ascending ids.
pub(crate) trait TargetLaw {
    /// The probability of `token`.
    fn probability(&self, token: TokenId) -> f64;

    /// How many runs there are.
    fn runs(&self) -> usize;

    /// The run that `token` is in.
    fn run_of(&self, token: TokenId) -> usize;

    /// The probability of a run.
    fn run_probability(&self, run: usize) -> f64;

    /// The ids of a run, ascending, with their probabilities.
    fn run_entries(&self, run: usize) -> Vec<(TokenId, f64)>;
}

/// The law that a request's sampling makes of a row of logits.
pub(crate) enum RowLaw<'a> {
    /// Truncation leaves few ids.
    Few(Law),
    /// Every id is possible.
    Whole {
        scores: Scores<'a>,
        /// The weights of the blocks, and of all of them together.
        blocks: Vec<f64>,
        total: f64,
    },
}

impl<'a> RowLaw<'a> {
    /// The law of `logits`: that of [`Law::new`].
    pub(crate) fn new(logits: &'a Logits<'a>, sampling: &Sampling) -> Self {
        let options = sampling.options();
        if logits.argmax().is_none() || sampling.is_greedy() || options.truncates() {
            return Self::Few(Law::of_row(logits, sampling));
        }
        let scores = Scores::new(logits, options.temperature);
        let blocks = scores.block_weights();
        Self::Whole {
            total: blocks.iter().sum(),
            scores,
            blocks,
        }
    }
}

impl TargetLaw for RowLaw<'_> {
    fn probability(&self, token: TokenId) -> f64 {
        match self {
            Self::Few(law) => law.probability(token),
            Self::Whole { scores, total, .. } => scores.weight(token) / total,
        }
    }

    fn runs(&self) -> usize {
        match self {
            Self::Few(law) => law.runs(),
            Self::Whole { blocks, .. } => blocks.len(),
        }
    }

    fn run_of(&self, token: TokenId) -> usize {
        match self {
            Self::Few(law) => law.run_of(token),
            Self::Whole { .. } => token as usize / BLOCK,
        }
    }

    fn run_probability(&self, run: usize) -> f64 {
        match self {
            Self::Few(law) => law.run_probability(run),
            Self::Whole { blocks, total, .. } => blocks[run] / total,
        }
    }

    fn run_entries(&self, run: usize) -> Vec<(TokenId, f64)> {
        match self {
            Self::Few(law) => law.run_entries(run),
            Self::Whole { .. } => ((run * BLOCK) as TokenId..)
                .take(BLOCK)
                .map(|id| (id, self.probability(id)))
                .collect(),
        }
    }
}

/// One run.
impl TargetLaw for Law {
    fn probability(&self, token: TokenId) -> f64 {
        self.probability(token)
    }

    fn runs(&self) -> usize {
        1
    }

    fn run_of(&self, _token: TokenId) -> usize {
        0
    }

    fn run_probability(&self, _run: usize) -> f64 {
        1.0
    }

    fn run_entries(&self, _run: usize) -> Vec<(TokenId, f64)> {
        self.entries().to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SamplingOptions;
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    #[test]
    fn a_row_has_the_law_that_is_written_out() {
        for (seed, length) in (0..40).zip([1, 63, 64, 65, 5000].into_iter().cycle()) {
            let mut rng = StdRng::seed_from_u64(seed);
            let row: Vec<f32> = (0..length)
                .map(|_| match rng.random_range(0..20) {
                    0 => f32::NEG_INFINITY,
                    1 => f32::NAN,
                    _ => rng.random_range(-30.0..10.0),
                })
                .collect();
            let top_k = if seed % 4 == 0 { 7 } else { 0 };
            let sampling = Sampling::new(SamplingOptions {
                temperature: rng.random_range(0.3..2.0),
                top_k,
                ..SamplingOptions::default()
            })
            .expect("valid");
            let law = Law::new(&row, &sampling);
            let logits = Logits::new(&row);
            let lazy = RowLaw::new(&logits, &sampling);
            let near = |a: f64, b: f64| (a - b).abs() <= 1e-12 * b.max(1e-300);
            let mut sum = 0.0;
            for run in 0..lazy.runs() {
                let own: f64 = lazy.run_entries(run).iter().map(|entry| entry.1).sum();
                assert!(
                    (own - lazy.run_probability(run)).abs() < 1e-12,
                    "seed {seed}"
                );
                for (id, p) in lazy.run_entries(run) {
                    assert!(near(p, law.probability(id)), "seed {seed}, id {id}");
                    assert_eq!(lazy.run_of(id), run, "seed {seed}, id {id}");
                    sum += p;
                }
            }
            assert!((sum - 1.0).abs() < 1e-12, "seed {seed}: {sum}");
            assert_eq!(lazy.probability(length), 0.0, "seed {seed}");
        }
    }
}
