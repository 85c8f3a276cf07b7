//! What the coordinator costs itself at 64 streams, beside a program that moves the same messages in
//! the same pattern and does nothing else. Both have the same stub for their workers, which sleeps for
//! as long as steps take.

use super::closed_form::expected;
use super::process::cpu_time;
use super::single::{AGREEMENT, link};
use super::stand::{CoordinatorStand, SYNCHRONOUS};
use super::streams::{Mode, Track, steady};
use crate::proxy::Proxy;
use crate::{Claim, Client, Process};
use anyhow::Result;
use serde::Serialize;
use std::time::Duration;

pub(super) const STREAMS: usize = 64;
/// Milliseconds of a step, and of a row of it.
const TARGET_MS: (f64, f64) = (17.0, 0.02);
const DRAFT_MS: (f64, f64) = (2.5, 0.02);
const DRAFT_TOKENS: u32 = 3;

#[derive(Debug, Serialize)]
pub(crate) struct Figures {
    streams: usize,
    target_ms: (f64, f64),
    draft_ms: (f64, f64),
    draft_tokens: u32,
    plain: Pair,
    /// A fixed number of tokens in each round, drafted when the last verdict is known: the pattern
    /// that the bare program has.
    speculative: Pair,
}

/// The coordinator's cost and the bare program's, of each turn.
#[derive(Debug, Default, Serialize)]
struct Pair {
    coordinator: Vec<Cost>,
    bare: Vec<Cost>,
}

#[derive(Debug, Serialize)]
struct Cost {
    cpu_us_per_token: f64,
    cpu_us_per_round: f64,
    /// Between two deltas of a stream, beyond what the steps take.
    added_median_ms: f64,
    added_p99_ms: f64,
    tokens_per_delta: f64,
}

struct Turns {
    ramp: Duration,
    window: Duration,
}

pub(crate) async fn measure(quick: bool, progress: &dyn Fn(&str)) -> Result<Figures> {
    let (turns, ramp, window) = if quick { (1, 0.3, 1.5) } else { (2, 1.0, 4.0) };
    let times = Turns {
        ramp: Duration::from_secs_f64(ramp),
        window: Duration::from_secs_f64(window),
    };
    let mut figures = Figures {
        streams: STREAMS,
        target_ms: TARGET_MS,
        draft_ms: DRAFT_MS,
        draft_tokens: DRAFT_TOKENS,
        plain: Pair::default(),
        speculative: Pair::default(),
    };
    for turn in 1..=turns {
        for k in [0, DRAFT_TOKENS] {
            progress(&format!(
                "overhead: {k} drafted tokens, turn {turn} of {turns}"
            ));
            let mode = if k == 0 { Mode::Plain } else { Mode::Fixed(k) };
            let pair = if k == 0 {
                &mut figures.plain
            } else {
                &mut figures.speculative
            };
            let workers = Workers::start(k).await?;
            let coordinator = workers.coordinator().await?;
            let (process, client) = (&coordinator.process, &coordinator.client);
            pair.coordinator
                .push(times.cost(process, client, mode, k).await?);
            drop(coordinator);
            let (process, client) = workers.bare(k).await?;
            pair.bare
                .push(times.cost(&process, &client, mode, k).await?);
        }
    }
    Ok(figures)
}

/// The stub that stands for both workers.
pub(super) struct Workers {
    stub: Process,
    link: Proxy,
}

impl Workers {
    pub(super) async fn start(k: u32) -> Result<Self> {
        let options = [
            ("--target-ms", step_ms(TARGET_MS, k + 1)),
            ("--draft-ms", draft_ms(k)),
            ("--draft-tokens", f64::from(k)),
            ("--tokens", expected(AGREEMENT, k)),
        ];
        let options = options.map(|(name, value)| [name.to_owned(), value.to_string()]);
        let args = [vec!["stub".to_owned()], options.concat()].concat();
        let stub = Process::start("coordination-bench", &args).await?;
        let link = Proxy::start(stub.url(), link(0.0))?;
        Ok(Self { stub, link })
    }

    async fn coordinator(&self) -> Result<CoordinatorStand> {
        self.coordinator_with(&[]).await
    }

    /// A coordinator with more `flags`.
    pub(super) async fn coordinator_with(&self, flags: &[&str]) -> Result<CoordinatorStand> {
        let flags = [SYNCHRONOUS.as_slice(), flags].concat();
        CoordinatorStand::over(self.stub.url(), vec![self.link.url()], &flags).await
    }

