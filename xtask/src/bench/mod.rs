//! Measurements on real models. Machines differ and are shared: what counts are ratios within a run.

mod prompts;
mod rules;

use anyhow::Result;

/// What to measure.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Compare the verification rules: how many drafted tokens each accepts, and what that is worth.
    Rules(rules::Options),
}

/// Measures.
pub(crate) fn run(command: &Command) -> Result<()> {
    match command {
        Command::Rules(options) => rules::run(options),
    }
}
