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
/// 5. Typical-p keeps the fewest of what is left whose surprise is closest to the entropy and whose
///    sum reaches `typical_p` times the sum of what is left.
/// 6. What is left is divided by its sum.
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
        Self::of_row(&Logits::new(logits), sampling)
    }

    /// The law that `sampling` makes of `logits`.
    pub(crate) fn of_row(logits: &Logits<'_>, sampling: &Sampling) -> Self {
        match logits.argmax() {
            None => Self::one_hot(0),
            Some(most_likely) if sampling.is_greedy() => Self::one_hot(most_likely),
            // The most likely id weighs 1, so that there always is a law.
            Some(most_likely) => {
                Self::spread(logits, sampling).unwrap_or_else(|| Self::one_hot(most_likely))
            }
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

    /// The `count` most likely ids with their probabilities, the most likely first and on a tie the
    /// lowest id first. Fewer where fewer are possible.
    pub(crate) fn most_likely(&self, count: usize) -> Vec<(TokenId, f64)> {
        let likelier =
            |a: &(TokenId, f64), b: &(TokenId, f64)| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0));
        let mut entries = self.entries.clone();
        if count < entries.len() {
            entries.select_nth_unstable_by(count, likelier);
            entries.truncate(count);
        }
        entries.sort_unstable_by(likelier);
        entries
    }

    /// The law of `weights`, by ascending id, of which those that are not over 0 count as 0; none
    /// where all are.
    pub(crate) fn of_weights(weights: Vec<(TokenId, f64)>) -> Option<Self> {
        let mut entries = weights;
        entries.retain(|(_, weight)| *weight > 0.0);
        let total = entries.iter().map(|(_, weight)| weight).sum::<f64>();
        for (_, weight) in &mut entries {
            *weight /= total;
        }
        (!entries.is_empty()).then_some(Self { entries })
    }

    fn one_hot(token: TokenId) -> Self {
        Self {
            entries: vec![(token, 1.0)],
        }
    }

    fn spread(logits: &Logits<'_>, sampling: &Sampling) -> Option<Self> {
        let options = sampling.options();
        let scores = Scores::new(logits, options.temperature);
        let weights = match scores.kept(options) {
            None => scores.weights(),
            Some(mut kept) => {
                kept.sort_unstable();
                kept.into_iter().map(|id| (id, scores.weight(id))).collect()
            }
        };
        Self::of_weights(weights)
    }
}
