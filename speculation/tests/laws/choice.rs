//! The choice against its definition.

use crate::reference::{any_row, any_sampling, model_row, odd_row, race, sampling};
use proptest::prelude::*;
use speculation::{Choice, Law, NoiseKey, Sampler, TokenId, gumbel};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn a_choice_is_the_argmax_over_the_law(
        logits in any_row(),
        sampling in any_sampling(),
        seed: u64,
        position in 0_u64..1_000_000,
    ) {
        let key = NoiseKey::from_seed(seed);
        let choice = Sampler { sampling, key }.choose(&logits, position);
        let race = race(&Law::new(&logits, &sampling), key, position);
        prop_assert_eq!(choice.token, race[0].0);
        if !sampling.is_greedy() {
            match race.get(1) {
                None => prop_assert_eq!(choice.margin, f32::INFINITY),
                Some(second) => {
                    let margin = race[0].1 - second.1;
                    let error = (f64::from(choice.margin) - margin).abs();
                    prop_assert!(error <= 1e-12 + 1e-7 * margin, "{} for {}", choice.margin, margin);
                }
            }
        }
    }

    #[test]
    fn a_greedy_choice_is_the_lowest_id_of_the_largest_logit(logits in any_row(), seed: u64) {
        let sampling = sampling(0.0, 7, 0.5, 0.5);
        let choice = Sampler { sampling, key: NoiseKey::from_seed(seed) }.choose(&logits, seed);
        let mut best: Option<(TokenId, f32)> = None;
        for (id, &logit) in (0..).zip(&logits) {
            // Infinite counts as the largest finite number.
            let logit = if logit == f32::INFINITY { f32::MAX } else { logit };
            if logit > best.map_or(f32::NEG_INFINITY, |best| best.1) {
                best = Some((id, logit));
            }
        }
        prop_assert_eq!(choice.token, best.map_or(0, |best| best.0));
    }

    #[test]
    fn no_row_upsets_a_choice(logits in odd_row(), sampling in any_sampling(), position: u64) {
        let choice = Sampler { sampling, key: NoiseKey(7) }.choose(&logits, position);
        prop_assert!((choice.token as usize) < logits.len().max(1));
        prop_assert!(choice.margin >= 0.0, "margin {}", choice.margin);
        prop_assert!(Law::new(&logits, &sampling).probability(choice.token) > 0.0);
    }

    #[test]
    fn padding_rows_do_not_change_a_choice(seed: u64, length in 1_usize..3000, padding in 0_usize..300) {
        let sampler = Sampler { sampling: sampling(1.0, 0, 0.98, 0.0), key: NoiseKey(3) };
        let mut logits = model_row(seed, length);
        let choice = sampler.choose(&logits, seed);
        logits.resize(length + padding, f32::NEG_INFINITY);
        prop_assert_eq!(sampler.choose(&logits, seed), choice);
    }
}

/// As wide as a real vocabulary, where nearly every id is passed over without a look.
#[test]
fn a_choice_among_a_whole_vocabulary_is_the_argmax_over_the_law() {
    for seed in 0..10 {
        let logits = model_row(seed, 151_936);
        for sampling in [
            sampling(1.0, 0, 1.0, 0.0),
            sampling(0.3, 0, 1.0, 0.0),
            sampling(0.8, 0, 0.95, 0.0),
            sampling(0.8, 40, 1.0, 0.0),
            sampling(0.8, 0, 1.0, 0.02),
        ] {
            let key = NoiseKey::from_seed(seed);
            let law = Law::new(&logits, &sampling);
            for position in 0..3 {
                let choice = Sampler { sampling, key }.choose(&logits, position);
                let race = race(&law, key, position);
                assert_eq!(choice.token, race[0].0, "seed {seed}, position {position}");
                if let Some(second) = race.get(1) {
                    let error = f64::from(choice.margin) - (race[0].1 - second.1);
                    assert!(error.abs() < 1e-6, "seed {seed}, position {position}");
                }
            }
        }
    }
}

