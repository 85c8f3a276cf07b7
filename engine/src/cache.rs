//! The KV cache: blocks under one byte budget, a lease per sequence.
//!
//! A lease grows by whole blocks and never moves what it holds, so a step copies nothing but its
//! own rows. Dropping a lease gives its bytes back. What the numbers mean, and which token comes
//! next, is the model's business: this module knows layouts and budgets only.

use crate::EngineError;
use speculation::TokenId;
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// Tokens per block.
pub(crate) const BLOCK_TOKENS: usize = 32;

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
pub struct KvPool {
    layout: KvLayout,
    budget: Arc<Budget>,
}

/// One sequence's cache: its tokens, and their keys and values in every layer.
#[derive(Debug)]
pub struct Lease {
    layout: KvLayout,
    budget: Arc<Budget>,
    tokens: Vec<TokenId>,
    /// Each laid out as `[layer][keys, values][kv_head]` and then, so that attention runs along
    /// rows in both, keys as `[head_dim][slot]` and values as `[slot][head_dim]`.
    blocks: Vec<Box<[f32]>>,
}

#[derive(Debug)]
struct Budget {
    bytes: usize,
    used: AtomicUsize,
}

impl KvLayout {
    /// Bytes of a block of 32 tokens, the unit in which leases grow.
    pub fn block_bytes(&self) -> usize {
        self.block_len() * size_of::<f32>()
    }

    fn block_len(&self) -> usize {
        self.layers * 2 * self.side_len()
    }

    /// Numbers of one layer's keys, or of its values, in a block.
    fn side_len(&self) -> usize {
        self.kv_heads * self.head_len()
    }

    fn head_len(&self) -> usize {
        BLOCK_TOKENS * self.head_dim
    }

    fn blocks_for(&self, tokens: usize) -> usize {
        if self.layers == 0 {
            0
        } else {
            tokens.div_ceil(BLOCK_TOKENS)
        }
    }
}

impl KvPool {
    /// A pool of at most `budget_bytes` for sequences of `layout`.
    pub fn new(layout: KvLayout, budget_bytes: usize) -> Self {
        let budget = Arc::new(Budget {
            bytes: budget_bytes,
            used: AtomicUsize::new(0),
        });
        Self { layout, budget }
    }

    /// An empty lease.
    pub fn lease(&self) -> Lease {
        Lease {
            layout: self.layout,
            budget: Arc::clone(&self.budget),
            tokens: Vec::new(),
            blocks: Vec::new(),
        }
    }

    /// Bytes that leases hold.
    pub fn used_bytes(&self) -> usize {
        self.budget.used.load(Ordering::Relaxed)
    }

    /// The most bytes that leases may hold.
    pub fn budget_bytes(&self) -> usize {
        self.budget.bytes
    }
}

