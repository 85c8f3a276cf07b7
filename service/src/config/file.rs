//! The configuration file: flat TOML, whose keys are flags' long names.

use super::{ConfigError, FILE_FLAG};
use clap::error::{ContextKind, ContextValue};
use clap::{Arg, ArgAction, Command, Id};
use std::collections::HashMap;
use std::path::PathBuf;
use toml::{Table, Value};

/// What a configuration file sets.
#[derive(Debug, Default)]
pub(super) struct Settings {
    path: PathBuf,
    of_flags: HashMap<Id, Setting>,
}

#[derive(Debug)]
struct Setting {
    key: String,
    values: Vec<String>,
}

impl Settings {
    /// Reads the file at `path` as settings of the flags of `command`.
    pub(super) fn read(path: PathBuf, command: &Command) -> Result<Self, ConfigError> {
        let in_file = |problem: String| ConfigError(format!("{}: {problem}", path.display()));
        let text = std::fs::read_to_string(&path)
            .map_err(|error| in_file(format!("cannot read the configuration file: {error}")))?;
        let table: Table = text
            .parse()
            .map_err(|error: toml::de::Error| in_file(error.to_string().trim_end().to_owned()))?;
        let of_flags = settings_of(table, command).map_err(in_file)?;
        Ok(Self { path, of_flags })
    }

    /// Makes the settings the defaults of `command`.
    pub(super) fn under(&self, command: Command) -> Command {
        let set = |command: Command, (flag, setting): (&Id, &Setting)| {
            // clap takes defaults of static life only. A program reads its file once.
            let values: Vec<&'static str> = setting
                .values
                .iter()
                .map(|value| &*value.clone().leak())
                .collect();
            // A default does not satisfy `required`, and the file does.
            command.mut_arg(flag, |arg| arg.required(false).default_values(values))
        };
        self.of_flags.iter().fold(command, set)
    }

    /// The file and the key that `error` is about, if it is about a value that the file set.
    pub(super) fn cause_of(&self, error: &clap::Error) -> Option<String> {
        let (ContextValue::String(flag), ContextValue::String(value)) = (
            error.get(ContextKind::InvalidArg)?,
            error.get(ContextKind::InvalidValue)?,
        ) else {
            return None;
        };
        let name = flag.split_whitespace().next()?;
        let key = &self
            .of_flags
            .values()
            .find(|setting| is_flag(name, &setting.key) && setting.values.contains(value))?
            .key;
        Some(format!("{}: `{key}`", self.path.display()))
    }
}

fn is_flag(name: &str, key: &str) -> bool {
    name.strip_prefix("--") == Some(&*long_name(key))
}

fn long_name(key: &str) -> String {
    key.replace('_', "-")
}

fn settings_of(table: Table, command: &Command) -> Result<HashMap<Id, Setting>, String> {
    let mut settings: HashMap<Id, Setting> = HashMap::new();
    for (key, value) in table {
        let flag = flag_of(&key, command).ok_or_else(|| format!("unknown key `{key}`"))?;
        let values = values_of(&key, value, flag)?;
        let setting = Setting { key, values };
        if let Some(earlier) = settings.insert(flag.get_id().clone(), setting) {
            return Err(format!("key `{}` is set twice", long_name(&earlier.key)));
        }
    }
    Ok(settings)
}

/// The flag that `key` sets. None for a file within the file, and for help and version.
fn flag_of<'a>(key: &str, command: &'a Command) -> Option<&'a Arg> {
    let name = long_name(key);
    command
        .get_arguments()
        .find(|arg| arg.get_long() == Some(&name) && name != FILE_FLAG)
}

fn values_of(key: &str, value: Value, flag: &Arg) -> Result<Vec<String>, String> {
    match value {
        Value::Array(items) if matches!(flag.get_action(), ArgAction::Append) => {
            items.into_iter().map(|item| scalar(key, item)).collect()
        }
        Value::Array(_) => Err(format!("key `{key}` takes one value, not a list")),
        single => Ok(vec![scalar(key, single)?]),
    }
}

fn scalar(key: &str, value: Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text),
        Value::Integer(number) => Ok(number.to_string()),
        Value::Float(number) => Ok(number.to_string()),
        Value::Boolean(truth) => Ok(truth.to_string()),
        Value::Datetime(time) => Ok(time.to_string()),
        Value::Table(_) => Err(format!(
            "key `{key}` is a table: settings are flat, without sections"
        )),
        Value::Array(_) => Err(format!("key `{key}` holds a list within a list")),
    }
}
