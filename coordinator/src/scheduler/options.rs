//! What the operator says about speculation.

/// How sequences may be drafted for, beside what their requests say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SpecOptions {
    /// Whether draft workers may draft ahead of verdicts.
    pub(crate) ahead: bool,
    /// Whether to draft without a model.
    pub(crate) ngram: bool,
    /// How many tokens of a tenant's earlier texts are kept to draft from; 0 is none.
    pub(crate) ngram_history: usize,
}

impl Default for SpecOptions {
    fn default() -> Self {
        Self {
            ahead: true,
            ngram: true,
            ngram_history: 0,
        }
    }
}
