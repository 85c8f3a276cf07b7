//! Whether counts of texts are what a law makes them: the G-test, and many of them at once.
//!
//! Knows nothing of models: it sees probabilities and counts.

use super::law::{JointLaw, Text};
use anyhow::{Result, ensure};
use std::collections::HashMap;

/// How often each text came.
pub type Counts = HashMap<Text, u64>;

/// Cells that are expected less often are counted together: the statistic's law is known for
/// cells that are not too small.
const LEAST_EXPECTED: f64 = 5.0;

/// What a G-test says.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Outcome {
    /// The statistic, with Williams' correction; infinite where an impossible text came.
    pub statistic: f64,
    /// Its degrees of freedom.
    pub degrees: usize,
    /// How often counts that follow the law give such a statistic or a larger one.
    pub p_value: f64,
}

/// Compares `counts` with what `law` lets expect: `G = 2 sum O ln(O / E)`, which is close to a
/// chi-squared variable where the counts follow the law.
///
/// # Errors
/// Where there are too few counts to tell two cells apart.
pub fn g_test(law: &JointLaw, counts: &Counts) -> Result<Outcome> {
    let total: u64 = counts.values().sum();
    let cells = cells(law, counts, total as f64);
    ensure!(
        cells.len() > 1,
        "{total} samples are too few, or the law leaves no choice"
    );
    let degrees = cells.len() - 1;
    if counts.keys().any(|text| !law.contains_key(text)) {
        return Ok(Outcome {
            statistic: f64::INFINITY,
            degrees,
            p_value: 0.0,
        });
    }
    let g: f64 = cells
        .iter()
        .filter(|cell| cell.observed > 0.0)
        .map(|cell| 2.0 * cell.observed * (cell.observed / cell.expected).ln())
        .sum();
    let inverse: f64 = cells.iter().map(|cell| total as f64 / cell.expected).sum();
    let correction = 1.0 + (inverse - 1.0) / (6.0 * total as f64 * degrees as f64);
    let statistic = (g / correction).max(0.0);
    let p_value = upper_gamma(degrees as f64 / 2.0, statistic / 2.0);
    ensure!(
        (0.0..=1.0).contains(&p_value),
        "G({degrees}) = {statistic} has the p-value {p_value}"
    );
    Ok(Outcome {
        statistic,
        degrees,
        p_value,
    })
}

/// The regularized upper incomplete gamma function `Q(a, x)`.
///
/// Below `a + 1` by the series of its complement: puruspe 0.4.4 gives NaN there for an `a` of 100 or
/// more, which is half of all statistics of 200 degrees or more.
fn upper_gamma(a: f64, x: f64) -> f64 {
    if x >= a + 1.0 {
        return puruspe::gammq(a, x);
    }
    let (mut term, mut sum, mut divisor) = (1.0 / a, 1.0 / a, a);
    while term > sum * f64::EPSILON {
        divisor += 1.0;
        term *= x / divisor;
        sum += term;
    }
    1.0 - sum * (a * x.ln() - x - puruspe::ln_gamma(a)).exp()
}

/// One outcome, or rare ones together.
#[derive(Debug, Clone, Copy, Default)]
struct Cell {
    expected: f64,
    observed: f64,
}

impl Cell {
    fn add(&mut self, other: Self) {
        self.expected += other.expected;
        self.observed += other.observed;
    }
}

fn cells(law: &JointLaw, counts: &Counts, total: f64) -> Vec<Cell> {
    let mut rare = Cell::default();
    let mut cells = Vec::new();
    for (text, p) in law {
        let cell = Cell {
            expected: p * total,
            observed: counts.get(text).copied().unwrap_or_default() as f64,
        };
        if cell.expected < LEAST_EXPECTED {
            rare.add(cell);
        } else {
            cells.push(cell);
        }
    }
    let smallest = cells
        .iter_mut()
        .min_by(|a, b| a.expected.total_cmp(&b.expected));
    match smallest {
        Some(smallest) if rare.expected < LEAST_EXPECTED => smallest.add(rare),
        _ => cells.push(rare),
    }
    cells
}

