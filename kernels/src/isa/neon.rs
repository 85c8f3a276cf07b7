//! 64-bit ARM, with or without dot products of bytes: four outputs in a register.

#![expect(
    unsafe_op_in_unsafe_fn,
    reason = "what each function requires is what its operations require"
)]

use super::Lanes;
use crate::TILE;
use crate::float::from_half;
use crate::product::{Kernel, Rows, Tile, by_rows};
use crate::quants::Quants;
use std::arch::aarch64::*;
use std::arch::asm;

/// 128-bit registers.
pub(crate) struct Neon<const DOT: bool>;

/// # Safety
/// As for [`Kernel::run`].
#[target_feature(enable = "neon,dotprod")]
pub(crate) unsafe fn dot<K: Kernel>(tile: Tile<'_>, rows: Rows<'_>, out: &mut [[f32; TILE]]) {
    by_rows::<Neon<true>, K>(tile, rows, out);
}

impl<const DOT: bool> Lanes for Neon<DOT> {
    const COUNT: usize = 4;
    const WIDE: bool = true;
    type Bytes = uint8x16_t;
    type Ints = int32x4_t;
    type Floats = float32x4_t;

    #[inline(always)]
    unsafe fn load(bytes: *const u8) -> uint8x16_t {
        vld1q_u8(bytes)
    }

    #[inline(always)]
    unsafe fn bits<const SHIFT: i32, const MASK: u8>(bytes: uint8x16_t) -> uint8x16_t {
        vandq_u8(vshlq_u8(bytes, vdupq_n_s8(-SHIFT as i8)), vdupq_n_u8(MASK))
    }

    #[inline(always)]
    unsafe fn left<const SHIFT: i32>(bytes: uint8x16_t) -> uint8x16_t {
        vshlq_u8(bytes, vdupq_n_s8(SHIFT as i8))
    }

    #[inline(always)]
    unsafe fn or(a: uint8x16_t, b: uint8x16_t) -> uint8x16_t {
        vorrq_u8(a, b)
    }

    #[inline(always)]
    unsafe fn widen(bytes: *const i8) -> int32x4_t {
        let bytes = bytes.cast::<i32>().read_unaligned();
        let bytes = vreinterpret_s8_s32(vdup_n_s32(bytes));
        vmovl_s16(vget_low_s16(vmovl_s8(bytes)))
    }

    #[inline(always)]
    unsafe fn dots<Q: Quants, const N: usize, const R: usize>(
        offset: i32,
        sums: &[i32; R],
        weights: &[uint8x16_t; N],
        activations: &[*const i8; R],
    ) -> [int32x4_t; R] {
        const { assert!(Q::SIGNED || Q::LARGEST <= 127, "quants are taken as signed") };
        let mut dots = [vdupq_n_s32(0); R];
        for ((dot, sum), activations) in dots.iter_mut().zip(sums).zip(activations) {
            let start = vdupq_n_s32(-offset * sum);
            *dot = sum_of_quads::<DOT, N>(start, weights, *activations);
        }
        dots
    }

    #[inline(always)]
    unsafe fn floats(ints: int32x4_t) -> float32x4_t {
        vcvtq_f32_s32(ints)
    }

    #[inline(always)]
    unsafe fn halves(bits: *const u16) -> float32x4_t {
        let floats = (*bits.cast::<[u16; 4]>()).map(from_half);
        vld1q_f32(floats.as_ptr())
    }

    #[inline(always)]
    unsafe fn upper_halves(bits: *const u16) -> float32x4_t {
        vreinterpretq_f32_u32(vshll_n_u16::<16>(vld1_u16(bits)))
    }

    #[inline(always)]
    unsafe fn splat(value: f32) -> float32x4_t {
        vdupq_n_f32(value)
    }

    #[inline(always)]
    unsafe fn read(values: *const f32) -> float32x4_t {
        vld1q_f32(values)
    }

    #[inline(always)]
    unsafe fn write(values: *mut f32, floats: float32x4_t) {
        vst1q_f32(values, floats);
    }

    #[inline(always)]
    unsafe fn add(a: float32x4_t, b: float32x4_t) -> float32x4_t {
        vaddq_f32(a, b)
    }

    #[inline(always)]
    unsafe fn sub(a: float32x4_t, b: float32x4_t) -> float32x4_t {
        vsubq_f32(a, b)
    }

    #[inline(always)]
    unsafe fn mul(a: float32x4_t, b: float32x4_t) -> float32x4_t {
        vmulq_f32(a, b)
    }
}

/// `start + Σ weight · activation`, of weights with a sign.
#[inline(always)]
unsafe fn sum_of_quads<const DOT: bool, const N: usize>(
    start: int32x4_t,
    weights: &[uint8x16_t; N],
    activations: *const i8,
) -> int32x4_t {
    if DOT {
        let mut sum = start;
        for (i, weights) in weights.iter().enumerate() {
            sum = add_dot(sum, vreinterpretq_s8_u8(*weights), quad(activations, i));
        }
        return sum;
    }
    // The even and the odd columns of two outputs each.
    let (mut low, mut high) = (vdupq_n_s32(0), vdupq_n_s32(0));
    for (i, weights) in weights.iter().enumerate() {
        let (weights, numbers) = (vreinterpretq_s8_u8(*weights), quad(activations, i));
        let products = vmull_s8(vget_low_s8(weights), vget_low_s8(numbers));
        low = vpadalq_s16(low, products);
        high = vpadalq_s16(high, vmull_high_s8(weights, numbers));
    }
    vaddq_s32(start, vpaddq_s32(low, high))
}

/// The instruction for which the library's function is not stable yet.
#[inline(always)]
unsafe fn add_dot(sum: int32x4_t, a: int8x16_t, b: int8x16_t) -> int32x4_t {
    let mut sum = sum;
    asm!(
        ".arch_extension dotprod",
        "sdot {sum:v}.4s, {a:v}.16b, {b:v}.16b",
        sum = inout(vreg) sum,
        a = in(vreg) a,
        b = in(vreg) b,
        options(pure, nomem, nostack, preserves_flags),
    );
    sum
}

/// The activations of a quad, for all outputs.
#[inline(always)]
unsafe fn quad(activations: *const i8, index: usize) -> int8x16_t {
    let bytes = activations.cast::<i32>().add(index).read_unaligned();
    vreinterpretq_s8_s32(vdupq_n_s32(bytes))
}
