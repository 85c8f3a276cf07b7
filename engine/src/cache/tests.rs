//! The books against a naive account of them.

use super::*;
use crate::EngineError;
use rand::{Rng, SeedableRng, rngs::StdRng};
use std::collections::{HashMap, HashSet};

const LAYOUT: KvLayout = KvLayout {
    layers: 1,
    kv_heads: 1,
    head_dim: 1,
    kind: CacheType::F32,
};

fn pool(blocks: usize) -> Pool {
    // Half a block over: a budget need not divide into blocks.
    let bytes = LAYOUT.block_bytes();
    Pool::new(LAYOUT, blocks * bytes + bytes / 2)
}

/// The memory of a model that writes into each slot all the tokens up to it, and of what leases
/// should hold.
#[derive(Default)]
struct Naive {
    slots: HashMap<(BlockId, usize), Vec<TokenId>>,
    leases: Vec<(Lease, Vec<TokenId>)>,
}

impl Naive {
    /// What the executor does: goes on with what is there, makes room, copies, computes, appends.
    fn append(&mut self, index: usize, new: &[TokenId]) -> Result<usize, EngineError> {
        let (lease, expected) = &mut self.leases[index];
        let adopted = lease.adopt(new);
        expected.extend(&new[..adopted]);
        let new = &new[adopted..];
        if let Some(BlockCopy { from, to }) = lease.reserve(new.len())? {
            for slot in 0..BLOCK_TOKENS {
                if let Some(tokens) = self.slots.get(&(from, slot)) {
                    self.slots.insert((to, slot), tokens.clone());
                }
            }
        }
        for &token in new {
            let position = expected.len();
            expected.push(token);
            let place = (
                lease.blocks()[position / BLOCK_TOKENS],
                position % BLOCK_TOKENS,
            );
            self.slots.insert(place, expected.clone());
        }
        lease.append(new);
        Ok(adopted)
    }

    /// Every lease reads its own tokens from its blocks, and every block is accounted for.
    fn check(&self, pool: &Pool) {
        let mut held: HashSet<BlockId> = HashSet::new();
        for (lease, expected) in &self.leases {
            assert_eq!(lease.tokens(), expected);
            for position in 0..expected.len() {
                let place = (
                    lease.blocks()[position / BLOCK_TOKENS],
                    position % BLOCK_TOKENS,
                );
                assert_eq!(self.slots[&place], expected[..=position]);
            }
            held.extend(lease.blocks());
        }
        let usage = pool.usage();
        assert_eq!(usage.used, held.len());
        assert_eq!(usage.used + usage.cached + usage.free, pool.blocks());
    }

    fn others(&self, index: usize) -> HashSet<BlockId> {
        let others = self.leases.iter().enumerate().filter(|(i, _)| *i != index);
        let blocks = others.flat_map(|(_, (lease, _))| lease.blocks());
        blocks.copied().collect()
    }
}

/// Texts of which many begin alike.
fn text(random: &mut impl Rng) -> Vec<TokenId> {
    let len = random.random_range(1..100);
    let change = random.random_range(0..2 * len);
    (0..len).map(|i| (i >= change).into()).collect()
}

