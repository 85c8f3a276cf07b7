//! A Propose stream, from its first command to its last.
//!
//! One task owns all of it: it takes commands in order, drives the work that they start, and
//! answers. Work on different sequences runs side by side. When the task ends, for whatever
//! reason, everything of the stream goes with it.

use crate::line::Line;
use crate::proposer::Drafted;
use crate::sequence::{Draft, Drafting, Next, Prefill, Settled};
use futures::future::{BoxFuture, FutureExt as _};
use futures::stream::{FuturesUnordered, Stream, StreamExt as _};
use proto::v1::{
    DraftCommand, DraftCommit, DraftEvent, DraftOpen, DraftOpened, Load, Proposal, StepTime,
};
use service::CancellationToken;
use service::telemetry::traces::Span;
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
        let mut hold = None;
        tokio::select! {
            // Finished work first: what it frees is free for the next command.
            biased;
            () = events.closed() => return,
            Some(done) = stream.work.next() => stream.settle(done),
            command = commands.next(), if sending => match command {
                Some(Ok(command)) => {
                    // Until its work is with the engine and what it abandons is gone from there.
                    hold = Some(stream.served.engine.hold());
                    stream.take(command);
                }
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
        drop(hold);
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
    told_load: Load,
    /// The engine's steps that it was told of.
    told_steps: u64,
    /// True from shutdown on.
    draining: bool,
}

/// Work that ended.
struct Done {
    sequence: u64,
    epoch: u32,
    kind: DoneKind,
}

enum DoneKind {
    /// So many tokens.
    Prefilled(u32, Result<(), Fault>),
    /// By the draft's number.
    Drafted(u64, Result<Drafted, Fault>, Duration),
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
            told_load: Load::default(),
            told_steps: 0,
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
        let (drafting, prefill) = Drafting::new(opening, open.traceparent);
        let span = drafting.span("open");
        let base_len = drafting.base_len();
        let live = self.sequences.insert(sequence, epoch, drafting);
        let work = prefill_work(prefill, base_len, self.served.clone(), live.closed(), span);
        self.start(sequence, epoch, work);
        Ok(())
    }

    fn commit(&mut self, commit: &DraftCommit) -> Result<(), Fault> {
        match self.sequences.find(commit.sequence, commit.epoch)? {
            Some(live) => live.state.commit(commit, &self.served.limits),
            None => Ok(()),
        }
    }

    /// Starts on what a sequence's latest commit wants, if anything.
    fn start_draft(&mut self, sequence: u64, epoch: u32) {
        let Some(live) = self.sequences.get(sequence, epoch) else {
            return;
        };
        let closed = live.closed();
        match live.state.next(&self.served.limits, &closed) {
            Next::Nothing => {}
            Next::Follow => self.follow(sequence, epoch),
            Next::Propose(line) => {
                let base_len = live.state.base_len();
                let proposal = proposal((sequence, epoch), base_len, line, Duration::ZERO);
                self.answers.proposals.push(proposal);
                self.follow(sequence, epoch);
            }
            Next::Draft(draft) => {
                let span = live.state.span("propose");
                self.start(sequence, epoch, draft_work(*draft, span));
            }
        }
    }

    /// Starts on the outcomes of what was proposed.
    fn follow(&mut self, sequence: u64, epoch: u32) {
        let Some(live) = self.sequences.get(sequence, epoch) else {
            return;
        };
        let closed = live.closed();
        for draft in live.state.follow(&self.served.limits, &closed) {
            // Its time is nobody's: what is of use of it comes with the next proposal.
            self.start(sequence, epoch, draft_work(draft, Span::default()));
        }
    }

    fn start(
        &mut self,
        sequence: u64,
        epoch: u32,
        work: impl Future<Output = DoneKind> + Send + 'static,
    ) {
        let done = work.map(move |kind| Done {
            sequence,
            epoch,
            kind,
        });
        self.work.push(done.boxed());
    }

    fn settle(&mut self, done: Done) {
        let Done {
            sequence,
            epoch,
            kind,
        } = done;
        let settled = match kind {
            DoneKind::Abandoned => Ok(()),
            DoneKind::Prefilled(base_len, Ok(())) => {
                self.prefilled(sequence, epoch, base_len);
                Ok(())
            }
            DoneKind::Prefilled(_, Err(fault)) => Err(fault),
            DoneKind::Drafted(id, result, took) => self.drafted(sequence, epoch, id, result, took),
        };
        if let Err(fault) = settled {
            self.fail(sequence, epoch, fault);
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

    fn drafted(
        &mut self,
        sequence: u64,
        epoch: u32,
        id: u64,
        result: Result<Drafted, Fault>,
        took: Duration,
    ) -> Result<(), Fault> {
        let Some(live) = self.sequences.get(sequence, epoch) else {
            return Ok(());
        };
        let settled = live.state.settle(id, result)?;
        let base_len = live.state.base_len();
        let proposal = |line| proposal((sequence, epoch), base_len, line, took);
        match settled {
            Settled::Nothing => {}
            Settled::Again => self.start_draft(sequence, epoch),
            Settled::Proposal(line, laws) => {
                let proposal = proposal(line);
                self.answers.proposals.push(Proposal { laws, ..proposal });
                self.follow(sequence, epoch);
            }
            Settled::Foreseen(outcome) => self.answers.proposals.push(Proposal {
                assumed: outcome.assumed,
                rank: u32::try_from(outcome.rank).unwrap_or(u32::MAX),
                ..proposal(outcome.line)
            }),
        }
        Ok(())
    }

    /// Closes a sequence because of `fault`.
    fn fail(&mut self, sequence: u64, epoch: u32, fault: Fault) {
        self.sequences.fail(sequence, epoch, &fault);
        self.answers.closed.push(fault.closed(sequence, epoch));
    }

    /// What the coordinator is to be told, with the worker's load where that has changed.
    fn answers(&mut self) -> Option<DraftEvent> {
        self.answers.load = self.served.new_load(&mut self.told_load);
        let mut answers = std::mem::take(&mut self.answers);
        if answers == DraftEvent::default() {
            return None;
        }
        let steps = self.served.engine.steps_since(&mut self.told_steps);
        answers.steps = steps.into_iter().map(step_time).collect();
        Some(answers)
    }
}

fn step_time(step: engine::StepTime) -> StepTime {
    StepTime {
        rows: u32::try_from(step.rows).unwrap_or(u32::MAX),
        micros: u32::try_from(step.time.as_micros()).unwrap_or(u32::MAX),
    }
}

/// A proposal of `line` after `base_len` committed tokens.
fn proposal((sequence, epoch): (u64, u32), base_len: u32, line: Line, took: Duration) -> Proposal {
    Proposal {
        sequence,
        epoch,
        base_len,
        draft_ids: line.ids,
        confidences: line.confidences,
        compute_us: u32::try_from(took.as_micros()).unwrap_or(u32::MAX),
        ..Proposal::default()
    }
}

async fn prefill_work(
    prefill: Prefill,
    base_len: u32,
    served: Served,
    closed: CancellationToken,
    mut span: Span,
) -> DoneKind {
    span.set("tokens", i64::from(base_len));
    match closed.run_until_cancelled(prefill.run(&served)).await {
        Some(result) => DoneKind::Prefilled(base_len, result),
        None => DoneKind::Abandoned,
    }
}

async fn draft_work(draft: Draft, mut span: Span) -> DoneKind {
    let (id, begun) = (draft.id, Instant::now());
    span.set("draft_tokens", draft.count() as i64);
    match draft.run().await {
        Some(result) => DoneKind::Drafted(id, result, begun.elapsed()),
        None => DoneKind::Abandoned,
    }
}

#[cfg(test)]
mod tests;
