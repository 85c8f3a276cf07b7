//! One sequence's part of the cache.

use super::{BLOCK_TOKENS, BlockId, Content, Pool, books::Books};
use crate::EngineError;
use speculation::TokenId;

/// One sequence's blocks, and the tokens whose keys and values they hold. Dropping it gives the
/// blocks back.
#[derive(Debug)]
pub struct Lease {
    pool: Pool,
    tokens: Vec<TokenId>,
    /// As many as the tokens need, and those that were reserved. All full ones are published where
    /// the pool and the lease share.
    blocks: Vec<BlockId>,
    /// Neither finds blocks by their content nor lets its own be found.
    private: bool,
}

/// Whoever reserves must have the model copy this block before the next step: the sequence goes on
/// in the middle of a block that others go on from as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "the sequence's last block has no content before it is copied"]
pub struct BlockCopy {
    /// The block that is shared.
    pub from: BlockId,
    /// The sequence's own.
    pub to: BlockId,
}

impl Lease {
    pub(super) fn new(pool: Pool) -> Self {
        Self {
            pool,
            tokens: Vec::new(),
            blocks: Vec::new(),
            private: false,
        }
    }

    /// A lease of the first `len` tokens, at most as many as are held. It holds the same blocks: the
    /// one that is begun is copied by whichever of the two writes to it first
    /// ([`reserve`](Self::reserve)). What it adds is found by nobody until it [`share`](Self::share)s.
    #[must_use]
    pub fn fork(&self, len: usize) -> Self {
        let tokens = self.tokens[..len.min(self.len())].to_vec();
        let blocks = self.blocks[..tokens.len().div_ceil(BLOCK_TOKENS)].to_vec();
        let mut books = self.pool.books();
        for &id in &blocks {
            books.hold(id);
        }
        drop(books);
        Self {
            pool: self.pool.clone(),
            tokens,
            blocks,
            private: true,
        }
    }

    /// From now on its full blocks are found by their content, where that can be.
    pub fn share(&mut self) {
        if std::mem::take(&mut self.private) {
            self.publish(0);
        }
    }

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

    /// The block table: block i holds the tokens from 32·i on. It has room for what was reserved.
    pub fn blocks(&self) -> &[BlockId] {
        &self.blocks
    }

    /// Makes room for `extra` more tokens, to be written by the model and then
    /// [`append`](Self::append)ed. To be called again after a [`truncate`](Self::truncate).
    ///
    /// # Errors
    /// [`EngineError::CacheFull`] where others hold what that needs; nothing changes then.
    pub fn reserve(&mut self, extra: usize) -> Result<Option<BlockCopy>, EngineError> {
        let tokens = self.len().saturating_add(extra);
        let missing = tokens
            .div_ceil(BLOCK_TOKENS)
            .saturating_sub(self.blocks.len());
        let mut books = self.pool.books();
        let tail = self.tail().filter(|_| extra > 0);
        let is_shared = tail.is_some_and(|tail| books.is_shared(tail));
        if missing.saturating_add(usize::from(is_shared)) > books.free() + books.cached() {
            return Err(EngineError::CacheFull {
                tokens,
                budget_bytes: self.pool.budget_bytes(),
            });
        }
        // Where cached blocks go on from the tail, a copy keeps them as long as there is room.
        let is_needed = |books: &Books| tail.is_some_and(|tail| is_shared || books.is_parent(tail));
        while missing + usize::from(is_needed(&books)) > books.free() && books.evict() {}
        let copied = tail.filter(|_| is_needed(&books));
        if let (Some(tail), None) = (tail, copied) {
            books.unpublish(tail);
        }
        let copy = copied.and_then(|from| books.take().map(|to| BlockCopy { from, to }));
        self.blocks.extend((0..missing).map_while(|_| books.take()));
        if let Some(BlockCopy { from, to }) = copy {
            self.blocks[self.tokens.len() / BLOCK_TOKENS] = to;
            books.tick();
            books.release(from);
        }
        Ok(copy)
    }

