//! Who drafts for whom: which draft workers there are, and which of them has which sequence.
//!
//! A sequence goes where it gains most, less what those that are there lose by it, and stays: its
//! cache there is warm. It moves when its worker is lost, or when another would give it clearly more.

#[cfg(test)]
mod tests;

use super::measured::Measured;
use super::sequence::Seat;
use super::worth::{Predictions, Worth, predict};
use super::{Processors, Scheduler, Sequence, SequenceId, WorkerId};
use proto::v1::{DraftOpen, VerificationRule};
use speculation::control::Overlap;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How often draft workers may lose one sequence before it goes on without them.
const MAX_LOSSES: u32 = 3;

/// A worker of which nothing is known gets so many sequences before others, to be measured.
const TO_MEASURE: usize = 2;

/// A sequence moves where it gets so many times what it has.
const CLEARLY_MORE: f64 = 1.25;

/// A move may cost the others so much of what the sequence has.
const COST_TO_OTHERS: f64 = 0.05;

/// A sequence stays for so many rounds at least, and where it has so few tokens to go.
const ROUNDS_TO_STAY: u32 = 32;
const TOKENS_TO_STAY: usize = 64;

/// A worker that loses one of a few sequences to another keeps the others for so long; one with more
/// may lose more of them.
const AFTER_MOVE: Duration = Duration::from_millis(250);
const FEW: usize = 8;

/// How often it is looked at whether one of a worker's sequences should move.
const LOOKS: Duration = Duration::from_millis(25);

/// A worker that nobody uses is tried again after this, by one sequence: it may have become fast.
const TRIED_AGAIN: Duration = Duration::from_secs(30);

/// What a draft worker takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DraftLimits {
    /// Sequences at once.
    pub(crate) max_sequences: usize,
    /// Tokens in one proposal.
    pub(crate) max_draft_tokens: usize,
    /// The longest sequence, in tokens.
    pub(crate) context_length: usize,
    /// What it computes on.
    pub(crate) processors: Processors,
}

/// What is known of a draft worker.
#[derive(Debug, Default)]
pub(super) struct DraftWorker {
    /// Set while it is connected.
    pub(super) limits: Option<DraftLimits>,
    /// It computes on the target's processor cores.
    pub(super) competes: bool,
    /// Our sequences there.
    pub(super) seats: usize,
    /// All coordinators' sequences there, as it said last.
    pub(super) load: usize,
    /// It let a deadline pass and has said nothing since.
    pub(super) late: bool,
    /// It had no room; left alone until then.
    pub(super) full_until: Option<Instant>,
    /// What is measured of it.
    pub(super) measured: Measured,
    /// What follows from that.
    predictions: Predictions,
    /// When it got its last sequence.
    joined: Option<Instant>,
    /// None of its sequences moves to a better worker until then.
    stays_until: Option<Instant>,
}

impl DraftWorker {
    /// True where none of our sequences is there.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.seats == 0
    }

    /// What it and the target may compute at the same time; `ahead` where drafting ahead is wanted.
    pub(super) fn overlap(&self, ahead: bool) -> Overlap {
        match (self.competes, ahead) {
            (true, _) => Overlap::Nothing,
            (false, false) => Overlap::Rounds,
            (false, true) => Overlap::Ahead,
        }
    }

    /// True where it can take a sequence of `len` tokens. One that is late gets a single sequence,
    /// to find out when it is back.
    fn is_usable(&self, len: usize, now: Instant) -> bool {
        self.limits.as_ref().is_some_and(|limits| {
            len < limits.context_length
                && self.seats.max(self.load) < limits.max_sequences
                && self.full_until.is_none_or(|until| until <= now)
                && (!self.late || self.seats == 0)
        })
    }
}

impl Scheduler {
    /// A worker is there: who found none is the first to have a place.
    pub(super) fn draft_up(&mut self, worker: WorkerId, limits: DraftLimits, now: Instant) {
        if worker >= self.drafts.len() {
            self.drafts.resize_with(worker + 1, DraftWorker::default);
        }
        self.unseat(worker);
        self.drafts[worker].limits = Some(limits);
        self.find_competitors();
        for id in self.seatless.clone() {
            self.take_seat(id, now);
        }
    }

    /// Finds out which draft workers compute on the target's cores.
    pub(super) fn find_competitors(&mut self) {
        let target = self.target.limits.as_ref();
        for (worker, state) in self.drafts.iter_mut().enumerate() {
            let both = state.limits.as_ref().zip(target);
            let competes =
                both.is_some_and(|(it, target)| it.processors.compete_with(&target.processors));
            if competes && !state.competes {
                tracing::info!(
                    worker,
                    "draft worker and target compute on the same cores: one at a time"
                );
            }
            state.competes = competes;
        }
    }

    /// A worker is lost. A sequence may be what brought it down, so it may not do so for ever.
    pub(super) fn draft_down(&mut self, worker: WorkerId, now: Instant) {
        for id in self.unseat(worker) {
            if let Some(sequence) = self.sequences.get_mut(&id) {
                sequence.seat_losses += 1;
            }
            self.sync_draft(id, now);
        }
    }