    /// The program in the coordinator's place, and a client of it.
    async fn bare(&self, k: u32) -> Result<(Process, Client)> {
        let (target, draft) = (self.stub.url(), self.link.url());
        let (k, streams) = (k.to_string(), STREAMS.to_string());
        let options = [
            ["--target", target],
            ["--draft", &draft],
            ["--draft-tokens", &k],
            ["--streams", &streams],
        ];
        let options = options.concat().into_iter().map(ToOwned::to_owned);
        let args: Vec<_> = std::iter::once("bare".to_owned()).chain(options).collect();
        let process = Process::start("coordination-bench", &args).await?;
        let client = Client::connect(process.url()).await?;
        Ok((process, client))
    }
}

/// A step of so many rows for each stream.
fn step_ms((base, row): (f64, f64), rows: u32) -> f64 {
    base + row * f64::from(rows) * STREAMS as f64
}

/// The steps of a proposal.
fn draft_ms(k: u32) -> f64 {
    f64::from(k) * step_ms(DRAFT_MS, 1)
}

impl Turns {
    async fn cost(&self, process: &Process, client: &Client, mode: Mode, k: u32) -> Result<Cost> {
        let running = steady(client, STREAMS, mode, self.ramp, self.window);
        let cpu = async {
            tokio::time::sleep(self.ramp).await;
            let before = cpu_time(process)?;
            // Ends before the streams do.
            tokio::time::sleep(self.window.mul_f64(0.95)).await;
            Ok::<_, anyhow::Error>(cpu_time(process)?.saturating_sub(before))
        };
        let (tracks, cpu) = tokio::join!(running, cpu);
        let (tracks, cpu) = (tracks?, cpu?.as_secs_f64() * 1e6 / 0.95);
        let steps_ms = step_ms(TARGET_MS, k + 1) + draft_ms(k);
        Ok(Cost::new(&tracks, cpu, steps_ms))
    }
}

impl Cost {
    fn new(tracks: &[Track], cpu_us: f64, steps_ms: f64) -> Self {
        let deltas: usize = tracks.iter().map(|track| track.deltas.len()).sum();
        let all = tracks.iter().flat_map(|track| &track.deltas);
        let tokens: f64 = all.map(|(_, tokens)| f64::from(*tokens)).sum();
        let gaps = tracks.iter().flat_map(|track| track.deltas.windows(2));
        let mut added: Vec<_> = gaps
            .map(|pair| (pair[1].0 - pair[0].0).as_secs_f64() * 1e3 - steps_ms)
            .collect();
        added.sort_unstable_by(f64::total_cmp);
        let quantile = |share: f64| {
            let index = (added.len() as f64 * share) as usize;
            added.get(index).copied().unwrap_or(f64::NAN)
        };
        Self {
            cpu_us_per_token: cpu_us / tokens,
            cpu_us_per_round: cpu_us / deltas as f64 * STREAMS as f64,
            added_median_ms: quantile(0.5),
            added_p99_ms: quantile(0.99),
            tokens_per_delta: tokens / deltas as f64,
        }
    }
}

impl Pair {
    /// The coordinator's over the bare program's, each the least of its turns: what others take of
    /// the machine only adds.
    fn ratio(&self, figure: impl Fn(&Cost) -> f64) -> f64 {
        let [coordinator, bare] = [&self.coordinator, &self.bare].map(|costs| {
            costs
                .iter()
                .map(&figure)
                .fold(f64::INFINITY, |least, next| least.min(next))
        });
        coordinator / bare
    }
}

impl Figures {
    pub(crate) fn claims(&self) -> Vec<Claim> {
        let claims = |name: &str, pair: &Pair| {
            [
                Claim::at_most(
                    format!("64 streams, {name}: CPU per committed token over the bare program's"),
                    pair.ratio(|cost| cost.cpu_us_per_token),
                    2.0,
                ),
                Claim::at_most(
                    format!(
                        "64 streams, {name}: p99 latency added to a round over the bare program's"
                    ),
                    pair.ratio(|cost| cost.added_p99_ms),
                    2.0,
                ),
            ]
        };
        let pairs = [("plain", &self.plain), ("speculative", &self.speculative)];
        pairs
            .into_iter()
            .flat_map(|(name, pair)| claims(name, pair))
            .collect()
    }
}
