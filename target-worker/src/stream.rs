//! A Verify stream, from its first command to its last.
//!
//! One task owns all of it: it takes commands in order, drives the work that they start, and
//! answers. Work on different sequences runs side by side, and what one batch asks for reaches the
//! engine together; work on one sequence runs in the order of its commands. When the task ends,
//! for whatever reason, everything of the stream goes with it.

use crate::session::Session;
use futures::future::{BoxFuture, FutureExt as _, join_all};
use futures::stream::{FuturesUnordered, Stream, StreamExt as _};
use proto::MAX_TOP_LOGPROBS;
use proto::v1::target_command::Command;
use proto::v1::target_event::Event;
use proto::v1::{
    Load, LogprobsParams, TargetClose, TargetCommand, TargetEvent, TargetOpen, TargetOpened,
    Verdict, VerdictBatch, VerifyBatch, VerifyItem,
};
use service::CancellationToken;
use speculation::{LogprobsMode, LogprobsOptions};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::{Mutex, mpsc};
use tokio::task::coop::unconstrained;
use tonic::Status;
use worker::{Fault, Limits, Opening, Sequences, Served};

/// Serves one stream. Ends when the coordinator has stopped sending and everything is answered, as
/// soon as it is gone, or, after `shutdown`, when its last sequence is closed.
pub(crate) async fn serve(
    mut commands: impl Stream<Item = Result<TargetCommand, Status>> + Unpin,
    events: mpsc::Sender<Result<TargetEvent, Status>>,
    served: Served,
    shutdown: CancellationToken,
) {
    let mut stream = VerifyStream::new(served);
    let mut active = stream.served.engine.watch_active();
    let mut sending = true;
    while !stream.is_over(sending) {
        tokio::select! {
            // Finished work first: what it frees is free for the next command.
            biased;
            () = events.closed() => return,
            Some(done) = stream.work.next() => stream.settle(done),
            command = commands.next(), if sending && stream.has_room() => match command {
                Some(Ok(TargetCommand { command })) => stream.take(command),
                Some(Err(status)) => {
                    tracing::debug!(%status, "verify stream broke");
                    return;
                }
                None => sending = false,
            },
            () = shutdown.cancelled(), if !stream.draining => stream.draining = true,
            // Other coordinators' sequences count as well.
            Ok(()) = active.changed() => {}
        }
        stream.settle_ready();
        for event in stream.answers() {
            let event = TargetEvent { event: Some(event) };
            // Waits while the coordinator does not read; then its commands are not taken either.
            if events.send(Ok(event)).await.is_err() {
                return;
            }
        }
    }
}

struct VerifyStream {
    served: Served,
    sequences: Sequences<Arc<Mutex<Session>>>,
    work: FuturesUnordered<BoxFuture<'static, Done>>,
    /// Batches that are not answered yet.
    batches: usize,
    /// What the coordinator is told next.
    answers: Vec<Event>,
    /// The load that it was told last.
    told_load: Load,
    /// True from shutdown on.
    draining: bool,
}

/// Work that ended.
enum Done {
    Opened(Outcome<TargetOpened>),
    Verified {
        step: u64,
        begun: Instant,
        outcomes: Vec<Outcome<Verdict>>,
    },
}

/// How a sequence's work ended; `None` where the sequence was closed meanwhile.
struct Outcome<T> {
    sequence: u64,
    epoch: u32,
    result: Option<Result<T, Fault>>,
}

impl VerifyStream {
    fn new(served: Served) -> Self {
        Self {
            served,
            sequences: Sequences::default(),
            work: FuturesUnordered::new(),
            batches: 0,
            answers: Vec::new(),
            told_load: Load::default(),
            draining: false,
        }
    }

    fn is_over(&self, sending: bool) -> bool {
        (!sending && self.work.is_empty()) || (self.draining && self.sequences.is_empty())
    }

    /// Batches of disjoint sequences may overlap; more of them than there are sequences make no
    /// sense.
    fn has_room(&self) -> bool {
        self.batches < self.served.limits.max_sequences
    }

    fn take(&mut self, command: Option<Command>) {
        match command {
            Some(Command::Open(open)) => {
                let (sequence, epoch) = (open.sequence, open.epoch);
                if let Err(fault) = self.open(open) {
                    self.fail(sequence, epoch, fault);
                }
            }
            Some(Command::Verify(batch)) => self.verify(batch),
            Some(Command::Close(TargetClose { sequence })) => self.close(sequence),
            // One that only newer workers know.
            None => {}
        }
    }

    /// Prefills beside all other work, so that a long prompt holds up nobody.
    fn open(&mut self, open: TargetOpen) -> Result<(), Fault> {
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
        let logprobs = open.logprobs.as_ref().map(logprobs_options).transpose()?;
        let session = Arc::new(Mutex::new(Session::new(
            &opening,
            logprobs,
            open.traceparent,
        )));
        let served = self.served.clone();
        let live = self.sequences.insert(sequence, epoch, session.clone());
        let closed = live.closed();
        let work = async move {
            let open = opened(&session, sequence, epoch, opening, &served);
            Done::Opened(Outcome {
                sequence,
                epoch,
                result: closed.run_until_cancelled(open).await,
            })
        };
        self.work.push(work.boxed());
        Ok(())
    }

