//! A Propose stream, from its first command to its last.
//!
//! One task owns all of it: it takes commands in order, drives the work that they start, and
//! answers. Work on different sequences runs side by side. When the task ends, for whatever
//! reason, everything of the stream goes with it.

use crate::proposer::Drafted;
use crate::sequence::{Draft, Drafting, Next, Prefill};
use futures::future::{BoxFuture, FutureExt as _};
use futures::stream::{FuturesUnordered, Stream, StreamExt as _};
use proto::v1::{DraftCommand, DraftCommit, DraftEvent, DraftOpen, DraftOpened, Proposal};
use service::CancellationToken;
use std::collections::HashSet;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tonic::Status;
use worker::{Fault, Opening, Sequences, Served};

/// Serves one stream. Ends when the coordinator has stopped sending and everything is answered, as
/// soon as it is gone, or, after `shutdown`, when its last sequence is closed.
pub(crate) async fn serve(
    mut commands: impl Stream<Item = Result<DraftCommand, Status>> + Unpin,
    events: mpsc::Sender<Result<DraftEvent, Status>>,
    served: Served,
    shutdown: CancellationToken,
) {
    let mut stream = ProposeStream::new(served);
    let mut active = stream.served.engine.watch_active();
    let mut sending = true;
    while !stream.is_over(sending) {
        tokio::select! {
            // Finished work first: what it frees is free for the next command.
            biased;
            () = events.closed() => return,
            Some(done) = stream.work.next() => stream.settle(done),
            command = commands.next(), if sending => match command {
                Some(Ok(command)) => stream.take(command),
                Some(Err(status)) => {
                    tracing::debug!(%status, "propose stream broke");
                    return;
                }
                None => sending = false,
            },
            () = shutdown.cancelled(), if !stream.draining => stream.draining = true,
            // Other coordinators' sequences count as well.
            Ok(()) = active.changed() => {}
        }
        stream.settle_ready();
        if let Some(event) = stream.answers() {
            // Waits while the coordinator does not read; then its commands are not taken either.
            if events.send(Ok(event)).await.is_err() {
                return;
            }
        }
    }
}

struct ProposeStream {
    served: Served,
    sequences: Sequences<Drafting>,
    work: FuturesUnordered<BoxFuture<'static, Done>>,
    /// What the coordinator is told next.
    answers: DraftEvent,
    /// The load that it was told last.
    told_active: usize,
    /// True from shutdown on.
    draining: bool,
}

/// Work that ended.
struct Done {
    sequence: u64,
    epoch: u32,
    /// The committed tokens when it began.
    base_len: u32,
    kind: DoneKind,
}

enum DoneKind {
    Prefilled(Result<(), Fault>),
    Drafted(Result<Drafted, Fault>, Duration),
    /// The sequence was closed, or newer tokens were committed.
    Abandoned,
}

impl ProposeStream {
    fn new(served: Served) -> Self {
        Self {
            served,
            sequences: Sequences::default(),
            work: FuturesUnordered::new(),
            answers: DraftEvent::default(),
            told_active: 0,
            draining: false,
        }
    }

    fn is_over(&self, sending: bool) -> bool {
        (!sending && self.work.is_empty()) || (self.draining && self.sequences.is_empty())
    }

    /// Opens, then commits, then closes: a sequence may be opened and closed in one frame.
    fn take(&mut self, command: DraftCommand) {
        for open in command.opens {
            let (sequence, epoch) = (open.sequence, open.epoch);
            if let Err(fault) = self.open(open) {
                self.fail(sequence, epoch, fault);
            }
        }
        let mut committed = HashSet::new();
        for commit in command.commits {
            let (sequence, epoch) = (commit.sequence, commit.epoch);
            match self.commit(&commit) {
                Ok(()) => drop(committed.insert((sequence, epoch))),
                Err(fault) => self.fail(sequence, epoch, fault),
            }
        }
        // Only now, so that of several commits to a sequence the newest alone starts a draft.
        for (sequence, epoch) in committed {
            self.start_draft(sequence, epoch);
        }
        for sequence in command.closes {
            if let Some(epoch) = self.sequences.close(sequence) {
                let closed = Fault::requested().closed(sequence, epoch);
                self.answers.closed.push(closed);
            }
        }
    }

    /// Prefills beside all other work, so that a long prompt holds up nobody.
    fn open(&mut self, open: DraftOpen) -> Result<(), Fault> {
        let (sequence, epoch) = (open.sequence, open.epoch);
        if !self.sequences.may_open(sequence, epoch) {
            return Ok(());
        }
        if self.draining {
            return Err(Fault::overloaded("this worker is shutting down"));
        }
        // Where this replaces a sequence that was busy, its place is free only now.
        self.settle_ready();
        let limits = &self.served.limits;
        if self.sequences.len() >= limits.max_sequences {
            return Err(Fault::overloaded(
                "the stream holds as many sequences as the engine takes",
            ));
        }
        let opening = Opening::parse(open.token_ids, open.decoding, limits)?;
        let (drafting, prefill) = Drafting::new(opening);
        let base_len = drafting.base_len();
        let live = self.sequences.insert(sequence, epoch, drafting);
        let work = prefill_work(prefill, self.served.clone(), live.closed());
        self.start(sequence, epoch, base_len, work);
        Ok(())
    }

