//! Decides what every sequence does next: a state machine without IO, tasks or clock.
//!
//! [`Scheduler::handle`] takes what happened, [`Scheduler::advance`] returns what to do about it.
//! The committed tokens here are the only truth; what workers hold is a cache of them. Every message
//! from a worker is checked against (sequence, epoch, base length) and dropped where it is stale, so
//! no order, loss or repetition of messages can change a text.

mod batching;
mod counters;
mod drafts;
mod frames;
mod guesses;
mod measured;
mod ngrams;
mod opening;
mod options;
mod placement;
mod processors;
mod proposals;
mod sequence;
#[cfg(test)]
mod simulation;
mod speculating;
mod target;
#[cfg(test)]
mod timed;
mod verdicts;
#[cfg(test)]
mod wire;
mod worth;

use crate::commit::{Delta, FinishReason};
use crate::request::Choice;

use frames::DraftFrames;
use measured::Verifying;
use ngrams::Ngrams;
use placement::DraftWorker;
use proto::v1;
use sequence::Sequence;
use service::{Class, Error};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use target::TargetState;

pub(crate) use counters::Counters;
pub(crate) use options::SpecOptions;
pub(crate) use placement::DraftLimits;
pub(crate) use processors::Processors;
pub(crate) use sequence::Stats;
pub(crate) use target::TargetLimits;

/// Numbers the coordinator's sequences, never twice.
pub(crate) type SequenceId = u64;

/// A draft worker: its place among those that are known. Free ones are given again.
pub(crate) type WorkerId = usize;

/// How long the scheduler waits for others.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience {
    /// For a proposal.
    pub(crate) draft: Duration,
    /// For the target: a step's verdicts, an opened sequence, its return after a loss.
    pub(crate) target: Duration,
}

/// What happened.
#[derive(Debug)]
pub(crate) enum Event {
    /// A choice of a request is to run.
    Admit(SequenceId, Choice),
    /// Its client left.
    ClientGone(SequenceId),
    /// Its client does not take what it has: no new rounds for it.
    ClientFull(SequenceId),
    /// Its client has room again.
    ClientReady(SequenceId),
    /// The target is connected, with no sequences.
    TargetUp {
        /// What it takes.
        limits: TargetLimits,
        /// True where it serves another model than the target before it: what was begun cannot be
        /// continued.
        replaced: bool,
    },
    /// The target is lost, and with it what it held.
    TargetDown,
    /// The target says something.
    Target(v1::TargetEvent),
    /// A draft worker is connected, with no sequences.
    DraftUp(WorkerId, DraftLimits),
    /// A draft worker is lost, and with it what it held.
    DraftDown(WorkerId),
    /// A draft worker is not to be used any more.
    DraftRetired(WorkerId),
    /// A draft worker says something.
    Draft(WorkerId, v1::DraftEvent),
}

/// What to do.
#[derive(Debug)]
pub(crate) enum Action {
    /// Send this to the target.
    SendTarget(Box<v1::TargetCommand>),
    /// The target hangs: give the connection up. The scheduler has taken it for lost already.
    ResetTarget,
    /// Send this to a draft worker.
    SendDraft(WorkerId, v1::DraftCommand),
    /// Hand committed tokens to the client.
    Deliver(SequenceId, Delta),
    /// The text is complete; nothing follows.
    Finish(SequenceId, Summary),
    /// The text cannot be completed; nothing follows.
    Fail(SequenceId, Error),
}

/// How a text ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Summary {
    /// Why.
    pub(crate) reason: FinishReason,
    /// Tokens of the prompt.
    pub(crate) prompt_tokens: usize,
    /// Tokens delivered.
    pub(crate) completion_tokens: usize,
    /// What speculation did.
    pub(crate) stats: Stats,
}

/// The state of all sequences and of the workers, as far as decisions need it.
#[derive(Debug)]
pub(crate) struct Scheduler {
    patience: Patience,
    options: SpecOptions,
    sequences: BTreeMap<SequenceId, Sequence>,
    target: TargetState,
    drafts: Vec<DraftWorker>,
    /// Sequences that found no draft worker with room.
    seatless: BTreeSet<SequenceId>,
    /// What is measured of the target.
    verifying: Verifying,
    ngrams: Ngrams,
    frames: DraftFrames,
    actions: Vec<Action>,
    counters: Counters,
    stale: u64,
    malformed: u64,
}

impl Scheduler {
    /// No sequences and no workers yet.
    pub(crate) fn new(patience: Patience, options: SpecOptions) -> Self {
        Self {
            patience,
            ngrams: Ngrams::new(options.ngram, options.ngram_history),
            options,
            sequences: BTreeMap::new(),
            target: TargetState::default(),
            drafts: Vec::new(),
            seatless: BTreeSet::new(),
            verifying: Verifying::default(),
            frames: DraftFrames::default(),
            actions: Vec::new(),
            counters: Counters::default(),
            stale: 0,
            malformed: 0,
        }
    }

