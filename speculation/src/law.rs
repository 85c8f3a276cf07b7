//! The law of the next token: a distribution over token ids, after all request processing.

use crate::logits::Logits;
use crate::scores::Scores;
use crate::{Sampling, TokenId};

/// A distribution over token ids. Holds only ids of probability over 0, by ascending id.
///
/// # Processing
/// 1. Temperature: `w_i = exp((l_i - max l) / T)`. At temperature 0 the law is one-hot on the
///    largest logit, the lowest id on a tie, and the other parameters play no part.
/// 2. Top-k keeps the `k` largest `w`.
/// 3. Top-p keeps the fewest of the largest `w` left whose sum reaches `top_p` times the sum of
///    all that top-k left.
/// 4. Min-p keeps `w_i >= min_p * max w`.
/// 5. What is left is divided by its sum.
///
/// Where steps 2 and 3 must choose between equal logits, the lower id is kept.
///
/// # Any row of logits has a law
/// NaN counts as minus infinity, plus infinity as the largest finite number, and a `w` below
/// `e^-700` as 0. Where no id is possible (an empty row, or nothing but minus infinity and NaN) the
/// law is one-hot on id 0: a caller that must notice a broken model looks at the logits.
#[derive(Debug, Clone, PartialEq)]
pub struct Law {
    entries: Vec<(TokenId, f64)>,
}

impl Law {
    /// The law that `sampling` makes of `logits` (one per id, in id order).
    pub fn new(logits: &[f32], sampling: &Sampling) -> Self {
        let logits = Logits::new(logits);
        match logits.argmax() {
            None => Self::one_hot(0),
            Some(most_likely) if sampling.is_greedy() => Self::one_hot(most_likely),
            Some(_) => Self::spread(&logits, sampling),
        }
    }

    /// Ids of probability over 0 with their probabilities, by ascending id.
    pub fn entries(&self) -> &[(TokenId, f64)] {
        &self.entries
    }

    /// The probability of `token`.
    pub fn probability(&self, token: TokenId) -> f64 {
        self.entries
            .binary_search_by_key(&token, |entry| entry.0)
            .map_or(0.0, |index| self.entries[index].1)
    }

    fn one_hot(token: TokenId) -> Self {
        Self {
            entries: vec![(token, 1.0)],
        }
    }

    fn spread(logits: &Logits<'_>, sampling: &Sampling) -> Self {
        let options = sampling.options();
        let scores = Scores::new(logits, options.temperature);
        let mut kept = scores
            .kept(options)
            .unwrap_or_else(|| logits.at_least(f32::NEG_INFINITY).collect());
        kept.sort_unstable();
        let mut entries: Vec<_> = kept
            .into_iter()
            .map(|id| (id, scores.weight(id)))
            .filter(|(_, weight)| *weight > 0.0)
            .collect();
        let total = entries.iter().map(|(_, weight)| weight).sum::<f64>();
        for (_, weight) in &mut entries {
            *weight /= total;
        }
        Self { entries }
    }
}
