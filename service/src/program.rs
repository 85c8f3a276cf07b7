//! What every `main` does: parse, log, bind, run, and exit with a code that says what happened.
//!
//! | code | meaning |
//! |---|---|
//! | 0 | ended as asked |
//! | 1 | failed; the log says why |
//! | 3 | ended as asked, but calls were cut off: see [`GraceExpired`] |
//! | 64 | wrong configuration; nothing was bound |
//! | 128 + signal | a second signal ended it at once |

use crate::Tasks;
use crate::config::{self, ConfigError};
use crate::server::{self, GraceExpired};
use crate::telemetry::{self, LogOptions, traces};
use anyhow::Context as _;
use clap::Parser;
use std::ffi::OsString;
use std::future::Future;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// The exit code of a wrong configuration (`EX_USAGE`).
pub const EXIT_CONFIG: u8 = 64;

/// The exit code of a failure.
pub const EXIT_FAILURE: u8 = 1;

/// The exit code where draining took longer than it may.
pub const EXIT_GRACE_EXPIRED: u8 = 3;

/// How long, after `run` has ended, tasks that it left behind may take to stop.
const LEFTOVER_TIMEOUT: Duration = Duration::from_secs(1);

/// A program's configuration. It declares no `--config`: [`config::parse_from`] adds that.
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

    /// Runs before any thread exists, with a valid configuration: the place to size thread pools.
    fn before_threads(&self) {}
}

/// Runs a program: configuration, logs, listener, signals. `run` ends when the token is cancelled
/// (SIGTERM or Ctrl-C).
pub fn main<C, F>(run: impl FnOnce(C, TcpListener, CancellationToken) -> F) -> ExitCode
where
    C: Config,
    F: Future<Output = anyhow::Result<()>>,
{
    ExitCode::from(exit_code_of(std::env::args_os(), run))
}

fn exit_code_of<C, F>(
    args: impl IntoIterator<Item = OsString>,
    run: impl FnOnce(C, TcpListener, CancellationToken) -> F,
) -> u8
where
    C: Config,
    F: Future<Output = anyhow::Result<()>>,
{
    let config = match prepare::<C>(args) {
        Ok(config) => config,
        Err(error) => {
            eprintln!("error: {error}");
            return EXIT_CONFIG;
        }
    };
    match run_to_end(config, run) {
        Ok(()) => 0,
        Err(error) => {
            tracing::error!(error = format!("{error:#}"), "program failed");
            if error.is::<GraceExpired>() {
                EXIT_GRACE_EXPIRED
            } else {
                EXIT_FAILURE
            }
        }
    }
}

/// All that can be wrong with a configuration comes out here.
fn prepare<C: Config>(args: impl IntoIterator<Item = OsString>) -> Result<C, ConfigError> {
    let config: C = config::parse_from(args)?;
    config.validate()?;
    telemetry::init(config.log())?;
    Ok(config)
}

fn run_to_end<C, F>(
    config: C,
    run: impl FnOnce(C, TcpListener, CancellationToken) -> F,
) -> anyhow::Result<()>
where
    C: Config,
    F: Future<Output = anyhow::Result<()>>,
{
    config.before_threads();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("start the runtime")?;
    let service = C::command().get_name().to_owned();
    let result = runtime.block_on(async {
        let traces = traces::start(format!("specdec-{service}"), config.log())?;
        let shutdown = CancellationToken::new();
        let tasks = Tasks::new();
        tasks.spawn("signals", Signals::new()?.obey(shutdown.clone()));
        let address = config.listen();
        let listener = server::listen(address).with_context(|| format!("listen on {address}"))?;
        let result = run(config, listener, shutdown).await;
        if let Some(traces) = traces {
            traces.finish().await;
        }
        result
    });
    runtime.shutdown_timeout(LEFTOVER_TIMEOUT);
    result
}

/// The signals that ask a program to end.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> anyhow::Result<Self> {
        let handle = |kind| signal(kind).context("handle signals");
        Ok(Self {
            terminate: handle(SignalKind::terminate())?,
            interrupt: handle(SignalKind::interrupt())?,
        })
    }

    /// Shuts down at the first signal, and ends the process at the second.
    async fn obey(mut self, shutdown: CancellationToken) {
        let signal = self.next().await;
        tracing::info!(signal, "shutting down");
        shutdown.cancel();
        let signal = self.next().await;
        tracing::warn!(signal, "second signal: ending at once");
        #[expect(
            clippy::disallowed_methods,
            reason = "whoever asks twice does not want to wait for owners to be dropped"
        )]
        std::process::exit(128 + signal);
    }

    async fn next(&mut self) -> i32 {
        tokio::select! {
            _ = self.terminate.recv() => SignalKind::terminate().as_raw_value(),
            _ = self.interrupt.recv() => SignalKind::interrupt().as_raw_value(),
        }
    }
}
