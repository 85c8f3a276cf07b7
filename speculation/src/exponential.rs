//! The exponential function, for whole rows of logits.
//!
//! Built from additions and multiplications of `f64` alone and without a branch: every machine
//! gives the same bits, and a compiler can evaluate several at once. A row of logits needs one for
//! each of 150,000 ids, which is where a call of the usual function would show.

/// [`exp`] takes no argument below this.
pub(crate) const LEAST_EXPONENT: f64 = -700.0;

/// `e^x` for `x` from [`LEAST_EXPONENT`] to 0, to about one unit in the last place; `exp(0.0)` is
/// exactly 1. Elsewhere the value means nothing.
///
/// `x = n ln 2 + r` with `|r| <= ln 2 / 2`, then the Taylor polynomial of `e^r` to `r^13`, whose
/// error there is below `2^-57`, times `2^n` made of its bits.
#[inline(always)]
pub(crate) fn exp(x: f64) -> f64 {
    let shifted = x * std::f64::consts::LOG2_E + ROUNDER;
    let n = shifted - ROUNDER;
    let r = (x - n * LN_2_HIGH) - n * LN_2_LOW;
    let polynomial = TAYLOR.iter().fold(0.0, |sum, term| sum * r + term);
    let power = f64::from_bits((shifted.to_bits() << 52).wrapping_add(ONE));
    polynomial * power
}

/// `e^x` for `x` at most 0, to some millionths of it, and four times as fast; 0 where that is below `e^-87`.
#[inline(always)]
pub(crate) fn rough_exp(x: f32) -> f32 {
    const ROUNDER: f32 = 12_582_912.0;
    let x_or_least = x.max(-87.0);
    let shifted = x_or_least * std::f32::consts::LOG2_E + ROUNDER;
    let n = shifted - ROUNDER;
    let r = x_or_least - n * std::f32::consts::LN_2;
    let terms = [
        1.0 / 720.0,
        1.0 / 120.0,
        1.0 / 24.0,
        1.0 / 6.0,
        0.5,
        1.0,
        1.0,
    ];
    let polynomial = terms.iter().fold(0.0_f32, |sum, term| sum * r + term);
    let power = f32::from_bits((shifted.to_bits() << 23).wrapping_add(127 << 23));
    if x >= -87.0 { polynomial * power } else { 0.0 }
}

/// `1.5 * 2^52`: adding it rounds to an integer, which is then the low bits of the sum.
const ROUNDER: f64 = 6_755_399_441_055_744.0;

/// The bits of 1.0.
const ONE: u64 = 1023 << 52;

/// `ln 2`, cut to 32 bits so that its product with an exponent is exact.
const LN_2_HIGH: f64 = f64::from_bits(std::f64::consts::LN_2.to_bits() & !((1 << 21) - 1));

/// The part of `ln 2` that [`LN_2_HIGH`] lacks: the rest of the constant, and what `f64` cut off.
const LN_2_LOW: f64 = (std::f64::consts::LN_2 - LN_2_HIGH) + 2.319_046_813_846_299_6e-17;

/// `1 / n!`, from 13 down to 0.
const TAYLOR: [f64; 14] = [
    1.0 / 6_227_020_800.0,
    1.0 / 479_001_600.0,
    1.0 / 39_916_800.0,
    1.0 / 3_628_800.0,
    1.0 / 362_880.0,
    1.0 / 40_320.0,
    1.0 / 5_040.0,
    1.0 / 720.0,
    1.0 / 120.0,
    1.0 / 24.0,
    1.0 / 6.0,
    0.5,
    1.0,
    1.0,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rough_one_is_off_by_little() {
        for step in 0..=87_000 {
            let x = -(step as f32) / 1000.0;
            let exact = libm::exp(f64::from(x));
            let error = (f64::from(rough_exp(x)) - exact).abs() / exact;
            assert!(error < 6e-6, "{error} at {x}");
        }
        assert!(rough_exp(-88.0) == 0.0 && rough_exp(f32::NEG_INFINITY) == 0.0);
    }

    #[test]
    fn agrees_with_libm_over_its_whole_range() {
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(-0.0), 1.0);
        for step in 0..=1_000_000 {
            let x = LEAST_EXPONENT * f64::from(step) / 1_000_000.0;
            let error = (exp(x) / libm::exp(x) - 1.0).abs();
            assert!(error <= 2.0 * f64::EPSILON, "{x}: {error:e}");
        }
    }
}
