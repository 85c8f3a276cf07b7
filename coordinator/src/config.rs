//! The coordinator's configuration.

mod admission;
mod speculation;
mod workers;

pub use admission::AdmissionOptions;
pub use speculation::{SpecAhead, SpecRule, SpeculationOptions, Switch};
pub use workers::WorkerOptions;

use crate::access::read_keys;
use crate::links::{DraftPlace, check_url};
use crate::model::ModelOptions;
use crate::scheduler::Patience;
use clap::{Parser, ValueEnum};
use service::config::ConfigError;
use service::server::ServerOptions;
use service::telemetry::LogOptions;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Joins draft workers and a target worker: takes requests, has proposals verified, streams the text.
#[derive(Debug, Clone, Parser)]
#[command(
    name = "coordinator",
    version,
    after_help = "`coordinator plan` starts nothing: it says what a system would do, from the times \
                  of its parts. See `coordinator plan --help`."
)]
pub struct Config {
    /// Address to take requests on. The default takes them from this machine only; another one needs
    /// --tls-cert, --tls-key and --api-keys, or --insecure
    #[arg(
        long,
        env = "SPECDEC_LISTEN",
        default_value = "127.0.0.1:7000",
        value_name = "ADDRESS"
    )]
    pub listen: SocketAddr,

    /// The server.
    #[command(flatten)]
    pub server: ServerOptions,

    /// Serves only clients with a key, sent as `Authorization: Bearer KEY`, of this TOML file:
    /// `[[keys]]` with a name, and a key or its sha256. Read again on SIGHUP
    #[arg(long, env = "SPECDEC_API_KEYS", value_name = "FILE")]
    pub api_keys: Option<PathBuf>,

    /// The target worker, as http://HOST:PORT or https://HOST:PORT
    #[arg(long, env = "SPECDEC_TARGET", value_name = "URL")]
    pub target: String,

    /// Draft workers: http://HOST:PORT (or https) is one, dns://NAME:PORT (or dns+https) is one at
    /// each address that the name has, looked up again and again, so that workers come and go while
    /// requests run. Repeat the flag or separate them by commas. Without any, decoding is plain
    #[arg(
        long = "draft",
        env = "SPECDEC_DRAFT",
        value_delimiter = ',',
        value_name = "URL"
    )]
    pub drafts: Vec<String>,

    /// How often the names of draft workers are looked up, in milliseconds
    #[arg(long, env = "SPECDEC_DRAFT_RESOLVE_MS", default_value_t = 5000, value_name = "MS",
        value_parser = clap::value_parser!(u64).range(10..=3_600_000))]
    pub draft_resolve_ms: u64,

    /// Whether a request may name the model of a draft worker, which then answers alone, without
    /// speculation, beside its drafting
    #[arg(long, env = "SPECDEC_SERVE_DRAFT_MODELS", value_enum, default_value_t = Switch::On,
        value_name = "SWITCH")]
    pub serve_draft_models: Switch,

    /// Certificates and tokens between the coordinator and its workers.
    #[command(flatten)]
    pub workers: WorkerOptions,

    /// The model's name in requests. The default is the target's own name for it
    #[arg(long, env = "SPECDEC_MODEL_NAME", value_name = "NAME")]
    pub model_name: Option<String>,

    /// Takes special tokens that messages spell, such as <|im_end|>, for control and not for text:
    /// whoever writes into a conversation can then end messages and begin others. Raw completions
    /// always take them for control
    #[arg(long, env = "SPECDEC_ALLOW_SPECIAL_TOKENS")]
    pub allow_special_tokens: bool,

    /// Which log-probabilities are reported where a request does not say: those of the model's own
    /// logits, or those of the law that tokens are drawn from after temperature, penalties and masks
    #[arg(
        long,
        env = "SPECDEC_LOGPROBS_MODE",
        value_enum,
        default_value_t = LogprobsMode::RawLogprobs,
        value_name = "MODE"
    )]
    pub logprobs_mode: LogprobsMode,

    /// How to speculate.
    #[command(flatten)]
    pub speculation: SpeculationOptions,

    /// How much may run and wait.
    #[command(flatten)]
    pub admission: AdmissionOptions,

    /// How long a round waits for a proposal before it goes on without, in milliseconds
    #[arg(long, env = "SPECDEC_DRAFT_TIMEOUT_MS", default_value_t = 2000, value_name = "MS",
        value_parser = clap::value_parser!(u64).range(1..=3_600_000))]
    pub draft_timeout_ms: u64,

    /// How long the target may take for a round, and how long running requests wait for a lost
    /// target before they fail, in milliseconds
    #[arg(long, env = "SPECDEC_TARGET_TIMEOUT_MS", default_value_t = 30_000, value_name = "MS",
        value_parser = clap::value_parser!(u64).range(1..=3_600_000))]
    pub target_timeout_ms: u64,

    /// How soon a worker that hangs is found out, in milliseconds: where it is the target, /health and
    /// gRPC health say so by then
    #[arg(long, env = "SPECDEC_HEALTH_DEADLINE_MS", default_value_t = 10_000, value_name = "MS",
        value_parser = clap::value_parser!(u64).range(100..=3_600_000))]
    pub health_deadline_ms: u64,

    /// How long running requests may go on after a signal to end, in seconds
    #[arg(long, env = "SPECDEC_SHUTDOWN_GRACE_S", default_value_t = 30, value_name = "S",
        value_parser = clap::value_parser!(u64).range(0..=3600))]
    pub shutdown_grace_s: u64,

    /// How to log.
    #[command(flatten)]
    pub log: LogOptions,
}

