//! The blocks that all sequences draw from.

use super::{KvLayout, Lease, books::Books};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Blocks under a byte budget. Clones share them.
#[derive(Debug, Clone)]
pub struct Pool {
    budget_bytes: usize,
    sharing: bool,
    books: Arc<Mutex<Books>>,
}

/// How many blocks of a [`Pool`] are in which state; they add up to its [`blocks`](Pool::blocks).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Held by sequences.
    pub used: usize,
    /// Held by none, and kept for whoever begins with the same tokens until their room is needed.
    pub cached: usize,
    /// Without content.
    pub free: usize,
}

impl Pool {
    /// A pool of as many blocks of `layout` as fit into `budget_bytes`. Only the books: memory is
    /// the model's.
    pub fn new(layout: KvLayout, budget_bytes: usize) -> Self {
        let blocks = budget_bytes.checked_div(layout.block_bytes());
        let limit = blocks.unwrap_or(usize::MAX).min(u32::MAX as usize);
        Self {
            budget_bytes,
            sharing: true,
            books: Arc::new(Mutex::new(Books::new(limit))),
        }
    }

    /// The same pool, in which sequences that begin with the same tokens hold the same blocks or do
    /// not.
    #[must_use]
    pub fn with_sharing(self, sharing: bool) -> Self {
        Self { sharing, ..self }
    }

    /// An empty lease.
    pub fn lease(&self) -> Lease {
        Lease::new(self.clone())
    }

    /// Blocks in all.
    pub fn blocks(&self) -> usize {
        self.books().limit()
    }

    /// What is used at present.
    pub fn usage(&self) -> Usage {
        let books = self.books();
        let (cached, free) = (books.cached(), books.free());
        Usage {
            used: books.limit() - cached - free,
            cached,
            free,
        }
    }

    /// The most bytes that the blocks may take.
    pub fn budget_bytes(&self) -> usize {
        self.budget_bytes
    }

    pub(super) fn shares(&self) -> bool {
        self.sharing
    }

    pub(super) fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
