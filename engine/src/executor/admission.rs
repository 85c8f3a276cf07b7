//! Which jobs get room in the cache, and at whose cost.
//!
//! A job reserves all that it will append before it starts, so a started job always comes to its
//! end and gives its sequence's cache up for others then. Hence no deadlock: a job that finds no
//! room waits while started ones run; where none runs, those that wait behind it give theirs up. A
//! sequence that does so keeps its tokens: its next job, or the one that waits, computes their keys
//! and values again, to the same bits, and finds what is left of them in the cache.
//!
//! Forks make way before that, and a fork's job has none give way: it starts at once or fails.

use super::{
    SequenceState,
    job::{Held, Job},
    worker::Executor,
};
use crate::{BlockCopy, EngineError};
use std::{collections::VecDeque, sync::Arc};
use tracing::debug;

/// A sequence that has no job.
#[derive(Debug)]
pub(super) struct Idle {
    pub(super) sequence: Arc<SequenceState>,
    pub(super) held: Held,
    /// The step at which its latest job ended.
    pub(super) last_used: u64,
}

impl Executor {
    /// Starts the waiting jobs that the cache has room for.
    ///
    /// The first may have others preempted. Those behind it must not take what it waits for: only
    /// short ones may pass, with what little room they need.
    pub(super) fn admit(&mut self) {
        let mut blocked = VecDeque::new();
        while let Some(mut job) = self.waiting.pop_front() {
            let room = if job.is_fork() {
                self.reserve_fork(&mut job, blocked.is_empty())
            } else if blocked.is_empty() {
                self.make_room(&mut job)
            } else if job.is_short() {
                self.reserve(&mut job)
            } else {
                blocked.push_back(job);
                continue;
            };
            match room {
                Ok(()) => self.running.push(job),
                Err(EngineError::CacheFull { .. })
                    if !self.running.is_empty() && !job.is_fork() =>
                {
                    job.span.in_scope(|| debug!("waits for room in the cache"));
                    blocked.push_back(job);
                }
                Err(error) => self.end(job, Err(error)),
            }
        }
        self.waiting = blocked;
    }

    /// Reserves what `job` needs, and preempts others until it fits or nobody is left.
    fn make_room(&mut self, job: &mut Job) -> Result<(), EngineError> {
        loop {
            match self.reserve(job) {
                Err(EngineError::CacheFull { .. })
                    if self.preempt_fork()
                        || self.preempt_idle()
                        || (self.running.is_empty() && self.preempt_waiting()) => {}
                outcome => return outcome,
            }
        }
    }

    /// Reserves what a fork's `job` needs, unless sequences wait for room or the fork lost what it
    /// began with: it is not worth a prefill.
    fn reserve_fork(&mut self, job: &mut Job, nobody_waits: bool) -> Result<(), EngineError> {
        if nobody_waits && !job.has_lost() {
            return self.reserve(job);
        }
        Err(EngineError::CacheFull {
            tokens: job.due(),
            budget_bytes: self.pool.budget_bytes(),
        })
    }

    /// Takes the cache of a fork, of an idle one where there is one; false where none holds anything.
    fn preempt_fork(&mut self) -> bool {
        let idle = self.idle.iter_mut();
        let forks = idle.filter(|(_, idle)| idle.sequence.is_fork() && idle.held.is_cached());
        if let Some((_, fork)) = forks.min_by_key(|(id, idle)| (idle.last_used, **id)) {
            fork.held.preempt();
            return true;
        }
        let Some(place) = self.running.iter().rposition(Job::is_fork) else {
            return false;
        };
        let job = self.running.remove(place);
        let error = EngineError::CacheFull {
            tokens: job.due(),
            budget_bytes: self.pool.budget_bytes(),
        };
        self.end(job, Err(error));
        true
    }

    /// Reserves what `job` needs beside what others have computed already.
    fn reserve(&mut self, job: &mut Job) -> Result<(), EngineError> {
        self.adopt(job);
        if let Some(BlockCopy { from, to }) = job.reserve()? {
            let copied = self.model.copy_block(from, to);
            copied.inspect_err(|_| job.forget_tail())?;
        }
        Ok(())
    }

    /// Takes the cache of the least recently used idle sequence; false where none holds anything.
    fn preempt_idle(&mut self) -> bool {
        let cached = self
            .idle
            .iter_mut()
            .filter(|(_, idle)| idle.held.is_cached());
        let oldest = cached.min_by_key(|(id, idle)| (idle.last_used, **id));
        let Some((&sequence, idle)) = oldest else {
            return false;
        };
        let tokens = idle.held.preempt();
        debug!(sequence, tokens, "preempted an idle sequence");
        self.counters.preempted();
        true
    }

    /// Takes the cache of the last of the waiting sequences; false where none holds anything.
    fn preempt_waiting(&mut self) -> bool {
        let last = self
            .waiting
            .iter_mut()
            .rev()
            .find(|job| job.held.is_cached());
        let Some(job) = last else {
            return false;
        };
        let tokens = job.preempt();
        let sequence = job.sequence.id;
        job.span
            .in_scope(|| debug!(sequence, tokens, "preempted a waiting sequence"));
        self.counters.preempted();
        true
    }
}
