//! The definitions, written for obviousness alone, and rows to try them on.

use proptest::prelude::*;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use speculation::{Law, NoiseKey, Sampling, SamplingOptions, TokenId, gumbel};

/// Valid parameters.
pub(crate) fn sampling(temperature: f32, top_k: u32, top_p: f32, min_p: f32) -> Sampling {
    Sampling::new(SamplingOptions {
        temperature,
        top_k,
        top_p,
        min_p,
        ..SamplingOptions::default()
    })
    .expect("valid parameters")
}

/// The law by the book: sort everything, then cut. None where rounding decides what is typical.
pub(crate) fn law(logits: &[f32], sampling: &Sampling) -> Option<Vec<(TokenId, f64)>> {
    let options = sampling.options();
    let mut row: Vec<(TokenId, f32)> = (0..).zip(logits.iter().map(|l| l.min(f32::MAX))).collect();
    for (entry, logit) in row.iter_mut().zip(logits) {
        if logit.is_nan() {
            entry.1 = f32::NEG_INFINITY;
        }
    }
    row.sort_by(|a, b| b.1.partial_cmp(&a.1).expect("numbers"));
    let Some(&(most_likely, peak)) = row.first() else {
        return Some(vec![(0, 1.0)]);
    };
    if peak == f32::NEG_INFINITY {
        return Some(vec![(0, 1.0)]);
    }
    if sampling.is_greedy() {
        return Some(vec![(most_likely, 1.0)]);
    }
    let temperature = f64::from(options.temperature);
    let score = |logit: f32| (f64::from(logit) - f64::from(peak)) / temperature;
    row.retain(|entry| score(entry.1) >= -700.0);
    let mut row: Vec<_> = row
        .into_iter()
        .map(|(id, l)| (id, score(l).exp()))
        .collect();
    if options.top_k > 0 {
        row.truncate(options.top_k as usize);
    }
    if options.top_p < 1.0 {
        let needed = f64::from(options.top_p) * row.iter().map(|entry| entry.1).sum::<f64>();
        let mut before = 0.0;
        row.retain(|entry| {
            let keep = before < needed;
            before += entry.1;
            keep
        });
    }
    row.retain(|entry| entry.1 >= f64::from(options.min_p));
    if options.typical_p < 1.0 {
        row = typical(logits, row, f64::from(options.typical_p))?;
    }
    let total = row.iter().map(|entry| entry.1).sum::<f64>();
    row.sort_by_key(|entry| entry.0);
    Some(row.into_iter().map(|(id, w)| (id, w / total)).collect())
}

/// The most typical of `row` by the book: by how far the surprise is from the entropy. None where
/// the last to be kept is so close a call that rounding decides.
fn typical(
    logits: &[f32],
    mut row: Vec<(TokenId, f64)>,
    typical_p: f64,
) -> Option<Vec<(TokenId, f64)>> {
    let total = row.iter().map(|entry| entry.1).sum::<f64>();
    let surprise = |weight: f64| -(weight / total).ln();
    let entropy: f64 = row.iter().map(|(_, w)| w / total * surprise(*w)).sum();
    let distance = |entry: &(TokenId, f64)| (surprise(entry.1) - entropy).abs();
    row.sort_by_key(|entry| entry.0);
    // Stable, so that on a tie the lower id stays first.
    row.sort_by(|a, b| distance(a).total_cmp(&distance(b)));
    let (mut kept, mut mass) = (0, 0.0);
    while kept < row.len() && mass < typical_p * total {
        let close = |mass: f64| (mass / total - typical_p).abs() < 1e-9;
        mass += row[kept].1;
        kept += 1;
        if close(mass) {
            return None;
        }
    }
    // Those that are as far off as the last one are alike, or none of them is left out.
    let edge = distance(&row[kept - 1]);
    let tied = |entry: &&(TokenId, f64)| (distance(entry) - edge).abs() < 1e-9;
    let logit = |entry: &(TokenId, f64)| logits[entry.0 as usize].min(f32::MAX);
    let mut all = row.iter().filter(tied).map(logit);
    let first = all.next();
    if row.get(kept).as_ref().is_some_and(tied) && all.any(|other| Some(other) != first) {
        return None;
    }
    row.truncate(kept);
    Some(row)
}

