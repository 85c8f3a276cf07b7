//! What the engine's cache is used for, in numbers.

use crate::Usage;
use std::sync::atomic::{AtomicU64, Ordering};

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

/// Only the thread writes them.
#[derive(Debug, Default)]
pub(super) struct Counters {
    prefix_hit_tokens: AtomicU64,
    preemptions: AtomicU64,
}

impl Counters {
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
