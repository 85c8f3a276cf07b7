//! What the engine costs on this machine, in process and on real models: steps of a few rows,
//! prefill, shared prefixes and memory, beside the memory bandwidth that bounds them.
//!
//! Machines differ and are shared: what is claimed are ratios within one run, each of the best of
//! several interleaved tries. `cargo xtask bench engine` adds what the whole service costs.

mod bandwidth;
mod claims;
mod memory;
mod prefix;
mod subject;
mod times;

use crate::Claim;
use anyhow::Result;
use bandwidth::Bandwidth;
use serde::Serialize;
use std::path::PathBuf;
use subject::Subject;
use times::Times;

/// What to measure.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The target's file.
    pub target: PathBuf,
    /// The draft's file.
    pub draft: PathBuf,
    /// Ids whose logits a lean draft computes.
    pub draft_vocab: usize,
    /// Tokens that the cache holds when steps are timed.
    pub context: usize,
    /// How often each figure is taken.
    pub tries: usize,
    /// Requests that must leave memory as they found it.
    pub requests: usize,
}

/// Room for the drafts' sequences: so little that the first tenth of the requests fills it.
const SMALL_CACHE: usize = 64 << 20;

/// What was measured.
#[derive(Debug, Serialize)]
pub struct Figures {
    /// Threads that compute.
    threads: usize,
    bandwidth: Bandwidth,
    context: usize,
    target: ModelFigures,
    draft: ModelFigures,
    /// The draft with frequent ids alone.
    lean_draft: ModelFigures,
    prefix: prefix::Figures,
    memory: memory::Figures,
}

/// One model's figures.
#[derive(Debug, Serialize)]
pub(crate) struct ModelFigures {
    file_bytes: u64,
    /// Weights that one token's step reads.
    bytes_per_token: u64,
    /// Resident memory that loading added, the cache left out.
    resident_bytes: u64,
    load_seconds: f64,
    /// A token of plain decoding, the choice of the next included.
    decode: Times,
    /// A step of so many rows, all read.
    steps: Vec<Step>,
    /// A prompt of 512 tokens.
    prefill_512: Times,
}

/// A step's time.
#[derive(Debug, Serialize)]
pub(crate) struct Step {
    rows: usize,
    times: Times,
}

/// Measures all, telling `progress` what it is at.
///
/// # Errors
/// Where a model cannot be loaded or run.
pub async fn run(plan: &Plan, progress: &dyn Fn(&str)) -> Result<(Figures, Vec<Claim>)> {
    progress("memory bandwidth");
    let mut bandwidth = Bandwidth::default();
    bandwidth.measure();
    progress("loading the models");
    let mut target = Subject::load(&plan.target, None, 512 << 20)?;
    let mut draft = Subject::load(&plan.draft, None, SMALL_CACHE)?;
    let loading_peak = memory::peak_bytes()?;
    let mut lean_draft = Subject::load(&plan.draft, Some(plan.draft_vocab), SMALL_CACHE)?;
    for number in 1..=plan.tries {
        progress(&format!("steps, try {number} of {}", plan.tries));
        target.time(plan.context, number).await?;
        draft.time(plan.context, number).await?;
        lean_draft.time(plan.context, number).await?;
        bandwidth.measure();
    }
    progress("a shared prefix of 1,000 tokens");
    let prefix = prefix::measure(&target, plan.tries).await?;
    progress(&format!("memory over {} requests", plan.requests));
    let memory = memory::measure(&draft, plan.requests, loading_peak).await?;
    let figures = Figures {
        threads: bandwidth::threads(),
        bandwidth,
        context: plan.context,
        target: target.into_figures(),
        draft: draft.into_figures(),
        lean_draft: lean_draft.into_figures(),
        prefix,
        memory,
    };
    let claims = claims::of(&figures);
    Ok((figures, claims))
}

impl Step {
    fn new(rows: usize) -> Self {
        Self {
            rows,
            times: Times::default(),
        }
    }
}
