//! The mathematics of speculative decoding: laws over the next token, shared noise, and the
//! verification of drafted tokens.
//!
//! Pure: no IO, no async, no clock, no model. Draft and target call the same functions with the
//! same request parameters, which is what makes their choices agree.

mod choice;
mod exponential;
mod law;
mod logits;
mod noise;
mod sampling;
mod scores;
mod verify;

pub use choice::{Choice, Sampler};
pub use law::Law;
pub use noise::{NoiseKey, gumbel};
pub use sampling::{InvalidSampling, Sampling, SamplingOptions};
pub use verify::{Verdict, common_prefix, verify};

/// A token id in the target's vocabulary.
pub type TokenId = u32;
