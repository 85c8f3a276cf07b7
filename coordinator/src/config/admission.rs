//! The flags that say how much may run and wait at once.

use crate::api::admission::Capacity;
use clap::Args;
use std::time::Duration;

/// How much may run and wait at once.
#[derive(Debug, Clone, Args)]
pub struct AdmissionOptions {
    /// Requests that run at once; each choice of a request counts as one
    #[arg(long, env = "SPECDEC_MAX_REQUESTS", default_value_t = 256, value_name = "REQUESTS",
        value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub max_requests: u32,

    /// Requests that wait to run; each choice of a request counts as one. More are turned away at
    /// once, with a hint when to try again. 0 has none wait
    #[arg(long, env = "SPECDEC_MAX_WAITING", default_value_t = 256, value_name = "REQUESTS",
        value_parser = clap::value_parser!(u32).range(0..=65_536))]
    pub max_waiting: u32,

    /// How long a request may wait to run before it is turned away, in milliseconds
    #[arg(long, env = "SPECDEC_MAX_WAIT_MS", default_value_t = 30_000, value_name = "MS",
        value_parser = clap::value_parser!(u64).range(1..=3_600_000))]
    pub max_wait_ms: u64,

    /// Tokens in flight at once: those of the prompts of all requests that run, and those that they
    /// may still generate at most. What would make more waits. Without it, only the number of
    /// requests is limited
    #[arg(long, env = "SPECDEC_MAX_TOKENS_IN_FLIGHT", value_name = "TOKENS",
        value_parser = clap::value_parser!(u64).range(1..))]
    pub max_tokens_in_flight: Option<u64>,

    /// How long a client may take nothing of what was generated for it before its stream is ended,
    /// in milliseconds. Until then its request stands still, and no other does
    #[arg(long, env = "SPECDEC_SLOW_CLIENT_TIMEOUT_MS", default_value_t = 60_000, value_name = "MS",
        value_parser = clap::value_parser!(u64).range(1..=3_600_000))]
    pub slow_client_timeout_ms: u64,
}

impl AdmissionOptions {
    /// What all clients have together.
    pub(crate) fn capacity(&self) -> Capacity {
        Capacity {
            running: self.max_requests,
            waiting: self.max_waiting,
            tokens: self.max_tokens_in_flight,
        }
    }

    /// How long a request may wait to run.
    pub fn max_wait(&self) -> Duration {
        Duration::from_millis(self.max_wait_ms)
    }

    /// How long a client may take nothing.
    pub fn slow_client_timeout(&self) -> Duration {
        Duration::from_millis(self.slow_client_timeout_ms)
    }
}
