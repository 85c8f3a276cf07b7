//! What a model is to the executor.

use crate::{BlockId, CacheType, EngineError, KvLayout};
use speculation::TokenId;

/// The sizes of a model that its users need.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelShape {
    /// Rows of the output matrix: logits per position.
    pub vocabulary_rows: usize,
    /// The longest sequence in tokens.
    pub context_length: usize,
    /// What its cache holds. The `kind` is what [`Model::allocate`] was told, once it was.
    pub kv: KvLayout,
}

/// One sequence's part of a batch: tokens that follow those whose keys and values its blocks hold.
#[derive(Debug, Clone, Copy)]
pub struct Input<'a> {
    /// The sequence's block table: block i is for positions from 32·i on. It has room for
    /// `start + tokens.len()` tokens.
    pub blocks: &'a [BlockId],
    /// Tokens that the blocks hold already.
    pub start: usize,
    /// The tokens to append, at positions from `start` on. At least one, all below
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

/// A language model, with the memory for the keys and values of all sequences.
///
/// It keeps no books: which blocks belong to which sequence, and what they hold, is for the caller
/// to know ([`Pool`](crate::Pool)). What it computes for an input depends on the input's tokens and
/// on its blocks up to `start`, and on nothing else.
pub trait Model: Send {
    /// Its sizes.
    fn shape(&self) -> &ModelShape;

    /// Provides for `blocks` blocks of keys and values that are stored as `kind`. To be called once,
    /// before the first [`forward`](Self::forward).
    ///
    /// # Errors
    /// [`EngineError::Model`] where the device has no room for them or does not know `kind`.
    fn allocate(&mut self, blocks: usize, kind: CacheType) -> Result<(), EngineError>;

    /// Makes `to` hold what `from` holds.
    ///
    /// # Errors
    /// [`EngineError::Model`].
    fn copy_block(&mut self, from: BlockId, to: BlockId) -> Result<(), EngineError>;

    /// Writes the keys and values of each input's tokens into its blocks and computes the wanted
    /// logits.
    ///
    /// # Errors
    /// [`EngineError::Model`]; the blocks then hold what they did up to each input's `start`.
    fn forward(&mut self, batch: &[Input<'_>]) -> Result<Logits, EngineError>;
}
