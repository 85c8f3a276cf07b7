//! The KV cache: blocks under one byte budget, a lease per sequence.
//!
//! A lease grows by whole blocks and never moves what it holds, so a step copies nothing but its
//! own rows. Dropping a lease gives its bytes back.

use crate::EngineError;
use speculation::TokenId;

/// What one token's keys and values take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KvLayout {
    /// Decoder layers; 0 where the model keeps no keys and values.
    pub layers: usize,
    /// Key and value heads per layer.
    pub kv_heads: usize,
    /// Numbers per head.
    pub head_dim: usize,
}

/// The budget that all leases draw from.
#[derive(Debug)]
pub struct KvPool {}

/// One sequence's cache: its tokens, and their keys and values in every layer.
#[derive(Debug)]
pub struct Lease {
    tokens: Vec<TokenId>,
}

impl KvPool {
    /// A pool of at most `budget_bytes` for sequences of `layout`.
    pub fn new(layout: KvLayout, budget_bytes: usize) -> Self {
        let _ = (layout, budget_bytes);
        todo!("helper: decoder")
    }

    /// An empty lease.
    pub fn lease(&self) -> Lease {
        todo!("helper: decoder")
    }
}

impl Lease {
    /// Tokens held.
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// True where nothing is held.
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// The tokens held.
    pub fn tokens(&self) -> &[TokenId] {
        &self.tokens
    }

    /// Makes room for `extra` more tokens.
    ///
    /// # Errors
    /// [`EngineError::CacheFull`] where the pool's budget does not allow it; nothing changes then.
    pub fn reserve(&mut self, extra: usize) -> Result<(), EngineError> {
        let _ = extra;
        todo!("helper: decoder")
    }

    /// Forgets all but the first `len` tokens and gives whole free blocks back.
    pub fn truncate(&mut self, len: usize) {
        let _ = len;
        todo!("helper: decoder")
    }
}
