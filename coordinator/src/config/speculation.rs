//! The flags that say how to speculate.

use crate::request::MAX_DRAFT_TOKENS;
use crate::scheduler::SpecOptions;
use clap::{Args, ValueEnum};
use service::config::ConfigError;
use speculation::Rule;

/// How to speculate.
#[derive(Debug, Clone, Args)]
pub struct SpeculationOptions {
    /// The most tokens to draft per round where a request does not say, 0 to 16. How many are
    /// drafted follows from measured times and acceptance; where drafting does not pay, none are. 0
    /// is plain decoding
    #[arg(long, env = "SPECDEC_SPEC_DRAFT_N_MAX", default_value_t = 8, value_name = "TOKENS",
        value_parser = clap::value_parser!(u32).range(0..=i64::from(MAX_DRAFT_TOKENS)))]
    pub spec_draft_n_max: u32,

    /// The fewest tokens to draft per round where a request does not say, at most
    /// --spec-draft-n-max. 0 leaves it to what is measured; the same as --spec-draft-n-max fixes the
    /// length, whether it pays or not
    #[arg(long, env = "SPECDEC_SPEC_DRAFT_N_MIN", default_value_t = 0, value_name = "TOKENS",
        value_parser = clap::value_parser!(u32).range(0..=i64::from(MAX_DRAFT_TOKENS)))]
    pub spec_draft_n_min: u32,

    /// A draft model's proposal ends before the first token that it gives less than this
    /// probability, 0 to below 1, where a request does not say. Without it, what is measured decides
    #[arg(long, env = "SPECDEC_SPEC_DRAFT_P_MIN", value_name = "PROBABILITY")]
    pub spec_draft_p_min: Option<f32>,

    /// Whether draft workers go on while their proposal is being verified: `auto` where that pays,
    /// `off` never, which takes less of them
    #[arg(
        long,
        env = "SPECDEC_SPEC_DRAFT_AHEAD",
        value_enum,
        default_value_t = SpecAhead::Auto,
        value_name = "WHEN"
    )]
    pub spec_draft_ahead: SpecAhead,

    /// Whether to draft without a model too, from what followed the same tokens earlier in a
    /// request's prompt and output
    #[arg(
        long,
        env = "SPECDEC_SPEC_NGRAM",
        value_enum,
        default_value_t = Switch::On,
        value_name = "SWITCH"
    )]
    pub spec_ngram: Switch,

    /// Draft without a model from a tenant's earlier texts as well, up to so many tokens of them, kept
    /// in memory. Tenants never share them. 0 keeps none
    #[arg(
        long,
        env = "SPECDEC_SPEC_NGRAM_HISTORY",
        default_value_t = 0,
        value_name = "TOKENS"
    )]
    pub spec_ngram_history: usize,

    /// How proposals are verified where a request does not say. `coupled` gives one text per seed,
    /// whatever the drafts; `token` and `block` accept more of a poor draft, give the same law, and
    /// send laws of up to some 70 bytes per drafted token
    #[arg(
        long,
        env = "SPECDEC_SPEC_RULE",
        value_enum,
        default_value_t = SpecRule::Coupled,
        value_name = "RULE"
    )]
    pub spec_rule: SpecRule,
}

/// When draft workers draft ahead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SpecAhead {
    /// Where it pays.
    Auto,
    /// Never.
    Off,
}

/// On or off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Switch {
    /// On.
    On,
    /// Off.
    Off,
}

/// How proposals are verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SpecRule {
    /// By shared noise: a drafted token is accepted where it is the target's own choice.
    Coupled,
    /// By the ratio of probabilities, token by token.
    Token,
    /// By the ratio of probabilities, all drafted tokens together.
    Block,
}

impl From<SpecRule> for Rule {
    fn from(rule: SpecRule) -> Self {
        match rule {
            SpecRule::Coupled => Self::Coupled,
            SpecRule::Token => Self::Token,
            SpecRule::Block => Self::Block,
        }
    }
}

impl SpeculationOptions {
    /// What the scheduler is to know of them.
    pub(crate) fn scheduling(&self) -> SpecOptions {
        SpecOptions {
            ahead: self.spec_draft_ahead == SpecAhead::Auto,
            ngram: self.spec_ngram == Switch::On,
            ngram_history: self.spec_ngram_history,
        }
    }

    /// Checks what no flag can say alone.
    pub(super) fn validate(&self) -> Result<(), ConfigError> {
        let (fewest, most) = (self.spec_draft_n_min, self.spec_draft_n_max);
        if fewest > most {
            let message = format!(
                "--spec-draft-n-min: must be at most --spec-draft-n-max, {most}, not {fewest}"
            );
            return Err(ConfigError(message));
        }
        if let Some(least) = self.spec_draft_p_min
            && !(0.0..1.0).contains(&least)
        {
            let message = format!("--spec-draft-p-min: must be 0 to below 1, not {least}");
            return Err(ConfigError(message));
        }
        if self.spec_ngram_history > 0 && self.spec_ngram == Switch::Off {
            let message = "--spec-ngram-history: is of no use where --spec-ngram is off";
            return Err(ConfigError(message.to_owned()));
        }
        Ok(())
    }
}
