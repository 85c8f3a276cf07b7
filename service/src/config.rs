//! Configuration: defaults, under a TOML file, under the environment, under flags.

mod file;

use clap::{Arg, Command, Parser};
use file::Settings;
use std::ffi::OsString;
use std::path::PathBuf;

/// The configuration is wrong. Says which field and why.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(pub String);

/// The flag that names the file.
const FILE_FLAG: &str = "config";

/// Parses a configuration from `args` (the program's name first), the environment, and the TOML
/// file that `--config` or `SPECDEC_CONFIG` names; its keys are the flags' long names, with `-` or
/// `_`. Where several state a flag, the flag itself wins over the environment, that over the file,
/// and that over the default.
///
/// `--config` is added to the flags of `C`. `--help` and `--version` print and end the process.
///
/// # Errors
/// Names the field or the file.
pub fn parse_from<C: Parser>(args: impl IntoIterator<Item = OsString>) -> Result<C, ConfigError> {
    let args: Vec<OsString> = args.into_iter().collect();
    let command = C::command().arg(file_flag());
    let settings = match named_file(&command, &args) {
        Some(path) => Settings::read(path, &command)?,
        None => Settings::default(),
    };
    settings
        .under(command)
        .try_get_matches_from(args)
        .and_then(|mut matches| C::from_arg_matches_mut(&mut matches))
        .map_err(|error| explain(&error, &settings))
}

fn file_flag() -> Arg {
    Arg::new(FILE_FLAG)
        .long(FILE_FLAG)
        .env("SPECDEC_CONFIG")
        .value_name("FILE")
        .value_parser(clap::value_parser!(PathBuf))
        .help(
            "A TOML file of settings, each a flag's long name and its value. Environment \
             variables and flags win over it",
        )
}

/// The file is looked for before anything else, since it changes the flags' defaults. What else is
/// wrong with `args` is left for the real parse to say.
fn named_file(command: &Command, args: &[OsString]) -> Option<PathBuf> {
    let lenient = command.clone().ignore_errors(true);
    let mut matches = lenient.try_get_matches_from(args).ok()?;
    matches.remove_one(FILE_FLAG)
}

fn explain(error: &clap::Error, settings: &Settings) -> ConfigError {
    if !error.use_stderr() {
        error.exit();
    }
    let text = error.to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text).trim_end();
    match settings.cause_of(error) {
        Some(source) => ConfigError(format!("{source}: {text}")),
        None => ConfigError(text.to_owned()),
    }
}
