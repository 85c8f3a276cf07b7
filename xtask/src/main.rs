//! Developer tasks.

#![expect(
    clippy::print_stdout,
    reason = "what these tasks print is what they are for"
)]

mod bench;
mod cargo;
mod ci;
mod clients;
mod codegen;
mod demo;
mod exactness;
mod models;
mod stack;
mod tidy;

use anyhow::Result;
use clap::Parser;
use std::io::{self, IsTerminal as _};
use std::process::ExitCode;

/// Developer tasks of specdec.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
enum Task {
    /// Decode a prompt over three processes, with speculation and without, and compare.
    Demo(demo::Options),
    /// Measure, on real models and on synthetic workers.
    #[command(subcommand)]
    Bench(bench::Command),
    /// Measure that speculation leaves the target's law and text as they are.
    Exactness(exactness::Options),
    /// Run every check that a change must pass.
    Ci,
    /// Check the rules between crates, of licences and of source files.
    Tidy,
    /// List, fetch and find model files.
    #[command(subcommand)]
    Models(models::Command),
    /// Install the Python clients that the tests drive the service with.
    Clients,
    /// Generate the protocol's Rust code from the .proto files.
    Codegen,
}

fn main() -> ExitCode {
    tracing_subscriber::fmt()
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .with_target(false)
        .without_time()
        .init();
    match run(Task::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(task: Task) -> Result<ExitCode> {
    match task {
        Task::Demo(options) => return demo::run(&options),
        Task::Bench(command) => bench::run(&command)?,
        Task::Exactness(options) => return exactness::run(&options),
        Task::Ci => ci::run()?,
        Task::Tidy => tidy::run()?,
        Task::Models(command) => models::run(command)?,
        Task::Clients => clients::install()?,
        Task::Codegen => {
            let proto = cargo::root().join("proto");
            codegen::generate(&proto, &proto.join("src/gen"))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
