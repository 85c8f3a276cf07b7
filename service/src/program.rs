//! What every `main` does: parse, log, bind, run, and exit with a code that says what happened.

use crate::{config::ConfigError, telemetry::LogOptions};
use clap::Parser;
use std::future::Future;
use std::net::SocketAddr;
use std::process::ExitCode;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// The exit code of a wrong configuration (`EX_USAGE`).
pub const EXIT_CONFIG: u8 = 64;

/// A program's configuration.
pub trait Config: Parser {
    /// Where to listen.
    fn listen(&self) -> SocketAddr;

    /// How to log.
    fn log(&self) -> &LogOptions;

    /// Checks what flags alone cannot: combinations, files.
    ///
    /// # Errors
    /// Names the field.
    fn validate(&self) -> Result<(), ConfigError>;
}

/// Runs a program: configuration, logs, listener, signals. `run` ends when the token is cancelled
/// (SIGTERM or Ctrl-C).
pub fn main<C, F>(run: impl FnOnce(C, TcpListener, CancellationToken) -> F) -> ExitCode
where
    C: Config,
    F: Future<Output = anyhow::Result<()>>,
{
    let _ = run;
    todo!("helper: service")
}
