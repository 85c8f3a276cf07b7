//! Attention of new rows over cached keys and values.
//!
//! Each (row, query head) is computed on its own, over the keys of its own sequence from the first
//! on, block by block: the result is the same to the bit whatever the batch and however the
//! sequence was cut into steps. Rows of a sequence, and query heads that share keys, go over a block
//! together: it is read, and decoded where it is stored in fewer bits, once for all of them.

mod products;
mod softmax;

use crate::{
    BLOCK_TOKENS, BlockId,
    cache::{Decoded, Storage},
    parallel::for_each_piece,
};
use candle_core::utils::get_num_threads;
use softmax::{Block, Query, take_in};
use std::ops::Range;

/// The most rows that go over a block together: the block and what they are at stay in the nearest
/// caches.
const MAX_ROWS: usize = 16;

/// Where a row of a batch belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Row {
    /// The input that it is part of.
    pub(crate) input: usize,
    /// Its place in the sequence; it attends to all places up to and including it.
    pub(crate) position: usize,
}

/// The queries of a batch, with what they attend over.
pub(crate) struct Attention<'a> {
    pub(crate) layer: usize,
    /// Query heads, a multiple of `kv_heads`.
    pub(crate) heads: usize,
    pub(crate) kv_heads: usize,
    pub(crate) head_dim: usize,
    pub(crate) rows: &'a [Row],
    /// How many last places a row attends to, its own included; all where there is none.
    pub(crate) window: Option<usize>,
    /// Of the products of queries and keys.
    pub(crate) scale: f32,
    /// The block tables, one per input.
    pub(crate) tables: &'a [&'a [BlockId]],
    pub(crate) cache: &'a Storage,
}

impl Attention<'_> {
    /// Softmax(`scale` · q·k)·v. `query(row)` is `[heads][head_dim]`; the result is
    /// `[rows][heads][head_dim]`.
    pub(crate) fn forward<'q>(&self, query: impl Fn(usize) -> &'q [f32] + Sync) -> Vec<f32> {
        let mut out = vec![0.0; self.rows.len() * self.heads * self.head_dim];
        let group_len = self.heads / self.kv_heads * self.head_dim;
        let row_len = self.heads * self.head_dim;
        let mut tiles = Vec::new();
        let mut outs = out.chunks_mut(row_len.max(1));
        for rows in self.tiled_rows() {
            let mut heads: Vec<Tile<'_>> = (0..self.kv_heads)
                .map(|kv_head| Tile {
                    table: self.tables[self.rows[rows.start].input],
                    kv_head,
                    queries: Vec::new(),
                })
                .collect();
            for (row, out) in rows.zip(outs.by_ref()) {
                let groups = query(row)[..row_len].chunks(group_len);
                let seen = self.seen(self.rows[row].position);
                for ((tile, queries), out) in
                    heads.iter_mut().zip(groups).zip(out.chunks_mut(group_len))
                {
                    let heads = queries
                        .chunks(self.head_dim)
                        .zip(out.chunks_mut(self.head_dim));
                    tile.queries
                        .extend(heads.map(|(query, out)| Query::new(query, out, seen.clone())));
                }
            }
            tiles.append(&mut heads);
        }
        // The last rows see most: begun last, they would be waited for.
        tiles.reverse();
        for_each_piece(&mut tiles, 1, |_, tiles| {
            for tile in tiles {
                self.attend(tile);
            }
        });
        out
    }

    /// The positions that the row at `position` attends to.
    fn seen(&self, position: usize) -> Range<usize> {
        let end = position + 1;
        let window = self.window.unwrap_or(end);
        end.saturating_sub(window)..end
    }

    /// Rows of one input each that go over its blocks together: as many as leave work for all
    /// threads.
    fn tiled_rows(&self) -> Vec<Range<usize>> {
        let threads = get_num_threads();
        let heads = self.kv_heads * self.tables.len();
        let parts = |parts: &usize| {
            let pieces = parts * heads;
            pieces.is_multiple_of(threads) || pieces >= 4 * threads
        };
        let parts = (1..=threads).find(parts).unwrap_or(threads);
        let mut tiles = Vec::new();
        let mut start = 0;
        for rows in self.rows.chunk_by(|a, b| a.input == b.input) {
            let end = start + rows.len();
            let most = rows.len().div_ceil(parts).min(MAX_ROWS);
            tiles.extend(
                (start..end)
                    .step_by(most)
                    .map(|start| start..end.min(start + most)),
            );
            start = end;
        }
        tiles
    }

    /// Has a tile's queries take in all that they see.
    fn attend(&self, tile: &mut Tile<'_>) {
        let mut queries = std::mem::take(&mut tile.queries);
        let first = queries.iter().map(|query| query.seen().start).min();
        let end = queries.iter().map(|query| query.seen().end).max();
        let (Some(first), Some(end)) = (first, end) else {
            return;
        };
        let mut decoded = Decoded::default();
        for index in first / BLOCK_TOKENS..end.div_ceil(BLOCK_TOKENS) {
            let id = tile.table[index];
            let (keys, values) = self.cache.head(self.layer, id, tile.kv_head, &mut decoded);
            let block = Block {
                start: index * BLOCK_TOKENS,
                keys,
                values,
                scale: self.scale,
            };
            take_in(&mut queries, &block);
        }
        for query in queries {
            query.finish();
        }
    }
}

