//! Logs, on standard error.

/// How to log.
#[derive(Debug, Clone, clap::Args)]
pub struct LogOptions {
    /// Which events to log, as `level` or `target=level`, comma-separated.
    #[arg(long, env = "SPECDEC_LOG", default_value = "info")]
    pub log: String,
    /// How log lines look.
    #[arg(long, env = "SPECDEC_LOG_FORMAT", default_value = "text")]
    pub log_format: LogFormat,
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// Starts logging for this process.
///
/// # Errors
/// Where `--log` is not a valid filter.
pub fn init(options: &LogOptions) -> Result<(), crate::config::ConfigError> {
    let _ = options;
    todo!("helper: service")
}
