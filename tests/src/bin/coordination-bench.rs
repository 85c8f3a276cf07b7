//! `coordination-bench`: what the coordinator makes of its workers, and what it costs.
//! `cargo xtask bench coordination` starts it.

use anyhow::{Context as _, Result};
use clap::{Parser, Subcommand};
use specdec_tests::coordination_bench::{
    BareOptions, Plan, Section, StubOptions, run, serve_bare, serve_stub,
};
use std::io::Write as _;
use std::process::ExitCode;
use std::time::Instant;

/// Measures the coordinator over synthetic workers, and prints figures and claims on standard output
/// as one JSON object. Standard error says what it is at.
#[derive(Debug, Parser)]
#[command(
    name = "coordination-bench",
    bin_name = "cargo xtask bench coordination"
)]
struct Options {
    /// Measure these parts alone; repeat the flag or separate them by commas
    #[arg(long, value_enum, value_delimiter = ',', value_name = "SECTION",
        default_values = ["single", "sweep", "load", "unlike", "overhead", "memory", "front"])]
    only: Vec<Section>,

    /// Few tokens and short windows, to try the benchmark itself
    #[arg(long)]
    quick: bool,

    #[command(subcommand)]
    program: Option<Program>,

    /// Where a program that the benchmark starts listens
    #[arg(long, global = true, hide = true, default_value = "127.0.0.1:0")]
    listen: String,
}

/// Programs that the benchmark itself starts.
#[derive(Debug, Subcommand)]
enum Program {
    /// Moves the coordinator's messages, and does nothing else
    #[command(hide = true)]
    Bare(BareOptions),
    /// Answers as workers would
    #[command(hide = true)]
    Stub(StubOptions),
}

fn main() -> ExitCode {
    match perform(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn perform(options: &Options) -> Result<()> {
    let mut runtime = match options.program {
        Some(_) => tokio::runtime::Builder::new_multi_thread(),
        None => tokio::runtime::Builder::new_current_thread(),
    };
    runtime.enable_all().build()?.block_on(async {
        match &options.program {
            Some(Program::Bare(bare)) => serve_bare(&options.listen, bare).await,
            Some(Program::Stub(stub)) => serve_stub(&options.listen, *stub).await,
            None => measure(options).await,
        }
    })
}

async fn measure(options: &Options) -> Result<()> {
    let begun = Instant::now();
    let progress = |what: &str| eprintln!("[{:>5.1} s] {what}", begun.elapsed().as_secs_f64());
    let plan = Plan {
        sections: options.only.clone(),
        quick: options.quick,
    };
    let report = run(&plan, &progress).await?;
    let json = serde_json::to_string(&report)?;
    writeln!(std::io::stdout(), "{json}").context("write to standard output")
}
