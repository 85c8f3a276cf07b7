//! The scheduler's half that deals with draft workers' proposals, and with how long they are waited
//! for.
//!
//! Nothing here can hold a sequence up for longer than the draft patience, and nothing that a draft
//! worker says reaches a text: its tokens are proposals, no more.

use super::proposals::Drafted;
use super::sequence::{AtTarget, Seat};
use super::{Scheduler, SequenceId, WorkerId};
use proto::v1::{CloseReason, Closed, DraftCommit, DraftEvent, DraftOpened, Proposal};
use std::time::{Duration, Instant};

/// How often draft workers may lose one sequence before it goes on without them.
const MAX_LOSSES: u32 = 3;

/// After this many proposals of one worker, earlier losses are forgiven.
const FORGIVEN_AFTER: u32 = 16;

/// How long a worker that had no room is left alone.
const FULL_PAUSE: Duration = Duration::from_secs(1);

impl Scheduler {
    pub(super) fn draft_event(&mut self, worker: WorkerId, event: DraftEvent, now: Instant) {
        let state = &mut self.drafts[worker];
        if state.limits.is_none() {
            self.stale += 1;
            return;
        }
        if std::mem::take(&mut state.late) {
            tracing::info!(worker, "draft worker answers again");
        }
        if let Some(load) = event.load {
            state.load = load.active_sequences as usize;
        }
        for closed in event.closed {
            self.draft_closed(worker, &closed, now);
        }
        for opened in event.opened {
            self.draft_opened(worker, opened, now);
        }
        for proposal in event.proposals {
            self.proposal(worker, proposal);
        }
    }

    fn draft_closed(&mut self, worker: WorkerId, closed: &Closed, now: Instant) {
        if self.seat(worker, closed.sequence, closed.epoch).is_none() {
            // The answer to our own close is no surprise.
            self.stale += u64::from(closed.reason() != CloseReason::Requested);
            return;
        }
        tracing::debug!(worker, sequence = closed.sequence, reason = ?closed.reason(), detail = closed.detail, "sequence lost at a draft worker");
        if closed.reason() == CloseReason::Overloaded {
            self.drafts[worker].full_until = Some(now + FULL_PAUSE);
        }
        self.drafts[worker].seats -= 1;
        if let Some(sequence) = self.sequences.get_mut(&closed.sequence) {
            sequence.seat = None;
            sequence.seat_losses += 1;
        }
    }

    fn draft_opened(&mut self, worker: WorkerId, opened: DraftOpened, now: Instant) {
        let id = opened.sequence;
        match self
            .seat(worker, id, opened.epoch)
            .filter(|seat| !seat.opened)
        {
            Some(seat) => (seat.opened, seat.waiting) = (true, None),
            None => {
                self.stale += 1;
                return;
            }
        }
        // What is being verified at the moment is sent with its verdict.
        if self
            .sequences
            .get(&id)
            .is_some_and(|sequence| sequence.at_target == AtTarget::Idle)
        {
            self.sync_draft(id, now);
        }
    }

    fn proposal(&mut self, worker: WorkerId, proposal: Proposal) {
        let id = proposal.sequence;
        let (len, at_target) = match self.sequences.get(&id) {
            Some(sequence) => (sequence.base_len(), sequence.at_target),
            None => (0, AtTarget::Verifying),
        };
        match self.seat(worker, id, proposal.epoch) {
            Some(seat) if proposal.base_len == len => seat.waiting = None,
            _ => {
                self.stale += 1;
                return;
            }
        }
        if at_target != AtTarget::Idle {
            self.stale += 1;
            return;
        }
        let Some(sequence) = self.sequences.get_mut(&id) else {
            return;
        };
        let drafted = Drafted::new(proposal, sequence.rule());
        if drafted.is_none() {
            tracing::debug!(worker, sequence = id, "malformed proposal dropped");
            self.malformed += 1;
        }
        sequence.proposal = drafted.unwrap_or_default();
    }

