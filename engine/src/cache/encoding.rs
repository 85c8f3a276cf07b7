//! Numbers in 8 bits: whole ones with a scale for each group of them.
//!
//! A token's numbers are encoded when they are written, by themselves, so that nothing else shows
//! in them.

use super::{BLOCK_TOKENS, KvLayout};
use crate::kernels::dispatched;

const GROUP: usize = KvLayout::GROUP;

/// Encodes `group` with the scale that is returned: a number is about its code times the scale.
pub(super) fn encode(group: &[f32], codes: &mut [i8]) -> f32 {
    let largest = group
        .iter()
        .fold(0.0, |largest: f32, x| largest.max(x.abs()));
    let scale = largest / 127.0;
    let inverse = if scale > 0.0 { 1.0 / scale } else { 0.0 };
    for (code, &number) in codes.iter_mut().zip(group) {
        *code = (number * inverse).round() as i8;
    }
    // A number that is none must stay none.
    let is_finite = group.iter().all(|number| number.is_finite());
    if is_finite { scale } else { f32::NAN }
}

dispatched! {
    /// Decodes one head's keys of a block: `codes` and `keys` are `[head_dim][slot]`, `scales`
    /// `[group][slot]`.
    decode_keys(codes: &[i8], scales: &[f32], keys: &mut [f32]) = decode_keys_all
}

dispatched! {
    /// Decodes one head's values of a block: `codes` and `values` are `[slot][head_dim]`, `scales`
    /// `[group][slot]`.
    decode_values(codes: &[i8], scales: &[f32], values: &mut [f32]) = decode_values_all
}

#[inline(always)]
fn decode_keys_all<const FUSED: bool>(codes: &[i8], scales: &[f32], keys: &mut [f32]) {
    let (codes, _) = codes.as_chunks::<BLOCK_TOKENS>();
    let (keys, _) = keys.as_chunks_mut::<BLOCK_TOKENS>();
    let (scales, _) = scales.as_chunks::<BLOCK_TOKENS>();
    let groups = codes.chunks(GROUP).zip(keys.chunks_mut(GROUP));
    for ((codes, keys), scales) in groups.zip(scales) {
        for (codes, keys) in codes.iter().zip(keys) {
            for slot in 0..BLOCK_TOKENS {
                keys[slot] = f32::from(codes[slot]) * scales[slot];
            }
        }
    }
}

#[inline(always)]
fn decode_values_all<const FUSED: bool>(codes: &[i8], scales: &[f32], values: &mut [f32]) {
    let head_dim = codes.len() / BLOCK_TOKENS;
    let slots = codes
        .chunks_exact(head_dim)
        .zip(values.chunks_exact_mut(head_dim));
    for (slot, (codes, values)) in slots.enumerate() {
        let groups = codes.chunks(GROUP).zip(values.chunks_mut(GROUP));
        for ((codes, values), scales) in groups.zip(scales.chunks_exact(BLOCK_TOKENS)) {
            let scale = scales[slot];
            for (value, &code) in values.iter_mut().zip(codes) {
                *value = f32::from(code) * scale;
            }
        }
    }
}
