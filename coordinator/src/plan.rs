//! `coordinator plan`: what a system would do, from the times of its parts. Nothing runs.

mod report;
#[cfg(test)]
mod tests;

use clap::Parser;
use service::config::ConfigError;
use service::program::{EXIT_CONFIG, EXIT_FAILURE};
use speculation::control::{Acceptance, Ranks};
use speculation::planner::{StepTime, System, plan};
use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

/// The word that asks for it.
const COMMAND: &str = "plan";

/// The most drafted tokens, as in a request.
const MAX_DRAFT_TOKENS: i64 = crate::request::MAX_DRAFT_TOKENS as i64;

/// Says what a system would do, from the times of its parts, measured or assumed: the best number
/// of drafted tokens, tokens per second, time per token, the draft workers needed, and what limits
/// it. Nothing is started.
#[derive(Debug, Clone, Parser)]
#[command(
    name = "plan",
    bin_name = "coordinator plan",
    version,
    allow_negative_numbers = true
)]
struct PlanOptions {
    /// Time of a step of the target, in milliseconds, without its rows
    #[arg(long, value_name = "MS", value_parser = positive)]
    verify_ms: f64,

    /// The same for each row more: one for each request and one for each drafted token
    #[arg(long, value_name = "MS", default_value_t = 0.0, value_parser = not_negative)]
    verify_row_ms: f64,

    /// Time of a draft worker's step, in milliseconds, without its rows
    #[arg(long, value_name = "MS", value_parser = positive)]
    draft_ms: f64,

    /// The same for each sequence that it advances
    #[arg(long, value_name = "MS", default_value_t = 0.0, value_parser = not_negative)]
    draft_row_ms: f64,

    /// Round trip to a draft worker, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 0.0, value_parser = not_negative)]
    rtt_ms: f64,

    /// Round trip to the target, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 0.0, value_parser = not_negative)]
    target_rtt_ms: f64,

    /// How often a drafted token is accepted where those before it were, 0 to 1: one number, or one
    /// for each position, separated by commas, of which the last holds beyond
    #[arg(
        long,
        value_name = "PROBABILITY",
        value_delimiter = ',',
        required = true,
        value_parser = probability
    )]
    acceptance: Vec<f64>,

    /// Requests that run at once
    #[arg(long, value_name = "REQUESTS", default_value_t = 1,
        value_parser = clap::value_parser!(u32).range(1..=65_536))]
    requests: u32,

    /// Draft workers. Unset: as many as are needed
    #[arg(long, value_name = "WORKERS", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    draft_workers: Option<u32>,

    /// The most tokens to draft in a round, 0 to 16
    #[arg(long, value_name = "TOKENS", default_value_t = MAX_DRAFT_TOKENS as u32,
        value_parser = clap::value_parser!(u32).range(0..=MAX_DRAFT_TOKENS))]
    max_draft_tokens: u32,

    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

/// Does what `args` (the program's name first) ask for, where that is a plan.
pub fn main(args: impl IntoIterator<Item = OsString>) -> Option<ExitCode> {
    let mut args = args.into_iter().skip(1);
    if args.next()? != COMMAND {
        return None;
    }
    let name = OsString::from(COMMAND);
    let code = exit_code_of(
        std::iter::once(name).chain(args),
        &mut std::io::stdout().lock(),
    );
    Some(ExitCode::from(code))
}

fn exit_code_of(args: impl IntoIterator<Item = OsString>, out: &mut impl Write) -> u8 {
    let options = match parse(args) {
        Ok(Ok(options)) => options,
        Ok(Err(help)) => return written(write!(out, "{help}")),
        Err(error) => {
            eprintln!("error: {error}");
            return EXIT_CONFIG;
        }
    };
    let system = options.system();
    let planned = plan(&system);
    written(if options.json {
        report::json(out, &system, &planned)
    } else {
        report::table(out, &system, &planned)
    })
}

fn written(result: std::io::Result<()>) -> u8 {
    match result {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("error: cannot write: {error}");
            EXIT_FAILURE
        }
    }
}

/// The options, or the help that was asked for.
fn parse(
    args: impl IntoIterator<Item = OsString>,
) -> Result<Result<PlanOptions, String>, ConfigError> {
    let options = match PlanOptions::try_parse_from(args) {
        Ok(options) => options,
        Err(error) if !error.use_stderr() => return Ok(Err(error.to_string())),
        Err(error) => {
            let text = error.to_string();
            let text = text.strip_prefix("error: ").unwrap_or(&text).trim_end();
            return Err(ConfigError(text.to_owned()));
        }
    };
    let positions = options.acceptance.len();
    if positions > MAX_DRAFT_TOKENS as usize {
        return Err(ConfigError(format!(
            "--acceptance: {positions} positions, and at most {MAX_DRAFT_TOKENS} are drafted"
        )));
    }
    Ok(Ok(options))
}

impl PlanOptions {
    fn system(&self) -> System {
        let seconds = |milliseconds: f64| milliseconds / 1e3;
        let step = |base, row| StepTime {
            base: seconds(base),
            row: seconds(row),
        };
        System {
            verify: step(self.verify_ms, self.verify_row_ms),
            draft: step(self.draft_ms, self.draft_row_ms),
            draft_rtt: seconds(self.rtt_ms),
            target_rtt: seconds(self.target_rtt_ms),
            acceptance: Acceptance::stated(&self.acceptance),
            ranks: Ranks::new(),
            requests: self.requests as usize,
            draft_workers: self.draft_workers.map(|workers| workers as usize),
            max_draft_tokens: self.max_draft_tokens as usize,
        }
    }
}

fn positive(text: &str) -> Result<f64, String> {
    number(text)
        .filter(|number| *number > 0.0)
        .ok_or_else(|| "must be a number above 0".to_owned())
}

fn not_negative(text: &str) -> Result<f64, String> {
    number(text)
        .filter(|number| *number >= 0.0)
        .ok_or_else(|| "must be a number, 0 or more".to_owned())
}

fn probability(text: &str) -> Result<f64, String> {
    number(text)
        .filter(|number| (0.0..=1.0).contains(number))
        .ok_or_else(|| "must be a number from 0 to 1".to_owned())
}

/// Times above an hour are mistakes.
fn number(text: &str) -> Option<f64> {
    let number: f64 = text.parse().ok()?;
    (number.is_finite() && number <= 3.6e6).then_some(number)
}
