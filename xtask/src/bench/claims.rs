//! Figures and what is claimed of them.

use crate::cargo;
use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::fmt;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

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

impl Report {
    /// What the program `name` of the workspace, built and started with `args`, prints.
    pub(crate) fn printed_by(name: &str, args: &[String]) -> Result<Self> {
        eprintln!("building the programs");
        let programs = cargo::build_programs()?;
        let bench = programs
            .get(name)
            .with_context(|| format!("{name} was not built"))?;
        let output = Command::new(bench)
            .args(args)
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .output()
            .with_context(|| format!("start {}", bench.display()))?;
        ensure!(
            output.status.success(),
            "{name} ended with {}",
            output.status
        );
        serde_json::from_slice(&output.stdout).with_context(|| format!("what {name} printed"))
    }

    /// Writes it to `path`, where there is one, as JSON.
    pub(crate) fn write(&self, path: Option<&Path>) -> Result<()> {
        if let Some(path) = path {
            let json = serde_json::to_string_pretty(self)?;
            fs::write(path, json + "\n").with_context(|| format!("write {}", path.display()))?;
        }
        Ok(())
    }

    /// Fails where a claim does not hold.
    pub(crate) fn require(&self) -> Result<()> {
        let missed = self.claims.iter().filter(|claim| !claim.holds).count();
        let claims = self.claims.len();
        ensure!(missed == 0, "{missed} of {claims} claims do not hold");
        Ok(())
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
