//! What the controller makes of what is measured, for each sequence, and what it is taught.
//!
//! The mathematics is [`speculation::control`]'s; here it gets its figures and is heard.

use super::batching::Sent;
use super::{Scheduler, SequenceId, WorkerId};
use crate::commit::{Delta, Origin};
use proto::v1::DraftEvent;
use speculation::control::{Acceptance, Ewma, Gate, Mode, Plan, Round, Situation, plan};
use speculation::{TokenId, common_prefix};
use std::time::Instant;

/// Tokens of a shadow probe where the controller would draft none: as many as show whether it pays.
const PROBE_TOKENS: usize = 4;

/// Of all sequences of a worker one is probed in so many of the target's steps.
const PROBE_STEPS: u64 = 16;

/// Rounds whose n-grams are remembered.
const NGRAM_MEMORY: f64 = 32.0;

/// For how many rounds a plan holds at most: the first for one, each further one twice as long as the one
/// before, since at first every round tells much.
const PLAN_HOLDS: u32 = 8;

/// The same in plain decoding, where nothing is learnt but from a probe now and then: what is not followed
/// should cost next to nothing.
const UNFOLLOWED_PLAN_HOLDS: u32 = 16;

/// What is asked of a draft worker for one sequence.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Demand {
    pub(super) want: usize,
    pub(super) ahead_want: usize,
    pub(super) ahead_width: usize,
    pub(super) min_confidence: f32,
    /// Nothing waits for the proposal: it is compared with what is committed meanwhile.
    pub(super) probe: bool,
}

impl Demand {
    const PROBE: Self = Self {
        want: PROBE_TOKENS,
        ahead_want: 0,
        ahead_width: 0,
        min_confidence: 0.0,
        probe: true,
    };

    fn of(plan: &Plan, min_confidence: f32) -> Self {
        Self {
            want: plan.want.max(1),
            ahead_want: plan.ahead_want,
            ahead_width: plan.ahead_width,
            min_confidence,
            probe: false,
        }
    }
}

/// One sequence's part of control.
#[derive(Debug)]
pub(super) struct Speculating {
    /// How many drafted tokens are accepted; begins as its worker's.
    pub(super) acceptance: Option<Acceptance>,
    gate: Gate,
    plan: Option<Held>,
    /// Tokens that n-grams offer for a round, on average.
    ngrams: Ewma,
    /// What the gate said last; none where it is not asked.
    mode: Option<Mode>,
    watched: Option<Watched>,
}

/// The latest plan.
#[derive(Debug, Clone, Copy)]
struct Held {
    plan: Plan,
    /// For how many rounds it holds, and how many of them are left.
    rounds: u32,
    left: u32,
}

/// A proposal that is compared with what is committed, and not verified.
#[derive(Debug)]
struct Watched {
    base: usize,
    ids: Vec<TokenId>,
    wanted: usize,
}

impl Speculating {
    pub(super) fn new() -> Self {
        Self {
            acceptance: None,
            gate: Gate::default(),
            plan: None,
            ngrams: Ewma::new(NGRAM_MEMORY),
            mode: None,
            watched: None,
        }
    }

    /// What it was to do in the round that ends, where it was free to choose.
    pub(super) fn doing(&self) -> Option<(Plan, Mode)> {
        Some((self.plan?.plan, self.mode?))
    }

    /// How many batches its plan wants; none where it has no plan.
    pub(super) fn groups(&self) -> Option<usize> {
        let plan = &self.plan.as_ref()?.plan;
        Some(match self.mode {
            Some(Mode::Off | Mode::Probe) => plan.plain_groups,
            Some(Mode::On) | None => plan.groups,
        })
    }

    /// N-grams offer so many tokens for the next round.
    pub(super) fn offered(&mut self, ngrams: f64) {
        self.ngrams.observe(ngrams);
    }

    /// Compares `ids` with what is committed after the first `base` tokens.
    pub(super) fn watch(&mut self, base: usize, ids: Vec<TokenId>, wanted: usize) {
        self.watched = Some(Watched { base, ids, wanted });
    }