    /// A worker was taken away: its sequences move.
    pub(super) fn draft_retired(&mut self, worker: WorkerId, now: Instant) {
        let unseated = self.unseat(worker);
        self.drafts[worker] = DraftWorker::default();
        for id in unseated {
            self.sync_draft(id, now);
        }
    }

    /// Forgets what is known of a worker, and returns the sequences that it had.
    fn unseat(&mut self, worker: WorkerId) -> Vec<SequenceId> {
        // What was measured of it holds as well when it is back.
        let measured = std::mem::take(&mut self.drafts[worker].measured);
        self.drafts[worker] = DraftWorker {
            measured,
            ..DraftWorker::default()
        };
        self.frames.forget(worker);
        let unseated = self.sequences.iter_mut().filter_map(|(id, sequence)| {
            let seat = sequence.seat.take_if(|seat| seat.worker == worker);
            seat.map(|_| *id)
        });
        unseated.collect()
    }

    /// Finds a worker for the sequence. Where others lack one too, each tenant has its turn: the one
    /// that has the fewest sequences at workers first.
    pub(super) fn take_seat(&mut self, id: SequenceId, now: Instant) {
        self.seatless.insert(id);
        while self.seatless.contains(&id) && self.any_usable(now) {
            let next = self.next_seatless(id);
            self.seatless.remove(&next);
            let wants = self.sequences.get(&next).filter(|it| it.lacks_seat());
            let Some(len) = wants.map(|sequence| sequence.committed.len()) else {
                continue;
            };
            if let Some(worker) = self.choose(len, now) {
                self.seat_at(next, worker, now);
            }
        }
    }

    fn any_usable(&self, now: Instant) -> bool {
        self.drafts.iter().any(|worker| worker.is_usable(0, now))
    }

    /// Whose turn it is among those that lack a worker; `id` is one of them.
    fn next_seatless(&self, id: SequenceId) -> SequenceId {
        if self.seatless.len() == 1 {
            return id;
        }
        let mut seats = BTreeMap::<_, usize>::new();
        for sequence in self.sequences.values() {
            let tenant = &*sequence.choice.generation.tenant;
            *seats.entry(tenant).or_default() += usize::from(sequence.seat.is_some());
        }
        let turn = |id: &&SequenceId| {
            let sequence = self.sequences.get(id)?;
            let seats = seats.get(&*sequence.choice.generation.tenant)?;
            Some((*seats, **id))
        };
        // One that is gone comes first, and is dropped.
        self.seatless.iter().min_by_key(turn).copied().unwrap_or(id)
    }

    /// Opens the sequence at `worker`.
    fn seat_at(&mut self, id: SequenceId, worker: WorkerId, now: Instant) {
        let Some(sequence) = self.sequences.get_mut(&id) else {
            return;
        };
        let len = sequence.committed.len();
        // Where a text depends on which of its rounds had drafts, its first one must not depend on who
        // prefills faster: else a seed would not give its text again.
        let waits =
            sequence.rule() != VerificationRule::Coupled && sequence.committed.generated() == 0;
        self.drafts[worker].seats += 1;
        self.drafts[worker].joined = Some(now);
        sequence.seat_epoch += 1;
        let waiting = waits.then_some(now);
        let mut seat = Seat::new(worker, sequence.seat_epoch, len, waiting);
        seat.since_round = sequence.stats.rounds;
        sequence.seat = Some(seat);
        // What it knew was another draft's.
        sequence.control.acceptance = None;
        let open = DraftOpen {
            sequence: id,
            epoch: sequence.seat_epoch,
            token_ids: sequence.committed.tokens().to_vec(),
            decoding: Some(sequence.choice.decoding()),
            traceparent: String::new(),
        };
        self.frames.open(worker, open);
    }

    /// The worker where one more sequence of `len` tokens gains most.
    pub(super) fn choose(&mut self, len: usize, now: Instant) -> Option<WorkerId> {
        let mut best: Option<(Fitness, WorkerId)> = None;
        for worker in 0..self.drafts.len() {
            if !self.drafts[worker].is_usable(len, now) {
                continue;
            }
            let fitness = self.fitness(worker, now);
            if best.is_none_or(|(best, _)| fitness.beats(&best)) {
                best = Some((fitness, worker));
            }
        }
        best.map(|(_, worker)| worker)
    }

    fn fitness(&mut self, worker: WorkerId, now: Instant) -> Fitness {
        let DraftWorker { late, seats, .. } = self.drafts[worker];
        let marginal = self.marginal(worker, seats, now);
        Fitness {
            late,
            to_measure: marginal.is_none() && seats < TO_MEASURE,
            marginal,
            seats,
        }
    }

    /// What one sequence more than `seats` adds to what a worker gives to all. `None` where it is not
    /// known.
    fn marginal(&mut self, worker: WorkerId, seats: usize, now: Instant) -> Option<f64> {
        let before = self.worth(worker, seats, now)?;
        Some(self.worth(worker, seats + 1, now)?.gain - before.gain)
    }

