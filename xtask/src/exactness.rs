//! Starts the exactness suite. It is a program of the package `specdec-tests`, which may use every
//! crate; this one may not.

use crate::cargo;
use anyhow::{Context as _, Result};
use std::ffi::OsString;
use std::process::{Command, ExitCode};

/// The suite's own arguments; it explains them itself.
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Options {
    /// Arguments of the suite; `--help` lists them.
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "ARGUMENTS"
    )]
    arguments: Vec<OsString>,
}

/// Builds the programs and runs the suite. Fails where it fails.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    eprintln!("building the programs");
    let programs = cargo::build_programs()?;
    let suite = programs
        .get("exactness")
        .context("exactness was not built")?;
    let status = Command::new(suite)
        .args(&options.arguments)
        .status()
        .with_context(|| format!("start {}", suite.display()))?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    enum Task {
        Exactness(Options),
    }

    #[test]
    fn the_suite_gets_every_argument_the_question_for_help_included() {
        let arguments = ["--help", "--samples", "10", "-h", "--json=x"];
        let line = ["xtask", "exactness"].iter().chain(&arguments);
        let Task::Exactness(options) = Task::try_parse_from(line).expect("all of them pass");
        assert_eq!(options.arguments, arguments);
    }
}
