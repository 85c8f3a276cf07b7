//! Half-precision numbers, as the formats store their scales.

/// The number that the bits of a half-precision number stand for. Exact; branch-free, so that
/// loops over it use wide registers.
#[inline(always)]
pub(crate) fn from_half(bits: u16) -> f32 {
    /// 2^112 moves the exponent from one bias to the other, also where the number is subnormal.
    const REBIAS: f32 = f32::from_bits((127 + 112) << 23);
    const EXPONENT: u32 = 0x7c00;
    let magnitude = u32::from(bits & 0x7fff);
    let sign = u32::from(bits & 0x8000) << 16;
    let finite = (f32::from_bits(magnitude << 13) * REBIAS).to_bits();
    let special = magnitude << 13 | 0x7f80_0000;
    let is_special = magnitude & EXPONENT == EXPONENT;
    f32::from_bits(sign | if is_special { special } else { finite })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_half_is_the_number_that_its_bits_say() {
        for bits in 0..=u16::MAX {
            let fraction = f64::from(bits & 0x3ff) / 1024.0;
            let exponent = i32::from(bits >> 10 & 31);
            let magnitude = match exponent {
                0 => fraction * 2f64.powi(-14),
                31 if fraction == 0.0 => f64::INFINITY,
                31 => f64::NAN,
                _ => (1.0 + fraction) * 2f64.powi(exponent - 15),
            };
            let expected = if bits >> 15 == 1 {
                -magnitude
            } else {
                magnitude
            };
            let value = from_half(bits);
            let same = value.to_bits() == (expected as f32).to_bits();
            assert!(
                same || value.is_nan() && expected.is_nan(),
                "{bits:#x}: {value}"
            );
        }
    }
}
