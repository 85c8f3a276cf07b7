//! What is known of the target: whether it is there, what it owes, and how long that may take.

use super::batching::Sent;
use super::opening::MAX_LOSSES;
use super::sequence::AtTarget;
use super::{Action, Processors, Scheduler, SequenceId};
use proto::v1::{TargetCommand, TargetEvent, target_command::Command, target_event};
use service::Class;
use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

/// How often a target that comes back without ever answering gets the full time to answer.
const MAX_RETURNS: u32 = 2;

/// What the target takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TargetLimits {
    /// Sequences at once.
    pub(crate) max_sequences: usize,
    /// Tokens in one proposal.
    pub(crate) max_draft_tokens: usize,
    /// What it computes on.
    pub(crate) processors: Processors,
}

/// What is known of the target.
#[derive(Debug, Default)]
pub(super) struct TargetState {
    /// Set while it is connected.
    pub(super) limits: Option<TargetLimits>,
    /// Numbers the batches.
    pub(super) last_step: u64,
    /// The batches that it verifies, in order.
    pub(super) batches: VecDeque<Batch>,
    /// When the last verdicts came.
    pub(super) last_verdicts: Option<Instant>,
    /// The same until the first time since then that a batch could be sent.
    pub(super) unfollowed_verdicts: Option<Instant>,
    /// A proposal is waited for until then, and nothing is sent before.
    pub(super) wait_until: Option<Instant>,
    /// Since when it has done nothing for us: from its loss to its next answer.
    stalled: Option<Instant>,
    /// How often it came back since its last answer.
    returns: u32,
}

/// A batch that is being verified.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) step: u64,
    pub(super) items: BTreeMap<SequenceId, Sent>,
    /// Rows of the target's step: one more than drafted tokens for each item.
    pub(super) rows: usize,
    pub(super) sent: Instant,
    /// True where another batch was under way.
    pub(super) queued: bool,
    /// True where prompts were prefilled when it was sent.
    pub(super) disturbed: bool,
    /// True where draft workers draft ahead meanwhile.
    pub(super) ahead: bool,
    /// When its verdicts should have come.
    pub(super) due: Instant,
}

impl TargetState {
    /// Nobody waited until now.
    pub(super) fn restart_stall(&mut self, now: Instant) {
        self.stalled = self.stalled.map(|_| now);
    }

    /// Since when a batch is computed, or on its way to that: one that was queued behind another waited for
    /// it first.
    pub(super) fn turn_of(&self, batch: &Batch) -> Instant {
        let before = self.last_verdicts.filter(|_| batch.queued);
        before.map_or(batch.sent, |before| before.max(batch.sent))
    }

    pub(super) fn answered(&mut self) {
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
        self.find_competitors();
        self.target.returns += 1;
        if self.target.returns <= MAX_RETURNS {
            self.target.restart_stall(now);
        }
    }

    pub(super) fn target_down(&mut self, now: Instant) {
        self.target.limits = None;
        self.target.batches.clear();
        self.target.last_verdicts = None;
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
            .chain(self.target.wait_until)
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
            .chain(self.target.batches.iter().map(|batch| batch.due))
            .min()
    }

    /// When waiting for a lost target ends.
    fn stall_ends(&self) -> Option<Instant> {
        let since = self.target.stalled.filter(|_| !self.sequences.is_empty())?;
        Some(since + self.patience.target + self.prefill_allowance())
    }

    pub(super) fn send_target(&mut self, command: Command) {
        let command = TargetCommand {
            command: Some(command),
        };
        self.actions.push(Action::SendTarget(Box::new(command)));
    }
}
