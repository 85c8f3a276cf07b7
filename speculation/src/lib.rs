//! The mathematics of speculative decoding: laws over the next token, shared noise, and the
//! verification of drafted tokens.
//!
//! Pure: no IO, no async, no clock, no model. Draft and target call the same functions with the
//! same request parameters, which is what makes their choices agree.

mod adjustments;
mod choice;
pub mod control;
mod draft_law;
pub mod enumeration;
mod exponential;
mod law;
mod logits;
mod logprobs;
pub mod ngram;
mod noise;
pub mod planner;
mod podium;
mod prefix;
mod ratio;
mod row_law;
mod sampling;
mod scores;
mod typical;
mod verifier;

mod wide;

pub use adjustments::{AdjustmentOptions, Adjustments};
pub use choice::{Choice, Sampler};
pub use draft_law::{DraftLaw, InvalidDraftLaw, MAX_ENTRIES, MAX_SUPPORT, TOTAL_COUNT};
pub use law::Law;
pub use logprobs::{LogprobRow, LogprobsMode, LogprobsOptions, TokenLogprobs};
pub use noise::{NoiseKey, Stream, gumbel, uniform};
pub use prefix::{Constraint, ConstraintError, Prefix, common_prefix};
pub use sampling::{InvalidSampling, Sampling, SamplingOptions};
pub use verifier::{Rule, Verdict, Verifier};

/// A token id in the target's vocabulary.
pub type TokenId = u32;
