//! Trimming a batch, against trying everything.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use speculation::control::{StepCosts, trim};

fn rate(items: &[Vec<f64>], kept: &[usize], verify: &StepCosts, other: f64) -> f64 {
    let tokens: f64 = items
        .iter()
        .zip(kept)
        .map(|(item, kept)| 1.0 + item[..*kept].iter().sum::<f64>())
        .sum();
    let rows = items.len() + kept.iter().sum::<usize>();
    tokens / (other + verify.seconds(rows).expect("measured"))
}

/// Every way to keep a part of each item.
fn ways(items: &[Vec<f64>]) -> Vec<Vec<usize>> {
    let Some((first, rest)) = items.split_first() else {
        return vec![vec![]];
    };
    let rest = ways(rest);
    let with = |kept: usize| {
        let rest = rest.iter();
        rest.map(move |rest| [&[kept], &rest[..]].concat())
    };
    (0..=first.len()).flat_map(with).collect()
}

#[test]
fn nothing_is_better_than_what_it_keeps() {
    for seed in 0..300 {
        let mut rng = StdRng::seed_from_u64(seed);
        let items: Vec<Vec<f64>> = (0..rng.random_range(1..=3))
            .map(|_| {
                let mut survival = 1.0;
                let slots = 0..rng.random_range(0..=4);
                slots
                    .map(|_| {
                        survival *= rng.random_range(0.1..1.0);
                        survival
                    })
                    .collect()
            })
            .collect();
        let mut verify = StepCosts::new();
        for size in [1, 2, 4, 8, 16] {
            // Once is not enough to be believed.
            verify.observe(size, rng.random_range(0.001..0.02) + 0.002 * size as f64);
            verify.observe(size, rng.random_range(0.001..0.02) + 0.002 * size as f64);
        }
        let other = rng.random_range(0.0..0.01);
        let kept = trim(&items, &verify, other);
        let got = rate(&items, &kept, &verify, other);
        for way in ways(&items) {
            let other_way = rate(&items, &way, &verify, other);
            assert!(
                other_way <= got + 1e-9,
                "seed {seed}: {way:?} over {kept:?}"
            );
        }
    }
}

#[test]
fn free_rows_are_all_kept_and_dear_ones_none() {
    let items = [vec![0.9, 0.8], vec![0.1], vec![]];
    let mut free = StepCosts::new();
    // Once is not enough to be believed.
    free.observe(1, 0.02);
    free.observe(1, 0.02);
    assert_eq!(trim(&items, &free, 0.0), [2, 1, 0]);
    assert_eq!(trim(&items, &StepCosts::new(), 0.0), [2, 1, 0], "unknown");
    let mut dear = StepCosts::new();
    dear.observe(1, 0.01);
    dear.observe(1, 0.01);
    dear.observe(2, 0.02);
    dear.observe(2, 0.02);
    assert_eq!(trim(&items, &dear, 0.0), [0, 0, 0]);
    assert!(trim(&[], &dear, 0.0).is_empty());
}

#[test]
fn what_a_round_costs_besides_makes_slots_cheaper() {
    let items = [vec![0.5, 0.25, 0.12, 0.06]];
    let mut verify = StepCosts::new();
    // Once is not enough to be believed.
    verify.observe(1, 0.010);
    verify.observe(1, 0.010);
    verify.observe(8, 0.045);
    verify.observe(8, 0.045);
    let kept = |other| trim(&items, &verify, other)[0];
    assert!(kept(0.0) < kept(0.1), "{} {}", kept(0.0), kept(0.1));
}

#[test]
fn a_slot_counts_only_with_those_before_it() {
    // A survival that rises is no survival: the second slot is worth no more than the first.
    let items = [vec![0.01, 0.9], vec![0.5]];
    let mut verify = StepCosts::new();
    // Once is not enough to be believed.
    verify.observe(1, 0.010);
    verify.observe(1, 0.010);
    verify.observe(8, 0.030);
    verify.observe(8, 0.030);
    assert_eq!(trim(&items, &verify, 0.0), [0, 1]);
}
