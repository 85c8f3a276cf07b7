//! How the coordinator and its workers prove to each other who they are.

use service::Tasks;
use service::client::Peers;
use service::config::ConfigError;
use service::keyring::Tokens;
use service::reload::reloaded;
use std::path::PathBuf;

/// Certificates and tokens between the coordinator and its workers.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct WorkerOptions {
    /// Trusts workers at https:// addresses with a certificate of an authority in this PEM file
    #[arg(long, env = "SPECDEC_WORKER_CA", value_name = "FILE")]
    pub worker_ca: Option<PathBuf>,

    /// The certificate to show to workers that ask for one, a PEM file
    #[arg(long, env = "SPECDEC_WORKER_CERT", value_name = "FILE")]
    pub worker_cert: Option<PathBuf>,

    /// The private key of --worker-cert, a PEM file
    #[arg(long, env = "SPECDEC_WORKER_KEY", value_name = "FILE")]
    pub worker_key: Option<PathBuf>,

    /// Sends workers the first token of this file. Read again on SIGHUP
    #[arg(long, env = "SPECDEC_WORKER_TOKEN_FILE", value_name = "FILE")]
    pub worker_token_file: Option<PathBuf>,
}

impl WorkerOptions {
    /// Checks the files, and that whoever of `urls` has a certificate can be trusted.
    ///
    /// # Errors
    /// Names the flag.
    pub(super) fn validate<'a>(
        &self,
        mut urls: impl Iterator<Item = &'a str>,
    ) -> Result<(), ConfigError> {
        self.trusted()?;
        self.tokens().transpose()?;
        if self.worker_ca.is_none() && urls.any(|url| url.contains("https://")) {
            let problem = "--worker-ca: is needed for workers at https:// addresses";
            return Err(ConfigError(problem.to_owned()));
        }
        Ok(())
    }

    /// What channels to workers are made with. `tasks` keep it up to date.
    ///
    /// # Errors
    /// Names the flag.
    pub(crate) fn peers(&self, tasks: &Tasks) -> anyhow::Result<Peers> {
        let peers = self.trusted()?;
        if self.worker_token_file.is_none() {
            return Ok(peers);
        }
        let options = self.clone();
        let read = move || {
            let missing = || ConfigError("--worker-token-file: is not set".to_owned());
            options.tokens().ok_or_else(missing)?
        };
        Ok(peers.with_tokens(reloaded(tasks, "worker tokens", read)?))
    }

    fn trusted(&self) -> Result<Peers, ConfigError> {
        let own = match (&self.worker_cert, &self.worker_key) {
            (Some(cert), Some(key)) => Some((cert.as_path(), key.as_path())),
            (None, None) => None,
            (Some(_), None) => return Err(needs("--worker-cert", "--worker-key")),
            (None, Some(_)) => return Err(needs("--worker-key", "--worker-cert")),
        };
        match &self.worker_ca {
            Some(ca) => Peers::trusting(ca, own),
            None if own.is_some() => Err(needs("--worker-cert", "--worker-ca")),
            None => Ok(Peers::default()),
        }
    }

    fn tokens(&self) -> Option<Result<Tokens, ConfigError>> {
        let path = self.worker_token_file.as_ref()?;
        let named = |error| ConfigError(format!("--worker-token-file: {error}"));
        Some(Tokens::read(path).map_err(named))
    }
}

fn needs(flag: &str, other: &str) -> ConfigError {
    ConfigError(format!("{flag}: needs {other} as well"))
}
