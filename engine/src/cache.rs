//! The KV cache in two halves: the books of its blocks, and the CPU's storage of what is in them.
//!
//! [`Pool`] and [`Lease`] are the books: which blocks there are under the byte budget, which
//! sequence holds which, and what tokens they stand for. They are the same whatever the device.
//! What a block holds lies with the model that computes it, which is told block ids and nothing
//! else ([`Input`](crate::Input)): in `Storage` where the processor computes.
//!
//! A sequence grows by whole blocks and never moves what it holds, so a step copies nothing but its
//! own rows. Where sequences begin with the same tokens they hold the same blocks; the books find
//! them by their content ([`Lease::adopt`]), and keep those that nobody holds until their room is
//! needed. What the numbers mean, and which token comes next, is the model's business.

mod books;
mod encoding;
mod layout;
mod lease;
mod pool;
mod storage;
#[cfg(test)]
mod tests;

pub use layout::{CacheType, KvLayout};
pub use lease::{BlockCopy, Lease};
pub use pool::{Pool, Usage};
pub(crate) use storage::{Decoded, Storage};

use speculation::TokenId;

/// Tokens per block.
pub const BLOCK_TOKENS: usize = 32;

/// A block of [`BLOCK_TOKENS`] tokens: an index below the number of blocks that
/// [`Model::allocate`](crate::Model::allocate) was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockId(u32);

impl BlockId {
    /// The block at `index`.
    pub fn new(index: u32) -> Self {
        Self(index)
    }

    /// Its place among all blocks.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// What a full block stands for: its tokens, and by its parent, whose content is as exact, all
/// tokens before them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Content {
    parent: Option<BlockId>,
    tokens: [TokenId; BLOCK_TOKENS],
}