/// Queries that go over the same blocks together.
struct Tile<'a> {
    table: &'a [BlockId],
    kv_head: usize,
    queries: Vec<Query<'a>>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CacheType, KvLayout};
    use std::ops::Range;

    const LAYOUT: KvLayout = KvLayout {
        layers: 2,
        kv_heads: 2,
        head_dim: 40,
        kind: CacheType::F32,
    };
    const WIDTH: usize = LAYOUT.kv_heads * LAYOUT.head_dim;
    /// So many for each key head that they do not all take turns together.
    const HEADS: usize = 20;
    const SCALE: f32 = 0.2;

    fn noise(seed: usize, len: usize) -> Vec<f32> {
        (0..len)
            .map(|i| ((seed * 7919 + i * 104_729) % 1009) as f32 / 250.0 - 2.0)
            .collect()
    }

    fn fill(cache: &mut Storage, table: &[BlockId], seed: usize, len: usize) {
        for position in 0..len {
            let (block, slot) = (table[position / BLOCK_TOKENS], position % BLOCK_TOKENS);
            for layer in 0..LAYOUT.layers {
                let keys = noise(seed + position * 4 + layer, WIDTH);
                let values = noise(seed + position * 4 + layer + 2, WIDTH);
                cache.write(layer, block, slot, &keys, &values);
            }
        }
    }

    /// The definition, in double precision.
    fn exact(
        query: &[f32],
        seed: usize,
        layer: usize,
        kv_head: usize,
        seen: Range<usize>,
    ) -> Vec<f64> {
        let part = |row: Vec<f32>| row[kv_head * LAYOUT.head_dim..][..LAYOUT.head_dim].to_vec();
        let scores: Vec<f64> = seen
            .clone()
            .map(|position| {
                let key = part(noise(seed + position * 4 + layer, WIDTH));
                let product = |(&q, &k): (&f32, &f32)| f64::from(q) * f64::from(k);
                let sum: f64 = query.iter().zip(&key).map(product).sum();
                sum * f64::from(SCALE)
            })
            .collect();
        let maximum = scores.iter().copied().fold(f64::MIN, f64::max);
        let total: f64 = scores.iter().map(|s| (s - maximum).exp()).sum();
        let mut out = vec![0.0; LAYOUT.head_dim];
        for (position, score) in seen.zip(&scores) {
            let value = part(noise(seed + position * 4 + layer + 2, WIDTH));
            for (out, value) in out.iter_mut().zip(value) {
                *out += (score - maximum).exp() / total * f64::from(value);
            }
        }
        out
    }

    #[test]
    fn rows_attend_to_their_own_past_and_to_nothing_else() {
        let mut cache = Storage::new(LAYOUT);
        let tables =
            [&[7, 2, 4][..], &[0, 5]].map(|t| Vec::from_iter(t.iter().map(|&b| BlockId::new(b))));
        fill(&mut cache, &tables[0], 10, 70);
        fill(&mut cache, &tables[1], 5000, 33);
        let rows = [(0, 0), (0, 31), (0, 32), (1, 32), (0, 69), (1, 7)]
            .map(|(input, position)| Row { input, position });
        let queries = noise(3, rows.len() * HEADS * LAYOUT.head_dim);
        for window in [None, Some(1), Some(20), Some(38), Some(64)] {
            let attention = Attention {
                layer: 1,
                heads: HEADS,
                kv_heads: LAYOUT.kv_heads,
                head_dim: LAYOUT.head_dim,
                rows: &rows,
                window,
                scale: SCALE,
                tables: &[&tables[0], &tables[1]],
                cache: &cache,
            };
            let width = HEADS * LAYOUT.head_dim;
            let out = attention.forward(|row| &queries[row * width..][..width]);
            for (index, out) in out.chunks(LAYOUT.head_dim).enumerate() {
                let (row, head) = (index / HEADS, index % HEADS);
                let query = &queries[index * LAYOUT.head_dim..][..LAYOUT.head_dim];
                let seed = [10, 5000][rows[row].input];
                let end = rows[row].position + 1;
                let start = end.saturating_sub(window.unwrap_or(end));
                let expected = exact(query, seed, 1, head / 10, start..end);
                for (&out, expected) in out.iter().zip(expected) {
                    let error = (f64::from(out) - expected).abs();
                    assert!(error < 1e-5, "{window:?}: {out} {expected}");
                }
            }
        }
    }
}
