//! The law against its definition.

use crate::reference::{self, any_row, any_sampling, model_row, sampling};
use proptest::prelude::*;
use speculation::{Law, Sampling, SamplingOptions, TokenId};

fn ids(law: &Law) -> Vec<TokenId> {
    law.entries().iter().map(|entry| entry.0).collect()
}

proptest! {
    #[test]
    fn a_law_is_its_definition(logits in any_row(), sampling in any_sampling()) {
        let law = Law::new(&logits, &sampling);
        let Some(expected) = reference::law(&logits, &sampling) else {
            return Ok(());
        };
        let expected_ids: Vec<_> = expected.iter().map(|entry| entry.0).collect();
        prop_assert_eq!(ids(&law), expected_ids);
        for (id, p) in expected {
            let error = (law.probability(id) / p - 1.0).abs();
            prop_assert!(error < 1e-12, "token {}: off by {:e}", id, error);
        }
    }

    #[test]
    fn a_law_is_a_distribution(logits in any_row(), sampling in any_sampling()) {
        let law = Law::new(&logits, &sampling);
        let sum = law.entries().iter().map(|entry| entry.1).sum::<f64>();
        prop_assert!((sum - 1.0).abs() < 1e-12, "sum {}", sum);
        prop_assert!(law.entries().iter().all(|entry| entry.1 > 0.0));
        prop_assert!(law.entries().is_sorted_by(|a, b| a.0 < b.0));
        prop_assert_eq!(law.probability(logits.len().max(1) as TokenId), 0.0);
    }

    #[test]
    fn top_k_keeps_exactly_k(seed: u64, length in 1_usize..6000, k in 1_u32..200) {
        let law = Law::new(&model_row(seed, length), &sampling(1.0, k, 1.0, 0.0));
        prop_assert_eq!(law.entries().len(), length.min(k as usize));
    }

    #[test]
    fn top_p_keeps_no_more_than_it_needs(seed: u64, length in 1_usize..6000, top_p in 0.01_f32..0.99) {
        let logits = model_row(seed, length);
        let plain = Law::new(&logits, &sampling(1.0, 0, 1.0, 0.0));
        let cut = Law::new(&logits, &sampling(1.0, 0, top_p, 0.0));
        let kept: Vec<_> = ids(&cut).into_iter().map(|id| plain.probability(id)).collect();
        let mass = kept.iter().sum::<f64>();
        let least = kept.iter().copied().fold(1.0, f64::min);
        prop_assert!(mass >= f64::from(top_p) - 1e-12);
        prop_assert!(mass - least < f64::from(top_p) + 1e-12);
    }

    #[test]
    fn adding_a_constant_changes_nothing(
        // Whole numbers, so that the addition itself does not round.
        logits in prop::collection::vec((-50_i16..50).prop_map(f32::from), 1..500),
        shift in -1000_i16..1000,
        sampling in any_sampling(),
    ) {
        let shifted: Vec<_> = logits.iter().map(|l| l + f32::from(shift)).collect();
        prop_assert_eq!(Law::new(&shifted, &sampling), Law::new(&logits, &sampling));
    }
}

#[test]
fn among_equal_logits_the_lower_ids_are_kept() {
    let logits = [1.0, 2.0, 1.0, 2.0, 1.0, 1.0];
    assert_eq!(ids(&Law::new(&logits, &sampling(1.0, 1, 1.0, 0.0))), [1]);
    assert_eq!(
        ids(&Law::new(&logits, &sampling(1.0, 4, 1.0, 0.0))),
        [0, 1, 2, 3]
    );
    let equal = [0.0; 8];
    assert_eq!(
        ids(&Law::new(&equal, &sampling(1.0, 0, 0.5, 0.0))),
        [0, 1, 2, 3]
    );
    assert_eq!(ids(&Law::new(&logits, &sampling(0.0, 0, 1.0, 0.0))), [1]);
}

#[test]
fn top_p_measures_what_top_k_left_and_min_p_the_most_likely() {
    // Probabilities 1/2, 1/4, 1/8, 1/8.
    let logits = [0.5, 0.25, 0.125, 0.125].map(f32::ln);
    // Top-k leaves 2/3 and 1/3; of the whole they would be 1/2 and 1/4.
    assert_eq!(ids(&Law::new(&logits, &sampling(1.0, 2, 0.6, 0.0))), [0]);
    assert_eq!(ids(&Law::new(&logits, &sampling(1.0, 0, 0.6, 0.0))), [0, 1]);
    // Half of 1/2 is 1/4, though after top-p it would be less.
    assert_eq!(
        ids(&Law::new(&logits, &sampling(1.0, 0, 0.8, 0.49))),
        [0, 1]
    );
    // Temperature comes before top-p: at 1/2 the probabilities are 16, 4, 1 and 1 of 22.
    assert_eq!(ids(&Law::new(&logits, &sampling(0.5, 0, 0.7, 0.0))), [0]);
}

#[test]
fn typical_p_keeps_what_is_about_as_surprising_as_is_to_be_expected() {
    // Surprises of 1, 2 and 4 bits, of which 2 are to be expected.
    let logits = [0.5, 0.25, 0.0625, 0.0625, 0.0625, 0.0625].map(f32::ln);
    let with = |typical_p| {
        let options = SamplingOptions {
            typical_p,
            ..SamplingOptions::default()
        };
        ids(&Law::new(&logits, &Sampling::new(options).expect("valid")))
    };
    // The most likely token is not among the most typical ones.
    assert_eq!(with(0.2), [1]);
    assert_eq!(with(0.3), [0, 1]);
    // Of the equally untypical ones the lower ids are kept.
    assert_eq!(with(0.8), [0, 1, 2]);
    assert_eq!(with(0.99), [0, 1, 2, 3, 4, 5]);
    // Typical of what top-k leaves: of one likely and one unlikely token it is the former.
    let options = SamplingOptions {
        top_k: 2,
        typical_p: 0.3,
        ..SamplingOptions::default()
    };
    let law = Law::new(&logits, &Sampling::new(options).expect("valid"));
    assert_eq!(ids(&law), [0]);
}

#[test]
fn a_row_without_a_possible_id_is_one_hot_on_id_0() {
    let nothing = f32::NEG_INFINITY;
    for row in [
        &[][..],
        &[nothing; 3],
        &[f32::NAN; 100],
        &[f32::NAN, nothing],
    ] {
        for temperature in [0.0, 1.0] {
            let law = Law::new(row, &sampling(temperature, 2, 0.9, 0.1));
            assert_eq!(law.entries(), [(0, 1.0)], "{row:?}");
        }
    }
}

#[test]
fn a_nan_is_never_likely() {
    let law = Law::new(&[f32::NAN, 1.0, f32::NAN, 1.0], &sampling(1.0, 0, 1.0, 0.0));
    assert_eq!(law.entries(), [(1, 0.5), (3, 0.5)]);
}
