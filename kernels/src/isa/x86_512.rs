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
    type Pairs = __m512i;
    type Scales = __m512i;
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
    unsafe fn pairs(bytes: *const i8) -> __m512i {
        _mm512_cvtepi8_epi16(_mm256_loadu_si256(bytes.cast()))
    }

    #[inline(always)]
    unsafe fn first(pairs: __m512i) -> __m512i {
        _mm512_srai_epi32::<16>(_mm512_slli_epi32::<16>(pairs))
    }

    #[inline(always)]
    unsafe fn second(pairs: __m512i) -> __m512i {
        _mm512_srai_epi32::<16>(pairs)
    }

    #[inline(always)]
    unsafe fn zero() -> __m512i {
        _mm512_setzero_si512()
    }

    #[inline(always)]
    unsafe fn dot<Q: Quants, const N: usize>(
        start: i32,
        weights: &[__m512i; N],
        activations: *const i8,
    ) -> __m512i {
        let mut sum = _mm512_set1_epi32(start);
        for (i, weights) in weights.iter().enumerate() {
            sum = _mm512_dpbusd_epi32(sum, *weights, quad(activations, i));
        }
        sum
    }

    #[inline(always)]
    unsafe fn dot_signed(weights: &[__m512i; 8], activations: *const i8, sum: i32) -> __m512i {
        // The instruction takes weights without a sign: 128 more, which comes off again.
        let mut sum = _mm512_set1_epi32(-128 * sum);
        for (i, weights) in weights.iter().enumerate() {
            let weights = _mm512_xor_si512(*weights, _mm512_set1_epi8(-128));
            sum = _mm512_dpbusd_epi32(sum, weights, quad(activations, i));
        }
        sum
    }

    #[inline(always)]
    unsafe fn add_scaled_dot<Q: Quants, const N: usize>(
        start: __m512i,
        scales: __m512i,
        weights: &[__m512i; N],
        activations: *const i8,
    ) -> __m512i {
        let mut sum = [start];
        Self::add_scaled_dots::<Q, N, 1>(&mut sum, scales, weights, &[activations]);
        sum[0]
    }

    /// Rows take turns at each quad: the products of one row have to wait for each other.
    #[inline(always)]
    unsafe fn add_scaled_dots<Q: Quants, const N: usize, const R: usize>(
        sums: &mut [__m512i; R],
        scales: __m512i,
        weights: &[__m512i; N],
        activations: &[*const i8; R],
    ) {
        // So many quads' dot products are numbers of 16 bits, for which one instruction
        // multiplies and adds.
        let fit = const { i16::MAX as usize / (4 * 127 * Q::LARGEST) };
        let step = if fit < 2 { N } else { fit };
        for (piece, weights) in weights.chunks(step).enumerate() {
            let mut dots = [_mm512_setzero_si512(); R];
            for (i, weights) in weights.iter().enumerate() {
                for (dot, activations) in dots.iter_mut().zip(activations) {
                    let numbers = quad(*activations, piece * step + i);
                    *dot = _mm512_dpbusd_epi32(*dot, *weights, numbers);
                }
            }
            for (sum, dot) in sums.iter_mut().zip(dots) {
                *sum = if fit < 2 {
                    _mm512_add_epi32(*sum, _mm512_mullo_epi32(dot, scales))
                } else {
                    let scales = _mm512_and_si512(scales, _mm512_set1_epi32(0xffff));
                    _mm512_dpwssd_epi32(*sum, dot, scales)
                };
            }
        }
    }

    #[inline(always)]
    unsafe fn add_pairs(start: __m512i, pairs: __m512i, numbers: *const i16) -> __m512i {
        let numbers = _mm512_set1_epi32(numbers.cast::<i32>().read_unaligned());
        _mm512_dpwssd_epi32(start, pairs, numbers)
    }

    #[inline(always)]
    unsafe fn minus_32(a: __m512i, b: __m512i) -> __m512i {
        _mm512_sub_epi32(a, _mm512_slli_epi32::<5>(b))
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
