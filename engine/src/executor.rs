//! The executor: one thread owns the model and all caches, and batches what sequences ask for.

use crate::{EngineError, Model, ModelShape};
use speculation::{Choice, Sampler, TokenId};

/// Limits of an engine.
#[derive(Debug, Clone)]
pub struct EngineOptions {
    /// Sequences at once.
    pub max_sequences: usize,
    /// Bytes for keys and values of all sequences.
    pub cache_bytes: usize,
    /// Rows per step; a longer prompt is prefilled in pieces between other sequences' steps.
    pub max_step_tokens: usize,
    /// Ids that the tokenizer knows; logits beyond are padding and are never chosen.
    pub tokenizer_size: usize,
}

/// A running engine. Clones share it; it stops when the last clone and sequence are gone.
#[derive(Debug, Clone)]
pub struct Engine {}

/// A sequence in an engine. Dropping it frees its cache.
#[derive(Debug)]
pub struct Sequence {}

impl Engine {
    /// Starts the executor thread.
    ///
    /// # Errors
    /// Where the thread cannot be started.
    pub fn start(model: Box<dyn Model>, options: EngineOptions) -> std::io::Result<Self> {
        let _ = (model, options);
        todo!("helper: executor")
    }

    /// The model's sizes.
    pub fn shape(&self) -> &ModelShape {
        todo!("helper: executor")
    }

    /// Sequences that are open.
    pub fn active_sequences(&self) -> usize {
        todo!("helper: executor")
    }

    /// Opens an empty sequence whose tokens `sampler` chooses.
    ///
    /// # Errors
    /// [`EngineError::Overloaded`] at the limit of sequences.
    pub fn open(&self, sampler: Sampler) -> Result<Sequence, EngineError> {
        let _ = sampler;
        todo!("helper: executor")
    }
}

impl Sequence {
    /// Tokens whose keys and values are held.
    pub fn cached_len(&self) -> usize {
        todo!("helper: executor")
    }

    /// Cuts the cache back to `keep` tokens, appends `tokens`, and chooses a token after each of
    /// the last `rows` of them: `rows` choices, in order. With `rows` 0 it only prefills.
    ///
    /// # Errors
    /// Any [`EngineError`]. The cache then holds `keep` tokens or fewer; ask
    /// [`cached_len`](Self::cached_len).
    pub async fn score(
        &mut self,
        keep: usize,
        tokens: Vec<TokenId>,
        rows: usize,
    ) -> Result<Vec<Choice>, EngineError> {
        let _ = (keep, tokens, rows);
        todo!("helper: executor")
    }

    /// Cuts the cache back to `keep` tokens, appends `tokens`, and decodes `count` tokens on its
    /// own. The last of them is chosen, not yet appended: the cache then holds
    /// `keep + tokens.len() + count - 1` tokens.
    ///
    /// # Errors
    /// As [`score`](Self::score).
    pub async fn generate(
        &mut self,
        keep: usize,
        tokens: Vec<TokenId>,
        count: usize,
    ) -> Result<Vec<Choice>, EngineError> {
        let _ = (keep, tokens, count);
        todo!("helper: executor")
    }
}
