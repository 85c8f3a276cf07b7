//! What many choices look like. Seeds are fixed, so a test that passes once passes always.

use crate::reference::sampling;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use speculation::{Law, NoiseKey, Sampler, Sampling, TokenId};
use std::collections::HashMap;
use std::hash::Hash;

/// The quantile of the standard normal law that one draw in ten thousand exceeds.
const Z: f64 = 3.719;

/// The value that a chi-square variable exceeds once in ten thousand times (Wilson and Hilferty,
/// 1931).
pub(crate) fn chi_square_critical(degrees: f64) -> f64 {
    let ninth = 2.0 / (9.0 * degrees);
    degrees * (1.0 - ninth + Z * ninth.sqrt()).powi(3)
}

/// The G statistic of `counts` under `law`, and its degrees of freedom. Outcomes that are expected
/// fewer than ten times are counted together.
pub(crate) fn g_test<T: Eq + Hash>(law: &[(T, f64)], counts: &HashMap<T, u32>) -> (f64, f64) {
    let draws = f64::from(counts.values().sum::<u32>());
    let (mut rare, mut cells) = ((0.0, 0.0), Vec::new());
    for (outcome, p) in law {
        let cell = (p * draws, f64::from(*counts.get(outcome).unwrap_or(&0)));
        if cell.0 < 10.0 {
            rare = (rare.0 + cell.0, rare.1 + cell.1);
        } else {
            cells.push(cell);
        }
    }
    if rare.0 > 0.0 {
        cells.push(rare);
    }
    let g = cells
        .iter()
        .filter(|(_, seen)| *seen > 0.0)
        .map(|(expected, seen)| 2.0 * seen * (seen / expected).ln())
        .sum();
    (g, (cells.len() - 1) as f64)
}

fn row(seed: u64, length: usize, spread: f32) -> Vec<f32> {
    let mut rng = StdRng::seed_from_u64(seed);
    (0..length)
        .map(|_| rng.random_range(-spread..spread))
        .collect()
}

/// Counts choices over `positions` under one key, or over as many keys at one position.
fn count(logits: &[f32], sampling: Sampling, positions: bool) -> HashMap<TokenId, u32> {
    let mut counts = HashMap::new();
    for draw in 0..40_000 {
        let (seed, position) = if positions { (5, draw) } else { (draw, 5) };
        let key = NoiseKey::from_seed(seed);
        let choice = Sampler { sampling, key }.choose(logits, position);
        *counts.entry(choice.token).or_default() += 1;
    }
    counts
}

#[test]
fn choices_follow_the_law() {
    let narrow = row(1, 30, 3.0);
    let wide = row(2, 2500, 4.0);
    for (name, logits, sampling) in [
        ("plain", &narrow, sampling(1.0, 0, 1.0, 0.0)),
        ("cold", &narrow, sampling(0.4, 0, 1.0, 0.0)),
        ("hot", &narrow, sampling(3.0, 0, 1.0, 0.0)),
        ("top-k", &narrow, sampling(0.9, 6, 1.0, 0.0)),
        ("top-p", &narrow, sampling(1.0, 0, 0.8, 0.0)),
        ("min-p", &narrow, sampling(1.0, 0, 1.0, 0.1)),
        ("all", &narrow, sampling(1.3, 12, 0.9, 0.05)),
        ("wide", &wide, sampling(0.7, 0, 1.0, 0.0)),
    ] {
        let law = Law::new(logits, &sampling);
        for positions in [true, false] {
            let counts = count(logits, sampling, positions);
            assert!(counts.keys().all(|id| law.probability(*id) > 0.0));
            let (g, degrees) = g_test(law.entries(), &counts);
            let critical = chi_square_critical(degrees);
            eprintln!("{name}, over positions: {positions}: G {g:.1} of {critical:.1}");
            assert!(g < critical, "{name}: G {g} over {critical}");
        }
    }
}

#[test]
fn the_test_of_choices_has_teeth() {
    let logits = row(1, 30, 3.0);
    let counts = count(&logits, sampling(1.0, 0, 1.0, 0.0), true);
    let other = Law::new(&logits, &sampling(1.05, 0, 1.0, 0.0));
    let (g, degrees) = g_test(other.entries(), &counts);
    assert!(g > chi_square_critical(degrees), "G {g}");
}

#[test]
fn choices_at_two_positions_are_independent() {
    let logits = row(3, 4, 1.0);
    let sampling = sampling(1.0, 0, 1.0, 0.0);
    let law = Law::new(&logits, &sampling);
    let mut pairs = [[0.0_f64; 4]; 4];
    let draws = 40_000;
    for seed in 0..draws {
        let key = NoiseKey::from_seed(seed);
        let at = |position| Sampler { sampling, key }.choose(&logits, position).token;
        pairs[at(8) as usize][at(9) as usize] += 1.0;
    }
    let cells = (0..4).flat_map(|a| (0..4).map(move |b| (a, b)));
    let g: f64 = cells
        .map(|(a, b)| {
            let expected = draws as f64 * law.probability(a) * law.probability(b);
            let seen = pairs[a as usize][b as usize];
            2.0 * seen * (seen / expected).ln()
        })
        .sum();
    assert!(g < chi_square_critical(15.0), "G {g}");
}

/// The sum over `i` of `1 / sum_j max(p_j / p_i, q_j / q_i)`, over the ids that both laws allow.
fn coupled_match(p: &Law, q: &Law, ids: TokenId) -> f64 {
    (0..ids)
        .filter(|i| p.probability(*i) > 0.0 && q.probability(*i) > 0.0)
        .map(|i| {
            let worst = |j| {
                let by_p = p.probability(j) / p.probability(i);
                by_p.max(q.probability(j) / q.probability(i))
            };
            1.0 / (0..ids).map(worst).sum::<f64>()
        })
        .sum()
}

#[test]
fn a_draft_matches_as_often_as_the_coupling_promises() {
    let draws = 20_000;
    for seed in 0..6 {
        let target = row(seed, 25, 2.5);
        let nudge = row(seed + 100, 25, 0.4 * (seed + 1) as f32);
        let draft: Vec<_> = target.iter().zip(nudge).map(|(a, b)| a + b).collect();
        let sampling = sampling(0.8, 0, if seed % 2 == 0 { 1.0 } else { 0.9 }, 0.0);
        let sampler = Sampler {
            sampling,
            key: NoiseKey::from_seed(seed),
        };
        let matches = (0..draws)
            .filter(|at| sampler.choose(&target, *at).token == sampler.choose(&draft, *at).token)
            .count();
        let (p, q) = (Law::new(&target, &sampling), Law::new(&draft, &sampling));
        let variation = (0..25)
            .map(|id| (p.probability(id) - q.probability(id)).abs() / 2.0)
            .sum::<f64>();
        let rate = matches as f64 / draws as f64;
        let expected = coupled_match(&p, &q, 25);
        let error = Z * (expected * (1.0 - expected) / draws as f64).sqrt();
        let bound = (1.0 - variation) / (1.0 + variation);
        eprintln!("seed {seed}: rate {rate:.4}, expected {expected:.4}, bound {bound:.4}");
        assert!((rate - expected).abs() < error);
        assert!(rate > bound - error);
    }
}