    /// Takes in what happened at `now`. [`Self::advance`] must follow, after one event or several.
    pub(crate) fn handle(&mut self, event: Event, now: Instant) {
        match event {
            Event::Admit(id, choice) => self.admit(id, choice, now),
            Event::ClientGone(id) => self.cancel(id),
            Event::ClientFull(id) => self.block(id, true),
            Event::ClientReady(id) => self.block(id, false),
            Event::TargetUp { limits, replaced } => self.target_up(limits, replaced, now),
            Event::TargetDown => self.target_down(now),
            Event::Target(event) => self.target_event(event, now),
            Event::DraftUp(worker, limits) => self.draft_up(worker, limits, now),
            Event::DraftDown(worker) => self.draft_down(worker, now),
            Event::DraftRetired(worker) => self.draft_retired(worker, now),
            Event::Draft(worker, event) => self.draft_event(worker, event, now),
        }
    }

    /// What is to be done at `now`, in this order.
    pub(crate) fn advance(&mut self, now: Instant) -> Vec<Action> {
        self.check_drafts(now);
        self.check_target(now);
        self.open_at_target(now);
        self.verify_ready(now);
        let mut actions = std::mem::take(&mut self.actions);
        actions.extend(
            self.frames
                .take()
                .map(|(worker, command)| Action::SendDraft(worker, command)),
        );
        actions
    }

    /// When [`Self::advance`] has something to do even if nothing happens until then, as seen at
    /// `now`.
    pub(crate) fn deadline(&self, now: Instant) -> Option<Instant> {
        [self.draft_deadline(), self.target_deadline(now)]
            .into_iter()
            .flatten()
            .min()
    }

    /// How many messages were dropped because what they speak of had passed.
    pub(crate) fn stale_messages(&self) -> u64 {
        self.stale
    }

    /// How many proposals were dropped because their laws were none.
    pub(crate) fn malformed_proposals(&self) -> u64 {
        self.malformed
    }

    fn admit(&mut self, id: SequenceId, choice: Choice, now: Instant) {
        if self.sequences.is_empty() {
            self.target.restart_stall(now);
        }
        let generation = &choice.generation;
        let drafts = generation.max_draft_tokens > 0 && generation.sources.ngram;
        let ngrams = drafts.then(|| self.ngrams.open(&generation.tenant, &generation.prompt));
        let sequence = Sequence::new(choice, ngrams.flatten(), now);
        self.sequences.insert(id, sequence);
    }

    fn cancel(&mut self, id: SequenceId) {
        if let Some(sequence) = self.release(id) {
            let summary = sequence.summary(FinishReason::Cancelled);
            tracing::debug!(sequence = id, ?summary, "request cancelled");
        }
    }

    fn block(&mut self, id: SequenceId, blocked: bool) {
        if let Some(sequence) = self.sequences.get_mut(&id) {
            sequence.blocked = blocked;
        }
    }

    /// Delivers what was committed and goes on, or ends the sequence.
    fn deliver(&mut self, id: SequenceId, delta: Delta, now: Instant) {
        self.counters.committed += delta.tokens.len() as u64;
        if let Some(sequence) = self.sequences.get_mut(&id)
            && let Some(ngrams) = &mut sequence.ngrams
        {
            ngrams.commit(&delta.tokens, &self.ngrams);
            let most = sequence.choice.generation.max_draft_tokens;
            let survival = ngrams.draft().map_or(&[][..], |draft| &draft.survival);
            let offered = survival.iter().take(most).sum();
            sequence.control.offered(offered);
        }
        let finish = delta.finish.clone();
        self.actions.push(Action::Deliver(id, delta));
        match finish {
            None => self.sync_draft(id, now),
            Some(reason) => {
                if let Some(sequence) = self.release(id) {
                    let summary = sequence.summary(reason);
                    self.actions.push(Action::Finish(id, summary));
                }
            }
        }
    }

    fn fail(&mut self, id: SequenceId, class: Class, message: impl Into<String>) {
        if self.release(id).is_some() {
            let error = Error::new(class, message);
            self.actions.push(Action::Fail(id, error));
        }
    }

    fn fail_all(&mut self, class: &Class, message: &str) {
        for id in self.ids() {
            self.fail(id, class.clone(), message);
        }
    }

    /// Frees a sequence everywhere.
    fn release(&mut self, id: SequenceId) -> Option<Sequence> {
        self.close_at_target(id);
        self.leave_draft(id);
        let sequence = self.sequences.remove(&id)?;
        if let Some(ngrams) = &sequence.ngrams {
            let prompt = sequence.committed.prompt_len();
            self.ngrams
                .finish(ngrams, &sequence.committed.tokens()[prompt..]);
        }
        Some(sequence)
    }

    fn ids(&self) -> Vec<SequenceId> {
        self.sequences.keys().copied().collect()
    }
}
