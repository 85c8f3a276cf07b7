//! Numbers in fewer bits: halves, and whole ones of 8 bits with a scale for each group of them.
//!
//! A token's numbers are encoded when they are written, by themselves, so that nothing else shows
//! in them.

use super::{BLOCK_TOKENS, KvLayout};
use crate::kernels::dispatched;
use half::{f16, slice::HalfFloatSliceExt as _};

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

/// Widens halves, which is exact.
pub(super) fn widen(halves: &[f16], numbers: &mut [f32]) {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx") && std::arch::is_x86_feature_detected!("f16c") {
        // SAFETY: this processor has both features.
        return unsafe { widen_by_eight(halves, numbers) };
    }
    halves.convert_to_f32_slice(numbers);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx,f16c")]
fn widen_by_eight(halves: &[f16], numbers: &mut [f32]) {
    use std::arch::x86_64::{_mm_loadu_si128, _mm256_cvtph_ps, _mm256_storeu_ps};

    let (eights, rest) = halves.as_chunks::<8>();
    let (places, rest_places) = numbers.as_chunks_mut::<8>();
    for (eight, place) in eights.iter().zip(places) {
        // SAFETY: eight halves are read and eight numbers are written.
        unsafe {
            let eight = _mm_loadu_si128(eight.as_ptr().cast());
            _mm256_storeu_ps(place.as_mut_ptr(), _mm256_cvtph_ps(eight));
        }
    }
    for (half, place) in rest.iter().zip(rest_places) {
        *place = half.to_f32();
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_half_is_widened_to_what_it_is() {
        let halves: Vec<f16> = (0..=u16::MAX).map(f16::from_bits).collect();
        for len in [1 << 16, 37, 8, 0] {
            let mut numbers = vec![7.0; len];
            widen(&halves[..len], &mut numbers);
            for (half, number) in halves.iter().zip(numbers) {
                let same = half.to_f32().to_bits() == number.to_bits();
                assert!(same || half.is_nan() && number.is_nan(), "{half}");
            }
        }
    }
}
