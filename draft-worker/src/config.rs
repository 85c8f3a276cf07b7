//! The draft worker's configuration.

use clap::Parser;
use models::Role;
use service::config::ConfigError;
use service::telemetry::LogOptions;
use std::net::SocketAddr;
use worker::ModelOptions;

/// Proposes tokens with the small model, for coordinators.
#[derive(Debug, Clone, Parser)]
#[command(name = "draft-worker", version)]
pub struct Config {
    /// Where to listen for coordinators. The port is open to whoever reaches it.
    #[arg(long, env = "SPECDEC_LISTEN", default_value = "127.0.0.1:7002")]
    pub listen: SocketAddr,

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
        self.model.validate(Role::Draft)
    }

    fn before_threads(&self) {
        self.model.apply_threads();
    }
}
