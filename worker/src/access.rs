//! Who may use a worker: coordinators with a token, with a certificate, or anybody on this machine.

use service::Tasks;
use service::config::ConfigError;
use service::keyring::Tokens;
use service::reload::reloaded;
use service::server::{Gate, ServerOptions};
use std::net::SocketAddr;
use std::path::PathBuf;

/// What a worker that other machines reach is protected by.
const REMEDY: &str = "--worker-token-file (best with --tls-cert and --tls-key), or --tls-cert, --tls-key \
                      and --tls-client-ca";

/// The server, and who may use it.
#[derive(Debug, Clone, clap::Args)]
pub struct AccessOptions {
    /// The server.
    #[command(flatten)]
    pub server: ServerOptions,

    /// Serves only coordinators that send one of the tokens in this file, one a line. Read again on
    /// SIGHUP
    #[arg(long, env = "SPECDEC_WORKER_TOKEN_FILE", value_name = "FILE")]
    pub worker_token_file: Option<PathBuf>,
}

impl AccessOptions {
    /// Checks the files, and that nothing unprotected would serve other machines at `listen`.
    ///
    /// # Errors
    /// Names the flag, or what to set.
    pub fn validate(&self, listen: SocketAddr) -> Result<(), ConfigError> {
        self.server.validate()?;
        if let Some(path) = &self.worker_token_file {
            Tokens::read(path)
                .map_err(|error| ConfigError(format!("--worker-token-file: {error}")))?;
        }
        let protected = self.server.knows_clients() || self.worker_token_file.is_some();
        self.server.check_exposure(listen, protected, REMEDY)
    }

    /// What stands before the routes. `tasks` keep it up to date.
    ///
    /// # Errors
    /// Where the tokens cannot be read any more.
    pub(crate) fn gate(&self, tasks: &Tasks) -> anyhow::Result<Option<Gate>> {
        let Some(path) = self.worker_token_file.clone() else {
            return Ok(None);
        };
        let read = move || Ok(Tokens::read(&path)?.keyring());
        Ok(Some(Gate::new(reloaded(tasks, "worker tokens", read)?)))
    }
}
