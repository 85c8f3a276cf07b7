//! What is done with logits: a caller's reader sees them row by row, on the engine's threads.
//!
//! Logits never leave the engine: a row of a large vocabulary is megabytes, and what a caller wants
//! of it is a token or two.

use crate::EngineError;
use speculation::{ConstraintError, Prefix, TokenId};
use std::any::Any;
use std::borrow::Cow;
use std::fmt::Debug;

/// Reads the wanted rows of one call, in order.
pub trait Reader: Any + Debug + Send {
    /// Reads the next row. Where the call decodes, the token returned is appended next; none ends
    /// the decoding early.
    ///
    /// # Errors
    /// Any: the call fails with it.
    fn read(&mut self, row: Row<'_>) -> Result<Option<TokenId>, EngineError>;
}

/// The logits after some tokens of a sequence.
#[derive(Debug)]
pub struct Row<'a> {
    logits: &'a [f32],
    prefix: &'a mut Prefix,
}

impl<'a> Row<'a> {
    pub(super) fn new(logits: &'a [f32], prefix: &'a mut Prefix) -> Self {
        Self { logits, prefix }
    }

    /// The absolute position of the token that the logits are for.
    pub fn position(&self) -> u64 {
        self.prefix.len() as u64
    }

    /// The model's own logits, padding left out.
    pub fn logits(&self) -> &'a [f32] {
        self.logits
    }

    /// The logits with the request's adjustments.
    ///
    /// # Errors
    /// [`EngineError::Excluded`].
    pub fn processed(&mut self) -> Result<Cow<'a, [f32]>, EngineError> {
        let processed = self.prefix.process(self.logits);
        processed.map_err(|ConstraintError(detail)| EngineError::Excluded(detail))
    }
}