#[test]
fn random_operations_keep_every_text_and_account_for_every_block() {
    const BLOCKS: usize = 12;
    let seed = rand::random();
    println!("seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let (mut adopted, mut copied, mut refused) = (0, 0, 0);
    for sharing in [true, false] {
        let pool = pool(BLOCKS).with_sharing(sharing);
        assert_eq!(pool.blocks(), BLOCKS);
        let mut naive = Naive::default();
        for _ in 0..4000 {
            let count = naive.leases.len();
            let operation = random.random_range(0..10);
            if count == 0 || operation == 0 && count < 6 {
                naive.leases.push((pool.lease(), Vec::new()));
            } else if operation == 1 {
                let index = random.random_range(0..count);
                drop(naive.leases.swap_remove(index));
            } else if operation == 8 && count < 6 {
                let (lease, expected) = &naive.leases[random.random_range(0..count)];
                let len = random.random_range(0..=expected.len());
                let fork = (lease.fork(len), expected[..len].to_vec());
                naive.leases.push(fork);
            } else if operation == 9 {
                let (lease, _) = &mut naive.leases[random.random_range(0..count)];
                lease.share();
            } else if operation < 5 {
                let (lease, expected) = &mut naive.leases[random.random_range(0..count)];
                let len = random.random_range(0..=expected.len() + 1);
                lease.truncate(len);
                expected.truncate(len);
            } else {
                let index = random.random_range(0..count);
                let before = naive.leases[index].0.blocks().to_vec();
                let new = text(&mut random);
                let len = naive.leases[index].1.len() + new.len();
                let result = naive.append(index, &new);
                let own = len.div_ceil(BLOCK_TOKENS).max(before.len());
                let others = naive.others(index);
                match result {
                    Ok(tokens) => {
                        adopted += tokens;
                        copied += usize::from(before.iter().any(|id| others.contains(id)));
                    }
                    Err(_) => {
                        refused += 1;
                        // With a block that is shared, and one to copy it to.
                        assert!(others.len() + own + 2 > BLOCKS, "there was room");
                    }
                }
            }
            naive.check(&pool);
            assert!(sharing || pool.usage().cached == 0);
        }
        naive.leases.clear();
        naive.check(&pool);
    }
    assert!(adopted > 0 && copied > 0 && refused > 0);
}

fn appended(pool: &Pool, tokens: &[TokenId]) -> Lease {
    let mut lease = pool.lease();
    let adopted = lease.adopt(tokens);
    assert_eq!(lease.reserve(tokens.len() - adopted), Ok(None));
    lease.append(&tokens[adopted..]);
    lease
}

fn extend(lease: &mut Lease, tokens: &[TokenId]) -> Option<BlockCopy> {
    let copy = lease.reserve(tokens.len()).expect("room");
    lease.append(tokens);
    copy
}

/// A fork's first block is one that was there before it; a fork of it goes on from the second.
#[test]
fn what_a_fork_shares_is_found_only_by_those_who_hold_what_is_before_it() {
    let pool = pool(5);
    let mut begun = pool.lease();
    assert_eq!(extend(&mut begun, &[1]), None);
    let mut fork = begun.fork(1);
    let copy = extend(&mut fork, &[1; 2 * BLOCK_TOKENS - 1]);
    assert_eq!(copy.map(|copy| copy.from), Some(begun.blocks()[0]));
    let own = fork.fork(2 * BLOCK_TOKENS);
    let first = appended(&pool, &[1; BLOCK_TOKENS]);
    fork.share();
    assert_eq!(fork.blocks()[0], first.blocks()[0]);
    drop((begun, fork, first));
    // All other blocks are used for another text, whose end is the same.
    let other: Vec<_> = [[2; BLOCK_TOKENS], [3; BLOCK_TOKENS], [4; BLOCK_TOKENS]].concat();
    let lease = appended(&pool, &other);
    drop(lease);
    for first in 2..=4 {
        let mut lease = appended(&pool, &[first; BLOCK_TOKENS]);
        assert_eq!(lease.adopt(&[1; BLOCK_TOKENS]), 0, "which nobody computed");
    }
    assert_eq!(own.tokens(), [1; 2 * BLOCK_TOKENS]);
}

#[test]
fn a_lease_that_shares_is_found_by_its_content() {
    let pool = pool(4);
    let tokens: Vec<TokenId> = (0..2 * BLOCK_TOKENS as TokenId).collect();
    let begun = appended(&pool, &tokens[..5]);
    let mut fork = begun.fork(5);
    assert!(extend(&mut fork, &tokens[5..]).is_some());
    let adopted = |tokens: &[TokenId]| pool.lease().adopt(tokens);
    assert_eq!(adopted(&tokens), 0);
    fork.share();
    assert_eq!(adopted(&tokens), 2 * BLOCK_TOKENS);
    assert_eq!(
        fork.fork(40).adopt(&tokens[40..]),
        0,
        "a fork finds nothing"
    );
}

#[test]
fn a_full_pool_refuses_and_names_what_was_asked() {
    let pool = pool(1);
    let mut first = appended(&pool, &[7; BLOCK_TOKENS]);
    let error = EngineError::CacheFull {
        tokens: BLOCK_TOKENS + 1,
        budget_bytes: pool.budget_bytes(),
    };
    assert_eq!(first.reserve(1), Err(error));
    assert!(first.reserve(usize::MAX).is_err());
    assert_eq!(first.tokens(), [7; BLOCK_TOKENS]);
    drop(first);
    assert_eq!(pool.lease().reserve(BLOCK_TOKENS), Ok(None));
}

#[test]
fn what_nobody_holds_is_kept_and_makes_room_the_longest_unused_first_and_from_its_end() {
    let pool = pool(6);
    let old = appended(&pool, &[1; 96]);
    let new = appended(&pool, &[2; 64]);
    drop(old);
    drop(new);
    let all_kept = Usage {
        used: 0,
        cached: 5,
        free: 1,
    };
    assert_eq!(pool.usage(), all_kept);
    assert_eq!(pool.lease().adopt(&[1; 96]), 96);
    // The first text was used last now, so the second makes room first.
    drop(appended(&pool, &[3; 60]));
    assert_eq!(pool.lease().adopt(&[2; 64]), 32);
    assert_eq!(pool.lease().adopt(&[1; 96]), 96);
}

#[test]
fn equal_tokens_after_different_ones_are_not_taken_for_the_same() {
    let pool = pool(6);
    let _first = appended(&pool, &[[1; 32], [5; 32]].concat());
    assert_eq!(pool.lease().adopt(&[[2; 32], [5; 32]].concat()), 0);
    let second = appended(&pool, &[2; 32]);
    drop(second);
    assert_eq!(pool.lease().adopt(&[[2; 32], [5; 32]].concat()), 32);
    assert_eq!(pool.lease().adopt(&[5; 32]), 0);
}

#[test]
fn a_cut_inside_a_shared_block_costs_a_copy_and_elsewhere_none() {
    let pool = pool(6);
    let mut first = appended(&pool, &[1; 64]);
    first.truncate(40);
    assert_eq!(first.reserve(1), Ok(None), "the block is its own");
    first.append(&[9]);
    let mut first = appended(&pool, &[1; 64]);
    let second = appended(&pool, &[1; 64]);
    let from = first.blocks()[1];
    assert_eq!(first.blocks(), second.blocks());
    first.truncate(40);
    let copy = first.reserve(1).unwrap().expect("the block is shared");
    assert_eq!((copy.from, copy.to), (from, first.blocks()[1]));
    assert_ne!(from, copy.to);
    assert_eq!(second.blocks()[1], from);
}

#[test]
fn texts_that_were_computed_side_by_side_are_kept_once() {
    let pool = pool(8);
    let tokens = [1; 100];
    let mut leases = [(); 2].map(|()| pool.lease());
    for lease in &mut leases {
        assert_eq!(lease.reserve(100), Ok(None));
    }
    for lease in &mut leases {
        lease.append(&tokens);
    }
    assert_eq!(leases[0].blocks()[..3], leases[1].blocks()[..3]);
    assert_ne!(leases[0].blocks()[3], leases[1].blocks()[3]);
    assert_eq!(pool.usage().used, 5);
}
