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
fn exact(query: &[f32], seed: usize, layer: usize, kv_head: usize, seen: Range<usize>) -> Vec<f64> {
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

#[test]
fn rows_that_go_over_blocks_together_give_the_bits_of_each_alone() {
    for kind in [CacheType::F32, CacheType::F16, CacheType::Q8] {
        let mut cache = Storage::new(KvLayout { kind, ..LAYOUT });
        let tables: [Vec<BlockId>; 2] =
            [0..4, 4..6].map(|ids: Range<u32>| ids.map(BlockId::new).collect());
        fill(&mut cache, &tables[0], 10, 110);
        fill(&mut cache, &tables[1], 5000, 60);
        let positions = |input: usize, positions: Range<usize>| {
            positions.map(move |position| Row { input, position })
        };
        let tables = [&tables[0][..], &tables[1]];
        let rows: Vec<Row> = positions(0, 88..107).chain(positions(1, 30..35)).collect();
        // Heads that share keys: one, and so many that they make up groups of all sizes.
        for heads in [2, 6, 14] {
            let width = heads * LAYOUT.head_dim;
            let queries = noise(3, rows.len() * width);
            for window in [None, Some(40)] {
                let attention = |rows| Attention {
                    layer: 1,
                    heads,
                    kv_heads: LAYOUT.kv_heads,
                    head_dim: LAYOUT.head_dim,
                    rows,
                    window,
                    scale: SCALE,
                    tables: &tables,
                    cache: &cache,
                };
                let query = |row: usize| &queries[row * width..][..width];
                let together = attention(&rows).forward(query);
                for (row, together) in together.chunks(width).enumerate() {
                    let alone = attention(&rows[row..][..1]).forward(|_| query(row));
                    assert!(
                        together == alone,
                        "{kind} {heads} {window:?}: row {row} differs"
                    );
                }
            }
        }
    }
}