    /// Takes in that the model has written the keys and values of `tokens`. Where others have blocks
    /// of the same content, the lease holds those from now on.
    ///
    /// # Panics
    /// If they were not reserved since the last [`truncate`](Self::truncate).
    pub fn append(&mut self, tokens: &[TokenId]) {
        let full = self.len() / BLOCK_TOKENS;
        let tail = self.tail();
        self.tokens.extend_from_slice(tokens);
        let room = self.blocks.len() * BLOCK_TOKENS;
        assert!(self.len() <= room, "room for the tokens was reserved");
        let books = self.pool.books();
        let is_written = |tail| !books.is_published(tail) && !books.is_shared(tail);
        assert!(
            tail.is_none_or(is_written),
            "a shared block is not written to"
        );
        drop(books);
        self.publish(full);
    }

    /// Has the full blocks from the `first`th on be found by their content.
    ///
    /// Whoever holds a published block holds its parent. Where others' blocks have taken the place of the
    /// lease's own, forks that hold a later one of its own do not hold that one's parent: the lease stays
    /// private then.
    fn publish(&mut self, first: usize) {
        if !self.shares() {
            return;
        }
        let mut books = self.pool.books();
        let mut is_replaced = false;
        for index in first..self.tokens.len() / BLOCK_TOKENS {
            let (_, block) = self.tokens.split_at(index * BLOCK_TOKENS);
            let Some(tokens) = block.first_chunk() else {
                break;
            };
            let content = Content {
                parent: index.checked_sub(1).map(|before| self.blocks[before]),
                tokens: *tokens,
            };
            let own = self.blocks[index];
            if is_replaced && books.is_shared(own) {
                self.private = true;
                return;
            }
            let found = books.publish(own, content, index);
            if found != own {
                books.hold(found);
                books.release(own);
                self.blocks[index] = found;
                is_replaced = true;
            }
        }
    }

    /// Forgets all but the first `len` tokens and gives whole free blocks back, those that were
    /// reserved and not filled included.
    pub fn truncate(&mut self, len: usize) {
        self.tokens.truncate(len);
        let kept = self.len().div_ceil(BLOCK_TOKENS);
        if kept < self.blocks.len() {
            let mut books = self.pool.books();
            books.tick();
            for id in self.blocks.drain(kept..) {
                books.release(id);
            }
        }
    }

    /// Goes on with blocks that are there already, as far as their tokens are those of `upcoming`,
    /// and returns how many tokens that brought.
    pub fn adopt(&mut self, upcoming: &[TokenId]) -> usize {
        let mut taken = 0;
        while let Some(content) = self.next_block(&upcoming[taken..]) {
            let index = self.len() / BLOCK_TOKENS;
            let mut books = self.pool.books();
            let Some(found) = books.find(&content) else {
                break;
            };
            books.hold(found);
            match self.blocks.get_mut(index) {
                Some(own) => books.release(std::mem::replace(own, found)),
                None => self.blocks.push(found),
            }
            let new = (index + 1) * BLOCK_TOKENS - self.tokens.len();
            self.tokens.extend_from_slice(&upcoming[taken..][..new]);
            taken += new;
        }
        taken
    }

    /// What the next full block will stand for, where `upcoming` fills one.
    pub(crate) fn next_block(&self, upcoming: &[TokenId]) -> Option<Content> {
        if !self.shares() {
            return None;
        }
        let full = self.len() / BLOCK_TOKENS;
        let begun = &self.tokens[full * BLOCK_TOKENS..];
        let rest = upcoming.get(..BLOCK_TOKENS - begun.len())?;
        let mut tokens = [0; BLOCK_TOKENS];
        let (start, end) = tokens.split_at_mut(begun.len());
        start.copy_from_slice(begun);
        end.copy_from_slice(rest);
        Some(Content {
            parent: full.checked_sub(1).map(|before| self.blocks[before]),
            tokens,
        })
    }

    fn shares(&self) -> bool {
        self.pool.shares() && !self.private
    }

    /// The block that is begun and not full.
    fn tail(&self) -> Option<BlockId> {
        let begun = !self.len().is_multiple_of(BLOCK_TOKENS);
        begun.then(|| self.blocks[self.len() / BLOCK_TOKENS])
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.truncate(0);
    }
}
