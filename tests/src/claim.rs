//! What a benchmark holds a figure to.

use serde::Serialize;

/// A figure and its bound.
#[derive(Debug, Serialize)]
pub struct Claim {
    /// What is claimed.
    pub name: String,
    /// What was measured, as a ratio unless the name says otherwise.
    pub measured: f64,
    /// The bound, with its direction: `>= 0.75`.
    pub required: String,
    /// Whether the bound holds.
    pub holds: bool,
}

impl Claim {
    pub(crate) fn at_least(name: impl Into<String>, measured: f64, bound: f64) -> Self {
        Self {
            name: name.into(),
            measured,
            required: format!(">= {bound}"),
            holds: measured >= bound,
        }
    }

    pub(crate) fn at_most(name: impl Into<String>, measured: f64, bound: f64) -> Self {
        Self {
            name: name.into(),
            measured,
            required: format!("<= {bound}"),
            holds: measured <= bound,
        }
    }
}
