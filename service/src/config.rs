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

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;
    use std::io::Write as _;
    use tempfile::NamedTempFile;

    #[derive(Debug, Parser)]
    struct Flags {
        #[arg(long, default_value = "default")]
        plain_name: String,
        // Cargo sets this one for every test, to "service"; tests cannot set their own.
        #[arg(long, env = "CARGO_PKG_NAME", default_value = "default")]
        from_environment: String,
        #[arg(long, default_value_t = 1)]
        count: u32,
        #[arg(long)]
        ratio: Option<f32>,
        #[arg(long)]
        verbose: bool,
        #[arg(long, default_value = "default")]
        peer: Vec<String>,
    }

    #[derive(Debug, Parser)]
    struct Required {
        #[arg(long)]
        model: String,
    }

    fn file(text: &str) -> NamedTempFile {
        let mut file = NamedTempFile::new().expect("temporary file");
        file.write_all(text.as_bytes()).expect("write");
        file
    }

    fn parse_with<C: Parser>(file: &NamedTempFile, flags: &[&str]) -> Result<C, ConfigError> {
        let mut args: Vec<OsString> = vec!["program".into(), "--config".into()];
        args.push(file.path().into());
        args.extend(flags.iter().map(OsString::from));
        parse_from(args)
    }

    fn refusal(text: &str, flags: &[&str]) -> String {
        let file = file(text);
        let error = parse_with::<Flags>(&file, flags).expect_err(text).0;
        assert!(
            error.contains(&file.path().display().to_string()),
            "{error}"
        );
        error
    }

    #[test]
    fn defaults_hold_where_nothing_else_is_stated() {
        let flags: Flags = parse_from(["program".into()]).expect("valid");
        assert_eq!(flags.plain_name, "default");
        assert_eq!((flags.count, flags.ratio, flags.verbose), (1, None, false));
        assert_eq!(flags.peer, ["default"]);
    }

    #[test]
    fn the_file_wins_over_defaults() {
        let file =
            file("plain-name = 'file'\ncount = 2\nratio = 0.5\nverbose = true\npeer = ['a', 'b']");
        let flags: Flags = parse_with(&file, &[]).expect("valid");
        assert_eq!(flags.plain_name, "file");
        assert_eq!(
            (flags.count, flags.ratio, flags.verbose),
            (2, Some(0.5), true)
        );
        assert_eq!(flags.peer, ["a", "b"]);
    }

    #[test]
    fn the_environment_wins_over_the_file_and_flags_over_both() {
        let file = file("from-environment = 'file'\nplain_name = 'file'\npeer = 'file'");
        let flags: Flags = parse_with(&file, &[]).expect("valid");
        assert_eq!(flags.from_environment, "service");
        let flags: Flags = parse_with(
            &file,
            &[
                "--from-environment=flag",
                "--plain-name=flag",
                "--peer=flag",
            ],
        )
        .expect("valid");
        assert_eq!(flags.from_environment, "flag");
        assert_eq!(flags.plain_name, "flag");
        assert_eq!(flags.peer, ["flag"]);
    }

    #[test]
    fn the_file_satisfies_a_required_flag() {
        let named: Required = parse_with(&file("model = 'm.gguf'"), &[]).expect("valid");
        assert_eq!(named.model, "m.gguf");
        let missing = parse_with::<Required>(&file(""), &[])
            .expect_err("no model")
            .0;
        assert!(missing.contains("--model"), "{missing}");
    }

    #[test]
    fn the_file_may_be_named_after_other_flags_and_with_an_equals_sign() {
        let file = file("count = 2");
        let config = format!("--config={}", file.path().display());
        let args = ["program", "--plain-name", "x", &config].map(OsString::from);
        assert_eq!(parse_from::<Flags>(args).expect("valid").count, 2);
    }

    #[test]
    fn keys_that_no_flag_has_are_refused_by_name() {
        assert!(refusal("plain-nam = 'typo'", &[]).contains("`plain-nam`"));
        assert!(refusal("config = 'other.toml'", &[]).contains("`config`"));
    }

    #[test]
    fn a_key_spelled_in_both_ways_is_refused() {
        let error = refusal("plain-name = 'a'\nplain_name = 'b'", &[]);
        assert!(error.contains("`plain-name` is set twice"), "{error}");
    }

    #[test]
    fn sections_and_misplaced_lists_are_refused() {
        let error = refusal("[count]\nx = 1", &[]);
        assert!(error.contains("`count` is a table"), "{error}");
        let error = refusal("count = [1, 2]", &[]);
        assert!(error.contains("`count` takes one value"), "{error}");
        let error = refusal("peer = [['a']]", &[]);
        assert!(
            error.contains("`peer` holds a list within a list"),
            "{error}"
        );
    }

    #[test]
    fn a_wrong_value_names_the_file_the_key_and_the_flag() {
        let error = refusal("count = -1", &[]);
        assert!(error.contains("`count`"), "{error}");
        assert!(error.contains("--count"), "{error}");
        assert!(error.contains("'-1'"), "{error}");
        refusal("verbose = 'perhaps'", &[]);
    }

    #[test]
    fn a_wrong_flag_does_not_blame_the_file() {
        let file = file("count = 2");
        let error = parse_with::<Flags>(&file, &["--count=x"])
            .expect_err("no number")
            .0;
        assert!(
            error.starts_with("invalid value 'x' for '--count"),
            "{error}"
        );
    }

    #[test]
    fn an_unreadable_or_malformed_file_is_refused() {
        let missing = ["program", "--config", "no/such/file.toml"].map(OsString::from);
        let error = parse_from::<Flags>(missing).expect_err("no file").0;
        assert!(
            error.starts_with("no/such/file.toml: cannot read"),
            "{error}"
        );
        refusal("count = ", &[]);
    }

    #[test]
    fn help_lists_the_configuration_file() {
        let mut command = Flags::command().arg(file_flag());
        let help = command.render_long_help().to_string();
        assert!(help.contains("--config <FILE>"), "{help}");
        assert!(help.contains("SPECDEC_CONFIG"), "{help}");
    }
}