    /// A sequence's seat, where it is this one.
    fn seat(&mut self, worker: WorkerId, id: SequenceId, epoch: u32) -> Option<&mut Seat> {
        let seat = self.sequences.get_mut(&id)?.seat.as_mut()?;
        (seat.worker == worker && seat.epoch == epoch).then_some(seat)
    }

    /// Brings the draft up to what is committed and asks for a proposal after it, where one is of
    /// use; finds a draft worker where the sequence has none.
    pub(super) fn sync_draft(&mut self, id: SequenceId, now: Instant) {
        let Some(sequence) = self
            .sequences
            .get(&id)
            .filter(|sequence| sequence.draft_len() > 0)
        else {
            return;
        };
        let len = sequence.committed.len();
        match &sequence.seat {
            None if sequence.seat_losses <= MAX_LOSSES => self.take_seat(id, now),
            Some(seat) if self.drafts[seat.worker].late => {
                // Its cache there is worth nothing while another worker would answer.
                let other = self.choose(len, now);
                if other.is_some_and(|other| !self.drafts[other].late) {
                    self.leave_draft(id);
                    self.take_seat(id, now);
                }
            }
            Some(seat) if seat.opened && seat.sent < len => self.send_commit(id, now),
            _ => {}
        }
    }

    fn send_commit(&mut self, id: SequenceId, now: Instant) {
        let Some(sequence) = self.sequences.get_mut(&id) else {
            return;
        };
        let want = sequence.draft_len();
        let Some(seat) = &mut sequence.seat else {
            return;
        };
        let limits = self.drafts[seat.worker].limits;
        let want = limits.map_or(0, |limits| {
            let room = limits
                .context_length
                .saturating_sub(sequence.committed.len());
            want.min(limits.max_draft_tokens).min(room)
        });
        if want == 0 {
            return;
        }
        let commit = DraftCommit {
            sequence: id,
            epoch: seat.epoch,
            base_len: seat.sent as u32,
            token_ids: sequence.committed.tokens()[seat.sent..].to_vec(),
            want: want as u32,
            ..DraftCommit::default()
        };
        seat.sent = sequence.committed.len();
        seat.waiting = Some(now);
        if seat.proposals >= FORGIVEN_AFTER {
            sequence.seat_losses = 0;
        }
        self.frames.commit(seat.worker, commit);
    }

    /// Stops waiting for workers that let a deadline pass.
    pub(super) fn check_drafts(&mut self, now: Instant) {
        self.check_prefills(now);
        for worker in 0..self.drafts.len() {
            let mut waiting = self.sequences.values_mut().filter_map(|sequence| {
                let seat = sequence
                    .seat
                    .as_mut()
                    .filter(|seat| seat.worker == worker)?;
                Some(&mut seat.waiting)
            });
            let patience = self.patience.draft;
            if !waiting.any(|since| since.is_some_and(|since| since + patience <= now)) {
                continue;
            }
            tracing::warn!(
                worker,
                "draft worker is late: going on without it until it answers"
            );
            self.drafts[worker].late = true;
            for sequence in self.sequences.values_mut() {
                if let Some(seat) = sequence.seat.as_mut().filter(|seat| seat.worker == worker) {
                    seat.waiting = None;
                }
            }
        }
    }

    /// Stops waiting for drafts that prefill: that takes its time, and is not held against a worker.
    fn check_prefills(&mut self, now: Instant) {
        let patience = self.patience.draft;
        for sequence in self.sequences.values_mut() {
            if let Some(seat) = sequence.seat.as_mut().filter(|seat| !seat.opened) {
                seat.waiting = seat.waiting.filter(|since| *since + patience > now);
            }
        }
    }

    pub(super) fn draft_deadline(&self) -> Option<Instant> {
        let waiting = self
            .sequences
            .values()
            .filter_map(|sequence| sequence.seat.as_ref()?.waiting);
        waiting.min().map(|since| since + self.patience.draft)
    }
}
