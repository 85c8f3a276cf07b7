//! The arithmetic of attention: queries take in keys and values, a block at a time.
//!
//! Every query is computed on its own and in the same order, whichever others take in the block
//! with it: several at once only read the block's numbers once.

use super::products::{products_1, products_2, products_4, sums_1, sums_2, sums_4};
use crate::{
    BLOCK_TOKENS,
    kernels::{dispatched, exp, max_of, sum_of},
};
use std::ops::Range;

/// A query, and what it has taken in so far: softmax and weighted sum in one pass, with the maximum
/// so far and the sum of the weights relative to it.
/// [Milakov and Gimelshein 2018](https://arxiv.org/abs/1805.02867), algorithm 3, by blocks.
pub(super) struct Query<'a> {
    numbers: &'a [f32],
    /// The weighted sum of the values, in the end divided by the sum of the weights.
    out: &'a mut [f32],
    /// The positions that it attends to.
    seen: Range<usize>,
    maximum: f32,
    total: f32,
}

/// One head's keys and values of 32 tokens.
pub(super) struct Block<'a> {
    /// The position of the first.
    pub(super) start: usize,
    /// `[head_dim][slot]`.
    pub(super) keys: &'a [f32],
    /// `[slot][head_dim]`.
    pub(super) values: &'a [f32],
    /// Of the products of queries and keys.
    pub(super) scale: f32,
}

impl<'a> Query<'a> {
    /// `out`, of as many numbers as the query, holds zeros.
    pub(super) fn new(numbers: &'a [f32], out: &'a mut [f32], seen: Range<usize>) -> Self {
        Self {
            numbers,
            out,
            seen,
            maximum: f32::NEG_INFINITY,
            total: 0.0,
        }
    }

    pub(super) fn seen(&self) -> &Range<usize> {
        &self.seen
    }

    /// Puts the result into `out`.
    pub(super) fn finish(self) {
        for out in self.out {
            *out /= self.total;
        }
    }

    /// Those slots of a block that the query attends to.
    fn slots(&self, start: usize) -> Range<usize> {
        let slot = |position: usize| position.saturating_sub(start).min(BLOCK_TOKENS);
        slot(self.seen.start)..slot(self.seen.end)
    }

    /// Turns products with keys into weights, and returns by what all before them shrink.
    fn weigh(
        &mut self,
        products: &mut [f32; BLOCK_TOKENS],
        slots: &Range<usize>,
        scale: f32,
    ) -> f32 {
        let mut step = Step {
            scale,
            before: self.maximum,
            maximum: 0.0,
            shrink: 0.0,
            total: 0.0,
        };
        products[..slots.start].fill(f32::NEG_INFINITY);
        products[slots.end..].fill(f32::NEG_INFINITY);
        soften(products, &mut step);
        self.total = self.total * step.shrink + step.total;
        self.maximum = step.maximum;
        step.shrink
    }
}

/// Has each query take in what it sees of the block.
pub(super) fn take_in(mut queries: &mut [Query<'_>], block: &Block<'_>) {
    while let Some(first) = queries.first() {
        let slots = first.slots(block.start);
        let alike = |query: &&Query<'_>| query.slots(block.start) == slots;
        let count = queries.iter().take(4).take_while(alike).count();
        let (several, rest) = queries.split_at_mut(if count == 3 { 2 } else { count });
        queries = rest;
        if slots.is_empty() {
            continue;
        }
        match several {
            [a, b, c, d] => take_in_several([a, b, c, d], block, &slots, products_4, sums_4),
            [a, b] => take_in_several([a, b], block, &slots, products_2, sums_2),
            others => {
                for query in others {
                    take_in_several([query], block, &slots, products_1, sums_1);
                }
            }
        }
    }
}

/// Products of `N` queries with a block's keys.
type Products<const N: usize> = fn(&[&[f32]; N], &[f32], &mut [[f32; BLOCK_TOKENS]; N]);
/// Shrinks `N` sums and adds a block's values to them, by weight.
type Sums<const N: usize> = fn(&[&[f32]; N], &[f32; N], &[f32], &mut [&mut [f32]; N]);

fn take_in_several<const N: usize>(
    mut queries: [&mut Query<'_>; N],
    block: &Block<'_>,
    slots: &Range<usize>,
    products: Products<N>,
    sums: Sums<N>,
) {
    let numbers = queries.each_ref().map(|query| query.numbers);
    let mut weights = [[0.0; BLOCK_TOKENS]; N];
    products(&numbers, block.keys, &mut weights);
    let mut shrinks = [0.0; N];
    for ((query, weights), shrink) in queries.iter_mut().zip(&mut weights).zip(&mut shrinks) {
        *shrink = query.weigh(weights, slots, block.scale);
    }
    let dims = numbers[0].len();
    let values = &block.values[slots.start * dims..slots.end * dims];
    let weights = weights.each_ref().map(|weights| &weights[slots.clone()]);
    let mut outs = queries.each_mut().map(|query| &mut *query.out);
    sums(&weights, &shrinks, values, &mut outs);
}

/// A softmax that goes on: the maximum before, and what is new.
pub(crate) struct Step {
    scale: f32,
    before: f32,
    maximum: f32,
    /// What the sums before are multiplied by.
    shrink: f32,
    /// The sum of the weights.
    total: f32,
}

dispatched! {
    /// Turns products into weights relative to the maximum; those of −∞ become 0, but for rounding.
    soften(weights: &mut [f32; BLOCK_TOKENS], step: &mut Step) = soften_all
}

#[inline(always)]
fn soften_all<const FUSED: bool>(weights: &mut [f32; BLOCK_TOKENS], step: &mut Step) {
    for weight in &mut *weights {
        *weight *= step.scale;
    }
    step.maximum = step.before.max(max_of(*weights));
    step.shrink = exp::<FUSED>(step.before - step.maximum);
    for weight in &mut *weights {
        *weight = exp::<FUSED>(*weight - step.maximum);
    }
    step.total = sum_of(*weights);
}