/// Rows of which most ids are impossible, as a grammar or a restricted vocabulary leaves them, and
/// flat ones, in which every id may win.
#[test]
fn a_choice_among_what_is_left_is_the_argmax_over_the_law() {
    for seed in 0..12 {
        let mut logits = model_row(seed, 30_000);
        let keeps: fn(u64, usize) -> bool = match seed % 4 {
            0 => |_, id| id < 9_000,
            1 => |_, id| id % 5 == 3,
            2 => |seed, id| id % 7_000 == seed as usize,
            _ => |_, _| true,
        };
        for (id, logit) in logits.iter_mut().enumerate() {
            match keeps(seed, id) {
                true if seed > 7 => *logit = (id % 3) as f32 / 1000.0,
                true => {}
                false => *logit = f32::NEG_INFINITY,
            }
        }
        for sampling in [sampling(1.0, 0, 1.0, 0.0), sampling(0.7, 0, 0.95, 0.0)] {
            let key = NoiseKey::from_seed(seed);
            let law = Law::new(&logits, &sampling);
            for position in 0..20 {
                let choice = Sampler { sampling, key }.choose(&logits, position);
                let race = race(&law, key, position);
                assert_eq!(choice.token, race[0].0, "seed {seed}, position {position}");
                let second = race.get(1).map_or(f64::NEG_INFINITY, |entry| entry.1);
                let error = f64::from(choice.margin) - (race[0].1 - second);
                assert!(error.abs() < 1e-6 || second.is_infinite(), "seed {seed}");
            }
        }
    }
}

/// Skipping ids that cannot win must not skip one that wins once in a million times.
#[test]
fn a_rare_variable_lifts_an_unlikely_token() {
    let key = NoiseKey::from_seed(11);
    // Forty likely ids, each in a block of its own, and then a thousand unlikely ones.
    let likely = || (0..2560).step_by(64);
    let mut logits = vec![-40.0; 3560];
    likely().for_each(|id| logits[id] = 0.0);
    let (noise, position, token) = (0..3000)
        .flat_map(|at| (2560..3560).map(move |id| (at, id)))
        .map(|(at, id)| (gumbel(key, at, id), at, id))
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .expect("draws");
    assert!(noise > 14.0, "noise {noise}");
    let best = likely()
        .map(|id| gumbel(key, position, id as TokenId))
        .fold(f64::NEG_INFINITY, f64::max);
    for (lead, wins) in [(0.01, true), (-0.01, false)] {
        logits[token as usize] = (best - noise + lead) as f32;
        for min_p in [0.0, 1e-30] {
            let sampling = sampling(1.0, 0, 1.0, min_p);
            let choice = Sampler { sampling, key }.choose(&logits, position);
            assert_eq!(choice.token == token, wins, "lead {lead}, min-p {min_p}");
            assert!((choice.margin - 0.01).abs() < 1e-4, "{}", choice.margin);
        }
    }
}

#[test]
fn a_choice_depends_on_key_and_position_alone() {
    let logits = [0.0; 1000];
    let sampling = sampling(1.0, 0, 1.0, 0.0);
    let tokens = |seed| -> Vec<_> {
        let key = NoiseKey::from_seed(seed);
        let sampler = Sampler { sampling, key };
        (0..50)
            .map(|at| sampler.choose(&logits, at).token)
            .collect()
    };
    let first = tokens(1);
    assert_eq!(first, tokens(1));
    // Two draws among a thousand agree once in a thousand times.
    let agreeing = first.iter().zip(tokens(2)).filter(|(a, b)| *a == b);
    assert!(agreeing.count() <= 2);
    let repeated = first.windows(2).filter(|pair| pair[0] == pair[1]);
    assert!(repeated.count() <= 2);
}

#[test]
fn a_greedy_margin_is_the_lead_in_logits() {
    let sampler = Sampler {
        sampling: sampling(0.0, 0, 1.0, 0.0),
        key: NoiseKey(0),
    };
    let choice = |logits: &[f32]| sampler.choose(logits, 0);
    let lead = |token, margin| Choice { token, margin };
    assert_eq!(choice(&[1.0, 4.0, 3.5]), lead(1, 0.5));
    assert_eq!(choice(&[4.0, 1.0, 4.0]), lead(0, 0.0));
    assert_eq!(choice(&[4.0]), lead(0, f32::INFINITY));
    assert_eq!(choice(&[f32::NAN, 4.0]), lead(1, f32::INFINITY));
    assert_eq!(choice(&[]), lead(0, f32::INFINITY));
    // The runner-up in another block of the search.
    let mut wide = [0.0; 500];
    (wide[499], wide[3]) = (9.0, 7.0);
    assert_eq!(choice(&wide), lead(499, 2.0));
}
