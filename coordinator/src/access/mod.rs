//! Who may use the service, and how much of it.

use std::sync::Arc;

/// Who asks: the owner of the key that came with a call. Without keys, everybody is the same one,
/// without a name.
#[derive(Debug, Clone, Default)]
pub(crate) struct Identity {
    /// What logs, metrics and the scheduler's turns call it. Never the key itself.
    pub(crate) name: Arc<str>,
    /// How much it may have at once.
    pub(crate) limits: Limits,
}

/// How much a key may have at once, beside what all have together. `None` sets no limit of its own.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Choices that run.
    pub(crate) running: Option<u32>,
    /// Choices that wait to run.
    pub(crate) waiting: Option<u32>,
    /// Tokens, of prompts and of what may still be generated, of all that run.
    pub(crate) tokens: Option<u64>,
}
