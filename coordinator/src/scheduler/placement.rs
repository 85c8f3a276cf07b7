//! Who drafts for whom: which draft workers there are, and which of them has which sequence.

use super::sequence::Seat;
use super::speculating::Measured;
use super::{Scheduler, SequenceId, WorkerId};
use proto::v1::{DraftOpen, VerificationRule};
use std::time::Instant;

/// What a draft worker takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DraftLimits {
    /// Sequences at once.
    pub(crate) max_sequences: usize,
    /// Tokens in one proposal.
    pub(crate) max_draft_tokens: usize,
    /// The longest sequence, in tokens.
    pub(crate) context_length: usize,
}

/// What is known of a draft worker.
#[derive(Debug, Default)]
pub(super) struct DraftWorker {
    /// Set while it is connected.
    pub(super) limits: Option<DraftLimits>,
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
}

impl DraftWorker {
    /// True where none of our sequences is there.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.seats == 0
    }

    /// True where it can take a sequence of `len` tokens. One that is late gets a single sequence,
    /// to find out when it is back.
    fn is_usable(&self, len: usize, now: Instant) -> bool {
        self.limits.is_some_and(|limits| {
            len < limits.context_length
                && self.seats.max(self.load) < limits.max_sequences
                && self.full_until.is_none_or(|until| until <= now)
                && (!self.late || self.seats == 0)
        })
    }
}

impl Scheduler {
    pub(super) fn draft_up(&mut self, worker: WorkerId, limits: DraftLimits) {
        if worker >= self.drafts.len() {
            self.drafts.resize_with(worker + 1, DraftWorker::default);
        }
        self.unseat(worker);
        self.drafts[worker].limits = Some(limits);
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

    /// Opens the sequence at the usable worker that has the fewest of ours.
    pub(super) fn take_seat(&mut self, id: SequenceId, now: Instant) {
        let Some(len) = self
            .sequences
            .get(&id)
            .map(|sequence| sequence.committed.len())
        else {
            return;
        };
        let (Some(worker), Some(sequence)) = (self.choose(len, now), self.sequences.get_mut(&id))
        else {
            return;
        };
        // Where a text depends on which of its rounds had drafts, its first one must not depend on who
        // prefills faster: else a seed would not give its text again.
        let waits =
            sequence.rule() != VerificationRule::Coupled && sequence.committed.generated() == 0;
        self.drafts[worker].seats += 1;
        sequence.seat_epoch += 1;
        let waiting = waits.then_some(now);
        sequence.seat = Some(Seat::new(worker, sequence.seat_epoch, len, waiting));
        let open = DraftOpen {
            sequence: id,
            epoch: sequence.seat_epoch,
            token_ids: sequence.committed.tokens().to_vec(),
            decoding: Some(sequence.choice.decoding()),
        };
        self.frames.open(worker, open);
    }

    pub(super) fn choose(&self, len: usize, now: Instant) -> Option<WorkerId> {
        let usable = self
            .drafts
            .iter()
            .enumerate()
            .filter(|(_, worker)| worker.is_usable(len, now));
        usable
            .min_by_key(|(_, worker)| (worker.late, worker.seats))
            .map(|(id, _)| id)
    }

    /// Gives up a sequence's seat, if it has one.
    pub(super) fn leave_draft(&mut self, id: SequenceId) {
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
