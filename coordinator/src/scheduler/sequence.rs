//! One sequence: what is committed, and where it stands with the workers.

use super::proposals::Drafted;
use super::{Summary, WorkerId};
use crate::commit::{Committed, FinishReason};
use crate::request::Choice;
use proto::v1::VerificationRule;
use std::sync::Arc;
use std::time::Instant;

/// What speculation did for one sequence. Counts committed tokens only.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Stats {
    /// Verification rounds, plain ones included.
    pub(crate) rounds: u32,
    /// Drafted tokens that were verified.
    pub(crate) drafted: u32,
    /// Those of them that were committed.
    pub(crate) accepted: u32,
    /// Rounds with a proposal, by how many of its tokens were committed.
    pub(crate) histogram: Vec<u32>,
}

impl Stats {
    /// Counts a round that verified `drafted` tokens, of which `accepted` were committed.
    pub(super) fn record(&mut self, drafted: usize, accepted: usize) {
        self.rounds += 1;
        if drafted == 0 {
            return;
        }
        // A proposal has at most 16 tokens, so the counts fit.
        self.drafted += drafted as u32;
        self.accepted += accepted as u32;
        if self.histogram.len() <= accepted {
            self.histogram.resize(accepted + 1, 0);
        }
        self.histogram[accepted] += 1;
    }
}

/// Where a sequence stands at the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AtTarget {
    /// Not there. To be opened, but not before this.
    Absent {
        /// The earliest time.
        not_before: Instant,
    },
    /// Prefilling.
    Opening {
        /// When that should have been answered.
        due: Instant,
    },
    /// There, in no batch.
    Idle,
    /// In the batch that is being verified.
    Verifying,
}

/// A sequence's place at a draft worker.
#[derive(Debug)]
pub(super) struct Seat {
    /// The worker.
    pub(super) worker: WorkerId,
    /// The epoch of the sequence there.
    pub(super) epoch: u32,
    /// False while it prefills.
    pub(super) opened: bool,
    /// How many committed tokens were sent to it.
    pub(super) sent: usize,
    /// Since when a proposal after all committed tokens is waited for, or the prefill before the first.
    pub(super) waiting: Option<Instant>,
    /// How many of its proposals were verified.
    pub(super) proposals: u32,
}

/// A request that runs.
#[derive(Debug)]
pub(super) struct Sequence {
    pub(super) choice: Choice,
    pub(super) committed: Committed,
    pub(super) stats: Stats,
    pub(super) at_target: AtTarget,
    /// The epoch at the target.
    pub(super) epoch: u32,
    /// How often the target lost the sequence since its last verdict.
    pub(super) losses: u32,
    /// True while the client is slow.
    pub(super) blocked: bool,
    pub(super) seat: Option<Seat>,
    /// The last epoch at any draft worker.
    pub(super) seat_epoch: u32,
    /// How often draft workers lost the sequence.
    pub(super) seat_losses: u32,
    /// Drafted tokens after all committed ones; empty where there are none.
    pub(super) proposal: Drafted,
}

impl Sequence {
    pub(super) fn new(choice: Choice, now: Instant) -> Self {
        Self {
            committed: Committed::new(Arc::clone(&choice.generation)),
            choice,
            stats: Stats::default(),
            at_target: AtTarget::Absent { not_before: now },
            epoch: 1,
            losses: 0,
            blocked: false,
            seat: None,
            seat_epoch: 0,
            seat_losses: 0,
            proposal: Drafted::default(),
        }
    }

    /// The length of the committed tokens, as messages carry it: contexts are far below 2^32.
    pub(super) fn base_len(&self) -> u32 {
        self.committed.len() as u32
    }

    /// What is told of it at its end.
    pub(super) fn summary(self, reason: FinishReason) -> Summary {
        Summary {
            reason,
            prompt_tokens: self.committed.prompt_len(),
            completion_tokens: self.committed.generated(),
            stats: self.stats,
        }
    }

    /// How its proposals are verified.
    pub(super) fn rule(&self) -> VerificationRule {
        self.choice.generation.decoding.rule()
    }

    /// True where the next round need not wait for anything.
    pub(super) fn is_ready(&self) -> bool {
        let waits = self
            .seat
            .as_ref()
            .is_some_and(|seat| seat.waiting.is_some());
        let waits = waits && self.draft_len() > 0;
        self.at_target == AtTarget::Idle && !self.blocked && !waits
    }

    /// How many drafted tokens the next round can use: the round adds one token of the target's own.
    pub(super) fn draft_len(&self) -> usize {
        let most = self.choice.generation.max_draft_tokens;
        most.min(self.committed.budget_left().saturating_sub(1))
    }
}
