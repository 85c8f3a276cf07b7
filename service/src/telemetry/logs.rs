//! Logs, on standard error; and where traces go, which is asked for beside them.

use crate::config::ConfigError;
use std::io::IsTerminal as _;
use tracing_subscriber::EnvFilter;

/// The variable that tools of OpenTelemetry share; ours wins over it.
const OTEL_ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";

/// How to log, and where to export traces to.
#[derive(Debug, Clone, clap::Args)]
pub struct LogOptions {
    /// Which events to log, as `level` or `target=level`, comma-separated.
    #[arg(long, env = "SPECDEC_LOG", default_value = "info")]
    pub log: String,
    /// How log lines look.
    #[arg(long, env = "SPECDEC_LOG_FORMAT", default_value = "text")]
    pub log_format: LogFormat,
    /// Where to export traces to, over OTLP with gRPC: http://HOST:PORT. Without it, and without
    /// OTEL_EXPORTER_OTLP_ENDPOINT in the environment, there are none
    #[arg(long, env = "SPECDEC_OTLP_ENDPOINT", value_name = "URL", value_parser = http_url)]
    pub otlp_endpoint: Option<String>,
}

impl LogOptions {
    /// Where traces go, if anywhere.
    pub fn otlp_endpoint(&self) -> Option<String> {
        let shared = || std::env::var(OTEL_ENDPOINT).ok();
        let endpoint = self.otlp_endpoint.clone().or_else(shared);
        endpoint.filter(|endpoint| !endpoint.is_empty())
    }
}

/// Takes an address of a collector.
fn http_url(url: &str) -> Result<String, &'static str> {
    if url.is_empty() || url.starts_with("http://") {
        Ok(url.to_owned())
    } else {
        Err("must begin with http://")
    }
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// Starts logging for this process. Where it has been started already, the earlier start stays.
///
/// # Errors
/// Where `--log` is not a valid filter.
pub fn init(options: &LogOptions) -> Result<(), ConfigError> {
    let filter = EnvFilter::builder()
        .parse(&options.log)
        .map_err(|error| ConfigError(format!("--log `{}`: {error}", options.log)))?;
    let logs = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr);
    let started = match options.log_format {
        LogFormat::Text => logs.try_init(),
        LogFormat::Json => logs.json().flatten_event(true).try_init(),
    };
    // The only failure is an earlier start, by a test in the same process.
    let _ = started;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(log: &str) -> LogOptions {
        LogOptions {
            log: log.into(),
            log_format: LogFormat::Json,
            otlp_endpoint: None,
        }
    }

    #[test]
    fn a_wrong_filter_is_a_configuration_error_that_names_the_flag() {
        let error = init(&options("engine=loud")).expect_err("no such level");
        assert!(error.0.contains("--log"), "{error}");
        assert!(error.0.contains("engine=loud"), "{error}");
    }

    #[test]
    fn starting_twice_is_harmless() {
        init(&options("off")).expect("valid");
        init(&options("service=debug,warn")).expect("valid");
    }
}
