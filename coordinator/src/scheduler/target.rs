//! The scheduler's half that deals with the target: opening sequences, verifying, and its loss.

use super::sequence::AtTarget;
use super::{Action, Scheduler, SequenceId};
use crate::commit::Origin;
use proto::v1::{
    CloseReason, Closed, TargetClose, TargetCommand, TargetEvent, TargetOpen, TargetOpened,
    Verdict, VerdictBatch, VerifyBatch, VerifyItem, target_command::Command, target_event,
};
use service::Class;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How often the target may lose one sequence between verdicts before its request fails.
const MAX_LOSSES: u32 = 5;

/// The pause before the second attempt to open a sequence; doubled for each further one.
const REOPEN_PAUSE: Duration = Duration::from_millis(50);

/// How often a target that comes back without ever answering gets the full time to answer.
const MAX_RETURNS: u32 = 2;

/// Prefill that is under way may take this long per token on top of every deadline. Far more than
/// any usable target takes: a hung one is to be found out, a slow one not to be punished.
const PREFILL_ALLOWANCE: Duration = Duration::from_millis(100);

/// When a client that was turned away may try again.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// What the target takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TargetLimits {
    /// Sequences at once.
    pub(crate) max_sequences: usize,
    /// Tokens in one proposal.
    pub(crate) max_draft_tokens: usize,
}

/// What is known of the target.
#[derive(Debug, Default)]
pub(super) struct TargetState {
    /// Set while it is connected.
    limits: Option<TargetLimits>,
    /// Numbers the batches.
    last_step: u64,
    /// The batch that it verifies.
    batch: Option<Batch>,
    /// Since when it has done nothing for us: from its loss to its next answer.
    stalled: Option<Instant>,
    /// How often it came back since its last answer.
    returns: u32,
}

/// A batch that is being verified.
#[derive(Debug)]
struct Batch {
    step: u64,
    items: BTreeMap<SequenceId, VerifyItem>,
    /// When its verdicts should have come.
    due: Instant,
}

impl TargetState {
    /// Nobody waited until now.
    pub(super) fn restart_stall(&mut self, now: Instant) {
        self.stalled = self.stalled.map(|_| now);
    }

    fn answered(&mut self) {
        self.stalled = None;
        self.returns = 0;
    }
}

impl Scheduler {
    pub(super) fn target_up(&mut self, limits: TargetLimits, replaced: bool, now: Instant) {
        self.target_down(now);
        if replaced {
            self.fail_all(&Class::Unavailable, "the target serves another model now");
        }
        self.target.limits = Some(limits);
        self.target.returns += 1;
        if self.target.returns <= MAX_RETURNS {
            self.target.restart_stall(now);
        }
    }

    pub(super) fn target_down(&mut self, now: Instant) {
        self.target.limits = None;
        self.target.batch = None;
        self.target.stalled.get_or_insert(now);
        let mut hopeless = Vec::new();
        for (id, sequence) in &mut self.sequences {
            // Who had work there may be what brought it down.
            match sequence.at_target {
                AtTarget::Absent { .. } => continue,
                AtTarget::Idle => {}
                AtTarget::Opening { .. } | AtTarget::Verifying => sequence.losses += 1,
            }
            sequence.at_target = AtTarget::Absent { not_before: now };
            sequence.epoch += 1;
            if sequence.losses > MAX_LOSSES {
                hopeless.push(*id);
            }
        }
        for id in hopeless {
            self.fail(
                id,
                Class::Unavailable,
                "the target was lost again and again",
            );
        }
    }

    pub(super) fn target_event(&mut self, event: TargetEvent, now: Instant) {
        if self.target.limits.is_none() {
            self.stale += 1;
            return;
        }
        match event.event {
            Some(target_event::Event::Opened(opened)) => self.target_opened(opened, now),
            Some(target_event::Event::Verdicts(verdicts)) => self.verdicts(verdicts, now),
            Some(target_event::Event::Closed(closed)) => self.target_closed(closed, now),
            // Its limit of sequences is known; it says so itself when others fill it.
            Some(target_event::Event::Load(_)) | None => {}
        }
    }

    fn target_opened(&mut self, opened: TargetOpened, now: Instant) {
        let sequence = self.sequences.get_mut(&opened.sequence).filter(|sequence| {
            matches!(sequence.at_target, AtTarget::Opening { .. })
                && (sequence.epoch, sequence.base_len()) == (opened.epoch, opened.base_len)
        });
        let Some(sequence) = sequence else {
            self.stale += 1;
            return;
        };
        self.target.answered();
        sequence.at_target = AtTarget::Idle;
        sequence.proposal.clear();
        let delta = sequence
            .committed
            .commit([(opened.next_token, Origin::Target)]);
        self.deliver(opened.sequence, delta, now);
    }

