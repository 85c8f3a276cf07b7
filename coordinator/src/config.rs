//! The coordinator's configuration.

use crate::request::MAX_DRAFT_TOKENS;
use clap::{Parser, ValueEnum};
use service::config::ConfigError;
use service::telemetry::LogOptions;
use speculation::Rule;
use std::net::SocketAddr;
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
    /// Address to take requests on. The default takes them from this machine only
    #[arg(
        long,
        env = "SPECDEC_LISTEN",
        default_value = "127.0.0.1:7000",
        value_name = "ADDRESS"
    )]
    pub listen: SocketAddr,

    /// The target worker, as http://HOST:PORT
    #[arg(long, env = "SPECDEC_TARGET", value_name = "URL")]
    pub target: String,

    /// Draft workers, as http://HOST:PORT. Repeat the flag or separate them by commas. Without any,
    /// decoding is plain
    #[arg(
        long = "draft",
        env = "SPECDEC_DRAFT",
        value_delimiter = ',',
        value_name = "URL"
    )]
    pub drafts: Vec<String>,

    /// The model's name in requests. The default is the target's own name for it
    #[arg(long, env = "SPECDEC_MODEL_NAME", value_name = "NAME")]
    pub model_name: Option<String>,

    /// Tokens to draft per round where a request does not say, 0 to 16. 0 is plain decoding
    #[arg(long, env = "SPECDEC_SPEC_DRAFT_N_MAX", default_value_t = 3, value_name = "TOKENS",
        value_parser = clap::value_parser!(u32).range(0..=i64::from(MAX_DRAFT_TOKENS)))]
    pub spec_draft_n_max: u32,

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

    /// Requests that run or wait at once; each choice of a request counts as one. More are turned
    /// away, with a hint when to try again
    #[arg(long, env = "SPECDEC_MAX_REQUESTS", default_value_t = 256, value_name = "REQUESTS",
        value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub max_requests: u32,

    /// How long a round waits for a proposal before it goes on without, in milliseconds
    #[arg(long, env = "SPECDEC_DRAFT_TIMEOUT_MS", default_value_t = 2000, value_name = "MS",
        value_parser = clap::value_parser!(u64).range(1..=3_600_000))]
    pub draft_timeout_ms: u64,

    /// How long the target may take for a round, and how long running requests wait for a lost
    /// target before they fail, in milliseconds
    #[arg(long, env = "SPECDEC_TARGET_TIMEOUT_MS", default_value_t = 30_000, value_name = "MS",
        value_parser = clap::value_parser!(u64).range(1..=3_600_000))]
    pub target_timeout_ms: u64,

    /// How long running requests may go on after a signal to end, in seconds
    #[arg(long, env = "SPECDEC_SHUTDOWN_GRACE_S", default_value_t = 30, value_name = "S",
        value_parser = clap::value_parser!(u64).range(0..=3600))]
    pub shutdown_grace_s: u64,

    /// How to log.
    #[command(flatten)]
    pub log: LogOptions,
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

/// Which log-probabilities are reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum LogprobsMode {
    /// Of the model's own logits.
    RawLogprobs,
    /// Of the law that tokens are drawn from.
    ProcessedLogprobs,
}

impl From<LogprobsMode> for speculation::LogprobsMode {
    fn from(mode: LogprobsMode) -> Self {
        match mode {
            LogprobsMode::RawLogprobs => Self::Raw,
            LogprobsMode::ProcessedLogprobs => Self::Processed,
        }
    }
}

impl Config {
    /// How long a round waits for a proposal.
    pub fn draft_timeout(&self) -> Duration {
        Duration::from_millis(self.draft_timeout_ms)
    }

    /// How long the target may take for a round, and how long requests wait for a lost one.
    pub fn target_timeout(&self) -> Duration {
        Duration::from_millis(self.target_timeout_ms)
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
        check_url("--target", &self.target)?;
        for (index, draft) in self.drafts.iter().enumerate() {
            check_url("--draft", draft)?;
            if self.drafts[..index].contains(draft) {
                return Err(ConfigError(format!("--draft: {draft} is given twice")));
            }
        }
        if self.model_name.as_ref().is_some_and(String::is_empty) {
            return Err(ConfigError("--model-name: must not be empty".to_owned()));
        }
        Ok(())
    }
}

