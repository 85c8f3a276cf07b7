//! One sequence: what is committed, and where it stands with the workers.

use super::batching::Sent;
use super::guesses::Guesses;
use super::ngrams::SequenceNgrams;
use super::speculating::Speculating;
use super::{Summary, WorkerId};
use crate::commit::{Committed, FinishReason, Origin};
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
    /// Those of the drafted tokens that n-grams proposed.
    pub(crate) ngram_drafted: u32,
    /// Those of them that were committed.
    pub(crate) ngram_accepted: u32,
    /// Verdicts after which a proposal was at hand that had been drafted ahead.
    pub(crate) ahead_hits: u32,
    /// Verdicts after which none was although a worker drafted ahead.
    pub(crate) ahead_misses: u32,
}

impl Stats {
    /// Counts a round that verified `sent`, of whose tokens `accepted` were committed.
    pub(super) fn record(&mut self, sent: &Sent, accepted: usize) {
        let drafted = sent.drafted();
        self.rounds += 1;
        if drafted == 0 {
            return;
        }
        // A proposal has at most 16 tokens, so the counts fit.
        self.drafted += drafted as u32;
        self.accepted += accepted as u32;
        if sent.origin == Origin::Ngram {
            self.ngram_drafted += drafted as u32;
            self.ngram_accepted += accepted as u32;
        }
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
    /// When a proposal was asked for that has not come.
    pub(super) asked: Option<Instant>,
    /// Since when a proposal is waited for, or the prefill before the first.
    pub(super) waiting: Option<Instant>,
    /// How many tokens were asked for last.
    pub(super) wanted: usize,
    /// How many after each outcome; 0 where it does not draft ahead.
    pub(super) ahead_wanted: usize,
    /// The proposal that was asked for is to be compared only.
    pub(super) probing: bool,
    /// How many of its proposals were verified.
    pub(super) proposals: u32,
    /// How many rounds the sequence had before.
    pub(super) since_round: u32,
}

impl Seat {
    /// A place at `worker`, where the sequence is opened with `sent` tokens; `waiting` is since when its
    /// prefill is waited for.
    pub(super) fn new(worker: WorkerId, epoch: u32, sent: usize, waiting: Option<Instant>) -> Self {
        Self {
            worker,
            epoch,
            opened: false,
            sent,
            asked: None,
            waiting,
            wanted: 0,
            ahead_wanted: 0,
            probing: false,
            proposals: 0,
            since_round: 0,
        }
    }
}

impl Seat {
    /// True where the worker has something to compute for a sequence of `len` committed tokens: its
    /// prefill, a proposal, or what may follow one.
    pub(super) fn is_drafting(&self, len: usize) -> bool {
        let answers = self.waiting.is_some() || self.probing || !self.opened;
        let goes_on = self.ahead_wanted > 0 || self.asked.is_some();
        answers || goes_on && self.sent == len
    }
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
    /// Since when it could be verified.
    pub(super) idle_since: Instant,
    /// What may follow the committed tokens.
    pub(super) guesses: Guesses,
    /// Its text, indexed for drafts without a model.
    pub(super) ngrams: Option<SequenceNgrams>,
    /// Whether and how it speculates.
    pub(super) control: Speculating,
}

impl Sequence {
    pub(super) fn new(choice: Choice, ngrams: Option<SequenceNgrams>, now: Instant) -> Self {
        Self {
            ngrams,
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
            idle_since: now,
            guesses: Guesses::default(),
            control: Speculating::new(),
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

    /// True where the target holds it, prefilled.
    pub(super) fn is_decoding(&self) -> bool {
        matches!(self.at_target, AtTarget::Idle | AtTarget::Verifying)
    }

    /// How many drafted tokens the next round can use: the round adds one token of the target's own.
    pub(super) fn draft_len(&self) -> usize {
        let most = self.choice.generation.max_draft_tokens;
        most.min(self.committed.budget_left().saturating_sub(1))
    }
}
