//! What the engine costs: alone, through the whole service, and beside llama.cpp on the same file.

mod llama;
mod service;

use super::claims::Report;
use anyhow::Result;
use std::path::PathBuf;

/// How to measure.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// The pair of models.
    #[arg(long, default_value = "qwen2.5-coder")]
    preset: String,
    /// Tokens that the cache holds when steps are timed.
    #[arg(long, default_value_t = 256)]
    context: u32,
    /// Ids whose logits the lean draft computes, as the draft worker's --draft-vocab.
    #[arg(long, default_value_t = 32_000)]
    draft_vocab: u32,
    /// How often each figure is taken; the best counts.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    tries: u32,
    /// Requests that must leave memory as they found it.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(10..))]
    requests: u32,
    /// A Python that has llama-cpp-python. Unset makes a virtual environment in the cache folder,
    /// which takes some minutes once.
    #[arg(long, value_name = "PROGRAM")]
    llama_python: Option<PathBuf>,
    /// Leave llama.cpp out.
    #[arg(long, conflicts_with = "llama_python")]
    no_llama: bool,
    /// Write figures and claims to this file, as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Measures, prints a table, and writes the file that is asked for.
pub(crate) fn run(options: &Options) -> Result<()> {
    crate::models::fetch_all(std::slice::from_ref(&options.preset))?;
    let python = match (&options.llama_python, options.no_llama) {
        (_, true) => None,
        (Some(python), _) => Some(python.clone()),
        (None, _) => Some(llama::environment()?),
    };
    let mut report = in_process(options)?;
    let service = service::measure(&options.preset, options.tries, python.as_deref())?;
    report.claims.extend(service.claims());
    report
        .figures
        .insert("service".to_owned(), serde_json::to_value(&service)?);
    println!("{report}");
    report.write(options.json.as_deref())?;
    report.require()
}

/// The engine alone. It is a program of the package `specdec-tests`, which may use every crate;
/// this one may not.
fn in_process(options: &Options) -> Result<Report> {
    let flags = [
        ("--preset", options.preset.clone()),
        ("--context", options.context.to_string()),
        ("--draft-vocab", options.draft_vocab.to_string()),
        ("--tries", options.tries.to_string()),
        ("--requests", options.requests.to_string()),
    ];
    let args = flags.map(|(flag, value)| [flag.to_owned(), value]);
    Report::printed_by("engine-bench", &args.concat())
}
