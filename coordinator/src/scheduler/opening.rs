//! Sequences come to the target and leave it: opened, lost, opened again, closed.

use super::sequence::AtTarget;
use super::verdicts::fitting;
use super::{Scheduler, Sequence, SequenceId};
use crate::commit::{NewToken, Origin};
use proto::v1::{
    CloseReason, Closed, TargetClose, TargetOpen, TargetOpened, target_command::Command,
};
use service::Class;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

/// How often the target may lose one sequence between verdicts before its request fails.
pub(super) const MAX_LOSSES: u32 = 5;

/// The pause before the second attempt to open a sequence; doubled for each further one.
const REOPEN_PAUSE: Duration = Duration::from_millis(50);

/// Prefill that is under way may take this long per token on top of every deadline. Far more than
/// any usable target takes: a hung one is to be found out, a slow one not to be punished.
const PREFILL_ALLOWANCE: Duration = Duration::from_millis(100);

/// When a client that was turned away may try again.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The sequences that wait for the target, and whose turn it is.
#[derive(Debug, Default)]
struct Queues<'a> {
    /// By how many sequences of a tenant the target holds, then by its oldest that waits.
    turns: BTreeSet<(usize, SequenceId, &'a str)>,
    waiting: BTreeMap<&'a str, VecDeque<SequenceId>>,
}

impl<'a> Queues<'a> {
    /// Those of `sequences`, which come oldest first, that may be opened at `now`.
    fn new(sequences: impl Iterator<Item = (&'a SequenceId, &'a Sequence)>, now: Instant) -> Self {
        let mut held = BTreeMap::new();
        let mut queues = Self::default();
        for (id, sequence) in sequences {
            let tenant = &*sequence.choice.generation.tenant;
            if sequence.is_held() {
                *held.entry(tenant).or_default() += 1;
            } else if sequence.waits_for_target(now) {
                queues.waiting.entry(tenant).or_default().push_back(*id);
            }
        }
        for (tenant, waiting) in &queues.waiting {
            let held = held.get(tenant).copied().unwrap_or(0);
            let first = waiting.front().map(|first| (held, *first, *tenant));
            queues.turns.extend(first);
        }
        queues
    }
}

impl Iterator for Queues<'_> {
    type Item = SequenceId;

    fn next(&mut self) -> Option<SequenceId> {
        let (held, id, tenant) = self.turns.pop_first()?;
        let waiting = self.waiting.get_mut(tenant)?;
        waiting.pop_front();
        let first = waiting.front().map(|first| (held + 1, *first, tenant));
        self.turns.extend(first);
        Some(id)
    }
}

impl Sequence {
    /// True where the target holds it, or was told to.
    fn is_held(&self) -> bool {
        !matches!(self.at_target, AtTarget::Absent { .. })
    }

    fn waits_for_target(&self, now: Instant) -> bool {
        let due = matches!(self.at_target, AtTarget::Absent { not_before } if not_before <= now);
        due && !self.blocked
    }
}

impl Scheduler {
    /// Opens sequences at the target, as many as it takes: by turns among tenants, of which the one
    /// with the fewest sequences there is first, and each tenant's oldest first.
    pub(super) fn open_at_target(&mut self, now: Instant) {
        let Some(limits) = &self.target.limits else {
            return;
        };
        let (mut held, mut waiting) = (0, false);
        for sequence in self.sequences.values() {
            held += usize::from(sequence.is_held());
            waiting |= sequence.waits_for_target(now);
        }
        if !waiting {
            return;
        }
        let room = limits.max_sequences.saturating_sub(held);
        let queues = Queues::new(self.sequences.iter(), now);
        let next: Vec<_> = queues.take(room).collect();
        for id in next {
            self.open_one(id, now);
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
            decoding: Some(sequence.choice.decoding()),
            logprobs: sequence.choice.generation.logprobs,
            traceparent: String::new(),
        };
        let has_draft = sequence.seat.is_some();
        self.send_target(Command::Open(open));
        if !has_draft {
            // It prefills beside the target. Those that wait for the target hold no place there.
            self.sync_draft(id, now);
        }
    }

    pub(super) fn target_opened(&mut self, opened: TargetOpened, now: Instant) {
        let sequence = self.sequences.get_mut(&opened.sequence).filter(|sequence| {
            matches!(sequence.at_target, AtTarget::Opening { .. })
                && (sequence.epoch, sequence.base_len()) == (opened.epoch, opened.base_len)
        });
        let Some(sequence) = sequence else {
            self.stale += 1;
            return;
        };
        let id = opened.sequence;
        self.target.answered();
        let asked = sequence.choice.generation.logprobs.is_some();
        let Some(mut logprobs) = fitting(asked, Vec::from_iter(opened.logprobs), 1) else {
            self.misfit(id, "an opened sequence lacks its log-probabilities", now);
            return;
        };
        sequence.at_target = AtTarget::Idle;
        sequence.idle_since = now;
        let first = NewToken {
            id: opened.next_token,
            origin: Origin::Target,
            logprobs: logprobs.pop(),
        };
        sequence.guesses.commit(&[first.id]);
        let delta = sequence.committed.commit([first]);
        self.deliver(id, delta, now);
    }

    pub(super) fn target_closed(&mut self, closed: Closed, now: Instant) {
        let id = closed.sequence;
        let current = self.sequences.get(&id).is_some_and(|sequence| {
            sequence.epoch == closed.epoch && !matches!(sequence.at_target, AtTarget::Absent { .. })
        });
        if !current {
            self.stale += 1;
        } else if closed.reason() == CloseReason::Invalid && !closed.field.is_empty() {
            self.refused(id, closed, now);
        } else {
            self.reopen(id, closed.reason(), &closed.detail, now);
        }
    }

    /// The target finds a request wrong where the coordinator could not see it.
    fn refused(&mut self, id: SequenceId, closed: Closed, now: Instant) {
        if let Some(sequence) = self.sequences.get_mut(&id) {
            // It holds the sequence no longer, so nothing is to be closed there.
            sequence.at_target = AtTarget::Absent { not_before: now };
        }
        let Closed { field, detail, .. } = closed;
        self.fail(id, Class::Invalid { field }, detail);
    }

    /// The target's answer does not fit what was asked: its view of the sequence is another.
    pub(super) fn misfit(&mut self, id: SequenceId, detail: &str, now: Instant) {
        self.close_at_target(id);
        self.reopen(id, CloseReason::Desync, detail, now);
    }

    /// The target no longer holds a sequence: it is to be opened again, unless that is hopeless.
    pub(super) fn reopen(
        &mut self,
        id: SequenceId,
        reason: CloseReason,
        detail: &str,
        now: Instant,
    ) {
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

    pub(super) fn prefill_allowance(&self) -> Duration {
        let opening = self
            .sequences
            .values()
            .filter(|sequence| matches!(sequence.at_target, AtTarget::Opening { .. }));
        opening
            .map(|sequence| PREFILL_ALLOWANCE * sequence.base_len())
            .sum()
    }
}
