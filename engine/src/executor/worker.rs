//! The thread: takes what is queued, and computes it step by step.

use super::{
    DroppedIds, EngineOptions, Message,
    admission::Idle,
    counters::{Counters, StepTime},
    fork::Fork,
    holds::Holds,
    job::{Command, Held, Job},
    plan::plan,
};
use crate::{EngineError, Input, Logits, Model, Pool};
use rayon::iter::{IntoParallelRefMutIterator, ParallelIterator};
use std::{
    any::Any,
    collections::{HashMap, HashSet, VecDeque},
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, atomic::Ordering},
    thread,
    time::Instant,
};
use tokio::sync::mpsc;
use tracing::{debug, error, trace};

/// What the thread owns. Every sequence that has a cache is in one of the three places.
pub(super) struct Executor {
    pub(super) model: Box<dyn Model>,
    pub(super) counters: Arc<Counters>,
    options: EngineOptions,
    pub(super) pool: Pool,
    messages: mpsc::Receiver<Message>,
    dropped: Arc<DroppedIds>,
    /// While this is not 0, no step begins.
    holds: Arc<Holds>,
    /// Sequences without a job, by id.
    pub(super) idle: HashMap<u64, Idle>,
    /// Jobs that wait for room in the cache, in order of arrival.
    pub(super) waiting: VecDeque<Job>,
    /// Jobs that have it, those first that have waited longest for their turn.
    pub(super) running: Vec<Job>,
    /// Steps so far.
    step: u64,
}

/// What the thread is given, and shares with the handles.
pub(super) struct Connections {
    pub(super) pool: Pool,
    pub(super) messages: mpsc::Receiver<Message>,
    pub(super) dropped: Arc<DroppedIds>,
    pub(super) holds: Arc<Holds>,
    pub(super) counters: Arc<Counters>,
}

/// Starts the thread. It ends when all senders of messages are gone, or when the model panics.
pub(super) fn spawn(
    model: Box<dyn Model>,
    options: EngineOptions,
    connections: Connections,
) -> io::Result<()> {
    let executor = Executor {
        model,
        options,
        counters: connections.counters,
        pool: connections.pool,
        messages: connections.messages,
        dropped: connections.dropped,
        holds: connections.holds,
        idle: HashMap::new(),
        waiting: VecDeque::new(),
        running: Vec::new(),
        step: 0,
    };
    thread::Builder::new()
        .name("engine".to_owned())
        .spawn(move || {
            // Nothing of the executor is seen again after a panic. It is dropped, and with it the
            // channel and all replies: whoever waits for one learns that the engine has stopped.
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| executor.run())) {
                let reason = panic_message(panic.as_ref());
                error!(reason, "the engine stops: the model panicked");
            }
        })
        .map(drop)
}

impl Executor {
    fn run(mut self) {
        while self.receive() {
            self.sweep();
            self.admit();
            self.step();
        }
    }

    /// Takes everything queued; sleeps before where there is nothing to do, or where the engine is
    /// held. False where there never will be anything.
    fn receive(&mut self) -> bool {
        let mut has_work = !self.running.is_empty() || !self.waiting.is_empty();
        while !has_work || self.holds.keep_waiting() {
            has_work = true;
            match self.messages.blocking_recv() {
                Some(message) => self.accept(message),
                None => return false,
            }
        }
        self.drain();
        true
    }

    /// Takes everything queued.
    fn drain(&mut self) {
        while let Ok(message) = self.messages.try_recv() {
            self.accept(message);
        }
    }

    fn accept(&mut self, message: Message) {
        let command = match message {
            Message::Run(command) => command,
            Message::Fork(fork) => return self.fork(&fork),
            Message::Wake => return,
            // Who asked may have gone.
            Message::Ping(seen) => {
                let _ = seen.send(());
                return;
            }
        };
        // Its sequence may be gone as well, and must get no new lease then.
        if command.reply.is_closed() {
            return;
        }
        match self.start(&command) {
            Ok(held) => self.waiting.push_back(Job::new(command, held)),
            Err(error) => drop(command.reply.send(Err(error))),
        }
    }

    /// Gives a fork what it begins with. Where there is nothing its first call finds out.
    fn fork(&mut self, fork: &Fork) {
        if !self.idle.contains_key(&fork.parent.id) {
            self.drop_abandoned();
        }
        let parent = self.idle.get(&fork.parent.id);
        if let Some(held) = parent.and_then(|idle| idle.held.fork(fork.keep)) {
            let last_used = self.step;
            self.idle.insert(
                fork.child.id,
                Idle {
                    held,
                    last_used,
                    sequence: Arc::clone(&fork.child),
                },
            );
        }
    }

    /// Finds what `command` goes on from.
    fn start(&mut self, command: &Command) -> Result<Held, EngineError> {
        let id = command.sequence.id;
        if !self.idle.contains_key(&id) {
            // A sequence has one call at a time: an earlier one that still runs is abandoned.
            self.drop_abandoned();
        }
        let keep = command.work.keep;
        let held = self.idle.get(&id).map_or(0, |idle| idle.held.prefix.len());
        if keep > held {
            return Err(EngineError::Invalid(format!(
                "keep must be at most the cached length, {held}, not {keep}"
            )));
        }
        if let Some(idle) = self.idle.remove(&id) {
            return Ok(idle.held);
        }
        match command.sequence.take_prefix() {
            Some(prefix) => Ok(Held {
                lease: self.pool.lease(),
                prefix,
            }),
            // It is taken once, by the call after which the sequence is idle; a fork never had one.
            None => Err(EngineError::Invalid(
                "what the fork was to begin with was gone".to_owned(),
            )),
        }
    }

