//! The options of a model that serves.

use clap::{ArgAction, Args, value_parser};
use engine::CacheType;
use engine::synthetic::Description;
use models::{ModelRef, Role};
use service::config::ConfigError;
use std::fmt;
use std::num::NonZeroUsize;
use std::str::FromStr;

/// Which model to serve, and with how much of the machine.
#[derive(Debug, Clone, Args)]
pub struct ModelOptions {
    /// The model: a GGUF file, the name of a preset or of a known model, `hf:owner/repo[/file][@revision]`, or
    /// `synthetic[:description]` for the built-in toy model. A known model is fetched first where it is absent.
    #[arg(long, env = "SPECDEC_MODEL", value_name = "MODEL")]
    pub model: String,

    /// Threads that compute. Unset takes what RAYON_NUM_THREADS and CANDLE_NUM_THREADS state, or else all cores.
    #[arg(long, env = "SPECDEC_THREADS")]
    pub threads: Option<NonZeroUsize>,

    /// Sequences at once, of all coordinators; more are refused as overload.
    #[arg(long, env = "SPECDEC_MAX_SEQUENCES", default_value_t = 64, value_parser = value_parser!(u32).range(1..))]
    pub max_sequences: u32,

    /// Memory for keys and values of all sequences, in MiB. When it is used up, the sequence that was idle for
    /// longest gives its part up, and computes it again when it goes on.
    #[arg(long, env = "SPECDEC_CACHE_MIB", default_value_t = 1024, value_parser = value_parser!(u32).range(1..))]
    pub cache_mib: u32,

    /// How keys and values are stored: `f32`, `f16` or `q8`. The smaller ones hold 2 and 3½ times as many tokens, and
    /// round: the text is then that of the model with such a cache.
    #[arg(long, env = "SPECDEC_CACHE_TYPE", default_value_t = CacheType::F32)]
    pub cache_type: CacheType,

    /// Computes what requests have in common at their beginning once. `--prefix-sharing=false` keeps them apart, where
    /// one client must not learn from the time to the first token what another has asked.
    #[arg(
        long,
        env = "SPECDEC_PREFIX_SHARING",
        action = ArgAction::Set,
        num_args = 0..=1,
        require_equals = true,
        default_value_t = true,
        default_missing_value = "true",
    )]
    pub prefix_sharing: bool,

    /// Tokens per step. A longer prompt is prefilled in pieces, between the steps of other sequences: smaller
    /// values keep those responsive, larger ones prefill faster.
    #[arg(long, env = "SPECDEC_MAX_STEP_TOKENS", default_value_t = 512, value_parser = value_parser!(u32).range(1..))]
    pub max_step_tokens: u32,

    /// The most tokens that one proposal may hold.
    #[arg(long, env = "SPECDEC_MAX_DRAFT_TOKENS", default_value_t = 16, value_parser = value_parser!(u32).range(1..=1024))]
    pub max_draft_tokens: u32,

    /// Computes a token's logits the same to the bit whatever else is in the step, so that a text never depends on
    /// load or on drafts. `--batch-invariant=false` lets faster kernels in that round differently.
    #[arg(
        long,
        env = "SPECDEC_BATCH_INVARIANT",
        action = ArgAction::Set,
        num_args = 0..=1,
        require_equals = true,
        default_value_t = true,
        default_missing_value = "true",
    )]
    pub batch_invariant: bool,

    /// Where the model computes: `cpu`.
    #[arg(long, env = "SPECDEC_DEVICE", default_value_t = Device::Cpu)]
    pub device: Device,
}

/// Where a model computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Device {
    /// On the processor.
    Cpu,
}

impl FromStr for Device {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "cpu" => Ok(Self::Cpu),
            other => Err(format!("this build computes on cpu only, not on {other}")),
        }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => out.write_str("cpu"),
        }
    }
}

impl ModelOptions {
    /// Checks that `--model` can name a model for `role`. Looks into no file.
    ///
    /// # Errors
    /// Names the flag.
    pub fn validate(&self, role: Role) -> Result<(), ConfigError> {
        let wrong = |error: anyhow::Error| ConfigError(format!("--model: {error:#}"));
        if let ModelRef::Synthetic(description) = models::check(&self.model, role).map_err(wrong)? {
            let parsed = description.parse::<Description>();
            parsed.map_err(|error| wrong(error.into()))?;
        }
        Ok(())
    }

    /// Hands `--threads` to the libraries that compute. They read the environment once, at first
    /// use: call this before any thread exists.
    #[expect(
        clippy::disallowed_methods,
        reason = "candle and rayon take their number of threads from the environment only"
    )]
    pub fn apply_threads(&self) {
        let Some(threads) = self.threads else { return };
        for name in ["RAYON_NUM_THREADS", "CANDLE_NUM_THREADS"] {
            // SAFETY: no other thread exists yet that could read the environment meanwhile.
            unsafe { std::env::set_var(name, threads.to_string()) };
        }
    }
}
