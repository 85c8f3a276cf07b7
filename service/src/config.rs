//! Configuration: defaults, under a TOML file, under the environment, under flags.

use clap::Parser;
use std::ffi::OsString;

/// The configuration is wrong. Says which field and why.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(pub String);

/// Parses a configuration from `args` (the program's name first), the environment, and the TOML
/// file that `--config` or `SPECDEC_CONFIG` names; its keys are the flags' long names.
///
/// # Errors
/// Names the field or the file.
pub fn parse_from<C: Parser>(args: impl IntoIterator<Item = OsString>) -> Result<C, ConfigError> {
    let _ = args;
    todo!("helper: service")
}
