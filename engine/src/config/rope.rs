//! Rotary position embedding, [Su et al. 2021](https://arxiv.org/abs/2104.09864), section 3.2.2:
//! the frequencies, and how they are stretched for contexts longer than those trained on.

use std::f64::consts::TAU;

/// Which numbers of a head turn together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RopePairs {
    /// Neighbours.
    Interleaved,
    /// The same place in the first and in the second half.
    Halves,
}

/// A rotation: pair i of a head is turned by `position · frequencies[i]` radians.
#[derive(Debug, Clone, PartialEq)]
pub struct Rope {
    /// Half as many as a head has numbers.
    pub frequencies: Vec<f32>,
    /// What cosines and sines are multiplied by; 1 except for YaRN.
    pub magnitude: f32,
}

/// How frequencies are stretched.
#[derive(Debug, Clone, PartialEq)]
pub enum RopeScaling {
    /// Not at all.
    None,
    /// Positions are divided by a factor.
    Linear {
        /// The factor.
        factor: f64,
    },
    /// Llama 3.1 and later: long waves are stretched, short ones are not.
    Llama3 {
        /// How far long waves are stretched.
        factor: f64,
        /// Waves longer than the original context over this are long.
        low_frequency_factor: f64,
        /// Waves shorter than the original context over this are short.
        high_frequency_factor: f64,
        /// The context that the model was first trained on.
        original_context: f64,
    },
    /// [YaRN](https://arxiv.org/abs/2309.00071), section 3.
    Yarn {
        /// How far long waves are stretched.
        factor: f64,
        /// The context that the model was first trained on.
        original_context: f64,
        /// Waves that turn more often than this within the original context are short.
        beta_fast: f64,
        /// Waves that turn less often are long.
        beta_slow: f64,
        /// The magnitude, where it is stated rather than left to the factor.
        magnitude: Option<f64>,
    },
    /// Each frequency is divided by a number of its own, as GGUF files spell Llama 3.1's out.
    Divided(Vec<f32>),
}

impl Rope {
    /// The rotation of heads of `head_dim` numbers.
    ///
    /// # Panics
    /// If `scaling` divides by another number of numbers than half of `head_dim`.
    pub fn new(head_dim: usize, base: f32, scaling: &RopeScaling) -> Self {
        let exponent = |pair: usize| (2 * pair) as f32 / head_dim as f32;
        let plain: Vec<f32> = (0..head_dim / 2)
            .map(|pair| 1.0 / base.powf(exponent(pair)))
            .collect();
        Self {
            frequencies: scaling.stretch(plain, head_dim, f64::from(base)),
            magnitude: scaling.magnitude() as f32,
        }
    }
}

impl RopeScaling {
    fn stretch(&self, plain: Vec<f32>, head_dim: usize, base: f64) -> Vec<f32> {
        let each = |stretched: &dyn Fn(usize, f64) -> f64| -> Vec<f32> {
            let frequencies = plain.iter().enumerate();
            frequencies
                .map(|(pair, &frequency)| stretched(pair, f64::from(frequency)) as f32)
                .collect()
        };
        match self {
            Self::None => plain,
            Self::Linear { factor } => each(&|_, frequency| frequency / factor),
            Self::Llama3 {
                factor,
                low_frequency_factor: low,
                high_frequency_factor: high,
                original_context,
            } => each(&|_, frequency| {
                // Turns within the original context.
                let turns = original_context * frequency / TAU;
                let kept = ((turns - low) / (high - low)).clamp(0.0, 1.0);
                frequency * (kept + (1.0 - kept) / factor)
            }),
            Self::Yarn {
                factor,
                original_context,
                beta_fast,
                beta_slow,
                ..
            } => {
                // The pair that turns so often within the original context.
                let pair_of = |turns: f64| {
                    head_dim as f64 * (original_context / (turns * TAU)).ln() / (2.0 * base.ln())
                };
                let first = pair_of(*beta_fast).floor().max(0.0);
                let last = pair_of(*beta_slow).ceil().min(head_dim as f64 - 1.0);
                let width = (last - first).max(0.001);
                each(&|pair, frequency| {
                    let stretched = ((pair as f64 - first) / width).clamp(0.0, 1.0);
                    frequency * (1.0 - stretched + stretched / factor)
                })
            }
            Self::Divided(divisors) => {
                assert_eq!(divisors.len(), plain.len(), "one divisor per frequency");
                each(&|pair, frequency| frequency / f64::from(divisors[pair]))
            }
        }
    }

    fn magnitude(&self) -> f64 {
        match *self {
            Self::Yarn {
                magnitude: Some(magnitude),
                ..
            } => magnitude,
            Self::Yarn { factor, .. } if factor > 1.0 => 0.1 * factor.ln() + 1.0,
            _ => 1.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD_DIM: usize = 64;
    const BASE: f32 = 10_000.0;

    fn frequencies(scaling: &RopeScaling) -> Vec<f32> {
        Rope::new(HEAD_DIM, BASE, scaling).frequencies
    }

    #[test]
    fn short_waves_are_kept_and_long_ones_stretched() {
        let plain = frequencies(&RopeScaling::None);
        let stretched = [
            RopeScaling::Llama3 {
                factor: 8.0,
                low_frequency_factor: 1.0,
                high_frequency_factor: 4.0,
                original_context: 8192.0,
            },
            RopeScaling::Yarn {
                factor: 8.0,
                original_context: 8192.0,
                beta_fast: 32.0,
                beta_slow: 1.0,
                magnitude: None,
            },
        ];
        for scaling in stretched {
            let scaled = frequencies(&scaling);
            let ratios: Vec<f32> = plain.iter().zip(&scaled).map(|(a, b)| a / b).collect();
            assert_eq!(ratios[0], 1.0, "{scaling:?}");
            assert!((ratios[31] - 8.0).abs() < 1e-4, "{scaling:?}: {ratios:?}");
            assert!(ratios.is_sorted(), "{scaling:?}: {ratios:?}");
            let between = ratios.iter().filter(|&&ratio| ratio > 1.01 && ratio < 7.9);
            assert!(between.count() > 2, "{scaling:?}: {ratios:?}");
        }
    }

    #[test]
    fn yarn_alone_changes_the_magnitude() {
        let yarn = |magnitude| RopeScaling::Yarn {
            factor: 4.0,
            original_context: 8192.0,
            beta_fast: 32.0,
            beta_slow: 1.0,
            magnitude,
        };
        let magnitude = |scaling| Rope::new(HEAD_DIM, BASE, &scaling).magnitude;
        assert!((magnitude(yarn(None)) - 1.138_629_4).abs() < 1e-6);
        assert_eq!(magnitude(yarn(Some(1.5))), 1.5);
        assert_eq!(magnitude(RopeScaling::Linear { factor: 4.0 }), 1.0);
    }
}
