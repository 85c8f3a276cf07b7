//! One sequence: what is committed, and where it stands with the workers.

use super::WorkerId;
use crate::commit::Committed;
use crate::request::ValidRequest;
use proto::v1;
use speculation::TokenId;
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
    /// Since when a proposal after all committed tokens is waited for.
    pub(super) waiting: Option<Instant>,
    /// How many of its proposals were verified.
    pub(super) proposals: u32,
}

/// A request that runs.
#[derive(Debug)]
pub(super) struct Sequence {
    pub(super) committed: Committed,
    pub(super) sampling: v1::SamplingParams,
    pub(super) key: v1::NoiseKey,
    /// The most tokens to draft per round; 0 is plain decoding.
    pub(super) max_draft: usize,
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
    pub(super) proposal: Vec<TokenId>,
}

impl Sequence {
    pub(super) fn new(request: ValidRequest, now: Instant) -> Self {
        Self {
            committed: Committed::new(request.prompt, request.max_tokens, request.end_tokens),
            sampling: (&request.sampling).into(),
            key: request.key.into(),
            max_draft: request.max_draft_tokens,
            stats: Stats::default(),
            at_target: AtTarget::Absent { not_before: now },
            epoch: 1,
            losses: 0,
            blocked: false,
            seat: None,
            seat_epoch: 0,
            seat_losses: 0,
            proposal: Vec::new(),
        }
    }

    /// The length of the committed tokens, as messages carry it: contexts are far below 2^32.
    pub(super) fn base_len(&self) -> u32 {
        self.committed.len() as u32
    }

    /// True where the next round need not wait for anything.
    pub(super) fn is_ready(&self) -> bool {
        let waits = self
            .seat
            .as_ref()
            .is_some_and(|seat| seat.waiting.is_some());
        self.at_target == AtTarget::Idle && !self.blocked && !waits
    }

    /// How many drafted tokens the next round can use: the round adds one token of the target's own.
    pub(super) fn draft_len(&self) -> usize {
        self.max_draft
            .min(self.committed.budget_left().saturating_sub(1))
    }
}
