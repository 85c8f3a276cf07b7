//! Products of queries with a block's keys, and weighted sums of its values, for one, two and four
//! queries at once: as many as the registers hold the sums of.
//!
//! A query's numbers are the same to the bit in each of them.

use crate::{
    BLOCK_TOKENS,
    kernels::{dispatched, mul_add},
};

type Products<const N: usize> = [[f32; BLOCK_TOKENS]; N];

dispatched! {
    /// The products of each of the `queries` with each of the `keys`, `[head_dim][slot]`.
    products_4(queries: &[&[f32]; 4], keys: &[f32], products: &mut Products<4>) = four_products
}
dispatched! {
    /// As [`products_4`].
    products_2(queries: &[&[f32]; 2], keys: &[f32], products: &mut Products<2>) = two_products
}
dispatched! {
    /// As [`products_4`].
    products_1(queries: &[&[f32]; 1], keys: &[f32], products: &mut Products<1>) = one_product
}
dispatched! {
    /// `out ← out · shrink + Σ weights[i]·values[i]` for each query, over `values` that are
    /// `[slot][head_dim]`.
    sums_4(weights: &[&[f32]; 4], shrinks: &[f32; 4], values: &[f32], outs: &mut [&mut [f32]; 4])
        = four_sums
}
dispatched! {
    /// As [`sums_4`].
    sums_2(weights: &[&[f32]; 2], shrinks: &[f32; 2], values: &[f32], outs: &mut [&mut [f32]; 2])
        = two_sums
}
dispatched! {
    /// As [`sums_4`].
    sums_1(weights: &[&[f32]; 1], shrinks: &[f32; 1], values: &[f32], outs: &mut [&mut [f32]; 1])
        = one_sum
}

#[inline(always)]
fn four_products<const F: bool>(queries: &[&[f32]; 4], keys: &[f32], products: &mut Products<4>) {
    multiply::<F, 4, 16>(queries, keys, products);
}

#[inline(always)]
fn two_products<const F: bool>(queries: &[&[f32]; 2], keys: &[f32], products: &mut Products<2>) {
    multiply::<F, 2, 32>(queries, keys, products);
}

#[inline(always)]
fn one_product<const F: bool>(queries: &[&[f32]; 1], keys: &[f32], products: &mut Products<1>) {
    multiply::<F, 1, 32>(queries, keys, products);
}

#[inline(always)]
fn four_sums<const F: bool>(
    weights: &[&[f32]; 4],
    shrinks: &[f32; 4],
    values: &[f32],
    outs: &mut [&mut [f32]; 4],
) {
    add::<F, 4, 16>(weights, shrinks, values, outs);
}

#[inline(always)]
fn two_sums<const F: bool>(
    weights: &[&[f32]; 2],
    shrinks: &[f32; 2],
    values: &[f32],
    outs: &mut [&mut [f32]; 2],
) {
    add::<F, 2, 32>(weights, shrinks, values, outs);
}

#[inline(always)]
fn one_sum<const F: bool>(
    weights: &[&[f32]; 1],
    shrinks: &[f32; 1],
    values: &[f32],
    outs: &mut [&mut [f32]; 1],
) {
    add::<F, 1, 64>(weights, shrinks, values, outs);
}

/// `L` keys at once.
#[inline(always)]
fn multiply<const FUSED: bool, const N: usize, const L: usize>(
    queries: &[&[f32]; N],
    keys: &[f32],
    products: &mut Products<N>,
) {
    let (columns, _) = keys.as_chunks::<BLOCK_TOKENS>();
    let queries = queries.map(|query| &query[..columns.len()]);
    for part in 0..BLOCK_TOKENS / L {
        let mut sums = [[0.0; L]; N];
        for (dim, column) in columns.iter().enumerate() {
            let keys = &column.as_chunks::<L>().0[part];
            for n in 0..N {
                multiply_add::<FUSED, L>(queries[n][dim], keys, &mut sums[n]);
            }
        }
        for (products, sums) in products.iter_mut().zip(sums) {
            products.as_chunks_mut::<L>().0[part] = sums;
        }
    }
}

/// `sums ← sums + factor · numbers`. Written by index over arrays: the compiler makes wide registers
/// of this, and single numbers of the same with iterators.
#[inline(always)]
fn multiply_add<const FUSED: bool, const L: usize>(
    factor: f32,
    numbers: &[f32; L],
    sums: &mut [f32; L],
) {
    for lane in 0..L {
        sums[lane] = mul_add::<FUSED>(factor, numbers[lane], sums[lane]);
    }
}

/// `L` numbers of a value at once, and the rest in smaller parts.
#[inline(always)]
fn add<const FUSED: bool, const N: usize, const L: usize>(
    weights: &[&[f32]; N],
    shrinks: &[f32; N],
    values: &[f32],
    outs: &mut [&mut [f32]; N],
) {
    let done = add_from::<FUSED, N, L>(0, weights, shrinks, values, outs);
    let done = add_from::<FUSED, N, 8>(done, weights, shrinks, values, outs);
    add_from::<FUSED, N, 1>(done, weights, shrinks, values, outs);
}

/// Adds in all numbers from `start` on that make up whole parts, and returns where the rest starts.
#[inline(always)]
fn add_from<const FUSED: bool, const N: usize, const L: usize>(
    start: usize,
    weights: &[&[f32]; N],
    shrinks: &[f32; N],
    values: &[f32],
    outs: &mut [&mut [f32]; N],
) -> usize {
    let dims = outs[0].len();
    let slots = values.len() / dims;
    let weights = weights.map(|weights| &weights[..slots]);
    let end = start + (dims - start) / L * L;
    for place in (start..end).step_by(L) {
        let mut sums = [[0.0; L]; N];
        for ((sums, out), shrink) in sums.iter_mut().zip(&*outs).zip(shrinks) {
            for (sum, out) in sums.iter_mut().zip(&out[place..place + L]) {
                *sum = out * shrink;
            }
        }
        for slot in 0..slots {
            let Some(values) = values[slot * dims + place..].first_chunk::<L>() else {
                break;
            };
            for n in 0..N {
                multiply_add::<FUSED, L>(weights[n][slot], values, &mut sums[n]);
            }
        }
        for (out, sums) in outs.iter_mut().zip(sums) {
            out[place..place + L].copy_from_slice(&sums);
        }
    }
    end
}
