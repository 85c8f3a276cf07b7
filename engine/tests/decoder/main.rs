//! The decoder, from a file to logits.
#![expect(
    clippy::unwrap_used,
    reason = "a helper's failure is the test's failure"
)]

mod cache_types;
mod fixtures;
mod invariance;
mod oracle;
mod stock;
mod support;
