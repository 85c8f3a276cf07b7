//! The candidates of a choice against their definition.

use crate::reference::{any_row, any_sampling, model_row, race, sampling};
use proptest::prelude::*;
use speculation::{Law, NoiseKey, Sampler, Sampling, SamplingOptions, TokenId};
use std::collections::HashSet;

/// All ids by their perturbed scores, those first that truncation leaves.
fn ranked(logits: &[f32], sampler: &Sampler, position: u64) -> Vec<(TokenId, f64)> {
    let options = sampler.sampling.options();
    let whole = Sampling::new(SamplingOptions {
        temperature: options.temperature,
        ..SamplingOptions::default()
    });
    let left = race(&Law::new(logits, &sampler.sampling), sampler.key, position);
    let all = race(
        &Law::new(logits, &whole.expect("valid")),
        sampler.key,
        position,
    );
    let kept: HashSet<TokenId> = left.iter().map(|entry| entry.0).collect();
    let dropped = all.iter().filter(|entry| !kept.contains(&entry.0));
    left.iter().chain(dropped).copied().collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn candidates_are_the_best_of_the_race_in_order(
        logits in any_row(),
        sampling in any_sampling(),
        seed: u64,
        position in 0_u64..1_000_000,
        count in 0_usize..20,
    ) {
        let sampler = Sampler { sampling, key: NoiseKey::from_seed(seed) };
        let candidates = sampler.candidates(&logits, position, count);
        let choice = sampler.choose(&logits, position).token;
        prop_assert_eq!(candidates.first().copied(), (count > 0).then_some(choice));
        prop_assume!(!sampling.is_greedy());
        let ranked = ranked(&logits, &sampler, position);
        prop_assert_eq!(candidates.len(), count.min(ranked.len()));
        for (rank, id) in candidates.iter().enumerate() {
            let score = ranked.iter().find(|entry| entry.0 == *id).map(|entry| entry.1);
            // Where rounding makes a tie of two, either may come first.
            let distance = score.map(|score| (score - ranked[rank].1).abs());
            prop_assert!(distance.is_some_and(|d| d <= 1e-9 * (1.0 + ranked[rank].1.abs())), "rank {}: {:?}", rank, distance);
            prop_assert!(!candidates[..rank].contains(id), "each once");
        }
    }

    #[test]
    fn greedy_candidates_are_the_largest_logits_the_lowest_id_first(seed: u64, length in 1_usize..500, count in 0_usize..20) {
        let logits: Vec<f32> = model_row(seed, length).iter().map(|logit| logit.round() + 0.0).collect();
        let sampler = Sampler { sampling: sampling(0.0, 3, 0.5, 0.5), key: NoiseKey(1) };
        let mut ids: Vec<TokenId> = (0..length as TokenId).collect();
        ids.sort_by(|a, b| logits[*b as usize].total_cmp(&logits[*a as usize]));
        ids.truncate(count);
        prop_assert_eq!(sampler.candidates(&logits, 5, count), ids);
    }

    #[test]
    fn a_confidence_is_the_probability_under_the_law(logits in any_row(), sampling in any_sampling(), position: u64) {
        let sampler = Sampler { sampling, key: NoiseKey(7) };
        let token = sampler.choose(&logits, position).token;
        let law = match sampling.is_greedy() {
            true => Law::new(&logits, &Sampling::new(SamplingOptions::default()).expect("valid")),
            false => Law::new(&logits, &sampling),
        };
        for id in [token, 0, 3, 5999] {
            let (confidence, expected) = (sampler.confidence(&logits, id), law.probability(id));
            prop_assert!((confidence - expected).abs() < 1e-5, "{} for {}", confidence, expected);
        }
    }
}

/// As wide as a real vocabulary, where nearly every id is passed over without a look.
#[test]
fn candidates_among_a_whole_vocabulary_are_the_best_of_the_race() {
    for seed in 0..3 {
        let logits = model_row(seed, 151_936);
        for sampling in [
            sampling(1.0, 0, 1.0, 0.0),
            sampling(0.3, 0, 1.0, 0.0),
            sampling(0.8, 0, 0.95, 0.0),
            sampling(0.8, 3, 1.0, 0.0),
        ] {
            let sampler = Sampler {
                sampling,
                key: NoiseKey::from_seed(seed),
            };
            for position in 0..1 {
                let ranked = ranked(&logits, &sampler, position);
                let best: Vec<TokenId> = ranked.iter().take(9).map(|entry| entry.0).collect();
                let candidates = sampler.candidates(&logits, position, 9);
                assert_eq!(candidates, best, "seed {seed}, position {position}");
            }
        }
    }
}
