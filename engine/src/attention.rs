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
        let threads = rayon::current_num_threads();
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
mod tests;
