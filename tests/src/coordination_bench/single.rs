//! One request at a time, against the closed forms.

use super::closed_form::{Times, expected};
use super::stand::{CoordinatorStand, DraftStand, SYNCHRONOUS, target};
use super::streams::{Mode, Pace, request, whole};
use crate::proxy::Link;
use crate::{Claim, Client};
use anyhow::Result;
use engine::synthetic::Description;
use proto::v1::SpeculationStats;
use serde::Serialize;
use std::time::Duration;

/// The draft lengths that are measured.
const LENGTHS: std::ops::RangeInclusive<u32> = 1..=8;

pub(super) const AGREEMENT: f64 = 0.75;
pub(super) const TIMES: Times = Times {
    target_ms: 17.0,
    draft_ms: 2.5,
    rtt_ms: 0.5,
};

/// Rates in tokens per second.
#[derive(Debug, Serialize)]
pub(crate) struct Figures {
    times: Times,
    agreement: f64,
    plain: Way,
    synchronous: Vec<Synchronous>,
    ahead: Way,
}

#[derive(Debug, Serialize)]
struct Synchronous {
    draft_tokens: u32,
    measured: Way,
    /// The closed form at the tokens per target step that were measured, and at the agreement of the
    /// models.
    closed_form_measured: f64,
    closed_form_stated: f64,
}

/// One way of decoding.
#[derive(Debug, Default, Serialize)]
pub(super) struct Way {
    pub(super) rate: f64,
    pace: Pace,
    rounds: u32,
    /// From one delta to the next.
    median_round_ms: f64,
    #[serde(skip)]
    rounds_ms: Vec<f64>,
    /// Committed in each round, on average.
    pub(super) tokens_per_step: f64,
    /// Rounds that verified a proposal, by accepted tokens.
    accepted: Vec<u32>,
    ahead_hits: u32,
    ahead_misses: u32,
}

/// Workers as stated, and two coordinators over them: one that overlaps nothing, one as it comes.
pub(super) struct Pair {
    // Kept alive.
    _target: crate::Process,
    pub(super) draft: DraftStand,
    pub(super) synchronous: CoordinatorStand,
    pub(super) default: CoordinatorStand,
}

impl Pair {
    pub(super) async fn start() -> Result<Self> {
        let description = Description {
            vocab: 300,
            base_ms: TIMES.target_ms,
            ..Description::default()
        };
        let target = target(&description).await?;
        let description = Description {
            base_ms: TIMES.draft_ms,
            agreement: AGREEMENT,
            ..description
        };
        let draft = DraftStand::start(description, link(TIMES.rtt_ms)).await?;
        let synchronous = CoordinatorStand::start(&target, &[&draft], &SYNCHRONOUS).await?;
        let default = CoordinatorStand::start(&target, &[&draft], &[]).await?;
        Ok(Self {
            _target: target,
            draft,
            synchronous,
            default,
        })
    }
}

pub(super) fn link(rtt_ms: f64) -> Link {
    Link::with_rtt(Duration::from_secs_f64(rtt_ms / 1e3))
}

pub(crate) async fn measure(quick: bool, progress: &dyn Fn(&str)) -> Result<Figures> {
    let pair = Pair::start().await?;
    let (requests, tokens) = if quick { (1, 100) } else { (2, 400) };
    let mut plain = Way::default();
    let mut ahead = Way::default();
    let mut synchronous: Vec<_> = LENGTHS.map(|k| (k, Way::default())).collect();
    for number in 0..requests {
        progress(&format!("single: request {} of {requests}", number + 1));
        let defaults = &pair.default.client;
        plain.run(defaults, number, tokens, Mode::Plain).await?;
        for (k, way) in &mut synchronous {
            let client = &pair.synchronous.client;
            way.run(client, number, tokens, Mode::Fixed(*k)).await?;
        }
        ahead.run(defaults, number, tokens, Mode::Model).await?;
    }
    let synchronous = synchronous.into_iter().map(|(k, way)| Synchronous {
        draft_tokens: k,
        closed_form_measured: TIMES.synchronous(way.tokens_per_step, k),
        closed_form_stated: TIMES.synchronous(expected(AGREEMENT, k), k),
        measured: way,
    });
    Ok(Figures {
        times: TIMES,
        agreement: AGREEMENT,
        plain,
        synchronous: synchronous.collect(),
        ahead,
    })
}

impl Way {
    pub(super) async fn run(
        &mut self,
        client: &Client,
        number: usize,
        tokens: u32,
        mode: Mode,
    ) -> Result<()> {
        let track = whole(client, request(number, tokens, mode)).await?;
        self.pace += track.pace();
        self.rate = self.pace.rate();
        let rounds = track.deltas.windows(2);
        let rounds = rounds.map(|pair| (pair[1].0 - pair[0].0).as_secs_f64() * 1e3);
        self.rounds_ms.extend(rounds);
        self.rounds_ms.sort_unstable_by(f64::total_cmp);
        let middle = self.rounds_ms.get(self.rounds_ms.len() / 2);
        self.median_round_ms = middle.copied().unwrap_or_default();
        let SpeculationStats {
            rounds,
            acceptance_histogram,
            ahead_hits,
            ahead_misses,
            ..
        } = track.stats();
        self.rounds += rounds;
        self.ahead_hits += ahead_hits;
        self.ahead_misses += ahead_misses;
        let len = self.accepted.len().max(acceptance_histogram.len());
        self.accepted.resize(len, 0);
        for (sum, count) in self.accepted.iter_mut().zip(acceptance_histogram) {
            *sum += count;
        }
        // The first token of a text is the prefill's.
        self.tokens_per_step = f64::from(self.pace.tokens) / f64::from(self.rounds.max(1));
        Ok(())
    }
}

impl Figures {
    pub(crate) fn claims(&self) -> Vec<Claim> {
        let mut claims = vec![Claim::at_least(
            "one request, plain over 1/t_verify",
            self.plain.rate / self.times.plain(),
            0.98,
        )];
        let mut best: f64 = 0.0;
        for synchronous in &self.synchronous {
            let (k, rate) = (synchronous.draft_tokens, synchronous.measured.rate);
            best = best.max(rate);
            claims.push(Claim::at_least(
                format!("one request, synchronous with k = {k} over the closed form at the acceptance measured"),
                rate / synchronous.closed_form_measured,
                0.95,
            ));
        }
        claims.push(Claim::at_least(
            "one request, draft-ahead over the best synchronous rate over k",
            self.ahead.rate / best,
            1.5,
        ));
        claims
    }
}
