//! The smallest program: it serves its health and its description, and drains when told to end.

use clap::Parser;
use service::config::ConfigError;
use service::program::Config;
use service::telemetry::LogOptions;
use service::{CancellationToken, server};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;
use tokio::net::TcpListener;
use tonic::service::Routes;

/// Serves health and reflection.
#[derive(Debug, Parser)]
#[command(version)]
struct Minimal {
    /// Where to listen; port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// How long open calls may go on after shutdown began, in milliseconds.
    #[arg(long, default_value_t = 10_000)]
    grace: u64,
    #[command(flatten)]
    server: server::ServerOptions,
    #[command(flatten)]
    log: LogOptions,
}

impl Config for Minimal {
    fn listen(&self) -> SocketAddr {
        self.listen
    }

    fn log(&self) -> &LogOptions {
        &self.log
    }

    fn validate(&self) -> Result<(), ConfigError> {
        if self.grace > 60_000 {
            return Err(ConfigError("--grace must be at most 60000".into()));
        }
        self.server.validate()
    }
}

fn main() -> ExitCode {
    service::program::main(run)
}

async fn run(
    config: Minimal,
    listener: TcpListener,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let (_reporter, health) = server::health(&shutdown);
    let grace = Duration::from_millis(config.grace);
    let services = server::Services {
        grpc: Routes::new(health),
        ..server::Services::default()
    };
    server::serve(listener, services, &config.server, shutdown, grace).await
}
