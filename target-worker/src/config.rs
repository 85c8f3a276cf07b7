//! The target worker's configuration.

use clap::Parser;
use models::Role;
use service::config::ConfigError;
use service::telemetry::LogOptions;
use std::net::SocketAddr;
use worker::{AccessOptions, ModelOptions};

/// Verifies proposals with the big model, for coordinators.
#[derive(Debug, Clone, Parser)]
#[command(name = "target-worker", version)]
pub struct Config {
    /// Where to listen for coordinators: on another address than this machine's own only with
    /// --worker-token-file or --tls-client-ca, or --insecure
    #[arg(long, env = "SPECDEC_LISTEN", default_value = "127.0.0.1:7001")]
    pub listen: SocketAddr,

    /// The server, and who may use it.
    #[command(flatten)]
    pub access: AccessOptions,

    /// The model.
    #[command(flatten)]
    pub model: ModelOptions,

    /// The log.
    #[command(flatten)]
    pub log: LogOptions,
}

impl service::program::Config for Config {
    fn listen(&self) -> SocketAddr {
        self.listen
    }

    fn log(&self) -> &LogOptions {
        &self.log
    }

    fn validate(&self) -> Result<(), ConfigError> {
        self.access.validate(self.listen)?;
        self.model.validate(Role::Target)
    }

    fn before_threads(&self) {
        self.model.apply_threads();
    }
}
