//! What draft workers are asked for, and what becomes of what they propose.
//!
//! A worker has one request of a sequence at a time: while its proposal is awaited, what is committed
//! meanwhile is kept back, so that no round that went on without it makes it draft in vain. Nothing
//! here can hold a sequence up for longer than the draft patience, and nothing that a draft worker
//! says reaches a text: its tokens are proposals, no more.

use super::guesses::Guess;
use super::proposals::Drafted;
use super::sequence::{AtTarget, Seat};
use super::{Scheduler, Sequence, SequenceId, WorkerId};
use proto::v1::{CloseReason, Closed, DraftCommit, DraftEvent, DraftOpened, Proposal};
use std::time::{Duration, Instant};

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
        self.observe_drafting(worker, &event, now);
        for closed in event.closed {
            self.draft_closed(worker, &closed, now);
        }
        for opened in event.opened {
            self.draft_opened(worker, opened, now);
        }
        for proposal in event.proposals {
            self.proposal(worker, proposal, now);
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
        self.sync_idle(id, now);
    }

    /// Takes a proposal in, as far as it agrees with what is committed by now.
    fn proposal(&mut self, worker: WorkerId, proposal: Proposal, now: Instant) {
        let (id, base) = (proposal.sequence, proposal.base_len as usize);
        let answers = proposal.assumed.is_empty();
        let Some(seat) = self.seat(worker, id, proposal.epoch) else {
            self.stale += 1;
            return;
        };
        let (wanted, probed) = if answers {
            seat.waiting = None;
            (seat.wanted, std::mem::take(&mut seat.probing))
        } else {
            (seat.ahead_wanted, false)
        };
        let Some(sequence) = self.sequences.get_mut(&id) else {
            return;
        };
        let Some(guess) = guess(sequence, proposal, wanted) else {
            tracing::debug!(worker, sequence = id, "malformed proposal dropped");
            self.malformed += 1;
            return self.sync_idle(id, now);
        };
        // One that comes too late tells as much as one that is verified.
        let since = sequence.committed.tokens().get(base..);
        let refuted = since.filter(|_| answers && sequence.is_coupled());
        let refuted = refuted.and_then(|since| guess.refuted_by(since));
        if let Some(round) = refuted {
            let measured = &mut self.drafts[worker].measured;
            measured.observe(round, &mut sequence.control);
        }
        if probed && refuted.is_none() {
            sequence.control.watch(base, guess.drafted.ids, wanted);
        } else if !sequence.take_in(base, guess) {
            self.stale += 1;
        } else if sequence.guesses.best().is_some()
            && let Some(seat) = &mut sequence.seat
        {
            // An outcome that comes after its verdict is the answer: it is not drafted twice.
            seat.waiting = None;
        }
        if answers {
            self.sync_idle(id, now);
        }
    }

    /// A sequence's seat, where it is this one.
    fn seat(&mut self, worker: WorkerId, id: SequenceId, epoch: u32) -> Option<&mut Seat> {
        let seat = self.sequences.get_mut(&id)?.seat.as_mut()?;
        (seat.worker == worker && seat.epoch == epoch).then_some(seat)
    }

    /// [`sync_draft`](Self::sync_draft), but for a sequence that is being verified: what it lacks is
    /// sent with the verdict.
    fn sync_idle(&mut self, id: SequenceId, now: Instant) {
        let sequence = self.sequences.get(&id);
        if sequence.is_some_and(|sequence| sequence.at_target == AtTarget::Idle) {
            self.sync_draft(id, now);
        }
    }

    /// Brings the draft up to what is committed and asks for a proposal after it, where one is of
    /// use; finds a draft worker where the sequence has none.
    pub(super) fn sync_draft(&mut self, id: SequenceId, now: Instant) {
        let Some(sequence) = self.sequences.get(&id).filter(|sequence| {
            sequence.draft_len() > 0 && sequence.choice.generation.sources.model
        }) else {
            return;
        };
        let len = sequence.committed.len();
        match &sequence.seat {
            None if sequence.wants_seat() => self.take_seat(id, now),
            Some(seat) if self.drafts[seat.worker].late => {
                // Its cache there is worth nothing while another worker would answer.
                let other = self.choose(len, now);
                if other.is_some_and(|other| !self.drafts[other].late) {
                    self.leave_draft(id);
                    self.take_seat(id, now);
                }
            }
            Some(seat) if seat.opened && seat.sent < len && seat.waiting.is_none() => {
                self.ask_or_move(id, now);
            }
            _ => {}
        }
    }

    fn ask_or_move(&mut self, id: SequenceId, now: Instant) {
        if !self.migrate(id, now) {
            self.ask(id, now);
        }
    }

    /// Sends what was committed and asks for what the controller finds to pay.
    fn ask(&mut self, id: SequenceId, now: Instant) {
        let Some((worker, demand)) = self.demand(id) else {
            if let Some(seat) = self.sequences.get_mut(&id).and_then(|it| it.seat.as_mut()) {
                seat.ahead_wanted = 0;
            }
            return;
        };
        let limits = self.drafts[worker].limits.as_ref();
        let Some(sequence) = self.sequences.get_mut(&id) else {
            return;
        };
        let most = limits.map_or(0, |limits| {
            let room = limits.context_length - sequence.committed.len().min(limits.context_length);
            limits.max_draft_tokens.min(room).min(sequence.draft_len())
        });
        let want = demand.want.min(most);
        let covered = sequence.guesses.best().is_some();
        let Some(seat) = sequence.seat.as_mut().filter(|_| want > 0) else {
            return;
        };
        let commit = DraftCommit {
            sequence: id,
            epoch: seat.epoch,
            base_len: seat.sent as u32,
            token_ids: sequence.committed.tokens()[seat.sent..].to_vec(),
            want: want as u32,
            ahead_want: demand.ahead_want as u32,
            ahead_width: demand.ahead_width as u32,
            min_confidence: demand.min_confidence,
        };
        seat.sent = sequence.committed.len();
        seat.asked = Some(now);
        seat.waiting = (!covered && !demand.probe).then_some(now);
        seat.wanted = want;
        seat.ahead_wanted = demand.ahead_want;
        seat.probing = demand.probe;
        if seat.proposals >= FORGIVEN_AFTER {
            sequence.seat_losses = 0;
        }
        self.frames.commit(worker, commit);
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

impl Sequence {
    /// Keeps `guess`, which follows the first `base` committed tokens, as far as it agrees with those
    /// after them. False where it is of no use any more.
    fn take_in(&mut self, base: usize, mut guess: Guess) -> bool {
        let Some(since) = self.committed.tokens().get(base..) else {
            return false;
        };
        let coupled = self.is_coupled();
        let agrees = since.is_empty() || (coupled && guess.advance(since));
        if !agrees {
            return false;
        }
        if !coupled {
            self.guesses.clear();
        }
        self.guesses.add(guess)
    }
}

/// What `proposal` holds for `sequence`; none where it is malformed.
fn guess(sequence: &Sequence, mut proposal: Proposal, wanted: usize) -> Option<Guess> {
    let outcome = std::mem::take(&mut proposal.assumed);
    let (assumed, rank) = (outcome.len(), proposal.rank);
    if assumed > 0 && !sequence.is_coupled() {
        return None;
    }
    let mut drafted = Drafted::new(proposal, sequence.rule())?;
    // Outcomes after a whole proposal are a token shorter than the others.
    let wanted = if assumed > 0 {
        drafted.ids.len()
    } else {
        wanted
    };
    drafted.put_before(outcome);
    Some(Guess {
        drafted,
        assumed,
        rank,
        wanted,
    })
}