fn check_url(flag: &str, url: &str) -> Result<(), ConfigError> {
    let problem = |problem: &str| ConfigError(format!("{flag}: `{url}` {problem}"));
    let uri: tonic::transport::Uri = url.parse().map_err(|_| problem("is not an address"))?;
    if uri.scheme_str() != Some("http") {
        return Err(problem("must begin with http://"));
    }
    if uri.port_u16().is_none() {
        return Err(problem("must name a port"));
    }
    if !matches!(
        uri.path_and_query().map(|path| path.as_str()),
        None | Some("/")
    ) {
        return Err(problem("must end after the port"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use service::program::Config as _;

    fn parse(args: &[&str]) -> Result<Config, String> {
        let program = std::iter::once(&"coordinator");
        let config =
            Config::try_parse_from(program.chain(args)).map_err(|error| error.to_string())?;
        config.validate().map_err(|error| error.to_string())?;
        Ok(config)
    }

    #[test]
    fn a_target_is_enough() {
        let config = parse(&["--target", "http://t:1"]).unwrap();
        assert!(config.drafts.is_empty());
        assert!(config.listen.ip().is_loopback());
        assert_eq!(config.spec_draft_n_max, 3);
        assert_eq!(config.spec_rule, SpecRule::Coupled);
        assert_eq!(config.logprobs_mode, LogprobsMode::RawLogprobs);
    }

    #[test]
    fn help_tells_of_the_planner() {
        use clap::CommandFactory as _;
        let help = Config::command().render_long_help().to_string();
        assert!(help.contains("coordinator plan --help"), "{help}");
    }

    #[test]
    fn rules_and_modes_have_the_names_of_the_protocol() {
        let target = ["--target", "http://t:1"];
        for (name, rule) in [
            ("coupled", Rule::Coupled),
            ("token", Rule::Token),
            ("block", Rule::Block),
        ] {
            let config = parse(&[&target[..], &["--spec-rule", name]].concat());
            assert_eq!(Rule::from(config.unwrap().spec_rule), rule);
        }
        let mode = ["--logprobs-mode", "processed_logprobs"];
        let config = parse(&[target, mode].concat()).unwrap();
        assert_eq!(config.logprobs_mode, LogprobsMode::ProcessedLogprobs);
    }

    #[test]
    fn drafts_are_repeated_or_separated_by_commas() {
        let config = parse(&[
            "--target",
            "http://t:1",
            "--draft",
            "http://a:1,http://b:2",
            "--draft",
            "http://c:3",
        ]);
        assert_eq!(
            config.unwrap().drafts,
            ["http://a:1", "http://b:2", "http://c:3"]
        );
    }

    #[test]
    fn wrong_values_are_refused_and_the_flag_named() {
        let cases: [(&[&str], &str); 12] = [
            (&[], "--target"),
            (&["--target", "not a url"], "--target"),
            (&["--target", "https://t:1"], "--target"),
            (&["--target", "http://t"], "--target"),
            (&["--target", "http://t:1/v1"], "--target"),
            (&["--target", "http://t:1", "--draft", "d:1"], "--draft"),
            (
                &["--target", "http://t:1", "--draft", "http://d:1,http://d:1"],
                "--draft",
            ),
            (
                &["--target", "http://t:1", "--spec-draft-n-max", "17"],
                "--spec-draft-n-max",
            ),
            (
                &["--target", "http://t:1", "--spec-rule", "best"],
                "--spec-rule",
            ),
            (
                &["--target", "http://t:1", "--logprobs-mode", "raw"],
                "--logprobs-mode",
            ),
            (
                &["--target", "http://t:1", "--max-requests", "0"],
                "--max-requests",
            ),
            (
                &["--target", "http://t:1", "--draft-timeout-ms", "0"],
                "--draft-timeout-ms",
            ),
        ];
        for (args, flag) in cases {
            let error = parse(args).expect_err(flag);
            assert!(error.contains(flag), "{args:?}: {error}");
        }
    }
}
