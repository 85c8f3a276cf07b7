//! Attention of new rows over cached keys and values.
//!
//! Each (row, query head) is computed on its own, over the keys of its own sequence from the first
//! on, block by block: the result is the same to the bit whatever the batch and however the
//! sequence was cut into steps. Query heads that share keys take turns at each block, while it is
//! in the nearest cache.

use crate::{
    BLOCK_TOKENS, BlockId,
    cache::Storage,
    kernels::{add_scaled, add_scaled_quad, dispatched, dot_columns, exp, max_of, sum_of},
    parallel::for_each_piece,
};

/// The most query heads that take turns.
const MAX_TURNS: usize = 8;

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
        for_each_piece(&mut out, group_len, |index, out| {
            let (row, kv_head) = (index / self.kv_heads, index % self.kv_heads);
            let Row { input, position } = self.rows[row];
            let past = Past {
                table: self.tables[input],
                cache: self.cache,
                layer: self.layer,
                kv_head,
                first: self
                    .window
                    .map_or(0, |window| (position + 1).saturating_sub(window)),
                len: position + 1,
                scale: self.scale,
            };
            let queries = &query(row)[kv_head * group_len..][..group_len];
            let turns = MAX_TURNS * self.head_dim;
            for (queries, out) in queries.chunks(turns).zip(out.chunks_mut(turns)) {
                attend(queries, self.head_dim, &past, out);
            }
        });
        out
    }
}

/// What one row attends to in one layer with the query heads that share a key head.
pub(crate) struct Past<'a> {
    table: &'a [BlockId],
    cache: &'a Storage,
    layer: usize,
    kv_head: usize,
    /// The first place that it attends to.
    first: usize,
    /// Tokens, the row's own included.
    len: usize,
    /// Of the products of queries and keys.
    scale: f32,
}

dispatched! {
    /// Attention of up to [`MAX_TURNS`] queries of `head_dim` numbers, into a zeroed `out`.
    attend(queries: &[f32], head_dim: usize, past: &Past<'_>, out: &mut [f32]) = attend_all
}

#[inline(always)]
fn attend_all<const FUSED: bool>(
    queries: &[f32],
    head_dim: usize,
    past: &Past<'_>,
    out: &mut [f32],
) {
    let mut progress = [Progress::default(); MAX_TURNS];
    let skipped = past.first / BLOCK_TOKENS;
    let mut unseen = past.first % BLOCK_TOKENS;
    let mut left = past.len - skipped * BLOCK_TOKENS;
    for &block in &past.table[skipped..] {
        let (keys, values) = past.cache.head(past.layer, block, past.kv_head);
        let slots = left.min(BLOCK_TOKENS);
        let values = &values[..slots * head_dim];
        let turns = queries
            .chunks_exact(head_dim)
            .zip(out.chunks_exact_mut(head_dim));
        for ((query, out), progress) in turns.zip(&mut progress) {
            progress.take_in::<FUSED>(query, past.scale, keys, values, unseen, out);
        }
        unseen = 0;
        left -= slots;
        if left == 0 {
            break;
        }
    }
    for (out, progress) in out.chunks_exact_mut(head_dim).zip(&progress) {
        for out in out {
            *out /= progress.total;
        }
    }
}

/// Softmax and weighted sum in one pass: the maximum so far, and the sum of the weights relative
/// to it. [Milakov and Gimelshein 2018](https://arxiv.org/abs/1805.02867), algorithm 3, by blocks.
#[derive(Clone, Copy)]
struct Progress {
    maximum: f32,
    total: f32,
}

impl Default for Progress {
    fn default() -> Self {
        Self {
            maximum: f32::NEG_INFINITY,
            total: 0.0,
        }
    }
}

impl Progress {
    /// Adds a block: all its keys, and the values up to the last that the query attends to; it
    /// does not attend to the first `unseen` of them.
    #[inline(always)]
    fn take_in<const FUSED: bool>(
        &mut self,
        query: &[f32],
        scale: f32,
        keys: &[f32],
        values: &[f32],
        unseen: usize,
        out: &mut [f32],
    ) {
        let mut weights: [f32; BLOCK_TOKENS] = dot_columns::<FUSED, _>(query, keys);
        for weight in &mut weights {
            *weight *= scale;
        }
        weights[values.len() / query.len()..].fill(f32::NEG_INFINITY);
        weights[..unseen].fill(f32::NEG_INFINITY);
        let maximum = self.maximum.max(max_of(weights));
        let shrink = exp::<FUSED>(self.maximum - maximum);
        for weight in &mut weights {
            *weight = exp::<FUSED>(*weight - maximum);
        }
        self.total = self.total * shrink + sum_of(weights);
        self.maximum = maximum;
        for out in out.iter_mut() {
            *out *= shrink;
        }
        gather::<FUSED>(&weights, values, out);
    }
}

/// `out ← out + Σ weights[i]·values[i]`, over as many values as there are.
#[inline(always)]
fn gather<const FUSED: bool>(weights: &[f32; BLOCK_TOKENS], values: &[f32], out: &mut [f32]) {
    let quads = values.chunks_exact(4 * out.len());
    let rest = quads.remainder();
    let (whole, _) = weights.as_chunks::<4>();
    let rest_weights = &weights[quads.len() * 4..];
    for (weights, values) in whole.iter().zip(quads) {
        add_scaled_quad::<FUSED>(out, *weights, values);
    }
    for (&weight, value) in rest_weights.iter().zip(rest.chunks_exact(out.len())) {
        add_scaled::<FUSED>(out, weight, value);
    }
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