    /// What became of the watched tokens, once that is known.
    fn watched(&mut self, committed: &[TokenId]) -> Option<Round> {
        let Watched { base, ids, wanted } = self.watched.as_ref()?;
        let since = committed.get(*base..)?;
        let agree = common_prefix(ids, since);
        let known = agree < since.len() || agree == ids.len();
        let round = Round {
            wanted: *wanted,
            drafted: ids.len(),
            verified: ids.len(),
            accepted: agree,
        };
        known.then(|| {
            self.watched = None;
            round
        })
    }
}

/// What would pay in `situation`. What is measured changes slowly: a plan holds for some rounds, `most` at
/// most.
fn held(latest: &mut Option<Held>, situation: &Situation<'_>, most: u32) -> Plan {
    let known = latest.filter(|held| held.plan.known);
    let held = known.filter(|held| held.left > 0).unwrap_or_else(|| {
        let rounds = known.map_or(1, |before| (2 * before.rounds).min(most));
        Held {
            plan: plan(situation),
            rounds,
            left: rounds,
        }
    });
    // What was to hold for long in plain decoding does not when it is followed.
    let left = held.left.min(most) - 1;
    *latest = Some(Held { left, ..held });
    held.plan
}

impl Scheduler {
    /// What to ask of a sequence's draft worker; none where nothing pays.
    pub(super) fn demand(&mut self, id: SequenceId) -> Option<(WorkerId, Demand)> {
        let decoding = self.verifying.sequences.max(1);
        let sequence = self.sequences.get_mut(&id)?;
        let worker = sequence.seat.as_ref()?.worker;
        let drafts = &self.drafts[worker];
        let measured = &drafts.measured;
        let generation = &sequence.choice.generation;
        let (min, max) = (generation.min_draft_tokens, generation.max_draft_tokens);
        let acceptance = sequence.control.acceptance.as_ref();
        let situation = Situation {
            acceptance: acceptance.unwrap_or(&measured.acceptance),
            ranks: &measured.ranks,
            verify: &self.verifying.step,
            verify_ahead: &self.verifying.step_ahead,
            draft: &measured.step,
            draft_rtt: measured.rtt.seconds(),
            target_rtt: self.verifying.beside(),
            sequences: decoding,
            drafting: drafts.seats,
            min,
            max,
            overlap: drafts.overlap(self.options.ahead && sequence.is_coupled()),
            trust: &self.verifying.trust,
        };
        let followed = sequence.control.gate.is_on();
        let holds = if followed {
            PLAN_HOLDS
        } else {
            UNFOLLOWED_PLAN_HOLDS
        };
        let mut plan = held(&mut sequence.control.plan, &situation, holds);
        let mode = if min > 0 {
            Mode::On
        } else {
            // What a draft model has to beat is decoding with n-grams alone.
            plan.plain_rate *= 1.0 + sequence.control.ngrams.value_or(0.0);
            let mut mode = sequence.control.gate.decide(&plan);
            if mode == Mode::On {
                // A plan holds for longer than this may be known.
                plan.plain_known = self.verifying.step.is_known(decoding);
                self.verifying.look.consider(&plan);
                if self.verifying.look.is_on() {
                    mode = Mode::Off;
                }
            }
            sequence.control.mode = Some(mode);
            mode
        };
        if mode == Mode::Off {
            return None;
        }
        let step = self.target.last_step;
        if mode == Mode::Probe && step < measured.probed + PROBE_STEPS {
            // What one sequence finds out the others learn from.
            return None;
        }
        let stated = generation.min_confidence.or((min > 0).then_some(0.0));
        let min_confidence =
            stated.unwrap_or_else(|| measured.least_confidence(&plan, drafts.seats));
        let expected = situation.acceptance.expected(plan.want.max(1));
        let ngram = sequence.ngram().map(|draft| draft.survival.iter().sum());
        let free = sequence.is_coupled() && min == 0;
        if mode == Mode::On && free && 1.0 + ngram.unwrap_or(0.0) > expected {
            // N-grams offer more: a proposal would be drafted for nothing.
            return None;
        }
        let mut demand = if mode == Mode::Probe {
            self.drafts[worker].measured.probed = step;
            Demand::PROBE
        } else {
            Demand::of(&plan, min_confidence)
        };
        if min > 0 && demand.ahead_want > 0 {
            // Outcomes after a whole proposal are a token shorter than the others.
            demand.ahead_want = (min + 1).max(demand.ahead_want);
        }
        Some((worker, demand))
    }

