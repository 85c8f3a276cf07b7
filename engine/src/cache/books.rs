//! Who holds which block, and what full blocks stand for.
//!
//! A block is free, held by leases, or cached: full, published and held by nobody, until its room
//! is needed. Published blocks form a forest by their parents. Whoever holds a block holds its
//! parent, so a block is released no later than its parent is: evicting by the time of release, the
//! deeper ones first where it is the same, takes leaves only.

use super::{BlockId, Content};
use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};

#[derive(Debug)]
pub(super) struct Books {
    /// Those that were ever taken; the rest are free.
    blocks: Vec<Block>,
    limit: usize,
    free: Vec<BlockId>,
    /// Published blocks. The map's hash has a random key, so nobody can make contents collide, and
    /// equal hashes are compared in full.
    index: HashMap<Content, BlockId>,
    cached: BTreeSet<Rank>,
    clock: u64,
}

/// The order of eviction: when a block was last released, and how many are before it.
type Rank = (u64, Reverse<usize>, BlockId);

#[derive(Debug, Default)]
struct Block {
    holders: usize,
    /// Published blocks whose parent it is.
    children: usize,
    published: Option<Published>,
}

#[derive(Debug)]
struct Published {
    content: Content,
    depth: usize,
    released: u64,
}

impl Books {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            blocks: Vec::new(),
            limit,
            free: Vec::new(),
            index: HashMap::new(),
            cached: BTreeSet::new(),
            clock: 0,
        }
    }

    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    pub(super) fn free(&self) -> usize {
        self.limit - self.blocks.len() + self.free.len()
    }

    pub(super) fn cached(&self) -> usize {
        self.cached.len()
    }

    /// Begins a release: what is released from now on was released later than all before.
    pub(super) fn tick(&mut self) {
        self.clock += 1;
    }

    /// A free block, held once; none where there is none.
    pub(super) fn take(&mut self) -> Option<BlockId> {
        // One that was used before, so that no more memory is touched than need be.
        let id = match self.free.pop() {
            Some(id) => id,
            None if self.blocks.len() < self.limit => {
                let id = BlockId(u32::try_from(self.blocks.len()).ok()?);
                self.blocks.push(Block::default());
                id
            }
            None => return None,
        };
        self.block(id).holders = 1;
        Some(id)
    }

    pub(super) fn hold(&mut self, id: BlockId) {
        if let Some(rank) = self.rank(id) {
            self.cached.remove(&rank);
        }
        self.block(id).holders += 1;
    }

    pub(super) fn release(&mut self, id: BlockId) {
        let clock = self.clock;
        let block = self.block(id);
        block.holders -= 1;
        if block.holders > 0 {
            return;
        }
        if let Some(published) = &mut block.published {
            published.released = clock;
        }
        match self.rank(id) {
            Some(rank) => drop(self.cached.insert(rank)),
            None => self.free.push(id),
        }
    }

    /// Frees the cached block that was released first; false where none is cached.
    pub(super) fn evict(&mut self) -> bool {
        let Some((_, _, id)) = self.cached.pop_first() else {
            return false;
        };
        self.unpublish(id);
        self.free.push(id);
        true
    }

    pub(super) fn find(&self, content: &Content) -> Option<BlockId> {
        self.index.get(content).copied()
    }

    /// Has `id`, the `depth`th of its sequence, found by its content from now on. Returns the block
    /// that is found by it: another, where one was there.
    pub(super) fn publish(&mut self, id: BlockId, content: Content, depth: usize) -> BlockId {
        if let Some(other) = self.find(&content) {
            return other;
        }
        if let Some(parent) = content.parent {
            self.block(parent).children += 1;
        }
        self.index.insert(content.clone(), id);
        self.block(id).published = Some(Published {
            content,
            depth,
            released: 0,
        });
        id
    }

    /// Has `id`, which no published block follows, not be found any more.
    pub(super) fn unpublish(&mut self, id: BlockId) {
        let Some(published) = self.block(id).published.take() else {
            return;
        };
        self.index.remove(&published.content);
        if let Some(parent) = published.content.parent {
            self.block(parent).children -= 1;
        }
    }

    pub(super) fn is_published(&self, id: BlockId) -> bool {
        self.blocks[id.index()].published.is_some()
    }

    /// True where others hold `id` as well.
    pub(super) fn is_shared(&self, id: BlockId) -> bool {
        self.blocks[id.index()].holders > 1
    }

    /// True where a published block follows `id`.
    pub(super) fn is_parent(&self, id: BlockId) -> bool {
        self.blocks[id.index()].children > 0
    }

    /// Its place among the cached ones, where nobody holds it and it is published.
    fn rank(&self, id: BlockId) -> Option<Rank> {
        let block = &self.blocks[id.index()];
        let published = block.published.as_ref().filter(|_| block.holders == 0)?;
        Some((published.released, Reverse(published.depth), id))
    }

    fn block(&mut self, id: BlockId) -> &mut Block {
        &mut self.blocks[id.index()]
    }
}
