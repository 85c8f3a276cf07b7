//! Loops over rows of numbers, each compiled twice: for processors with AVX2 and FMA, chosen at
//! run time, and for any other.
//!
//! Every function works on one row at a time and in a fixed order, so what a row gives does not
//! depend on the rows beside it. The two variants may differ in the last bits.

/// Independent sums kept side by side, so that the compiler can use wide registers.
const LANES: usize = 32;

/// Declares a function whose body is compiled for both kinds of processors. The body is a
/// function generic over whether multiplying and adding fuse.
macro_rules! dispatched {
    ($(#[$doc:meta])* $name:ident($($arg:ident: $kind:ty),*) $(-> $result:ty)? = $body:ident) => {
        $(#[$doc])*
        pub(crate) fn $name($($arg: $kind),*) $(-> $result)? {
            #[cfg(target_arch = "x86_64")]
            {
                use std::arch::is_x86_feature_detected;

                #[target_feature(enable = "avx2,fma")]
                fn wide($($arg: $kind),*) $(-> $result)? {
                    $body::<true>($($arg),*)
                }

                if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
                    // SAFETY: this processor has both features.
                    return unsafe { wide($($arg),*) };
                }
            }
            // On ARM the fused instruction is part of the baseline.
            $body::<{ cfg!(target_arch = "aarch64") }>($($arg),*)
        }
    };
}

pub(crate) use dispatched;

dispatched! {
    /// Divides `row` by its root mean square and multiplies it by `weight` into `out`.
    /// [Zhang and Sennrich 2019](https://arxiv.org/abs/1910.07467), equation 4.
    rms_norm(row: &[f32], weight: &[f32], epsilon: f32, out: &mut [f32]) = rms_norm_row
}

dispatched! {
    /// `out ← silu(gate) · up`, with `silu(x) = x / (1 + e^−x)`.
    silu_mul(gate: &[f32], up: &[f32], out: &mut [f32]) = silu_mul_row
}

dispatched! {
    /// `sum ← sum + row`.
    add(sum: &mut [f32], row: &[f32]) = add_row
}

/// `a · b + c`, in one rounding where the processor has an instruction for it. The library
/// function that stands in for it elsewhere is far too slow.
#[inline(always)]
pub(crate) fn mul_add<const FUSED: bool>(a: f32, b: f32, c: f32) -> f32 {
    if FUSED { a.mul_add(b, c) } else { a * b + c }
}

/// The product of two rows. What is left over after whole lanes comes last.
#[inline(always)]
pub(crate) fn dot<const FUSED: bool>(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0.0; LANES];
    let (a_whole, a_rest) = a.as_chunks::<LANES>();
    let (b_whole, b_rest) = b.as_chunks::<LANES>();
    for (a, b) in a_whole.iter().zip(b_whole) {
        for lane in 0..LANES {
            sums[lane] = mul_add::<FUSED>(a[lane], b[lane], sums[lane]);
        }
    }
    let rest: f32 = a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum();
    sum_of(sums) + rest
}

/// `e^x` to within two units in the last place; arguments are clamped to where the result is a
/// normal number. Branch-free, so that loops over it use wide registers.
///
/// `x = n·ln 2 + r` with a whole n and |r| ≤ ½ ln 2: the series in r to the seventh power, times
/// 2^n through the exponent bits.
#[inline(always)]
pub(crate) fn exp<const FUSED: bool>(x: f32) -> f32 {
    /// Adding it leaves the nearest whole number in the low bits of the significand.
    const ROUND: f32 = 12_582_912.0;
    /// ln 2 in two parts: the first has few digits, so that its multiples are exact.
    const LN_2: (f32, f32) = (0.693_359_4, -2.121_944_4e-4);
    const SERIES: [f32; 6] = [1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0];
    let x = x.clamp(-87.3, 88.3);
    let shifted = mul_add::<FUSED>(x, std::f32::consts::LOG2_E, ROUND);
    let n = shifted - ROUND;
    let r = mul_add::<FUSED>(n, -LN_2.0, x);
    let r = mul_add::<FUSED>(n, -LN_2.1, r);
    let mut sum = 1.0 / 5040.0;
    for factor in SERIES {
        sum = mul_add::<FUSED>(sum, r, factor);
    }
    sum = mul_add::<FUSED>(sum, r, 1.0);
    sum * f32::from_bits((shifted.to_bits() << 23).wrapping_add(1.0f32.to_bits()))
}

