//! The law of the next token: a distribution over token ids, after all request processing.

use crate::{Sampling, TokenId};

/// A distribution over token ids. Holds only ids of probability over 0, by ascending id.
#[derive(Debug, Clone, PartialEq)]
pub struct Law {
    entries: Vec<(TokenId, f64)>,
}

impl Law {
    /// The law that `sampling` makes of `logits` (one per id, in id order).
    pub fn new(logits: &[f32], sampling: &Sampling) -> Self {
        let _ = (logits, sampling);
        todo!("helper: speculation")
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
}
