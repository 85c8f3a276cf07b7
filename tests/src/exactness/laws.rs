//! The law of what three processes write, against the exact law of the same model and options.

use super::liar::{Liar, Manner};
use super::options::OptionSet;
use super::oracle::Oracle;
use super::statistics::{Counts, g_test};
use super::table::{Check, Expectation, Line};
use super::tables::Table;
use super::{DRAFTED, LENGTH, Models, rule_name};
use crate::{Answer, Client, Cluster, ClusterOptions, PATIENCE, Prompting as _, eventually};
use anyhow::{Context as _, Result};
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use proto::v1::{GenerateRequest, TokenOrigin, VerificationRule};

/// Choices of one request.
const CHOICES: u64 = 32;

/// Requests at once.
const IN_FLIGHT: usize = 4;

/// What a line samples.
#[derive(Debug, Clone, Copy)]
pub struct Sampling {
    /// Texts.
    pub samples: u64,
    /// Seeds are taken from here on.
    pub first_seed: u64,
}

/// Starts the three programs: the target of `models`, one draft worker for each path in `drafts`,
/// and those that run already at `urls`.
///
/// # Errors
/// Where one does not come up.
pub async fn start(models: &Models, drafts: &[String], urls: &[String]) -> Result<Cluster> {
    let mut options = ClusterOptions {
        // All choices of all requests in flight, and more.
        coordinator_args: flags(&["--max-requests", "1024"]),
        worker_args: flags(&["--threads", "1", "--max-sequences", "256"]),
        ..ClusterOptions::new(&models.target_path, drafts)
    };
    for url in urls {
        options.coordinator_args.extend(flags(&["--draft", url]));
    }
    let cluster = Cluster::start(options).await?;
    let usable = drafts.len() + urls.len();
    eventually("every draft worker is usable", PATIENCE, || async {
        let log = cluster.coordinator.log();
        log.matches("draft worker usable").count() >= usable
    })
    .await?;
    Ok(cluster)
}

fn flags(flags: &[&str]) -> Vec<String> {
    flags.iter().map(|&flag| flag.to_owned()).collect()
}

/// A line: many texts under one rule and one option set.
///
/// # Errors
/// Where a request fails, or there are too few samples for a statistic.
pub async fn line(
    client: &Client,
    target: &Table,
    rule: VerificationRule,
    options: &OptionSet,
    sampling: Sampling,
) -> Result<Line> {
    let request = options
        .request(&target.words, true, LENGTH as u32)
        .rule(rule)
        .drafting(DRAFTED as u32);
    let sampled = sample(client, &request, sampling).await?;
    let table = target;
    let outcome = g_test(&Oracle { table, options }.joint(LENGTH), &sampled.counts)?;
    let name = rule_name(rule);
    let line = Line::law(Check::Law, name, options.name, sampling.samples, outcome);
    Ok(line.noting(sampled.drafts.words(), sampled.drafts.are_exercised()))
}

struct Sampled {
    counts: Counts,
    drafts: Drafts,
}

async fn sample(
    client: &Client,
    request: &GenerateRequest,
    Sampling {
        samples,
        first_seed,
    }: Sampling,
) -> Result<Sampled> {
    let requests = (0..samples.div_ceil(CHOICES)).map(|number| {
        let choices = CHOICES.min(samples - number * CHOICES);
        let seed = first_seed.wrapping_add(number);
        let request = request.clone().seed(seed).choices(choices as u32);
        async move {
            let answers = client.generate_choices(request).await;
            answers.with_context(|| format!("a request of seed {seed}"))
        }
    });
    let mut answers = stream::iter(requests).buffer_unordered(IN_FLIGHT);
    let mut sampled = Sampled {
        counts: Counts::new(),
        drafts: Drafts::default(),
    };
    while let Some(choices) = answers.try_next().await? {
        for answer in choices {
            sampled.drafts.add(&answer);
            *sampled.counts.entry(answer.ids).or_default() += 1;
        }
    }
    Ok(sampled)
}

/// What became of the drafts of many texts. A committed token is the first, an accepted one, a
/// correction or a bonus; every text has a first.
#[derive(Debug, Default)]
struct Drafts {
    texts: u64,
    drafted: u64,
    accepted: u64,
    /// Texts that hold a correction.
    corrected: u64,
    /// Texts that hold no correction and end in a token of the target: a bonus after drafted ones.
    crowned: u64,
}

impl Drafts {
    fn add(&mut self, answer: &Answer) {
        let stats = &answer.speculation;
        let (drafted, accepted) = (stats.draft_tokens, stats.accepted_draft_tokens);
        let ends_in_targets = answer.origins.last() == Some(&TokenOrigin::Target.into());
        self.texts += 1;
        self.drafted += u64::from(drafted);
        self.accepted += u64::from(accepted);
        self.corrected += u64::from(accepted < drafted);
        self.crowned += u64::from(drafted > 0 && accepted == drafted && ends_in_targets);
    }

    /// True where every class of token is there in some hundredth of all texts.
    fn are_exercised(&self) -> bool {
        let classes = [self.accepted, self.corrected, self.crowned];
        classes.iter().all(|texts| texts * 100 >= self.texts)
    }

    fn words(&self) -> String {
        let share = |part: u64, whole: u64| 100.0 * part as f64 / whole.max(1) as f64;
        format!(
            "{:.1} drafted per text, {:.0} % accepted, corrections in {:.0} %, bonus in {:.0} %",
            self.drafted as f64 / self.texts.max(1) as f64,
            share(self.accepted, self.drafted),
            share(self.corrected, self.texts),
            share(self.crowned, self.texts),
        )
    }
}

/// Lines over a draft worker that declares another law than it draws from, and one over the same
/// worker when it is honest. A lie is found under the rules that need the law, and harmless under
/// the one that does not.
///
/// # Errors
/// Where something does not come up, a request fails, or there are too few samples.
pub async fn lying_draft(
    models: &Models,
    options: &OptionSet,
    sampling: Sampling,
    progress: &dyn Fn(&str),
) -> Result<Vec<Line>> {
    use VerificationRule::{Block, Coupled, Token};
    let mut lines = Vec::new();
    for manner in [Manner::Honest, Manner::Greedy] {
        let liar = Liar::bind(models, options, manner).await?;
        let url = [liar.url().to_owned()];
        let work = async {
            let cluster = start(models, &[], &url).await?;
            let client = cluster.client().await?;
            for rule in [Coupled, Token, Block] {
                let what = format!("teeth: {} draft, {}", manner.name(), rule_name(rule));
                progress(&what);
                let sampling = Sampling {
                    first_seed: sampling.first_seed.wrapping_add((lines.len() as u64) << 32),
                    ..sampling
                };
                let mut line = line(&client, &models.target, rule, options, sampling).await?;
                line.options = format!("{}: {} draft", options.name, manner.name());
                if manner == Manner::Greedy && rule != Coupled {
                    line = line.expecting(Expectation::Planted);
                    line.check = Check::Teeth;
                }
                lines.push(line);
            }
            anyhow::Ok(())
        };
        tokio::select! {
            done = work => done?,
            ended = liar.serve() => ended?,
        }
    }
    Ok(lines)
}