    /// Starts on all items together.
    fn verify(&mut self, batch: VerifyBatch) {
        let (begun, step) = (Instant::now(), batch.step);
        let mut seen = HashSet::new();
        let mut items = Vec::new();
        for item in batch.items {
            let (sequence, epoch) = (item.sequence, item.epoch);
            match self.start_verify(item, seen.insert(sequence)) {
                Ok(work) => items.extend(work),
                Err(fault) => self.fail(sequence, epoch, fault),
            }
        }
        self.batches += 1;
        let work = async move {
            Done::Verified {
                step,
                begun,
                // All items ask at once, however many: none is put off for fairness.
                outcomes: unconstrained(join_all(items)).await,
            }
        };
        self.work.push(work.boxed());
    }

    /// The work on one item; none where the item is stale.
    fn start_verify(
        &mut self,
        item: VerifyItem,
        first_of_sequence: bool,
    ) -> Result<Option<impl Future<Output = Outcome<Verdict>> + use<>>, Fault> {
        let (sequence, epoch) = (item.sequence, item.epoch);
        let Some(live) = self.sequences.find(sequence, epoch)? else {
            return Ok(None);
        };
        if !first_of_sequence {
            return Err(Fault::invalid("items hold the sequence twice"));
        }
        let (session, closed) = (live.state.clone(), live.closed());
        let limits = self.served.limits;
        Ok(Some(async move {
            let verify = verdict(&session, item, &limits);
            Outcome {
                sequence,
                epoch,
                result: closed.run_until_cancelled(verify).await,
            }
        }))
    }

    /// Frees a sequence at once, its running work included.
    fn close(&mut self, sequence: u64) {
        if let Some(epoch) = self.sequences.close(sequence) {
            let closed = Fault::requested().closed(sequence, epoch);
            self.answers.push(Event::Closed(closed));
        }
    }

    fn settle(&mut self, done: Done) {
        match done {
            Done::Opened(opened) => {
                let opened = self.succeeded(opened).map(Event::Opened);
                self.answers.extend(opened);
            }
            Done::Verified {
                step,
                begun,
                outcomes,
            } => {
                self.batches -= 1;
                let items = outcomes
                    .into_iter()
                    .filter_map(|outcome| self.succeeded(outcome))
                    .collect();
                self.answers.push(Event::Verdicts(VerdictBatch {
                    step,
                    items,
                    compute_us: u32::try_from(begun.elapsed().as_micros()).unwrap_or(u32::MAX),
                }));
            }
        }
    }

    /// Settles what is ready. New work asks the engine here for what it needs: under a hold, so that
    /// a batch is computed in one step.
    fn settle_ready(&mut self) {
        let _hold = self.served.engine.hold();
        while let Some(Some(done)) = self.work.next().now_or_never() {
            self.settle(done);
        }
    }

    /// What the work on a sequence brought; a failure closes that sequence.
    fn succeeded<T>(&mut self, outcome: Outcome<T>) -> Option<T> {
        match outcome.result? {
            Ok(value) => Some(value),
            Err(fault) => {
                self.fail(outcome.sequence, outcome.epoch, fault);
                None
            }
        }
    }

    /// Closes a sequence because of `fault`.
    fn fail(&mut self, sequence: u64, epoch: u32, fault: Fault) {
        self.sequences.fail(sequence, epoch, &fault);
        let closed = fault.closed(sequence, epoch);
        self.answers.push(Event::Closed(closed));
    }

    /// What the coordinator is to be told, with the worker's load where that has changed.
    fn answers(&mut self) -> Vec<Event> {
        let load = self.served.new_load(&mut self.told_load);
        self.answers.extend(load.map(Event::Load));
        std::mem::take(&mut self.answers)
    }
}

fn logprobs_options(params: &LogprobsParams) -> Result<LogprobsOptions, Fault> {
    let mode = LogprobsMode::try_from(params.mode())
        .map_err(|_| Fault::invalid("logprobs.mode must be stated"))?;
    if params.top > MAX_TOP_LOGPROBS {
        return Err(Fault::invalid(format!(
            "logprobs.top must be at most {MAX_TOP_LOGPROBS}, not {}",
            params.top
        )));
    }
    Ok(LogprobsOptions {
        mode,
        top: params.top as usize,
    })
}

/// Opens and prefills a sequence.
async fn opened(
    session: &Mutex<Session>,
    sequence: u64,
    epoch: u32,
    opening: Opening,
    served: &Served,
) -> Result<TargetOpened, Fault> {
    let base_len = opening.tokens.len() as u32;
    let mut session = session.lock().await;
    let (verdict, mut logprobs) = session.open(opening, served).await?;
    Ok(TargetOpened {
        sequence,
        epoch,
        base_len,
        next_token: verdict.next,
        logprobs: logprobs.pop().map(Into::into),
        // Contexts are far below 2^32.
        cached_tokens: session.cached() as u32,
    })
}

/// Verifies one item once earlier work on its sequence has ended.
async fn verdict(
    session: &Mutex<Session>,
    item: VerifyItem,
    limits: &Limits,
) -> Result<Verdict, Fault> {
    let (sequence, epoch, base_len) = (item.sequence, item.epoch, item.base_len);
    let (verdict, logprobs) = session.lock().await.verify(item, limits).await?;
    Ok(Verdict {
        sequence,
        epoch,
        base_len,
        accepted: verdict.accepted as u32,
        next_token: verdict.next,
        logprobs: logprobs.into_iter().map(Into::into).collect(),
    })
}