    fn verdicts(&mut self, verdicts: VerdictBatch, now: Instant) {
        let answered = self
            .target
            .batch
            .take_if(|batch| batch.step == verdicts.step);
        let Some(mut batch) = answered else {
            self.stale += 1;
            return;
        };
        self.target.answered();
        for verdict in verdicts.items {
            match batch.items.remove(&verdict.sequence) {
                Some(item) => self.verdict(item, verdict, now),
                None => self.stale += 1,
            }
        }
        // The target failed these, whether or not it has said so yet.
        for (id, item) in batch.items {
            let missed = self.sequences.get(&id).is_some_and(|sequence| {
                sequence.at_target == AtTarget::Verifying && sequence.epoch == item.epoch
            });
            if missed {
                self.close_at_target(id);
                self.reopen(id, CloseReason::Desync, "no verdict came", now);
            }
        }
    }

    fn verdict(&mut self, item: VerifyItem, verdict: Verdict, now: Instant) {
        let id = item.sequence;
        let sequence = self.sequences.get_mut(&id).filter(|sequence| {
            sequence.at_target == AtTarget::Verifying && sequence.epoch == item.epoch
        });
        // Gone or re-opened since.
        let Some(sequence) = sequence else {
            self.stale += 1;
            return;
        };
        let accepted = item.draft_ids.get(..verdict.accepted as usize);
        let (Some(accepted), true) = (
            accepted,
            (verdict.epoch, verdict.base_len) == (item.epoch, item.base_len),
        ) else {
            self.close_at_target(id);
            self.reopen(
                id,
                CloseReason::Desync,
                "a verdict does not fit its proposal",
                now,
            );
            return;
        };
        let drafted = accepted.iter().map(|token| (*token, Origin::Draft));
        let run = drafted.chain([(verdict.next_token, Origin::Target)]);
        let delta = sequence.committed.commit(run);
        sequence.stats.record(item.draft_ids.len(), delta.drafted());
        sequence.losses = 0;
        sequence.at_target = AtTarget::Idle;
        self.deliver(id, delta, now);
    }

    fn target_closed(&mut self, closed: Closed, now: Instant) {
        let id = closed.sequence;
        let current = self.sequences.get(&id).is_some_and(|sequence| {
            sequence.epoch == closed.epoch && !matches!(sequence.at_target, AtTarget::Absent { .. })
        });
        if current {
            self.reopen(id, closed.reason(), &closed.detail, now);
        } else {
            self.stale += 1;
        }
    }

    /// The target no longer holds a sequence: it is to be opened again, unless that is hopeless.
    fn reopen(&mut self, id: SequenceId, reason: CloseReason, detail: &str, now: Instant) {
        let Some(sequence) = self.sequences.get_mut(&id) else {
            return;
        };
        sequence.at_target = AtTarget::Absent { not_before: now };
        sequence.epoch += 1;
        sequence.losses += 1;
        tracing::debug!(
            sequence = id,
            ?reason,
            detail,
            losses = sequence.losses,
            "sequence lost at the target"
        );
        let hopeless = match reason {
            CloseReason::Evicted | CloseReason::Desync | CloseReason::Overloaded => {
                sequence.losses > MAX_LOSSES
            }
            CloseReason::Unspecified
            | CloseReason::Requested
            | CloseReason::Invalid
            | CloseReason::Error => true,
        };
        if !hopeless {
            let again = sequence.losses > 1 || reason == CloseReason::Overloaded;
            let pause = if again {
                REOPEN_PAUSE * (1 << sequence.losses)
            } else {
                Duration::ZERO
            };
            sequence.at_target = AtTarget::Absent {
                not_before: now + pause,
            };
        } else if reason == CloseReason::Overloaded {
            let class = Class::Overloaded {
                retry_after: RETRY_AFTER,
            };
            self.fail(id, class, "the target has no room");
        } else {
            self.fail(id, Class::Internal, format!("the target failed: {detail}"));
        }
    }

    /// Tells the target to free a sequence, if it holds it.
    pub(super) fn close_at_target(&mut self, id: SequenceId) {
        let held = self
            .sequences
            .get(&id)
            .is_some_and(|sequence| !matches!(sequence.at_target, AtTarget::Absent { .. }));
        if held {
            self.send_target(Command::Close(TargetClose { sequence: id }));
        }
    }