/// Which of many tests fail so that, of those that fail, no more than the share `level` do by
/// chance (Benjamini and Hochberg 1995). Where all laws are right, something fails with
/// probability `level`. What is not a number fails.
pub fn failures(p_values: &[f64], level: f64) -> Vec<bool> {
    let mut sorted = p_values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let steps = sorted.iter().zip(1_u32..);
    let largest = steps
        .filter(|(p, rank)| **p <= level * f64::from(*rank) / p_values.len() as f64)
        .map(|(p, _)| *p)
        .last();
    p_values
        .iter()
        .map(|p| p.is_nan() || largest.is_some_and(|largest| *p <= largest))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::StdRng;
    use rand::{Rng as _, SeedableRng as _};

    fn law(probabilities: &[f64]) -> JointLaw {
        let texts = (0..).map(|token| vec![token]);
        texts.zip(probabilities.iter().copied()).collect()
    }

    fn counts(counts: &[u64]) -> Counts {
        (0..)
            .map(|token| vec![token])
            .zip(counts.iter().copied())
            .collect()
    }

    #[test]
    fn the_statistic_and_its_p_value_are_the_textbooks() {
        // Mendel's peas: 315, 108, 101 and 32 of 556 where 9 : 3 : 3 : 1 is expected. G is 0.4754
        // before the correction, and a chi-squared of 3 degrees exceeds it with 0.924.
        let peas = law(&[9.0 / 16.0, 3.0 / 16.0, 3.0 / 16.0, 1.0 / 16.0]);
        let outcome = g_test(&peas, &counts(&[315, 108, 101, 32])).unwrap();
        assert_eq!(outcome.degrees, 3);
        assert!((outcome.statistic - 0.4754).abs() < 0.002, "{outcome:?}");
        assert!((outcome.p_value - 0.924).abs() < 0.001, "{outcome:?}");
    }

    #[test]
    fn counts_of_the_law_give_p_values_that_are_even_and_others_give_none() {
        let p = [0.5, 0.2, 0.1, 0.1, 0.05, 0.03, 0.01, 0.005, 0.004, 0.001];
        let law = law(&p);
        let mut rng = StdRng::seed_from_u64(1);
        let mut draw = |law: &[f64]| {
            let mut counts = Counts::new();
            for _ in 0..2000 {
                let u: f64 = rng.random();
                let mut sum = 0.0;
                let token = law.iter().position(|p| {
                    sum += p;
                    u < sum
                });
                *counts.entry(vec![token.unwrap() as u32]).or_default() += 1;
            }
            counts
        };
        let p_values: Vec<f64> = (0..1000)
            .map(|_| g_test(&law, &draw(&p)).unwrap().p_value)
            .collect();
        for level in [0.01, 0.1, 0.5] {
            let below = p_values.iter().filter(|p| **p < level).count() as f64 / 1000.0;
            let spread = 4.0 * (level * (1.0 - level) / 1000.0_f64).sqrt();
            assert!((below - level).abs() < spread, "{below} below {level}");
        }
        let other = [0.45, 0.25, 0.1, 0.1, 0.05, 0.03, 0.01, 0.005, 0.004, 0.001];
        assert!(g_test(&law, &draw(&other)).unwrap().p_value < 1e-4);
    }

    #[test]
    fn p_values_are_right_for_few_and_for_many_degrees_of_freedom() {
        for half in (1..=600_u32).step_by(7) {
            let a = f64::from(half);
            for step in -90..=90 {
                let x = (a + f64::from(step) / 15.0 * a.sqrt()).max(0.0);
                // Of whole numbers, the probability that fewer than `a` events come where `x` are
                // expected.
                let mut log_term = -x;
                let mut expected = log_term.exp();
                for k in 1..half {
                    log_term += (x / f64::from(k)).ln();
                    expected += log_term.exp();
                }
                let found = upper_gamma(a, x);
                assert!(
                    (found - expected).abs() < 1e-9,
                    "Q({a}, {x}) = {found}, not {expected}"
                );
            }
        }
    }

    #[test]
    fn rare_texts_are_counted_together_and_impossible_ones_fail() {
        let law = law(&[0.9, 0.05, 0.01, 0.01, 0.01, 0.01, 0.01]);
        let outcome = g_test(&law, &counts(&[180, 10, 3, 2, 2, 2, 1])).unwrap();
        assert_eq!(outcome.degrees, 2);
        let outcome = g_test(&law, &counts(&[180, 10, 3, 2, 2, 2, 0, 1])).unwrap();
        assert_eq!(outcome.p_value, 0.0);
        assert!(g_test(&law, &counts(&[3])).is_err());
    }

    #[test]
    fn many_tests_are_judged_together() {
        assert_eq!(failures(&[0.5, 0.02, 0.9], 0.05), [false; 3]);
        // 0.03 alone would be over 0.05 / 3, but is the second of two small ones.
        assert_eq!(failures(&[0.03, 0.9, 0.001], 0.05), [true, false, true]);
        assert_eq!(failures(&[], 0.05), [false; 0]);
        assert_eq!(failures(&[f64::NAN, 0.5], 0.05), [true, false]);
    }
}