/// The perturbed scores of a law's ids, the best first and the lowest id first on a tie.
pub(crate) fn race(law: &Law, key: NoiseKey, position: u64) -> Vec<(TokenId, f64)> {
    let mut scores: Vec<_> = law
        .entries()
        .iter()
        .map(|&(id, p)| (id, p.ln() + gumbel(key, position, id)))
        .collect();
    scores.sort_by(|a, b| b.1.total_cmp(&a.1));
    scores
}

/// Valid parameters of every kind: each step on or off, mild or extreme.
pub(crate) fn any_sampling() -> impl Strategy<Value = Sampling> {
    (
        prop_oneof![
            Just(0.0),
            Just(1.0),
            Just(100.0),
            0.01_f32..3.0,
            Just(1e-45)
        ],
        prop_oneof![Just(0), 1_u32..20, 1_u32..6000],
        prop_oneof![2 => Just(1.0), 2 => 0.01_f32..1.0, 1 => Just(0.999_999_9), 1 => Just(1e-45)],
        prop_oneof![2 => Just(0.0), 2 => 0.001_f32..0.5, 1 => Just(1.0), 1 => Just(1e-45)],
        prop_oneof![4 => Just(1.0), 2 => 0.01_f32..1.0, 1 => Just(0.999_999_9), 1 => Just(1e-45)],
    )
        .prop_map(|(temperature, top_k, top_p, min_p, typical_p)| {
            let options = SamplingOptions {
                temperature,
                top_k,
                top_p,
                min_p,
                typical_p,
            };
            Sampling::new(options).expect("valid parameters")
        })
}

/// Rows as a model makes them: a bell, a few favourites, and any length.
pub(crate) fn model_row(seed: u64, length: usize) -> Vec<f32> {
    let mut rng = StdRng::seed_from_u64(seed);
    let spread = rng.random_range(0.1..4.0);
    let mut row: Vec<f32> = (0..length)
        .map(|_| (0..6).map(|_| rng.random_range(-1.0..1.0)).sum::<f32>() * spread)
        .collect();
    for _ in 0..rng.random_range(0..8) {
        row[rng.random_range(0..length)] += rng.random_range(0.0..20.0);
    }
    row
}

/// Rows that a working model never makes: ties, NaN, infinities, enormous and no logits.
pub(crate) fn odd_row() -> impl Strategy<Value = Vec<f32>> {
    let odd = prop_oneof![
        Just(f32::NAN),
        Just(f32::INFINITY),
        Just(f32::NEG_INFINITY),
        Just(f32::MAX),
        Just(f32::MIN),
        Just(-0.0),
        Just(1e-45),
        any::<f32>(),
    ];
    let tied = (-2_i8..3).prop_map(f32::from);
    let constant = prop_oneof![any::<f32>(), Just(f32::NEG_INFINITY), Just(0.0)];
    prop_oneof![
        prop::collection::vec(prop_oneof![4 => tied.clone(), 1 => odd.clone()], 0..200),
        prop::collection::vec(odd, 0..8),
        (constant, 0_usize..3000).prop_map(|(logit, length)| vec![logit; length]),
        prop::collection::vec(tied, 0..3000),
    ]
}

/// Rows of all kinds.
pub(crate) fn any_row() -> impl Strategy<Value = Vec<f32>> {
    prop_oneof![
        (any::<u64>(), 1_usize..6000).prop_map(|(seed, length)| model_row(seed, length)),
        (any::<u64>(), 1_usize..100).prop_map(|(seed, length)| model_row(seed, length)),
        odd_row(),
    ]
}
