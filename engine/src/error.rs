//! What can go wrong while loading a model and while running it.

use std::path::PathBuf;

/// A model could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file could not be opened or mapped.
    #[error("cannot read model file {}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The file's content is not what a model file holds.
    #[error("model file {} is not valid: {detail}", path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// What is wrong, with the name of the metadata key or tensor.
        detail: String,
    },
    /// The file is valid, and holds something that this engine does not know.
    #[error("model file {} is not supported: {detail}", path.display())]
    Unsupported {
        /// The file.
        path: PathBuf,
        /// What it is, and what would be supported.
        detail: String,
    },
    /// The file that lists frequent ids is of no use.
    #[error("file of frequent ids {}: {detail}", path.display())]
    FrequentIds {
        /// The file.
        path: PathBuf,
        /// What is wrong, with the line where it is about one.
        detail: String,
    },
    /// The device is absent or does not compute.
    #[error("device {device} is not available: {detail}")]
    Device {
        /// As it was asked for.
        device: String,
        /// What the libraries say.
        detail: String,
    },
    /// A field of a synthetic model's description is wrong.
    #[error("synthetic model: {0}")]
    Synthetic(String),
}

/// A sequence could not be served. The engine and its other sequences go on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EngineError {
    /// All places for sequences are taken.
    #[error("the engine holds {max} sequences and takes no more")]
    Overloaded {
        /// The most it takes.
        max: usize,
    },
    /// The cache budget cannot hold the sequence, even alone.
    #[error("{tokens} tokens need more than the cache's {budget_bytes} bytes")]
    CacheFull {
        /// The sequence's length with what was to be added.
        tokens: usize,
        /// The budget.
        budget_bytes: usize,
    },
    /// The sequence would grow past the model's context.
    #[error("{tokens} tokens exceed the context of {context_length}")]
    ContextExceeded {
        /// The sequence's length with what was to be added.
        tokens: usize,
        /// The most the model takes.
        context_length: usize,
    },
    /// A request that makes no sense: names the argument.
    #[error("{0}")]
    Invalid(String),
    /// What the request demands of its text cannot be met or told.
    #[error("{0}")]
    Excluded(String),
    /// The model failed.
    #[error("the model failed: {0}")]
    Model(String),
    /// The engine has stopped.
    #[error("the engine has stopped")]
    Stopped,
}