    fn worth(&mut self, worker: WorkerId, seats: usize, now: Instant) -> Option<Worth> {
        let mut predictions = std::mem::take(&mut self.drafts[worker].predictions);
        let worth = predictions.of(seats, now, || {
            let worker = &self.drafts[worker];
            let overlap = worker.overlap(self.options.ahead);
            let decoding = self.verifying.sequences.max(1);
            predict(worker, &self.verifying, decoding, seats, overlap)
        });
        self.drafts[worker].predictions = predictions;
        worth
    }

    /// Moves a sequence that has a worker to one that gives it clearly more. True where it moved.
    pub(super) fn migrate(&mut self, id: SequenceId, now: Instant) -> bool {
        let Some(sequence) = self.sequences.get(&id).filter(|it| it.may_move()) else {
            return false;
        };
        let (len, seat) = (sequence.committed.len(), sequence.seat.as_ref());
        let Some(own) = seat.map(|seat| seat.worker) else {
            return false;
        };
        let state = &mut self.drafts[own];
        if state.stays_until.is_some_and(|until| until > now) {
            return false;
        }
        state.stays_until = Some(now + LOOKS);
        let seats = state.seats;
        let Some(other) = self.better(own, len, now) else {
            return false;
        };
        tracing::debug!(sequence = id, from = own, to = other, "sequence moves");
        self.drafts[own].stays_until = Some(now + AFTER_MOVE / (1 + seats / FEW) as u32);
        self.leave_draft(id);
        self.seat_at(id, other, now);
        true
    }

    /// A worker where one of `own`'s sequences, of `len` tokens, should rather be.
    fn better(&mut self, own: WorkerId, len: usize, now: Instant) -> Option<WorkerId> {
        let seats = self.drafts[own].seats;
        let has = self.worth(own, seats, now)?;
        let frees = self.marginal(own, seats - 1, now)?;
        let mut best: Option<(f64, WorkerId)> = None;
        for worker in 0..self.drafts.len() {
            let other = &self.drafts[worker];
            if worker == own || other.late || !other.is_usable(len, now) {
                continue;
            }
            let (taken, joined) = (other.seats, other.joined);
            let unused = joined.is_none_or(|joined| joined + TRIED_AGAIN <= now);
            if taken == 0 && seats > 1 && unused {
                return Some(worker);
            }
            let gets = self.worth(worker, taken + 1, now);
            let (Some(gets), Some(adds)) = (gets, self.marginal(worker, taken, now)) else {
                continue;
            };
            let more =
                gets.rate >= has.rate * CLEARLY_MORE && adds >= frees - COST_TO_OTHERS * has.rate;
            if more && best.is_none_or(|(rate, _)| gets.rate > rate) {
                best = Some((gets.rate, worker));
            }
        }
        best.map(|(_, worker)| worker)
    }

    /// Gives up a sequence's seat, if it has one.
    pub(super) fn leave_draft(&mut self, id: SequenceId) {
        self.seatless.remove(&id);
        let seat = self
            .sequences
            .get_mut(&id)
            .and_then(|sequence| sequence.seat.take());
        if let Some(seat) = seat {
            self.drafts[seat.worker].seats -= 1;
            self.frames.close(seat.worker, id);
        }
    }
}

/// What speaks for a worker.
#[derive(Debug, Clone, Copy)]
struct Fitness {
    late: bool,
    /// It has too few sequences to be known.
    to_measure: bool,
    /// What it would add for one sequence more, where that is known.
    marginal: Option<f64>,
    seats: usize,
}

impl Fitness {
    /// True where it is the better one. Of equals it is the first.
    fn beats(&self, other: &Self) -> bool {
        let marginal = |fitness: &Self| fitness.marginal.unwrap_or(f64::NEG_INFINITY);
        let order = (self.late.cmp(&other.late))
            .then(other.to_measure.cmp(&self.to_measure))
            .then(marginal(other).total_cmp(&marginal(self)))
            .then(self.seats.cmp(&other.seats));
        order.is_lt()
    }
}

impl Sequence {
    /// True where a draft worker is of use to it and it has none.
    fn lacks_seat(&self) -> bool {
        self.seat.is_none() && self.wants_seat()
    }

    /// True where a draft worker is of use to it.
    pub(super) fn wants_seat(&self) -> bool {
        let allowed = self.choice.generation.sources.model && self.seat_losses <= MAX_LOSSES;
        allowed && self.draft_len() > 0
    }

    /// True where it may go to another worker for speed alone: it has been where it is for a while,
    /// and which drafts it has does not decide its text.
    fn may_move(&self) -> bool {
        let stayed =
            |seat: &Seat| seat.opened && self.stats.rounds >= seat.since_round + ROUNDS_TO_STAY;
        self.is_coupled()
            && self.seat.as_ref().is_some_and(stayed)
            && self.committed.budget_left() >= TOKENS_TO_STAY
    }
}
