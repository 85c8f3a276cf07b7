//! What each verification rule accepts on a real pair, and what that is worth in tokens per second.

use super::prompts::PROMPTS;
use crate::stack::{self, Answer, Ask, Client, Cores, ratio};
use anyhow::{Context as _, Result};
use proto::v1::{DraftSource, VerificationRule};
use serde::Serialize;
use std::fmt;
use std::fs;
use std::path::PathBuf;

/// How to measure.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// The pair of models: qwen2.5-coder, smollm2-135m or synthetic.
    #[arg(long, default_value = "qwen2.5-coder")]
    preset: String,
    /// Tokens per prompt and rule.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(2..))]
    max_tokens: u32,
    /// How freely tokens are chosen. At 0 all rules are greedy verification.
    #[arg(long, default_value_t = 1.0)]
    temperature: f32,
    /// The most tokens to draft per round.
    #[arg(long, default_value_t = 3, value_name = "N")]
    max_draft_tokens: u32,
    /// Prompts of each kind, 1 to 4.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=4))]
    prompts: u64,
    /// The seed of the first prompt; the others follow.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Write the figures to this file, as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Plain decoding, or a rule.
const MODES: [(&str, bool, VerificationRule); 4] = [
    ("plain", false, VerificationRule::Coupled),
    ("coupled", true, VerificationRule::Coupled),
    ("token", true, VerificationRule::Token),
    ("block", true, VerificationRule::Block),
];

/// One answer's figures.
#[derive(Debug, Serialize)]
struct Sample {
    mode: &'static str,
    kind: &'static str,
    /// Tokens after the first delta, and how long they took.
    tokens: usize,
    seconds: f64,
    rounds: u32,
    draft_tokens: u32,
    accepted_draft_tokens: u32,
}

#[derive(Debug, Serialize)]
struct Report {
    preset: String,
    temperature: f32,
    max_draft_tokens: u32,
    max_tokens: u32,
    samples: Vec<Sample>,
}

/// Measures, prints a table, and writes the file that is asked for.
pub(crate) fn run(options: &Options) -> Result<()> {
    let report = stack::run(&options.preset, Cores::Shared, async |_, coordinator| {
        measure(coordinator, options).await
    })?;
    println!("{report}");
    if let Some(path) = &options.json {
        let json = serde_json::to_string_pretty(&report)?;
        fs::write(path, json + "\n").with_context(|| format!("write {}", path.display()))?;
    }
    Ok(())
}

/// Asks for every prompt in every mode, one mode after the other on each prompt, so that what the
/// machine does meanwhile meets all of them.
async fn measure(coordinator: &str, options: &Options) -> Result<Report> {
    let mut client = Client::connect(coordinator).await?;
    let mut samples = Vec::new();
    let prompts: Vec<_> = PROMPTS
        .iter()
        .flat_map(|(kind, prompts)| {
            let some = &prompts[..options.prompts as usize];
            some.iter().map(move |prompt| (*kind, *prompt))
        })
        .collect();
    for (number, (kind, prompt)) in (1_u64..).zip(&prompts) {
        eprintln!("prompt {number} of {}: {kind}", prompts.len());
        for (mode, speculate, rule) in MODES {
            let ask = Ask {
                prompt,
                max_tokens: options.max_tokens,
                temperature: options.temperature,
                seed: options.seed + number,
                speculate,
                rule,
                min_draft_tokens: Some(options.max_draft_tokens),
                max_draft_tokens: Some(options.max_draft_tokens),
                sources: &[DraftSource::Model],
            };
            if number == 1 {
                // What is done once only must not count.
                client
                    .generate(
                        &Ask {
                            max_tokens: 4,
                            ..ask
                        },
                        |_| Ok(()),
                    )
                    .await?;
            }
            let answer = client.generate(&ask, |_| Ok(())).await?;
            samples.push(Sample::new(mode, kind, &answer));
        }
    }
    Ok(Report {
        preset: options.preset.clone(),
        temperature: options.temperature,
        max_draft_tokens: options.max_draft_tokens,
        max_tokens: options.max_tokens,
        samples,
    })
}

impl Sample {
    fn new(mode: &'static str, kind: &'static str, answer: &Answer) -> Self {
        let stats = answer.finished.speculation.clone().unwrap_or_default();
        Self {
            mode,
            kind,
            tokens: answer.pace.tokens(),
            seconds: answer.pace.seconds(),
            rounds: stats.rounds,
            draft_tokens: stats.draft_tokens,
            accepted_draft_tokens: stats.accepted_draft_tokens,
        }
    }
}

/// Sums over samples.
#[derive(Debug, Default)]
struct Sum {
    tokens: f64,
    seconds: f64,
    rounds: f64,
    drafted: f64,
    accepted: f64,
}

impl Sum {
    fn of<'a>(samples: impl Iterator<Item = &'a Sample>) -> Self {
        samples.fold(Self::default(), |sum, sample| Self {
            tokens: sum.tokens + sample.tokens as f64,
            seconds: sum.seconds + sample.seconds,
            rounds: sum.rounds + f64::from(sample.rounds),
            drafted: sum.drafted + f64::from(sample.draft_tokens),
            accepted: sum.accepted + f64::from(sample.accepted_draft_tokens),
        })
    }

    fn rate(&self) -> f64 {
        ratio(self.tokens, self.seconds)
    }

    /// Committed tokens per verification round, the target's own included.
    fn mean_acceptance_length(&self) -> f64 {
        ratio(self.accepted + self.rounds, self.rounds)
    }
}

impl Report {
    fn sum(&self, mode: &str, kind: Option<&str>) -> Sum {
        let wanted =
            |sample: &&Sample| sample.mode == mode && kind.is_none_or(|kind| sample.kind == kind);
        Sum::of(self.samples.iter().filter(wanted))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "| rule | acceptance | tokens per round | tokens/s | over plain |"
        )?;
        for (kind, _) in PROMPTS {
            write!(f, " {kind} |")?;
        }
        write!(f, "\n|---|---|---|---|---|")?;
        for _ in PROMPTS {
            write!(f, "---|")?;
        }
        writeln!(f)?;
        let plain = self.sum("plain", None).rate();
        for (mode, _, _) in MODES {
            let sum = self.sum(mode, None);
            write!(
                f,
                "| {mode} | {:.1} % | {:.2} | {:.2} | {:.2} |",
                100.0 * ratio(sum.accepted, sum.drafted),
                sum.mean_acceptance_length(),
                sum.rate(),
                ratio(sum.rate(), plain),
            )?;
            for (kind, _) in PROMPTS {
                let length = self.sum(mode, Some(kind)).mean_acceptance_length();
                write!(f, " {length:.2} |")?;
            }
            writeln!(f)?;
        }
        write!(
            f,
            "\nThe last columns are tokens per round by kind of prompt."
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_ratios_of_totals_and_not_means_of_ratios() {
        let sample = |tokens, seconds, rounds, accepted_draft_tokens| Sample {
            mode: "token",
            kind: "code",
            tokens,
            seconds,
            rounds,
            draft_tokens: 3 * rounds,
            accepted_draft_tokens,
        };
        let samples = [sample(30, 1.0, 10, 20), sample(10, 9.0, 10, 0)];
        let sum = Sum::of(samples.iter());
        assert_eq!(sum.rate(), 4.0);
        assert_eq!(sum.mean_acceptance_length(), 2.0);
    }
}