/// The sum of all lanes, in a fixed order. Their number is a power of two.
#[inline(always)]
pub(crate) fn sum_of<const N: usize>(lanes: [f32; N]) -> f32 {
    fold(lanes, |a, b| a + b)
}

/// The largest of all lanes, whose number is a power of two.
#[inline(always)]
pub(crate) fn max_of<const N: usize>(lanes: [f32; N]) -> f32 {
    fold(lanes, |a, b| if a > b { a } else { b })
}

#[inline(always)]
fn fold<const N: usize>(mut lanes: [f32; N], join: impl Fn(f32, f32) -> f32) -> f32 {
    let mut width = N;
    while width > 1 {
        width /= 2;
        for lane in 0..width {
            lanes[lane] = join(lanes[lane], lanes[lane + width]);
        }
    }
    lanes[0]
}

#[inline(always)]
fn rms_norm_row<const FUSED: bool>(row: &[f32], weight: &[f32], epsilon: f32, out: &mut [f32]) {
    let mean = dot::<FUSED>(row, row) / row.len() as f32;
    let scale = 1.0 / (mean + epsilon).sqrt();
    for ((out, &value), &weight) in out.iter_mut().zip(row).zip(weight) {
        *out = value * scale * weight;
    }
}

#[inline(always)]
fn silu_mul_row<const FUSED: bool>(gate: &[f32], up: &[f32], out: &mut [f32]) {
    for ((out, &gate), &up) in out.iter_mut().zip(gate).zip(up) {
        *out = gate / (1.0 + exp::<FUSED>(-gate)) * up;
    }
}

#[inline(always)]
fn add_row<const FUSED: bool>(sum: &mut [f32], row: &[f32]) {
    for (sum, &value) in sum.iter_mut().zip(row) {
        *sum += value;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_is_close_to_the_exact_value_everywhere() {
        for step in -87_000..88_000 {
            let x = step as f32 / 1000.0;
            let exact = f64::from(x).exp();
            for value in [exp::<true>(x), exp::<false>(x)] {
                let error = (f64::from(value) / exact - 1.0).abs();
                assert!(error < 2.5e-7, "exp({x}) is off by {error:e}");
            }
        }
        assert!(exp::<true>(f32::NEG_INFINITY) < 1e-37);
        assert!(exp::<true>(f32::INFINITY).is_finite());
    }

    #[test]
    fn dot_takes_every_element_at_any_length() {
        for len in 0..100 {
            let a: Vec<f32> = (0..len).map(|i| i as f32).collect();
            let expected: f32 = a.iter().map(|x| 2.0 * x).sum();
            assert_eq!(dot::<true>(&a, &vec![2.0; len]), expected);
        }
    }

    #[test]
    fn the_largest_lane_is_found() {
        assert_eq!(max_of([3.0, -1.0, 7.0, 2.0]), 7.0);
    }

    #[test]
    fn rms_norm_and_silu_follow_their_formulas() {
        let row: Vec<f32> = (0..77).map(|i| (i as f32 - 30.0) / 7.0).collect();
        let weight: Vec<f32> = (0..77).map(|i| 1.0 + i as f32 / 100.0).collect();
        let mean = row.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>() / 77.0;
        let mut normed = vec![0.0; 77];
        rms_norm(&row, &weight, 1e-5, &mut normed);
        let mut gated = vec![0.0; 77];
        silu_mul(&row, &weight, &mut gated);
        for i in 0..77 {
            let (x, w) = (f64::from(row[i]), f64::from(weight[i]));
            let norm = x / (mean + 1e-5).sqrt() * w;
            let silu = x / (1.0 + (-x).exp()) * w;
            assert!((f64::from(normed[i]) - norm).abs() < 1e-5, "norm at {i}");
            assert!((f64::from(gated[i]) - silu).abs() < 1e-5, "silu at {i}");
        }
    }
}
