//! What drafts of a model, of n-grams and of both are worth on a real pair, by kinds of prompts.
//!
//! The prompts are those of Spec-Bench where its file is given, else the project's own; beside them a
//! file to edit, most of which is copied. All modes must give the same texts.

mod edit;
mod questions;
mod report;

use super::claims::Report;
use crate::stack::{self, Answer, Ask, Client, Cores};
use anyhow::{Context as _, Result, ensure};
use proto::v1::{DraftSource, VerificationRule};
use questions::Question;
use report::{Figures, Sample};
use std::path::PathBuf;

/// How to measure, and where to.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    plan: Plan,
    /// Write figures and claims to this file, as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// How to measure.
#[derive(Debug, clap::Args)]
pub(crate) struct Plan {
    /// The pair of models: qwen2.5-coder, smollm2-135m or synthetic.
    #[arg(long, default_value = "qwen2.5-coder")]
    preset: String,
    /// Spec-Bench's question.jsonl. Unset takes the project's own prompts.
    #[arg(long, value_name = "FILE")]
    questions: Option<PathBuf>,
    /// Prompts of each group.
    #[arg(long, default_value_t = 5, value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=80))]
    per_group: u32,
    /// Tokens per prompt and mode.
    #[arg(long, default_value_t = 128, value_parser = clap::value_parser!(u32).range(2..))]
    max_tokens: u32,
    /// Tokens for the file to edit; it is left out at 0.
    #[arg(long, default_value_t = 1024, value_name = "TOKENS")]
    edit_tokens: u32,
    /// How freely tokens are chosen, separated by commas.
    #[arg(long, default_values_t = [0.0, 1.0], value_delimiter = ',', value_name = "LIST")]
    temperatures: Vec<f32>,
    /// The most tokens to draft per round; the server decides how many of them pay.
    #[arg(long, default_value_t = 16, value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=16))]
    max_draft_tokens: u32,
    /// Give each worker one processor core of its own, with taskset: as on machines of their own. Else they
    /// share all cores, and take turns.
    #[arg(long)]
    own_cores: bool,
    /// How often each prompt is asked in each mode; all of it counts.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    tries: u32,
    /// The seed of the first prompt; the others follow.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

impl Plan {
    fn cores(&self) -> Cores {
        if self.own_cores {
            Cores::Own
        } else {
            Cores::Shared
        }
    }
}

/// Where drafts come from.
#[derive(Debug, Clone, Copy)]
struct Mode {
    name: &'static str,
    sources: &'static [DraftSource],
}

const PLAIN: &str = "plain";
const COMBINED: &str = "combined";

const MODES: [Mode; 4] = [
    Mode {
        name: PLAIN,
        sources: &[],
    },
    Mode {
        name: "draft model",
        sources: &[DraftSource::Model],
    },
    Mode {
        name: "n-gram",
        sources: &[DraftSource::Ngram],
    },
    Mode {
        name: COMBINED,
        sources: &[DraftSource::Model, DraftSource::Ngram],
    },
];

/// Tokens of the requests that bring a prompt into both workers' caches, and how many of them there
/// are at most.
const WARM_TOKENS: u32 = 16;
const WARM_TRIES: usize = 50;

/// Measures, prints tables, and writes the file that is asked for.
pub(crate) fn run(options: &Options) -> Result<()> {
    let (report, tables) = measure(&options.plan)?;
    println!("{tables}\n{report}");
    report.write(options.json.as_deref())?;
    report.require()
}

/// The figures with what is claimed of them, and the same as tables for a document.
///
/// # Errors
/// Where two modes gave different texts, beside all else that can fail.
pub(crate) fn measure(options: &Plan) -> Result<(Report, String)> {
    let mut questions = match &options.questions {
        Some(path) => questions::of_spec_bench(path, options.per_group as usize)?,
        None => questions::of_the_project(options.per_group as usize),
    };
    if options.edit_tokens > 0 {
        questions.push(edit::question());
    }
    let samples = stack::run(&options.preset, options.cores(), async |_, coordinator| {
        let mut client = Client::connect(coordinator).await?;
        let mut samples = Vec::new();
        for (number, question) in (0..).zip(&questions) {
            let progress = format!(
                "prompt {} of {}: {}",
                number + 1,
                questions.len(),
                question.group
            );
            warm(&mut client, question, options).await?;
            for temperature in &options.temperatures {
                let seed = options.seed + number;
                let asked = ask_all(&mut client, question, options, *temperature, seed).await;
                let asked =
                    asked.with_context(|| format!("{progress}, temperature {temperature}"))?;
                eprintln!("{progress}, temperature {temperature}: {}", rates(&asked));
                samples.extend(asked);
            }
        }
        Ok(samples)
    })?;
    let figures = Figures::new(samples, options.questions.is_some());
    let report = Report {
        claims: figures.claims(),
        figures: figures.json(&options.preset)?,
    };
    Ok((report, figures.to_string()))
}

/// Brings the prompt into both workers' caches, so that no mode pays for another: workers that share
/// this machine's cores slow each other down while one of them prefills.
async fn warm(client: &mut Client, question: &Question, options: &Plan) -> Result<()> {
    for _ in 0..WARM_TRIES {
        let ask = Ask {
            prompt: &question.text,
            max_tokens: WARM_TOKENS,
            speculate: true,
            rule: VerificationRule::Coupled,
            // However little that pays: it shows that the draft worker has the prompt.
            min_draft_tokens: Some(1),
            max_draft_tokens: Some(1),
            sources: &[DraftSource::Model],
            seed: options.seed,
            ..Ask::default()
        };
        let answer = client.generate(&ask, |_| Ok(())).await?;
        let stats = answer.finished.speculation.unwrap_or_default();
        if stats.draft_tokens > 0 || answer.token_ids.len() < WARM_TOKENS as usize {
            break;
        }
    }
    Ok(())
}

/// Asks in every mode, one after the other, so that what the machine does meanwhile meets all. Which
/// mode is the first changes from prompt to prompt and from try to try.
async fn ask_all(
    client: &mut Client,
    question: &Question,
    options: &Plan,
    temperature: f32,
    seed: u64,
) -> Result<Vec<Sample>> {
    let mut samples = Vec::new();
    let mut first: Option<(&str, Answer)> = None;
    let turns = MODES.len() * options.tries as usize;
    for turn in 0..turns {
        let mode = MODES[(turn + turn / MODES.len() + seed as usize) % MODES.len()];
        let ask = Ask {
            prompt: &question.text,
            max_tokens: if question.is_edit() {
                options.edit_tokens
            } else {
                options.max_tokens
            },
            temperature,
            seed,
            speculate: !mode.sources.is_empty(),
            rule: VerificationRule::Coupled,
            max_draft_tokens: Some(options.max_draft_tokens),
            sources: mode.sources,
            ..Ask::default()
        };
        let answer = client.generate(&ask, |_| Ok(())).await?;
        samples.push(Sample::new(
            mode.name,
            &question.group,
            temperature,
            &answer,
        ));
        match &first {
            None => first = Some((mode.name, answer)),
            Some((other, first)) => ensure!(
                first.token_ids == answer.token_ids,
                "two modes give different texts: {other} {:?}, {} {:?}",
                first.text,
                mode.name,
                answer.text
            ),
        }
    }
    Ok(samples)
}

/// What to show of them at once.
fn rates(samples: &[Sample]) -> String {
    let rates: Vec<_> = samples
        .iter()
        .map(|sample| format!("{} {:.1}", sample.mode, sample.rate()))
        .collect();
    rates.join(", ") + " tokens/s"
}