/// Which log-probabilities are reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum LogprobsMode {
    /// Of the model's own logits.
    RawLogprobs,
    /// Of the law that tokens are drawn from.
    ProcessedLogprobs,
}

impl From<LogprobsMode> for ::speculation::LogprobsMode {
    fn from(mode: LogprobsMode) -> Self {
        match mode {
            LogprobsMode::RawLogprobs => Self::Raw,
            LogprobsMode::ProcessedLogprobs => Self::Processed,
        }
    }
}

impl Config {
    /// How soon a worker that hangs is found out.
    pub fn health_deadline(&self) -> Duration {
        Duration::from_millis(self.health_deadline_ms)
    }

    /// Checks who may use the service, and that nothing unprotected would serve other machines.
    fn validate_access(&self) -> Result<(), ConfigError> {
        self.server.validate()?;
        if let Some(path) = &self.api_keys {
            read_keys(path)?;
        }
        let knows_clients = self.api_keys.is_some() || self.server.knows_clients();
        let protected = self.server.is_encrypted() && knows_clients;
        let remedy = "--tls-cert, --tls-key and --api-keys";
        self.server.check_exposure(self.listen, protected, remedy)
    }

    /// How often the names of draft workers are looked up.
    pub fn draft_resolve_interval(&self) -> Duration {
        Duration::from_millis(self.draft_resolve_ms)
    }

    /// Where draft workers are.
    ///
    /// # Errors
    /// Names what is wrong.
    pub(crate) fn draft_places(&self) -> Result<Vec<DraftPlace>, ConfigError> {
        let mut places = Vec::with_capacity(self.drafts.len());
        for draft in &self.drafts {
            let place = DraftPlace::parse(draft)
                .map_err(|problem| ConfigError(format!("--draft: `{draft}` {problem}")))?;
            if places.contains(&place) {
                return Err(ConfigError(format!("--draft: {draft} is given twice")));
            }
            places.push(place);
        }
        Ok(places)
    }

    /// What is said about the target's model.
    pub(crate) fn model_options(&self) -> ModelOptions {
        ModelOptions {
            name: self.model_name.clone(),
            allow_special_tokens: self.allow_special_tokens,
        }
    }

    /// How long a round waits for a proposal.
    pub fn draft_timeout(&self) -> Duration {
        Duration::from_millis(self.draft_timeout_ms)
    }

    /// How long the target may take for a round, and how long requests wait for a lost one.
    pub fn target_timeout(&self) -> Duration {
        Duration::from_millis(self.target_timeout_ms)
    }

    /// How long workers are waited for.
    pub(crate) fn patience(&self) -> Patience {
        Patience {
            draft: self.draft_timeout(),
            target: self.target_timeout(),
        }
    }

    /// How long running requests may go on after a signal to end.
    pub fn shutdown_grace(&self) -> Duration {
        Duration::from_secs(self.shutdown_grace_s)
    }
}

impl service::program::Config for Config {
    fn listen(&self) -> SocketAddr {
        self.listen
    }

    fn log(&self) -> &LogOptions {
        &self.log
    }

    fn validate(&self) -> Result<(), ConfigError> {
        self.validate_access()?;
        check_url(&self.target)
            .map_err(|problem| ConfigError(format!("--target: `{}` {problem}", self.target)))?;
        self.draft_places()?;
        let urls = self.drafts.iter().chain([&self.target]);
        self.workers.validate(urls.map(String::as_str))?;
        if self.model_name.as_ref().is_some_and(String::is_empty) {
            return Err(ConfigError("--model-name: must not be empty".to_owned()));
        }
        self.speculation.validate()
    }
}

#[cfg(test)]
mod tests;
