//! Attention of new rows over cached keys and values.
//!
//! Each (row, query head) is computed alone, over the keys of its own sequence from the first on,
//! block by block: the result is the same to the bit whatever the batch and however the sequence
//! was cut into steps.

use crate::{
    Lease,
    cache::BLOCK_TOKENS,
    kernels::{add_scaled, dispatched, dot, exp},
    parallel::for_each_piece,
};

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
    /// One per input.
    pub(crate) caches: &'a [&'a Lease],
}

impl Attention<'_> {
    /// Softmax(q·k / √`head_dim`)·v. `query(row)` is `[heads][head_dim]`; the result is
    /// `[rows][heads][head_dim]`.
    pub(crate) fn forward<'q>(&self, query: impl Fn(usize) -> &'q [f32] + Sync) -> Vec<f32> {
        let mut out = vec![0.0; self.rows.len() * self.heads * self.head_dim];
        let group = self.heads / self.kv_heads;
        for_each_piece(&mut out, self.head_dim, |index, out| {
            let (row, head) = (index / self.heads, index % self.heads);
            let Row { input, position } = self.rows[row];
            let query = &query(row)[head * self.head_dim..][..self.head_dim];
            let blocks = Keys {
                cache: self.caches[input],
                layer: self.layer,
                kv_head: head / group,
                count: position + 1,
            };
            attend(query, &blocks, out);
        });
        out
    }
}

/// The keys and values that one row attends to with one head.
pub(crate) struct Keys<'a> {
    cache: &'a Lease,
    layer: usize,
    kv_head: usize,
    count: usize,
}

dispatched! {
    /// Attention of one query, into a zeroed `out`.
    attend(query: &[f32], keys: &Keys<'_>, out: &mut [f32]) = attend_row
}

/// Softmax and weighted sum in one pass, with the running maximum of
/// [Milakov and Gimelshein 2018](https://arxiv.org/abs/1805.02867), algorithm 3, by blocks.
#[inline(always)]
fn attend_row<const FUSED: bool>(query: &[f32], keys: &Keys<'_>, out: &mut [f32]) {
    let scale = 1.0 / (query.len() as f32).sqrt();
    let mut maximum = f32::NEG_INFINITY;
    let mut total = 0.0;
    let mut left = keys.count;
    for (keys, values) in keys.cache.head(keys.layer, keys.kv_head) {
        let mut weights = [f32::NEG_INFINITY; BLOCK_TOKENS];
        let slots = left.min(BLOCK_TOKENS);
        for (weight, key) in weights
            .iter_mut()
            .zip(keys.chunks_exact(query.len()))
            .take(slots)
        {
            *weight = dot::<FUSED>(query, key) * scale;
        }
        let raised = weights.iter().fold(maximum, |a, &b| a.max(b));
        let shrink = exp::<FUSED>(maximum - raised);
        maximum = raised;
        for weight in &mut weights {
            *weight = exp::<FUSED>(*weight - maximum);
        }
        total = total * shrink + weights[..slots].iter().sum::<f32>();
        for out in out.iter_mut() {
            *out *= shrink;
        }
        for (&weight, value) in weights
            .iter()
            .zip(values.chunks_exact(query.len()))
            .take(slots)
        {
            add_scaled::<FUSED>(out, weight, value);
        }
        left -= slots;
        if left == 0 {
            break;
        }
    }
    for out in out {
        *out /= total;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{KvLayout, KvPool};

    const LAYOUT: KvLayout = KvLayout {
        layers: 2,
        kv_heads: 2,
        head_dim: 40,
    };
    const WIDTH: usize = LAYOUT.kv_heads * LAYOUT.head_dim;
    const HEADS: usize = 6;

    fn noise(seed: usize, len: usize) -> Vec<f32> {
        (0..len)
            .map(|i| ((seed * 7919 + i * 104_729) % 1009) as f32 / 250.0 - 2.0)
            .collect()
    }

    fn filled(pool: &KvPool, seed: usize, len: usize) -> Lease {
        let mut lease = pool.lease();
        lease.push(&vec![0; len]).unwrap();
        for position in 0..len {
            for layer in 0..LAYOUT.layers {
                let keys = noise(seed + position * 4 + layer, WIDTH);
                let values = noise(seed + position * 4 + layer + 2, WIDTH);
                lease.write(layer, position, &keys, &values);
            }
        }
        lease
    }

    /// The definition, in double precision.
    fn exact(query: &[f32], seed: usize, layer: usize, kv_head: usize, count: usize) -> Vec<f64> {
        let part = |row: Vec<f32>| row[kv_head * LAYOUT.head_dim..][..LAYOUT.head_dim].to_vec();
        let scores: Vec<f64> = (0..count)
            .map(|position| {
                let key = part(noise(seed + position * 4 + layer, WIDTH));
                let product = |(&q, &k): (&f32, &f32)| f64::from(q) * f64::from(k);
                let sum: f64 = query.iter().zip(&key).map(product).sum();
                sum / (LAYOUT.head_dim as f64).sqrt()
            })
            .collect();
        let maximum = scores.iter().copied().fold(f64::MIN, f64::max);
        let total: f64 = scores.iter().map(|s| (s - maximum).exp()).sum();
        let mut out = vec![0.0; LAYOUT.head_dim];
        for (position, score) in scores.iter().enumerate() {
            let value = part(noise(seed + position * 4 + layer + 2, WIDTH));
            for (out, value) in out.iter_mut().zip(value) {
                *out += (score - maximum).exp() / total * f64::from(value);
            }
        }
        out
    }

    #[test]
    fn rows_attend_to_their_own_past_and_to_nothing_else() {
        let pool = KvPool::new(LAYOUT, 1 << 20);
        let caches = [filled(&pool, 10, 70), filled(&pool, 5000, 33)];
        let rows = [(0, 0), (0, 31), (0, 32), (1, 32), (0, 69), (1, 7)]
            .map(|(input, position)| Row { input, position });
        let queries = noise(3, rows.len() * HEADS * LAYOUT.head_dim);
        let attention = Attention {
            layer: 1,
            heads: HEADS,
            kv_heads: LAYOUT.kv_heads,
            head_dim: LAYOUT.head_dim,
            rows: &rows,
            caches: &[&caches[0], &caches[1]],
        };
        let width = HEADS * LAYOUT.head_dim;
        let out = attention.forward(|row| &queries[row * width..][..width]);
        for (index, out) in out.chunks(LAYOUT.head_dim).enumerate() {
            let (row, head) = (index / HEADS, index % HEADS);
            let query = &queries[index * LAYOUT.head_dim..][..LAYOUT.head_dim];
            let seed = [10, 5000][rows[row].input];
            let expected = exact(query, seed, 1, head / 3, rows[row].position + 1);
            for (&out, expected) in out.iter().zip(expected) {
                assert!((f64::from(out) - expected).abs() < 1e-5, "{out} {expected}");
            }
        }
    }
}
