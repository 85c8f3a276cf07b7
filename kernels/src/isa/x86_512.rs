//! x86-64 with AVX-512 and its dot products of bytes: a tile's 16 outputs in one register.

#![expect(
    unsafe_op_in_unsafe_fn,
    reason = "what each function requires is what its operations require"
)]

use super::Lanes;
use crate::TILE;
use crate::product::{Kernel, Rows, Tile, by_rows};
use crate::quants::Quants;
use std::arch::x86_64::*;

/// 512-bit registers.
pub(crate) struct X512;

/// # Safety
/// As for [`Kernel::run`].
#[target_feature(enable = "avx512f,avx512bw,avx512vnni,avx2,f16c")]
pub(crate) unsafe fn avx512_vnni<K: Kernel>(
    tile: Tile<'_>,
    rows: Rows<'_>,
    out: &mut [[f32; TILE]],
) {
    by_rows::<X512, K>(tile, rows, out);
}

impl Lanes for X512 {
    const COUNT: usize = 16;
    const WIDE: bool = true;
    type Bytes = __m512i;
    type Ints = __m512i;
    type Floats = __m512;

    #[inline(always)]
    unsafe fn load(bytes: *const u8) -> __m512i {
        _mm512_load_si512(bytes.cast())
    }

    #[inline(always)]
    unsafe fn bits<const SHIFT: i32, const MASK: u8>(bytes: __m512i) -> __m512i {
        // Bits that come over from the byte beside are masked.
        let count = _mm_cvtsi32_si128(SHIFT);
        _mm512_and_si512(_mm512_srl_epi16(bytes, count), _mm512_set1_epi8(MASK as i8))
    }

    #[inline(always)]
    unsafe fn left<const SHIFT: i32>(bytes: __m512i) -> __m512i {
        _mm512_sll_epi16(bytes, _mm_cvtsi32_si128(SHIFT))
    }

    #[inline(always)]
    unsafe fn or(a: __m512i, b: __m512i) -> __m512i {
        _mm512_or_si512(a, b)
    }

    #[inline(always)]
    unsafe fn widen(bytes: *const i8) -> __m512i {
        _mm512_cvtepi8_epi32(_mm_loadu_si128(bytes.cast()))
    }

    /// Rows take turns at each quad: the products of one row have to wait for each other.
    #[inline(always)]
    unsafe fn dots<Q: Quants, const N: usize, const R: usize>(
        offset: i32,
        sums: &[i32; R],
        weights: &[__m512i; N],
        activations: &[*const i8; R],
    ) -> [__m512i; R] {
        // The instruction takes weights without a sign: those with one get 128 more.
        let offset = if Q::SIGNED { 128 } else { offset };
        let mut dots = [_mm512_setzero_si512(); R];
        if offset != 0 {
            for (dot, sum) in dots.iter_mut().zip(sums) {
                *dot = _mm512_set1_epi32(-offset * sum);
            }
        }
        for (i, weights) in weights.iter().enumerate() {
            let weights = match Q::SIGNED {
                true => _mm512_xor_si512(*weights, _mm512_set1_epi8(-128)),
                false => *weights,
            };
            for (dot, activations) in dots.iter_mut().zip(activations) {
                *dot = _mm512_dpbusd_epi32(*dot, weights, quad(*activations, i));
            }
        }
        dots
    }

    #[inline(always)]
    unsafe fn floats(ints: __m512i) -> __m512 {
        _mm512_cvtepi32_ps(ints)
    }

    #[inline(always)]
    unsafe fn halves(bits: *const u16) -> __m512 {
        _mm512_cvtph_ps(_mm256_loadu_si256(bits.cast()))
    }

    #[inline(always)]
    unsafe fn upper_halves(bits: *const u16) -> __m512 {
        let wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(bits.cast()));
        _mm512_castsi512_ps(_mm512_slli_epi32::<16>(wide))
    }

    #[inline(always)]
    unsafe fn splat(value: f32) -> __m512 {
        _mm512_set1_ps(value)
    }

    #[inline(always)]
    unsafe fn read(values: *const f32) -> __m512 {
        _mm512_loadu_ps(values)
    }

    #[inline(always)]
    unsafe fn write(values: *mut f32, floats: __m512) {
        _mm512_storeu_ps(values, floats);
    }

    #[inline(always)]
    unsafe fn add(a: __m512, b: __m512) -> __m512 {
        _mm512_add_ps(a, b)
    }

    #[inline(always)]
    unsafe fn sub(a: __m512, b: __m512) -> __m512 {
        _mm512_sub_ps(a, b)
    }

    #[inline(always)]
    unsafe fn mul(a: __m512, b: __m512) -> __m512 {
        _mm512_mul_ps(a, b)
    }
}

/// The activations of a quad, for all outputs.
#[inline(always)]
unsafe fn quad(activations: *const i8, index: usize) -> __m512i {
    _mm512_set1_epi32(activations.cast::<i32>().add(index).read_unaligned())
}