    /// Ends the jobs whose callers are gone, and frees the sequences whose handles are.
    fn sweep(&mut self) {
        self.drop_abandoned();
        loop {
            let dropped = self.dropped.take();
            if dropped.is_empty() {
                return;
            }
            // A handle goes after all that it sent: now that is taken in, these have no job that is
            // not abandoned, and no fork of theirs is still to come.
            self.drain();
            self.drop_abandoned();
            for id in dropped {
                self.idle.remove(&id);
            }
        }
    }

    fn drop_abandoned(&mut self) {
        let running = self.running.extract_if(.., |job| job.is_abandoned());
        let mut abandoned: Vec<Job> = running.collect();
        let (gone, waiting) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition::<Vec<_>, _>(Job::is_abandoned);
        self.waiting = waiting.into();
        abandoned.extend(gone);
        for job in abandoned {
            self.end(job, Err(EngineError::Stopped));
        }
    }

    /// Answers `job`; its sequence is idle then.
    pub(super) fn end(&mut self, job: Job, outcome: Result<(), EngineError>) {
        let sequence = Arc::clone(&job.sequence);
        let id = sequence.id;
        let idle = Idle {
            held: job.end(outcome),
            last_used: self.step,
            sequence,
        };
        self.idle.insert(id, idle);
    }

    /// Computes one batch of what is due.
    fn step(&mut self) {
        if self.running.is_empty() {
            return;
        }
        self.step += 1;
        let mut running = std::mem::take(&mut self.running);
        // Those last that may be of no use, where the step has no room for all.
        running.sort_by_key(Job::is_fork);
        for job in &mut running {
            self.adopt(job);
        }
        self.running = running;
        let rows = plan(&self.due(), self.options.max_step_tokens);
        let begun = Instant::now();
        match self.forward(&rows) {
            Ok(logits) => self.advance(&rows, &logits, begun),
            Err(error) => self.fail(&rows, &error),
        }
    }

    /// Has `job` go on with what others have computed of the same text.
    pub(super) fn adopt(&self, job: &mut Job) {
        let tokens = job.adopt();
        if tokens > 0 {
            self.counters.hit(tokens);
            job.sequence.adopted.fetch_add(tokens, Ordering::Relaxed);
            let sequence = job.sequence.id;
            job.span
                .in_scope(|| debug!(sequence, tokens, "found a prefix in the cache"));
        }
    }

    /// The rows that each job could have computed: none where one before it computes the same, which
    /// the next step then finds.
    fn due(&self) -> Vec<usize> {
        let mut computed = HashSet::new();
        let due = |job: &Job| {
            if job.awaits().is_some_and(|block| computed.contains(&block)) {
                return 0;
            }
            computed.extend(job.computes());
            job.due()
        };
        self.running.iter().map(due).collect()
    }

    /// Runs the model on the next `rows` of each job.
    fn forward(&mut self, rows: &[usize]) -> Result<Logits, EngineError> {
        let jobs = self.running.iter().zip(rows);
        let batch: Vec<Input<'_>> = jobs
            .filter(|&(_, &rows)| rows > 0)
            .map(|(job, &rows)| job.input(rows))
            .collect();
        let logits = self.model.forward(&batch)?;
        // Anything else would become a wrong text.
        let wanted: usize = batch.iter().map(|input| input.wanted).sum();
        let got = logits.rows().len();
        if got != wanted {
            let detail = format!("{got} rows of logits where {wanted} were wanted");
            return Err(EngineError::Model(detail));
        }
        Ok(logits)
    }

    /// Has each job's rows read, and gives it its next turn after those that got less than they
    /// could use.
    fn advance(&mut self, rows: &[usize], logits: &Logits, begun: Instant) {
        let known = self.options.tokenizer_size;
        let mut unread = logits.rows().map(|row| &row[..known.min(row.len())]);
        let mut jobs: Vec<(Job, usize, Vec<&[f32]>)> = std::mem::take(&mut self.running)
            .into_iter()
            .zip(rows)
            .map(|(job, &rows)| {
                let own = unread.by_ref().take(job.wanted(rows)).collect();
                (job, rows, own)
            })
            .collect();
        let all_due: Vec<bool> = jobs
            .iter()
            .map(|(job, rows, _)| *rows == job.due())
            .collect();
        // In parallel: a row of a large vocabulary takes about a millisecond.
        let outcomes: Vec<_> = jobs
            .par_iter_mut()
            .map(|(job, rows, own)| job.advance(*rows, own.iter().copied()))
            .collect();
        // Noted before anybody is answered, who may ask.
        self.counters.stepped(StepTime {
            rows: rows.iter().sum(),
            time: begun.elapsed(),
        });
        let mut served = Vec::new();
        for (((job, rows, _), outcome), all) in jobs.into_iter().zip(outcomes).zip(all_due) {
            job.span.in_scope(|| trace!(rows, "advanced"));
            if outcome.is_err() || job.is_finished() {
                self.end(job, outcome);
            } else if all {
                served.push(job);
            } else {
                self.running.push(job);
            }
        }
        self.running.append(&mut served);
    }

    /// Fails the jobs that took part in a step that failed.
    fn fail(&mut self, rows: &[usize], error: &EngineError) {
        for (job, &rows) in std::mem::take(&mut self.running).into_iter().zip(rows) {
            if rows > 0 {
                self.end(job, Err(error.clone()));
            } else {
                self.running.push(job);
            }
        }
    }
}

fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("unknown")
}
