//! `engine-bench`: what the engine costs on this machine. `cargo xtask bench engine` starts it.

use anyhow::{Context as _, Result, bail};
use clap::Parser;
use models::{Resolved, Role};
use serde::Serialize;
use specdec_tests::Claim;
use specdec_tests::engine_bench::{Figures, Plan, run};
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

/// Measures the engine in this process on a pair of real models, and prints figures and claims on
/// standard output as one JSON object. Standard error says what it is at.
#[derive(Debug, Parser)]
#[command(name = "engine-bench", bin_name = "cargo xtask bench engine")]
struct Options {
    /// The pair of models
    #[arg(long, default_value = "qwen2.5-coder")]
    preset: String,

    /// Tokens that the cache holds when steps are timed
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u64).range(1..=4000))]
    context: u64,

    /// Ids whose logits the lean draft computes, as the draft worker's `--draft-vocab`
    #[arg(long, default_value_t = 32_000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    draft_vocab: u64,

    /// How often each figure is taken; the best counts
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=100))]
    tries: u64,

    /// Requests that must leave memory as they found it
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(10..=1_000_000))]
    requests: u64,
}

#[derive(Debug, Serialize)]
struct Report {
    claims: Vec<Claim>,
    figures: Figures,
}

fn main() -> ExitCode {
    match measure(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn measure(options: &Options) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let begun = Instant::now();
    let progress = |what: &str| eprintln!("[{:>5.1} s] {what}", begun.elapsed().as_secs_f64());
    let plan = Plan {
        target: file(&options.preset, Role::Target)?,
        draft: file(&options.preset, Role::Draft)?,
        draft_vocab: usize::try_from(options.draft_vocab)?,
        context: usize::try_from(options.context)?,
        tries: usize::try_from(options.tries)?,
        requests: usize::try_from(options.requests)?,
    };
    let (figures, claims) = runtime.block_on(run(&plan, &progress))?;
    let json = serde_json::to_string(&Report { claims, figures })?;
    writeln!(std::io::stdout(), "{json}").context("write to standard output")
}

fn file(preset: &str, role: Role) -> Result<PathBuf> {
    match models::resolve(preset, role, &models::store_dir())? {
        Resolved::File { path, .. } => Ok(path),
        Resolved::Synthetic(_) => bail!("--preset: {preset} is no pair of files"),
    }
}
