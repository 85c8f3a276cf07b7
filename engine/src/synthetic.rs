//! A deterministic toy language model: it stands in for any model and any GPU in tests of the
//! protocol, of scheduling and of faults.

use crate::{EngineError, Input, LoadError, Logits, Model, ModelShape, Vocabulary};

/// What a synthetic model is like. Written as `vocab=512,agreement=0.75,base_ms=0,row_ms=0`;
/// every key is optional.
#[derive(Debug, Clone, PartialEq)]
pub struct Description {
    /// Token ids.
    pub vocab: usize,
    /// How often its law at a position is the reference law (that of `agreement=1`).
    pub agreement: f64,
    /// Milliseconds per step.
    pub base_ms: f64,
    /// Milliseconds per row of a step.
    pub row_ms: f64,
}

impl std::str::FromStr for Description {
    type Err = LoadError;

    fn from_str(text: &str) -> Result<Self, LoadError> {
        let _ = text;
        todo!("helper: executor")
    }
}

/// The toy model.
pub struct Synthetic {}

impl Synthetic {
    /// A toy model as described.
    pub fn new(description: Description) -> Self {
        let _ = description;
        todo!("helper: executor")
    }

    /// Its tokenizer and so on.
    pub fn vocabulary(&self) -> Vocabulary {
        todo!("helper: executor")
    }
}

impl Model for Synthetic {
    fn shape(&self) -> &ModelShape {
        todo!("helper: executor")
    }

    fn forward(&mut self, batch: &mut [Input<'_>]) -> Result<Logits, EngineError> {
        let _ = batch;
        todo!("helper: executor")
    }
}
