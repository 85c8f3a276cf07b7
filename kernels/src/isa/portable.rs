//! What any processor has. All 16 outputs of a tile side by side, for the compiler to make the
//! best of.

#![expect(
    unsafe_op_in_unsafe_fn,
    reason = "what each function requires is what its operations require"
)]

use super::Lanes;
use crate::TILE;
use crate::float::from_half;
use crate::quants::Quants;
use std::array::from_fn;

/// Arrays, an element per output.
pub(crate) struct Portable;

impl Lanes for Portable {
    const COUNT: usize = TILE;
    const WIDE: bool = false;
    type Bytes = [[u8; 4]; TILE];
    type Pairs = [[i32; 2]; TILE];
    type Scales = [i32; TILE];
    type Ints = [i32; TILE];
    type Floats = [f32; TILE];

    #[inline(always)]
    unsafe fn load(bytes: *const u8) -> Self::Bytes {
        *bytes.cast()
    }

    #[inline(always)]
    unsafe fn bits<const SHIFT: i32, const MASK: u8>(bytes: Self::Bytes) -> Self::Bytes {
        bytes.map(|quad| quad.map(|byte| byte >> SHIFT & MASK))
    }

    #[inline(always)]
    unsafe fn left<const SHIFT: i32>(bytes: Self::Bytes) -> Self::Bytes {
        bytes.map(|quad| quad.map(|byte| byte << SHIFT))
    }

    #[inline(always)]
    unsafe fn or(a: Self::Bytes, b: Self::Bytes) -> Self::Bytes {
        from_fn(|i| from_fn(|j| a[i][j] | b[i][j]))
    }

    #[inline(always)]
    unsafe fn pairs(bytes: *const i8) -> Self::Pairs {
        (*bytes.cast::<[[i8; 2]; TILE]>()).map(|pair| pair.map(i32::from))
    }

    #[inline(always)]
    unsafe fn first(pairs: Self::Pairs) -> Self::Scales {
        pairs.map(|[first, _]| first)
    }

    #[inline(always)]
    unsafe fn second(pairs: Self::Pairs) -> Self::Scales {
        pairs.map(|[_, second]| second)
    }

    #[inline(always)]
    unsafe fn zero() -> Self::Ints {
        [0; TILE]
    }

    #[inline(always)]
    unsafe fn dot<Q: Quants, const N: usize>(
        start: i32,
        weights: &[Self::Bytes; N],
        activations: *const i8,
    ) -> Self::Ints {
        let mut sums = [start; TILE];
        for (i, quads) in weights.iter().enumerate() {
            let numbers = (*activations.add(i * 4).cast::<[i8; 4]>()).map(i32::from);
            for (sum, quad) in sums.iter_mut().zip(quads) {
                for (number, &quant) in numbers.iter().zip(quad) {
                    *sum += number * i32::from(quant);
                }
            }
        }
        sums
    }

    #[inline(always)]
    unsafe fn dot_signed(
        weights: &[Self::Bytes; 8],
        activations: *const i8,
        _sum: i32,
    ) -> Self::Ints {
        let mut sums = [0; TILE];
        for (i, quads) in weights.iter().enumerate() {
            let numbers = (*activations.add(i * 4).cast::<[i8; 4]>()).map(i32::from);
            for (sum, quad) in sums.iter_mut().zip(quads) {
                for (number, &quant) in numbers.iter().zip(quad) {
                    *sum += number * i32::from(quant as i8);
                }
            }
        }
        sums
    }

    #[inline(always)]
    unsafe fn add_scaled_dot<Q: Quants, const N: usize>(
        start: Self::Ints,
        scales: Self::Scales,
        weights: &[Self::Bytes; N],
        activations: *const i8,
    ) -> Self::Ints {
        let dots = Self::dot::<Q, N>(0, weights, activations);
        from_fn(|i| start[i] + scales[i] * dots[i])
    }

    #[inline(always)]
    unsafe fn add_pairs(start: Self::Ints, pairs: Self::Pairs, numbers: *const i16) -> Self::Ints {
        let [a, b] = (*numbers.cast::<[i16; 2]>()).map(i32::from);
        from_fn(|i| start[i] + pairs[i][0] * a + pairs[i][1] * b)
    }

    #[inline(always)]
    unsafe fn minus_32(a: Self::Ints, b: Self::Ints) -> Self::Ints {
        from_fn(|i| a[i] - 32 * b[i])
    }

    #[inline(always)]
    unsafe fn floats(ints: Self::Ints) -> Self::Floats {
        ints.map(|int| int as f32)
    }

    #[inline(always)]
    unsafe fn halves(bits: *const u16) -> Self::Floats {
        (*bits.cast::<[u16; TILE]>()).map(from_half)
    }

    #[inline(always)]
    unsafe fn upper_halves(bits: *const u16) -> Self::Floats {
        (*bits.cast::<[u16; TILE]>()).map(|half| f32::from_bits(u32::from(half) << 16))
    }

    #[inline(always)]
    unsafe fn splat(value: f32) -> Self::Floats {
        [value; TILE]
    }

    #[inline(always)]
    unsafe fn read(values: *const f32) -> Self::Floats {
        *values.cast()
    }

    #[inline(always)]
    unsafe fn write(values: *mut f32, floats: Self::Floats) {
        *values.cast() = floats;
    }

    #[inline(always)]
    unsafe fn add(a: Self::Floats, b: Self::Floats) -> Self::Floats {
        from_fn(|i| a[i] + b[i])
    }

    #[inline(always)]
    unsafe fn sub(a: Self::Floats, b: Self::Floats) -> Self::Floats {
        from_fn(|i| a[i] - b[i])
    }

    #[inline(always)]
    unsafe fn mul(a: Self::Floats, b: Self::Floats) -> Self::Floats {
        from_fn(|i| a[i] * b[i])
    }
}
