//! What a model is to the executor.

use crate::{EngineError, KvLayout, Lease};
use speculation::TokenId;

/// The sizes of a model that its users need.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelShape {
    /// Rows of the output matrix: logits per position.
    pub vocabulary_rows: usize,
    /// The longest sequence in tokens.
    pub context_length: usize,
    /// What one sequence's cache holds.
    pub kv: KvLayout,
}

/// One sequence's part of a batch: tokens that follow what its cache holds.
#[derive(Debug)]
pub struct Input<'a> {
    /// The sequence's cache. `forward` appends `tokens` to it. Room for them was reserved.
    pub cache: &'a mut Lease,
    /// The tokens to append, at positions `cache.len()..`. At least one, all below
    /// `vocabulary_rows`.
    pub tokens: &'a [TokenId],
    /// The logits of this many last rows are wanted: 0 to `tokens.len()`.
    pub wanted: usize,
}

/// Logits of the wanted rows, in the order of the batch.
#[derive(Debug, Clone, PartialEq)]
pub struct Logits {
    values: Vec<f32>,
    width: usize,
}

impl Logits {
    /// Wraps `values`: rows of `width` logits, one after the other.
    ///
    /// # Panics
    /// If `values` does not divide into rows.
    pub fn new(values: Vec<f32>, width: usize) -> Self {
        assert!(
            width > 0 && values.len().is_multiple_of(width),
            "whole rows"
        );
        Self { values, width }
    }

    /// The rows, each of `vocabulary_rows` logits.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = &[f32]> {
        self.values.chunks_exact(self.width)
    }
}

/// A language model. The cache lies outside it, in one [`Lease`] per sequence.
pub trait Model: Send {
    /// Its sizes.
    fn shape(&self) -> &ModelShape;

    /// Appends each input's tokens to its cache and computes the wanted logits.
    ///
    /// # Errors
    /// [`EngineError::Model`]; the caches of the batch are then cut back by the caller.
    fn forward(&mut self, batch: &mut [Input<'_>]) -> Result<Logits, EngineError>;
}
