//! `exactness`: whether speculation leaves the target's law and text as they are, measured on three
//! real processes.

use anyhow::{Context as _, Result, bail};
use clap::Parser;
use specdec_tests::exactness::{Plan, run, table::Table};
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

/// Measures that speculation changes nothing: starts a target worker, a draft worker and a
/// coordinator on tiny models whose laws differ, has them write thousands of short texts under
/// every verification rule and every kind of option, and compares how often each text comes with
/// the exact law of the target alone (G-test). Errors planted on purpose show that the comparison
/// finds what it is for. Under the rule `coupled` texts are also compared with plain decoding, byte
/// by byte.
///
/// Prints one table on standard output, and what it is at on standard error. Exits with 0 where
/// every line is as it ought to be, with 1 where one is not, with 2 where it could not be run.
/// docs/exactness.md says how to read the table.
#[derive(Debug, Parser)]
#[command(name = "exactness", bin_name = "cargo xtask exactness")]
struct Options {
    /// Texts per line. More find smaller errors, and take longer: the time grows in proportion
    #[arg(long, value_name = "N", default_value_t = 6144, value_parser = clap::value_parser!(u64).range(256..=100_000_000))]
    samples: u64,

    /// What the seeds of all requests are made from; another gives other texts. Under token and
    /// block a text also depends on which rounds had drafts, hence on timing: those lines differ
    /// from run to run
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    seed: u64,

    /// Also write the table to this file, as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

fn main() -> ExitCode {
    match measure(&Options::parse()) {
        Ok(table) if table.is_good() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn measure(options: &Options) -> Result<Table> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let begun = Instant::now();
    let progress = |what: &str| eprintln!("[{:>5.1} s] {what}", begun.elapsed().as_secs_f64());
    let plan = Plan::full(options.samples, options.seed);
    let table = runtime.block_on(async {
        tokio::select! {
            table = run(&plan, &progress) => table,
            interrupted = tokio::signal::ctrl_c() => {
                interrupted?;
                bail!("interrupted")
            }
        }
    })?;
    progress("done");
    write!(std::io::stdout(), "{table}").context("write to standard output")?;
    if let Some(path) = &options.json {
        let json = serde_json::to_string_pretty(&table)? + "\n";
        std::fs::write(path, json).with_context(|| format!("write {}", path.display()))?;
    }
    Ok(table)
}
