//! Measurements, on real models and on synthetic workers. Machines differ and are shared: what counts are ratios within a run.

mod claims;
mod coordination;
mod engine;
mod prompts;
mod rules;
mod spec_bench;

use anyhow::Result;

/// What to measure.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Measure what the coordinator makes of its workers, and what it costs itself.
    Coordination(coordination::Options),
    /// Measure the engine: steps, prefill, shared prefixes, memory, and the whole service.
    Engine(engine::Options),
    /// Compare the verification rules: how many drafted tokens each accepts, and what that is worth.
    Rules(rules::Options),
    /// Compare where drafts come from: a model, n-grams, both, by kinds of prompts.
    SpecBench(spec_bench::Options),
}

/// Measures.
pub(crate) fn run(command: &Command) -> Result<()> {
    match command {
        Command::Coordination(options) => coordination::run(options),
        Command::Engine(options) => engine::run(options),
        Command::Rules(options) => rules::run(options),
        Command::SpecBench(options) => spec_bench::run(options),
    }
}