    /// Learns from the times that a draft worker tells.
    pub(super) fn observe_drafting(&mut self, worker: WorkerId, event: &DraftEvent, now: Instant) {
        for step in &event.steps {
            let seconds = f64::from(step.micros) / 1e6;
            let measured = &mut self.drafts[worker].measured;
            measured.step.observe(step.rows as usize, seconds);
        }
        let answers = event.proposals.iter();
        for proposal in answers.filter(|proposal| proposal.assumed.is_empty()) {
            let seat = self
                .sequences
                .get_mut(&proposal.sequence)
                .and_then(|sequence| sequence.seat.as_mut())
                .filter(|seat| seat.worker == worker && seat.epoch == proposal.epoch);
            let asked = seat.and_then(|seat| seat.asked.take());
            let took = asked.map(|asked| (now - asked).as_secs_f64());
            let beside = took.map(|took| took - f64::from(proposal.compute_us) / 1e6);
            // One that was begun before it was asked for says nothing of the way.
            if let Some(seconds) = beside.filter(|seconds| *seconds >= 0.0) {
                self.drafts[worker].measured.rtt.observe(seconds);
            }
        }
    }

    /// Learns from a verdict: `run` is what it commits, the last token of which is the target's own,
    /// and `delta` what was committed of that.
    pub(super) fn learn(&mut self, id: SequenceId, sent: &Sent, run: &[TokenId], delta: &Delta) {
        let Some(sequence) = self.sequences.get_mut(&id) else {
            return;
        };
        let accepted = run.len() - 1;
        let unverified = if sent.origin == Origin::Draft && sent.drafted() > 0 {
            None
        } else {
            sequence
                .guesses
                .best()
                .and_then(|guess| guess.refuted_by(run))
        };
        let outcome = sequence.guesses.commit(run);
        if !sequence.is_coupled() {
            // What is left of a proposal was chosen by the tokens before it.
            sequence.guesses.clear();
        }
        let seat = sequence.seat.as_ref();
        let worker = seat.map(|seat| seat.worker);
        let ahead = seat.is_some_and(|seat| seat.ahead_wanted > 0);
        if ahead && delta.finish.is_none() && sequence.choice.generation.sources.model {
            let hit = sequence.guesses.best().is_some();
            sequence.stats.ahead_hits += u32::from(hit);
            sequence.stats.ahead_misses += u32::from(!hit);
            self.counters.record_ahead(hit);
        }
        let Some(measured) = worker.map(|worker| &mut self.drafts[worker].measured) else {
            return;
        };
        // What n-grams proposed says nothing of the draft's own choices.
        if let Some(outcome) = outcome.filter(|_| sent.origin == Origin::Draft) {
            let ranks = &mut measured.ranks;
            if accepted < sent.drafted() {
                // Its own choice, the first candidate, was rejected.
                let rank = outcome.rank.map(|rank| rank.saturating_sub(1));
                ranks.observe_rejection(rank, outcome.followed);
            } else {
                ranks.observe_bonus(outcome.rank, outcome.followed);
            }
        }
        let verified = (sent.origin == Origin::Draft && sent.drafted() > 0).then(|| {
            let confidences = &sent.confidences;
            let confidence = &mut measured.confidence;
            confidence.observe(confidences, accepted, sent.drafted());
            Round {
                wanted: sent.wanted,
                drafted: sent.at_hand,
                verified: sent.drafted(),
                accepted,
            }
        });
        let watched = sequence.control.watched(sequence.committed.tokens());
        for round in verified.into_iter().chain(watched).chain(unverified) {
            measured.observe(round, &mut sequence.control);
        }
    }
}
