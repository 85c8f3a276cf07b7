//! What the coordinator makes of its workers: overlap, load, unlike draft workers, and what it costs
//! itself. On synthetic workers, each a process of its own, whose step times are stated; the links
//! between them go through the kit's proxy.
//!
//! Machines differ and are shared: what is claimed are ratios within one run, of rates that were
//! taken by turns. docs/coordination.md says what each section means.

mod bare;
mod closed_form;
mod front;
mod load;
mod memory;
mod overhead;
mod process;
mod single;
mod stand;
mod storm;
mod streams;
mod sweep;
mod unlike;

pub use bare::{BareOptions, StubOptions, serve_bare, serve_stub};

use crate::Claim;
use anyhow::{Context as _, Result};
use serde::Serialize;
use serde_json::{Map, Value};

/// A part of the benchmark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Section {
    /// One request at a time, against the closed forms.
    Single,
    /// The same at round trips from none to long ones.
    Sweep,
    /// Many requests at once, good drafts and bad ones.
    Load,
    /// Draft workers of unlike speed and acceptance, one of which is lost and comes back.
    Unlike,
    /// The coordinator's own cost, beside a program that only moves the bytes.
    Overhead,
    /// The coordinator's memory over many requests.
    Memory,
    /// What HTTP costs beside gRPC, and what a storm of refused requests costs those that run.
    Front,
}

/// What to measure.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Which parts.
    pub sections: Vec<Section>,
    /// Few tokens and short windows: to try the benchmark itself. Its claims mean little then.
    pub quick: bool,
}

/// All that was measured, by section, and what is claimed of it.
#[derive(Debug, Default, Serialize)]
pub struct Report {
    /// Figures and their bounds.
    pub claims: Vec<Claim>,
    /// The raw figures.
    pub figures: Map<String, Value>,
}

impl Report {
    fn add(&mut self, section: &str, figures: impl Serialize, claims: Vec<Claim>) -> Result<()> {
        let figures = serde_json::to_value(figures).context("figures as JSON")?;
        self.figures.insert(section.to_owned(), figures);
        self.claims.extend(claims);
        Ok(())
    }
}

/// Measures all, telling `progress` what it is at.
///
/// # Errors
/// Where a program does not run, or a stream fails.
pub async fn run(plan: &Plan, progress: &dyn Fn(&str)) -> Result<Report> {
    let mut report = Report::default();
    for section in &plan.sections {
        match section {
            Section::Single => {
                let figures = single::measure(plan.quick, progress).await?;
                report.add("single", &figures, figures.claims())?;
            }
            Section::Sweep => {
                let figures = sweep::measure(plan.quick, progress).await?;
                report.add("sweep", &figures, figures.claims())?;
            }
            Section::Load => {
                let figures = load::measure(plan.quick, progress).await?;
                report.add("load", &figures, figures.claims())?;
            }
            Section::Unlike => {
                let figures = unlike::measure(plan.quick, progress).await?;
                report.add("unlike", &figures, figures.claims())?;
            }
            Section::Overhead => {
                let figures = overhead::measure(plan.quick, progress).await?;
                report.add("overhead", &figures, figures.claims())?;
            }
            Section::Memory => {
                let figures = memory::measure(plan.quick, progress).await?;
                report.add("memory", &figures, figures.claims())?;
            }
            Section::Front => {
                let costs = front::measure(plan.quick, progress).await?;
                report.add("front", &costs, costs.claims())?;
                let storm = storm::measure(plan.quick, progress).await?;
                report.add("storm", &storm, storm.claims())?;
            }
        }
    }
    Ok(report)
}