    /// Opens sequences at the target, oldest first, as many as it takes.
    pub(super) fn open_at_target(&mut self, now: Instant) {
        let Some(limits) = self.target.limits else {
            return;
        };
        let held =
            |sequence: &&super::Sequence| !matches!(sequence.at_target, AtTarget::Absent { .. });
        let mut room = limits
            .max_sequences
            .saturating_sub(self.sequences.values().filter(held).count());
        for id in self.ids() {
            if room == 0 {
                break;
            }
            let waits = self.sequences.get(&id).is_some_and(|sequence| {
                !sequence.blocked
                    && matches!(sequence.at_target, AtTarget::Absent { not_before } if not_before <= now)
            });
            if waits {
                self.open_one(id, now);
                room -= 1;
            }
        }
    }

    fn open_one(&mut self, id: SequenceId, now: Instant) {
        let under_way = self.prefill_allowance();
        let Some(sequence) = self.sequences.get_mut(&id) else {
            return;
        };
        let own = PREFILL_ALLOWANCE * sequence.base_len();
        sequence.at_target = AtTarget::Opening {
            due: now + self.patience.target + under_way + own,
        };
        let open = TargetOpen {
            sequence: id,
            epoch: sequence.epoch,
            token_ids: sequence.committed.tokens().to_vec(),
            sampling: Some(sequence.sampling),
            key: Some(sequence.key),
        };
        self.send_target(Command::Open(open));
    }

    /// Starts a batch of all sequences that are ready, where the target is free.
    pub(super) fn verify_ready(&mut self, now: Instant) {
        let Some(limits) = self.target.limits else {
            return;
        };
        if self.target.batch.is_some() {
            return;
        }
        let mut items = BTreeMap::new();
        for (id, sequence) in self
            .sequences
            .iter_mut()
            .filter(|(_, sequence)| sequence.is_ready())
        {
            let mut draft_ids = std::mem::take(&mut sequence.proposal);
            draft_ids.truncate(sequence.draft_len().min(limits.max_draft_tokens));
            if let (Some(seat), false) = (&mut sequence.seat, draft_ids.is_empty()) {
                seat.proposals += 1;
            }
            sequence.at_target = AtTarget::Verifying;
            let item = VerifyItem {
                sequence: *id,
                epoch: sequence.epoch,
                base_len: sequence.base_len(),
                draft_ids,
            };
            items.insert(*id, item);
        }
        if items.is_empty() {
            return;
        }
        self.target.last_step += 1;
        let step = self.target.last_step;
        let due = now + self.patience.target + self.prefill_allowance();
        let batch = VerifyBatch {
            step,
            items: items.values().cloned().collect(),
        };
        self.target.batch = Some(Batch { step, items, due });
        self.send_target(Command::Verify(batch));
    }

    /// Takes a target that hangs for lost, and fails everything where it stays lost.
    pub(super) fn check_target(&mut self, now: Instant) {
        if self.answer_due().is_some_and(|due| due <= now) {
            tracing::warn!("target gave no answer in time");
            self.target_down(now);
            self.actions.push(Action::ResetTarget);
        }
        if self.stall_ends().is_some_and(|end| end <= now) {
            self.fail_all(&Class::Unavailable, "the target is lost");
        }
    }

    pub(super) fn target_deadline(&self, now: Instant) -> Option<Instant> {
        let reopen = self
            .sequences
            .values()
            .filter_map(|sequence| match sequence.at_target {
                // Those whose time has come wait for something that is an event.
                AtTarget::Absent { not_before } => Some(not_before).filter(|time| *time > now),
                _ => None,
            });
        reopen
            .chain(self.answer_due())
            .chain(self.stall_ends())
            .min()
    }

    /// When the first answer that the target owes is due.
    fn answer_due(&self) -> Option<Instant> {
        let opening = self
            .sequences
            .values()
            .filter_map(|sequence| match sequence.at_target {
                AtTarget::Opening { due } => Some(due),
                _ => None,
            });
        opening
            .chain(self.target.batch.as_ref().map(|batch| batch.due))
            .min()
    }

    /// When waiting for a lost target ends.
    fn stall_ends(&self) -> Option<Instant> {
        let since = self.target.stalled.filter(|_| !self.sequences.is_empty())?;
        Some(since + self.patience.target + self.prefill_allowance())
    }

    fn prefill_allowance(&self) -> Duration {
        let opening = self
            .sequences
            .values()
            .filter(|sequence| matches!(sequence.at_target, AtTarget::Opening { .. }));
        opening
            .map(|sequence| PREFILL_ALLOWANCE * sequence.base_len())
            .sum()
    }

    fn send_target(&mut self, command: Command) {
        let command = Some(command);
        self.actions
            .push(Action::SendTarget(TargetCommand { command }));
    }
}