    fn commit(&mut self, commit: &DraftCommit) -> Result<(), Fault> {
        match self.sequences.find(commit.sequence, commit.epoch)? {
            Some(live) => live.state.commit(commit, &self.served.limits),
            None => Ok(()),
        }
    }

    /// Starts on the proposal that a sequence's latest commit wants, if any.
    fn start_draft(&mut self, sequence: u64, epoch: u32) {
        let Some(live) = self.sequences.get(sequence, epoch) else {
            return;
        };
        let closed = live.closed();
        match live.state.next(&self.served.limits, &closed) {
            Next::Nothing => {}
            Next::NoRoom => self.answers.proposals.push(Proposal {
                sequence,
                epoch,
                base_len: live.state.base_len(),
                draft_ids: Vec::new(),
                compute_us: 0,
                laws: None,
                ..Proposal::default()
            }),
            Next::Draft(draft) => {
                self.start(sequence, epoch, draft.base_len, draft_work(draft));
            }
        }
    }

    fn start(
        &mut self,
        sequence: u64,
        epoch: u32,
        base_len: u32,
        work: impl Future<Output = DoneKind> + Send + 'static,
    ) {
        let done = work.map(move |kind| Done {
            sequence,
            epoch,
            base_len,
            kind,
        });
        self.work.push(done.boxed());
    }

    fn settle(&mut self, done: Done) {
        let Done {
            sequence,
            epoch,
            base_len,
            kind,
        } = done;
        match kind {
            DoneKind::Abandoned => {}
            DoneKind::Prefilled(Ok(())) => self.prefilled(sequence, epoch, base_len),
            DoneKind::Drafted(Ok(drafted), took) => self.drafted(Proposal {
                sequence,
                epoch,
                base_len,
                draft_ids: drafted.ids,
                laws: drafted.laws,
                compute_us: u32::try_from(took.as_micros()).unwrap_or(u32::MAX),
                ..Proposal::default()
            }),
            DoneKind::Prefilled(Err(error)) | DoneKind::Drafted(Err(error), _) => {
                self.fail(sequence, epoch, error);
            }
        }
    }

    /// Settles what is ready, to share a frame. New work asks the engine here for what it needs:
    /// under a hold, so that what one frame wants is drafted in the same steps.
    fn settle_ready(&mut self) {
        let _hold = self.served.engine.hold();
        while let Some(Some(done)) = self.work.next().now_or_never() {
            self.settle(done);
        }
    }

    fn prefilled(&mut self, sequence: u64, epoch: u32, base_len: u32) {
        let Some(live) = self.sequences.get(sequence, epoch) else {
            return;
        };
        live.state.prefilled(base_len);
        self.answers.opened.push(DraftOpened {
            sequence,
            epoch,
            base_len,
        });
        self.start_draft(sequence, epoch);
    }

    fn drafted(&mut self, proposal: Proposal) {
        let live = self.sequences.get(proposal.sequence, proposal.epoch);
        let is_of_use = live.is_some_and(|live| {
            let drafting = &mut live.state;
            drafting.drafted(proposal.base_len, &proposal.draft_ids)
        });
        if is_of_use {
            self.answers.proposals.push(proposal);
        }
    }

    /// Closes a sequence because of `fault`.
    fn fail(&mut self, sequence: u64, epoch: u32, fault: Fault) {
        self.sequences.fail(sequence, epoch, &fault);
        self.answers.closed.push(fault.closed(sequence, epoch));
    }

    /// What the coordinator is to be told, with the worker's load where that has changed.
    fn answers(&mut self) -> Option<DraftEvent> {
        let active = self.served.engine.active_sequences();
        if active != self.told_active {
            self.told_active = active;
            self.answers.load = Some(self.served.load(active));
        }
        let answers = std::mem::take(&mut self.answers);
        (answers != DraftEvent::default()).then_some(answers)
    }
}

async fn prefill_work(prefill: Prefill, served: Served, closed: CancellationToken) -> DoneKind {
    match closed.run_until_cancelled(prefill.run(&served)).await {
        Some(result) => DoneKind::Prefilled(result),
        None => DoneKind::Abandoned,
    }
}

async fn draft_work(draft: Draft) -> DoneKind {
    let begun = Instant::now();
    match draft.run().await {
        Some(result) => DoneKind::Drafted(result, begun.elapsed()),
        None => DoneKind::Abandoned,
    }
}
