//! Which jobs get room in the cache, and at whose cost.
//!
//! A job reserves all that it will append before it starts, so a started job always comes to its
//! end and gives its sequence's cache up for eviction then. Hence no deadlock: a job that finds no
//! room waits while started ones run; where none runs, those that wait behind it are evicted.

use super::{
    SequenceState,
    job::{Held, Job},
    worker::Executor,
};
use crate::EngineError;
use std::{
    collections::VecDeque,
    sync::{Arc, atomic::Ordering},
};
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
    /// The first may have others evicted. Those behind it must not take what it waits for: only
    /// short ones may pass, with what little room they need.
    pub(super) fn admit(&mut self) {
        let mut blocked = VecDeque::new();
        while let Some(mut job) = self.waiting.pop_front() {
            let room = if blocked.is_empty() {
                self.make_room(&mut job)
            } else if job.is_short() {
                job.reserve()
            } else {
                blocked.push_back(job);
                continue;
            };
            match room {
                Ok(()) => self.running.push(job),
                Err(EngineError::CacheFull { .. }) if !self.running.is_empty() => {
                    job.span.in_scope(|| debug!("waits for room in the cache"));
                    blocked.push_back(job);
                }
                Err(error) => self.end(job, Err(error)),
            }
        }
        self.waiting = blocked;
    }

    /// Reserves what `job` needs, and evicts others until it fits or nobody is left to evict.
    fn make_room(&mut self, job: &mut Job) -> Result<(), EngineError> {
        loop {
            match job.reserve() {
                Err(EngineError::CacheFull { .. })
                    if self.evict_idle() || (self.running.is_empty() && self.evict_waiting()) => {}
                outcome => return outcome,
            }
        }
    }

    /// Evicts the least recently used idle sequence; false where none holds anything.
    fn evict_idle(&mut self) -> bool {
        let oldest = self
            .idle
            .iter()
            .filter(|(_, idle)| !idle.held.lease.is_empty())
            .min_by_key(|&(&id, idle)| (idle.last_used, id))
            .map(|(&id, _)| id);
        let Some(idle) = oldest.and_then(|id| self.idle.remove(&id)) else {
            return false;
        };
        debug!(
            sequence = idle.sequence.id,
            tokens = idle.held.lease.len(),
            "evicted an idle sequence from the cache"
        );
        idle.sequence.evict();
        true
    }

    /// Evicts the last of the waiting sequences; false where none holds anything.
    fn evict_waiting(&mut self) -> bool {
        let last = self
            .waiting
            .iter()
            .rposition(|job| !job.held.lease.is_empty());
        let Some(mut job) = last.and_then(|index| self.waiting.remove(index)) else {
            return false;
        };
        job.span.in_scope(|| {
            debug!(
                sequence = job.sequence.id,
                tokens = job.held.lease.len(),
                "evicted a waiting sequence from the cache"
            );
        });
        job.sequence.evict();
        job.held.truncate(0);
        drop(job.end(Err(EngineError::Evicted)));
        true
    }
}

impl SequenceState {
    fn evict(&self) {
        self.evicted.store(true, Ordering::Relaxed);
        self.cached.store(0, Ordering::Relaxed);
    }
}
