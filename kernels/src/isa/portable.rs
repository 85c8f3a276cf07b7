//! What any processor has. All 16 outputs of a tile side by side, for the compiler to make the
//! best of.

#![expect(
    unsafe_op_in_unsafe_fn,
    reason = "what each function requires is what its operations require"
)]

use super::Lanes;
use crate::TILE;
use crate::float::from_half;
use crate::pack::QUAD;
use crate::quants::Quants;
use std::array::from_fn;

/// Arrays, an element per output.
pub(crate) struct Portable;

impl Lanes for Portable {
    const COUNT: usize = TILE;
    const WIDE: bool = false;
    type Bytes = [[u8; 4]; TILE];
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
    unsafe fn widen(bytes: *const i8) -> Self::Ints {
        (*bytes.cast::<[i8; TILE]>()).map(i32::from)
    }

    #[inline(always)]
    unsafe fn dots<Q: Quants, const N: usize, const R: usize>(
        offset: i32,
        sums: &[i32; R],
        weights: &[Self::Bytes; N],
        activations: &[*const i8; R],
    ) -> [Self::Ints; R] {
        let mut dots = [[0; TILE]; R];
        for ((dots, sum), activations) in dots.iter_mut().zip(sums).zip(activations) {
            *dots = [-offset * sum; TILE];
            for (i, quads) in weights.iter().enumerate() {
                let numbers = (*activations.add(i * QUAD).cast::<[i8; QUAD]>()).map(i32::from);
                for (dot, quad) in dots.iter_mut().zip(quads) {
                    for (number, &quant) in numbers.iter().zip(quad) {
                        *dot += number
                            * match Q::SIGNED {
                                true => i32::from(quant as i8),
                                false => i32::from(quant),
                            };
                    }
                }
            }
        }
        dots
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