impl Budget {
    /// Takes `bytes`, or nothing and false where they are not left.
    fn take(&self, bytes: usize) -> bool {
        self.used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
                used.checked_add(bytes).filter(|&sum| sum <= self.bytes)
            })
            .is_ok()
    }

    fn give_back(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
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
        let tokens = self.len().saturating_add(extra);
        let wanted = self.layout.blocks_for(tokens);
        let missing = wanted.saturating_sub(self.blocks.len());
        let taken = missing
            .checked_mul(self.layout.block_bytes())
            .is_some_and(|bytes| self.budget.take(bytes));
        if !taken {
            return Err(EngineError::CacheFull {
                tokens,
                budget_bytes: self.budget.bytes,
            });
        }
        let block_len = self.layout.block_len();
        self.blocks
            .extend((0..missing).map(|_| vec![0.0; block_len].into_boxed_slice()));
        Ok(())
    }

    /// Forgets all but the first `len` tokens and gives whole free blocks back, those that were
    /// reserved and not filled included.
    pub fn truncate(&mut self, len: usize) {
        self.tokens.truncate(len);
        let kept = self.layout.blocks_for(self.len());
        let freed = self.blocks.len().saturating_sub(kept);
        self.blocks.truncate(kept);
        self.budget.give_back(freed * self.layout.block_bytes());
    }

    /// Appends tokens, whose keys and values the caller then writes with [`write`](Self::write).
    ///
    /// # Errors
    /// [`EngineError::CacheFull`] where they were not reserved and the budget does not allow them.
    pub(crate) fn push(&mut self, tokens: &[TokenId]) -> Result<(), EngineError> {
        self.reserve(tokens.len())?;
        self.tokens.extend_from_slice(tokens);
        Ok(())
    }

    /// Sets a token's keys and values in one layer, each `[kv_head][head_dim]`.
    pub(crate) fn write(&mut self, layer: usize, position: usize, keys: &[f32], values: &[f32]) {
        let layout = self.layout;
        let block = &mut self.blocks[position / BLOCK_TOKENS];
        let slot = position % BLOCK_TOKENS;
        let (key_side, value_side) = block[layer * 2 * layout.side_len()..]
            [..2 * layout.side_len()]
            .split_at_mut(layout.side_len());
        let heads = key_side.chunks_exact_mut(layout.head_len());
        for (head, keys) in heads.zip(keys.chunks_exact(layout.head_dim)) {
            for (column, &key) in head.chunks_exact_mut(BLOCK_TOKENS).zip(keys) {
                column[slot] = key;
            }
        }
        let heads = value_side.chunks_exact_mut(layout.head_len());
        for (head, values) in heads.zip(values.chunks_exact(layout.head_dim)) {
            head[slot * layout.head_dim..][..layout.head_dim].copy_from_slice(values);
        }
    }

    /// One head's keys as `[head_dim][slot]` and values as `[slot][head_dim]` in one layer, block
    /// by block, over the block's 32 slots. Slots past [`len`](Self::len) hold nothing of meaning.
    pub(crate) fn head(
        &self,
        layer: usize,
        kv_head: usize,
    ) -> impl Iterator<Item = (&[f32], &[f32])> {
        let head_len = self.layout.head_len();
        let side_len = self.layout.side_len();
        let keys = layer * 2 * side_len + kv_head * head_len;
        self.blocks.iter().map(move |block| {
            (
                &block[keys..][..head_len],
                &block[keys + side_len..][..head_len],
            )
        })
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.budget
            .give_back(self.blocks.len() * self.layout.block_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{Rng, SeedableRng, rngs::StdRng};

    const LAYOUT: KvLayout = KvLayout {
        layers: 2,
        kv_heads: 3,
        head_dim: 4,
    };

    /// A lease as it should be: its tokens, and the room it holds.
    #[derive(Default)]
    struct Naive {
        tokens: Vec<TokenId>,
        blocks: usize,
    }

    impl Naive {
        /// Cuts, reserves or appends, and checks that it goes as far as `free` blocks allow.
        fn change(&mut self, lease: &mut Lease, free: usize, operation: u32, rng: &mut StdRng) {
            if operation == 2 {
                let len = rng.random_range(0..=self.tokens.len() + 1);
                lease.truncate(len);
                self.tokens.truncate(len);
                self.blocks = self.tokens.len().div_ceil(BLOCK_TOKENS);
                return;
            }
            let extra = rng.random_range(0..80);
            let tokens: Vec<_> = (0..extra).map(|_| rng.random_range(0..100)).collect();
            let wanted = (self.tokens.len() + extra).div_ceil(BLOCK_TOKENS);
            let done = match operation {
                3 => lease.reserve(extra),
                _ => append(lease, &tokens),
            };
            assert_eq!(done.is_ok(), wanted <= self.blocks + free, "{done:?}");
            if done.is_ok() {
                self.blocks = self.blocks.max(wanted);
                self.tokens.extend(tokens.iter().filter(|_| operation != 3));
            }
        }
    }

    /// Any numbers that differ by all of their place.
    fn row(token: TokenId, position: usize, layer: usize, side: usize) -> Vec<f32> {
        (0..LAYOUT.kv_heads * LAYOUT.head_dim)
            .map(|i| {
                (((token as usize * 1000 + position) * 2 + layer) * 2 + side) as f32
                    + i as f32 / 16.0
            })
            .collect()
    }

    fn append(lease: &mut Lease, tokens: &[TokenId]) -> Result<(), EngineError> {
        let start = lease.len();
        lease.push(tokens)?;
        for (position, &token) in (start..).zip(tokens) {
            for layer in 0..LAYOUT.layers {
                let keys = row(token, position, layer, 0);
                let values = row(token, position, layer, 1);
                lease.write(layer, position, &keys, &values);
            }
        }
        Ok(())
    }

    fn assert_content(lease: &Lease, tokens: &[TokenId]) {
        assert_eq!(lease.tokens(), tokens);
        for layer in 0..LAYOUT.layers {
            for head in 0..LAYOUT.kv_heads {
                let blocks: Vec<_> = lease.head(layer, head).collect();
                let dims = head * LAYOUT.head_dim..(head + 1) * LAYOUT.head_dim;
                for (position, &token) in tokens.iter().enumerate() {
                    let (keys, values) = blocks[position / BLOCK_TOKENS];
                    let slot = position % BLOCK_TOKENS;
                    let key: Vec<f32> = keys.chunks(BLOCK_TOKENS).map(|c| c[slot]).collect();
                    let value = &values[slot * LAYOUT.head_dim..][..LAYOUT.head_dim];
                    assert_eq!(key, row(token, position, layer, 0)[dims.clone()]);
                    assert_eq!(value, &row(token, position, layer, 1)[dims.clone()]);
                }
            }
        }
    }

    #[test]
    fn random_operations_keep_contents_and_account_for_every_byte() {
        const BUDGET_BLOCKS: usize = 9;
        let seed = rand::random();
        println!("seed {seed}");
        let mut rng = StdRng::seed_from_u64(seed);
        // Half a block over: a budget need not divide into blocks.
        let block = LAYOUT.block_bytes();
        let pool = KvPool::new(LAYOUT, BUDGET_BLOCKS * block + block / 2);
        let mut leases: Vec<(Lease, Naive)> = Vec::new();
        let held = |leases: &[(Lease, Naive)]| leases.iter().map(|(_, n)| n.blocks).sum::<usize>();
        for _ in 0..2000 {
            let count = leases.len();
            let operation = rng.random_range(0..6);
            if count == 0 || operation == 0 && count < 6 {
                leases.push((pool.lease(), Naive::default()));
            } else if operation == 1 {
                drop(leases.swap_remove(rng.random_range(0..count)));
            } else {
                let free = BUDGET_BLOCKS - held(&leases);
                let (lease, naive) = &mut leases[rng.random_range(0..count)];
                naive.change(lease, free, operation, &mut rng);
            }
            assert_eq!(pool.used_bytes(), held(&leases) * block);
            for (lease, naive) in &leases {
                assert_content(lease, &naive.tokens);
            }
        }
        drop(leases);
        assert_eq!(pool.used_bytes(), 0);
    }

    #[test]
    fn a_full_pool_refuses_and_names_what_was_asked() {
        let pool = KvPool::new(LAYOUT, LAYOUT.block_bytes());
        let mut first = pool.lease();
        append(&mut first, &[7; BLOCK_TOKENS]).unwrap();
        let error = EngineError::CacheFull {
            tokens: BLOCK_TOKENS + 1,
            budget_bytes: LAYOUT.block_bytes(),
        };
        assert_eq!(first.reserve(1), Err(error));
        assert!(first.reserve(usize::MAX).is_err());
        assert_content(&first, &[7; BLOCK_TOKENS]);
        drop(first);
        assert_eq!(pool.lease().reserve(BLOCK_TOKENS), Ok(()));
    }

    #[test]
    fn a_model_without_layers_holds_tokens_for_free() {
        let layout = KvLayout {
            layers: 0,
            ..LAYOUT
        };
        let pool = KvPool::new(layout, 0);
        let mut lease = pool.lease();
        lease.push(&[1, 2, 3]).unwrap();
        lease.truncate(2);
        assert_eq!((lease.tokens(), pool.used_bytes()), (&[1, 2][..], 0));
    }
}
