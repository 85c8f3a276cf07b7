//! Figures and what is claimed of them.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::fmt;

/// A figure and its bound.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Claim {
    pub(crate) name: String,
    pub(crate) measured: f64,
    /// With its direction: `>= 1.3`.
    pub(crate) required: String,
    pub(crate) holds: bool,
}

/// All claims, and the raw figures by what they are of.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) claims: Vec<Claim>,
    pub(crate) figures: Map<String, Value>,
}

impl Claim {
    pub(crate) fn at_least(name: &str, measured: f64, bound: f64) -> Self {
        Self {
            name: name.to_owned(),
            measured,
            required: format!(">= {bound}"),
            holds: measured >= bound,
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "| claim | measured | required | holds |")?;
        write!(f, "|---|---|---|---|")?;
        for claim in &self.claims {
            let Claim {
                name,
                measured,
                required,
                holds,
            } = claim;
            let holds = if *holds { "yes" } else { "NO" };
            write!(f, "\n| {name} | {measured:.3} | {required} | {holds} |")?;
        }
        Ok(())
    }
}
