//! Shared noise: Gumbel variables that draft and target compute alike.

use crate::TokenId;

/// The 128-bit key of one request's noise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct NoiseKey(pub u128);

/// The Gumbel variable of `token` at absolute `position` under `key`.
pub fn gumbel(key: NoiseKey, position: u64, token: TokenId) -> f64 {
    let _ = (key, position, token);
    todo!("helper: speculation")
}
