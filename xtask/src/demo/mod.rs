//! Decodes one prompt over three processes on this machine, with speculation and without.

mod report;

use crate::stack::{self, Ask, Client, Cluster, Cores};
use anyhow::{Context as _, Result};
use proto::v1::{DraftSource, VerificationRule};
use report::Report;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

/// What to decode, and how.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// What the user says.
    #[arg(
        long,
        default_value = "Write a Python function that returns the n-th Fibonacci number \
                         iteratively, with a docstring."
    )]
    prompt: String,
    /// The most tokens to generate.
    #[arg(long, default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..))]
    max_tokens: u32,
    /// How freely tokens are chosen: 0 always takes the most likely one.
    #[arg(long, default_value_t = 0.0)]
    temperature: f32,
    /// The seed of the choices. Drawn and printed where the temperature is not 0.
    #[arg(long)]
    seed: Option<u64>,
    /// The pair of models: qwen2.5-coder, smollm2-135m or synthetic.
    #[arg(long, default_value = "qwen2.5-coder")]
    preset: String,
    /// Tokens to draft in every round. Fixed here, so that one short text shows what drafting does; a
    /// server measures what pays.
    #[arg(long, value_name = "N", default_value_t = 3)]
    max_draft_tokens: u32,
    /// Write the figures to this file, as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Leave the processes running until Ctrl-C, and say how to reach them.
    #[arg(long)]
    keep: bool,
}

/// Runs the demo. Fails where speculation changed the text.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    stack::run(
        &options.preset,
        Cores::Shared,
        async |cluster, coordinator| session(cluster, coordinator, options).await,
    )
}

async fn session(cluster: &mut Cluster, coordinator: &str, options: &Options) -> Result<ExitCode> {
    let report = compare(coordinator, options).await?;
    println!("{report}");
    if let Some(path) = &options.json {
        let json = serde_json::to_string_pretty(&report)?;
        fs::write(path, json + "\n").with_context(|| format!("write {}", path.display()))?;
    }
    if options.keep {
        cluster.show_addresses();
        stack::until_interrupted(cluster).await?;
    }
    Ok(if report.identical {
        ExitCode::SUCCESS
    } else {
        eprintln!("error: speculation changed the text");
        ExitCode::FAILURE
    })
}

/// Asks twice for the same text, once with speculation, once plainly.
async fn compare(coordinator: &str, options: &Options) -> Result<Report> {
    let mut client = Client::connect(coordinator).await?;
    let seed = options.seed.unwrap_or_else(rand::random);
    if options.temperature > 0.0 {
        eprintln!("seed {seed}");
    }
    let ask = Ask {
        prompt: &options.prompt,
        max_tokens: options.max_tokens,
        temperature: options.temperature,
        seed,
        speculate: true,
        rule: VerificationRule::Coupled,
        min_draft_tokens: Some(options.max_draft_tokens),
        max_draft_tokens: Some(options.max_draft_tokens),
        sources: &[DraftSource::Model],
    };
    eprintln!("warming up");
    let short = Ask {
        max_tokens: options.max_tokens.min(8),
        ..ask
    };
    client.generate(&short, |_| Ok(())).await?;
    eprintln!("with speculation:\n");
    let speculative = client.generate(&ask, stack::print).await?;
    println!("\n");
    eprintln!("the same request, plainly: decoding again");
    let plain = Ask {
        speculate: false,
        ..ask
    };
    let plain = client.generate(&plain, |_| Ok(())).await?;
    Ok(Report::new(speculative, &plain))
}
