//! What the coordinator makes of its workers: overlap, load, unlike draft workers, and what it costs
//! itself.

mod plot;

use super::claims::Report;
use super::spec_bench;
use anyhow::{Context as _, Result};
use clap::ValueEnum as _;
use serde_json::Map;
use std::path::PathBuf;

/// How to measure.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Measure these parts alone. Repeat the flag or separate them by commas.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "SECTION")]
    only: Vec<Section>,
    /// Few tokens and short windows: to try the benchmark itself. Its claims mean little then.
    #[arg(long)]
    quick: bool,
    /// Write figures and claims to this file, as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Draw the sweep of round trips and the gains under load into this file. Beside the JSON where
    /// not given.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Of the section `real`.
    #[command(flatten, next_help_heading = "The real pair")]
    real: spec_bench::Plan,
}

/// A part of the benchmark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Section {
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
    /// Drafts of a model, of n-grams and of both on a real pair, as `bench spec-bench`.
    Real,
}

/// Measures, prints a table, and writes the files that are asked for.
pub(crate) fn run(options: &Options) -> Result<()> {
    let sections = match options.only.as_slice() {
        [] => Section::value_variants(),
        only => only,
    };
    let (real, synthetic): (Vec<_>, Vec<_>) = sections
        .iter()
        .copied()
        .partition(|section| *section == Section::Real);
    let mut report = Report {
        claims: Vec::new(),
        figures: Map::new(),
    };
    if !synthetic.is_empty() {
        report = over_synthetic_workers(&synthetic, options.quick)?;
    }
    if !real.is_empty() {
        let (spec_bench, tables) = spec_bench::measure(&options.real)?;
        println!("{tables}\n");
        report.claims.extend(spec_bench.claims);
        report
            .figures
            .insert("real".to_owned(), spec_bench.figures.into());
    }
    println!("{report}");
    report.write(options.json.as_deref())?;
    let beside = options.json.as_ref().map(|path| path.with_extension("svg"));
    if let Some(path) = options.svg.clone().or(beside) {
        plot::draw(&report.figures, &path).with_context(|| format!("draw {}", path.display()))?;
    }
    report.require()
}

/// It is a program of the package `specdec-tests`, which may use every crate;
/// this one may not.
fn over_synthetic_workers(sections: &[Section], quick: bool) -> Result<Report> {
    let names = sections
        .iter()
        .filter_map(clap::ValueEnum::to_possible_value);
    let names: Vec<_> = names.map(|value| value.get_name().to_owned()).collect();
    let mut args = vec!["--only".to_owned(), names.join(",")];
    args.extend(quick.then(|| "--quick".to_owned()));
    Report::printed_by("coordination-bench", &args)
}
