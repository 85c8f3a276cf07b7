//! What the engine's cache is used for, in numbers.

use crate::Usage;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Steps that are remembered.
const STEPS: usize = 32;

/// What the cache holds at present, and what happened in it since the engine started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheState {
    /// Its blocks.
    pub blocks: Usage,
    /// Tokens that were not computed because the cache held them.
    pub prefix_hit_tokens: u64,
    /// How often a sequence gave its blocks up for another. It computes again what is not found in
    /// the cache any more.
    pub preemptions: u64,
}

/// What a step took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepTime {
    /// Rows that it computed, of all sequences together.
    pub rows: usize,
    /// Its time: computing them, and having them read.
    pub time: Duration,
}

/// What all steps took together, since the engine started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StepTotals {
    /// Steps.
    pub steps: u64,
    /// Rows that they computed.
    pub rows: u64,
    /// Their time.
    pub time: Duration,
}

/// Only the thread writes them.
#[derive(Debug, Default)]
pub(super) struct Counters {
    steps: Mutex<Steps>,
    prefix_hit_tokens: AtomicU64,
    preemptions: AtomicU64,
}

/// The latest steps, and all together.
#[derive(Debug, Default)]
struct Steps {
    latest: VecDeque<StepTime>,
    totals: StepTotals,
}

impl Counters {
    pub(super) fn stepped(&self, step: StepTime) {
        let mut steps = self.steps();
        if steps.latest.len() == STEPS {
            steps.latest.pop_front();
        }
        steps.latest.push_back(step);
        steps.totals.steps += 1;
        steps.totals.rows += step.rows as u64;
        steps.totals.time += step.time;
    }

    pub(super) fn totals(&self) -> StepTotals {
        self.steps().totals
    }

    /// The steps after the first `seen`, as far as they are remembered; `seen` becomes their number.
    pub(super) fn steps_since(&self, seen: &mut u64) -> Vec<StepTime> {
        let steps = self.steps();
        let count = steps.totals.steps;
        let new = usize::try_from(count - *seen).unwrap_or(usize::MAX);
        *seen = count;
        let old = steps.latest.len().saturating_sub(new);
        steps.latest.range(old..).copied().collect()
    }

    fn steps(&self) -> MutexGuard<'_, Steps> {
        self.steps.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn hit(&self, tokens: usize) {
        self.prefix_hit_tokens
            .fetch_add(tokens as u64, Ordering::Relaxed);
    }

    pub(super) fn preempted(&self) {
        self.preemptions.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn state(&self, blocks: Usage) -> CacheState {
        CacheState {
            blocks,
            prefix_hit_tokens: self.prefix_hit_tokens.load(Ordering::Relaxed),
            preemptions: self.preemptions.load(Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_step_is_told_once_and_old_ones_are_forgotten() {
        let counters = Counters::default();
        let step = |rows| StepTime {
            rows,
            time: Duration::from_micros(rows as u64),
        };
        let mut seen = 0;
        assert!(counters.steps_since(&mut seen).is_empty());
        (1..=3).for_each(|rows| counters.stepped(step(rows)));
        assert_eq!(counters.steps_since(&mut seen), [1, 2, 3].map(step));
        (4..=5).for_each(|rows| counters.stepped(step(rows)));
        assert_eq!(counters.steps_since(&mut seen), [4, 5].map(step));
        assert!(counters.steps_since(&mut seen).is_empty());
        (0..100).for_each(|rows| counters.stepped(step(rows)));
        let latest: Vec<_> = (100 - STEPS..100).map(step).collect();
        assert_eq!(counters.steps_since(&mut seen), latest);
        let mut other = 0;
        assert_eq!(counters.steps_since(&mut other), latest);
    }
}
