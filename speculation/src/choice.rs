//! Choosing a token: the argmax of log-probability plus shared noise.

use crate::{NoiseKey, Sampling, TokenId};

/// A chosen token.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Choice {
    /// The token.
    pub token: TokenId,
    /// By how much its perturbed score leads the next best; infinite where nothing else could be
    /// chosen. Unit: nats over temperature.
    pub margin: f32,
}

/// How one request's tokens are chosen: its sampling parameters and its noise.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampler {
    /// The parameters.
    pub sampling: Sampling,
    /// The key of the noise.
    pub key: NoiseKey,
}

impl Sampler {
    /// Chooses the token at absolute `position` (0 is the first token of the prompt) from `logits`,
    /// one per token id. Ids past the end of `logits` have probability 0.
    pub fn choose(&self, logits: &[f32], position: u64) -> Choice {
        let _ = (logits, position);
        todo!("helper: speculation")
    }
}
