//! From a name to a model that runs.

use crate::{LoadError, Model, Vocabulary};
use std::path::PathBuf;

/// Where a model comes from.
#[derive(Debug, Clone, PartialEq)]
pub enum Source {
    /// A GGUF file.
    Gguf(PathBuf),
    /// The built-in toy model, by its description: `key=value` pairs, comma-separated; see
    /// [`crate::synthetic::Description`].
    Synthetic(String),
}

/// How a model is run.
#[derive(Debug, Clone, Copy)]
pub struct LoadOptions {
    /// Keeps every row's logits independent of what else is in its batch, to the bit.
    pub batch_invariant: bool,
}

/// A model with its vocabulary.
pub struct Loaded {
    /// The model.
    pub model: Box<dyn Model>,
    /// Its tokens.
    pub vocabulary: Vocabulary,
}

/// Loads a model.
///
/// # Errors
/// Any [`LoadError`].
pub fn load(source: &Source, options: LoadOptions) -> Result<Loaded, LoadError> {
    let _ = (source, options);
    todo!("helper: decoder")
}
