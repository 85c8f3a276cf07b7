//! x86-64 with AVX2, and with or without dot products of bytes: eight outputs in a register.

#![expect(
    unsafe_op_in_unsafe_fn,
    reason = "what each function requires is what its operations require"
)]

use super::Lanes;
use crate::TILE;
use crate::product::{Kernel, Rows, Tile, by_rows};
use crate::quants::Quants;
use std::arch::x86_64::*;

/// 256-bit registers.
pub(crate) struct X256<const VNNI: bool>;

/// # Safety
/// As for [`Kernel::run`].
#[target_feature(enable = "avx2,f16c")]
pub(crate) unsafe fn avx2<K: Kernel>(tile: Tile<'_>, rows: Rows<'_>, out: &mut [[f32; TILE]]) {
    by_rows::<X256<false>, K>(tile, rows, out);
}

/// # Safety
/// As for [`Kernel::run`].
#[target_feature(enable = "avx2,f16c,avxvnni")]
pub(crate) unsafe fn avx_vnni<K: Kernel>(tile: Tile<'_>, rows: Rows<'_>, out: &mut [[f32; TILE]]) {
    by_rows::<X256<true>, K>(tile, rows, out);
}

/// Does anything with these instructions.
#[target_feature(enable = "avx2")]
pub(super) fn wide(work: impl FnOnce()) {
    work();
}

impl<const VNNI: bool> Lanes for X256<VNNI> {
    const COUNT: usize = 8;
    const WIDE: bool = false;
    type Bytes = __m256i;
    type Ints = __m256i;
    type Floats = __m256;

    #[inline(always)]
    unsafe fn load(bytes: *const u8) -> __m256i {
        _mm256_load_si256(bytes.cast())
    }

    #[inline(always)]
    unsafe fn bits<const SHIFT: i32, const MASK: u8>(bytes: __m256i) -> __m256i {
        // Bits that come over from the byte beside are masked.
        let shifted = _mm256_srli_epi16::<SHIFT>(bytes);
        _mm256_and_si256(shifted, _mm256_set1_epi8(MASK as i8))
    }

    #[inline(always)]
    unsafe fn left<const SHIFT: i32>(bytes: __m256i) -> __m256i {
        _mm256_slli_epi16::<SHIFT>(bytes)
    }

    #[inline(always)]
    unsafe fn or(a: __m256i, b: __m256i) -> __m256i {
        _mm256_or_si256(a, b)
    }

    #[inline(always)]
    unsafe fn widen(bytes: *const i8) -> __m256i {
        _mm256_cvtepi8_epi32(_mm_loadl_epi64(bytes.cast()))
    }

    #[inline(always)]
    unsafe fn dots<Q: Quants, const N: usize, const R: usize>(
        offset: i32,
        sums: &[i32; R],
        weights: &[__m256i; N],
        activations: &[*const i8; R],
    ) -> [__m256i; R] {
        // The instruction takes weights without a sign: those with one get 128 more.
        let offset = if Q::SIGNED && VNNI { 128 } else { offset };
        let mut dots = [_mm256_setzero_si256(); R];
        for ((dot, sum), &activations) in dots.iter_mut().zip(sums).zip(activations) {
            if offset != 0 {
                *dot = _mm256_set1_epi32(-offset * sum);
            }
            *dot = match (VNNI, Q::SIGNED) {
                (true, signed) => add_dot(*dot, weights, activations, signed),
                (false, true) => add_signed_products(*dot, weights, activations),
                (false, false) => add_products::<Q, N>(*dot, weights, activations),
            };
        }
        dots
    }

    #[inline(always)]
    unsafe fn floats(ints: __m256i) -> __m256 {
        _mm256_cvtepi32_ps(ints)
    }

    #[inline(always)]
    unsafe fn halves(bits: *const u16) -> __m256 {
        _mm256_cvtph_ps(_mm_loadu_si128(bits.cast()))
    }

    #[inline(always)]
    unsafe fn upper_halves(bits: *const u16) -> __m256 {
        let wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(bits.cast()));
        _mm256_castsi256_ps(_mm256_slli_epi32::<16>(wide))
    }

    #[inline(always)]
    unsafe fn splat(value: f32) -> __m256 {
        _mm256_set1_ps(value)
    }

    #[inline(always)]
    unsafe fn read(values: *const f32) -> __m256 {
        _mm256_loadu_ps(values)
    }

    #[inline(always)]
    unsafe fn write(values: *mut f32, floats: __m256) {
        _mm256_storeu_ps(values, floats);
    }

    #[inline(always)]
    unsafe fn add(a: __m256, b: __m256) -> __m256 {
        _mm256_add_ps(a, b)
    }

    #[inline(always)]
    unsafe fn sub(a: __m256, b: __m256) -> __m256 {
        _mm256_sub_ps(a, b)
    }

    #[inline(always)]
    unsafe fn mul(a: __m256, b: __m256) -> __m256 {
        _mm256_mul_ps(a, b)
    }
}

#[inline(always)]
unsafe fn add_dot<const N: usize>(
    start: __m256i,
    weights: &[__m256i; N],
    activations: *const i8,
    signed: bool,
) -> __m256i {
    let mut sum = start;
    for (i, weights) in weights.iter().enumerate() {
        let weights = match signed {
            true => _mm256_xor_si256(*weights, _mm256_set1_epi8(-128)),
            false => *weights,
        };
        sum = _mm256_dpbusd_avx_epi32(sum, weights, quad(activations, i));
    }
    sum
}

/// Adds up as many products in 16 bits as fit there, then in 32.
#[inline(always)]
unsafe fn add_products<Q: Quants, const N: usize>(
    start: __m256i,
    weights: &[__m256i; N],
    activations: *const i8,
) -> __m256i {
    let fit = const { quads_in_16_bits(Q::LARGEST) };
    let mut sum = start;
    for (piece, weights) in weights.chunks(fit).enumerate() {
        let mut products = _mm256_setzero_si256();
        for (i, weights) in weights.iter().enumerate() {
            let numbers = quad(activations, piece * fit + i);
            products = _mm256_add_epi16(products, _mm256_maddubs_epi16(*weights, numbers));
        }
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(products, _mm256_set1_epi16(1)));
    }
    sum
}

/// How many quads' products of two columns add up to no more than 16 bits hold.
const fn quads_in_16_bits(largest: usize) -> usize {
    match i16::MAX as usize / (2 * 127 * largest) {
        0 => 1,
        fit => fit,
    }
}

/// Without a sign weights are at most 128, and two products fit in 16 bits. The sign goes over to
/// the activations, which have no −128 that it could not turn.
#[inline(always)]
unsafe fn add_signed_products<const N: usize>(
    start: __m256i,
    weights: &[__m256i; N],
    activations: *const i8,
) -> __m256i {
    let mut sum = start;
    for (i, weights) in weights.iter().enumerate() {
        let numbers = _mm256_sign_epi8(quad(activations, i), *weights);
        let products = _mm256_maddubs_epi16(_mm256_abs_epi8(*weights), numbers);
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(products, _mm256_set1_epi16(1)));
    }
    sum
}

/// The activations of a quad, for all outputs.
#[inline(always)]
unsafe fn quad(activations: *const i8, index: usize) -> __m256i {
    _mm256_set1_epi32(activations.cast::<i32>().add(index).read_unaligned())
}
