//! The draft worker's configuration.

use clap::{Parser, value_parser};
use engine::lean::{Encoding, FrequentIds, Lean};
use models::{ModelRef, Role};
use service::config::ConfigError;
use service::telemetry::LogOptions;
use std::net::SocketAddr;
use std::path::PathBuf;
use worker::{AccessOptions, ModelOptions};

/// Proposes tokens with the small model, for coordinators.
#[derive(Debug, Clone, Parser)]
#[command(name = "draft-worker", version)]
pub struct Config {
    /// Where to listen for coordinators: on another address than this machine's own only with
    /// --worker-token-file or --tls-client-ca, or --insecure
    #[arg(long, env = "SPECDEC_LISTEN", default_value = "127.0.0.1:7002")]
    pub listen: SocketAddr,

    /// The server, and who may use it.
    #[command(flatten)]
    pub access: AccessOptions,

    /// The model.
    #[command(flatten)]
    pub model: ModelOptions,

    /// Drafts from so many of the most frequent token ids alone, and computes no logits of others: a step costs
    /// less, and other tokens are never proposed, so that fewer are accepted. Special tokens and single bytes are always
    /// among them. The default is all; with 150,000 ids try 65536. No text depends on it under the rule `coupled`.
    #[arg(long, env = "SPECDEC_DRAFT_VOCAB", value_name = "N", value_parser = value_parser!(u32).range(1..))]
    pub draft_vocab: Option<u32>,

    /// Which ids are frequent: a file with one a line, the most frequent first, or with an id, a tab and a count. Unset
    /// takes those that the tokenizer's merges made first.
    #[arg(
        long,
        env = "SPECDEC_DRAFT_VOCAB_FILE",
        value_name = "FILE",
        requires = "draft_vocab"
    )]
    pub draft_vocab_file: Option<PathBuf>,

    /// Encodes the matrices anew when they are loaded: q8_0, q5_1, q5_0, q4_1, q4_0, or q6_k to q2_k. Rows that its
    /// blocks do not fill get the nearest encoding of smaller blocks. No text depends on it under the rule `coupled`.
    #[arg(long, env = "SPECDEC_REQUANTIZE", value_name = "ENCODING")]
    pub requantize: Option<Encoding>,

    /// The log.
    #[command(flatten)]
    pub log: LogOptions,
}

impl Config {
    /// What is made cheaper of the model.
    pub(crate) fn lean(&self) -> Lean {
        Lean {
            encoding: self.requantize,
            output: self.draft_vocab.map(|count| FrequentIds {
                count: count as usize,
                file: self.draft_vocab_file.clone(),
            }),
        }
    }

    /// The flag that makes something cheaper, where one is given.
    fn lean_flag(&self) -> Option<&'static str> {
        let vocab = self.draft_vocab.map(|_| "--draft-vocab");
        vocab.or(self.requantize.map(|_| "--requantize"))
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
        self.access.validate(self.listen)?;
        self.model.validate(Role::Draft)?;
        match (
            self.lean_flag(),
            models::check(&self.model.model, Role::Draft),
        ) {
            (Some(flag), Ok(ModelRef::Synthetic(_))) => Err(ConfigError(format!(
                "{flag}: the synthetic model has no weights to choose from"
            ))),
            _ => Ok(()),
        }
    }

    fn before_threads(&self) {
        self.model.apply_threads();
    }
}
