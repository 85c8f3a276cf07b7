//! Reads checked numbers from whatever a source of weights states of itself.

use crate::LoadError;
use std::fmt::Display;
use std::ops::RangeInclusive;

/// Beyond every model in use, and small enough that products of two cannot overflow.
pub(super) const LENGTHS: RangeInclusive<usize> = 1..=1 << 24;
pub(super) const LAYERS: RangeInclusive<usize> = 1..=1 << 12;
pub(super) const HEADS: RangeInclusive<usize> = 1..=1 << 12;
const HEAD_DIMS: RangeInclusive<usize> = 2..=1 << 12;
const ROPE_BASES: RangeInclusive<f64> = 1.000_1..=1e12;
const FACTORS: RangeInclusive<f64> = 1e-3..=1e6;

pub(super) const DEFAULT_ROPE_BASE: f64 = 10_000.0;
/// Of Gemma's layers that see a window only.
pub(super) const LOCAL_ROPE_BASE: f64 = 10_000.0;

/// What a source states, by key.
pub(super) trait Stated {
    /// A count, where the key is there.
    fn stated_count(&self, key: &str) -> Result<Option<usize>, LoadError>;
    /// A finite number, where the key is there.
    fn stated_number(&self, key: &str) -> Result<Option<f64>, LoadError>;
    /// The source says what cannot be.
    fn invalid(&self, detail: String) -> LoadError;

    /// A required count within `allowed`.
    fn required_count(
        &self,
        key: &str,
        allowed: RangeInclusive<usize>,
    ) -> Result<usize, LoadError> {
        self.optional_count(key, allowed)?
            .ok_or_else(|| self.invalid(format!("{key} is absent")))
    }

    /// A count within `allowed`, where the key is there.
    fn optional_count(
        &self,
        key: &str,
        allowed: RangeInclusive<usize>,
    ) -> Result<Option<usize>, LoadError> {
        match self.stated_count(key)? {
            Some(count) => self.within(key, count, allowed).map(Some),
            None => Ok(None),
        }
    }

    /// A number within `allowed`, where the key is there.
    fn optional_number(
        &self,
        key: &str,
        allowed: RangeInclusive<f64>,
    ) -> Result<Option<f64>, LoadError> {
        match self.stated_number(key)? {
            Some(number) => self.within(key, number, allowed).map(Some),
            None => Ok(None),
        }
    }

    /// Refuses what is not within `allowed`.
    fn within<T>(&self, key: &str, value: T, allowed: RangeInclusive<T>) -> Result<T, LoadError>
    where
        T: PartialOrd + Display,
    {
        if allowed.contains(&value) {
            return Ok(value);
        }
        let (start, end) = (allowed.start(), allowed.end());
        Err(self.invalid(format!("{key} is {value}, expected {start} to {end}")))
    }

    /// Key heads, by default as many as query heads.
    fn kv_heads(&self, key: &str, heads: usize) -> Result<usize, LoadError> {
        let kv_heads = self.optional_count(key, HEADS)?.unwrap_or(heads);
        if heads.is_multiple_of(kv_heads) {
            return Ok(kv_heads);
        }
        Err(self.invalid(format!(
            "{key} is {kv_heads}, which does not divide the {heads} heads"
        )))
    }

    /// Numbers per head: what `key` states, or an even share of the hidden ones.
    fn head_dim(
        &self,
        key: &str,
        (hidden_key, hidden): (&str, usize),
        (heads_key, heads): (&str, usize),
    ) -> Result<usize, LoadError> {
        let (key, head_dim) = match self.optional_count(key, HEAD_DIMS)? {
            Some(head_dim) => (key, head_dim),
            None if hidden.is_multiple_of(heads) => (heads_key, hidden / heads),
            None => {
                return Err(self.invalid(format!(
                    "{heads_key} is {heads}, which does not divide {hidden_key} of {hidden}"
                )));
            }
        };
        if HEAD_DIMS.contains(&head_dim) && head_dim.is_multiple_of(2) {
            return Ok(head_dim);
        }
        Err(self.invalid(format!(
            "{key} gives heads of {head_dim}, expected an even number of at most {}",
            HEAD_DIMS.end()
        )))
    }

    /// The epsilon of the norms, required.
    fn epsilon(&self, key: &str) -> Result<f64, LoadError> {
        match self.stated_number(key)? {
            Some(epsilon) if epsilon > 0.0 && epsilon < 1.0 => Ok(epsilon),
            Some(epsilon) => {
                Err(self.invalid(format!("{key} is {epsilon}, expected between 0 and 1")))
            }
            None => Err(self.invalid(format!("{key} is absent"))),
        }
    }

    /// A base of rotary frequencies.
    fn rope_base(&self, key: &str, default: f64) -> Result<f32, LoadError> {
        let base = self.optional_number(key, ROPE_BASES)?;
        Ok(base.unwrap_or(default) as f32)
    }

    /// A required factor of a rotation's scaling.
    fn factor(&self, key: &str) -> Result<f64, LoadError> {
        self.optional_number(key, FACTORS)?
            .ok_or_else(|| self.invalid(format!("{key} is absent")))
    }

    /// A factor of a rotation's scaling that may be left out.
    fn optional_factor(&self, key: &str, default: f64) -> Result<f64, LoadError> {
        Ok(self.optional_number(key, FACTORS)?.unwrap_or(default))
    }
}
