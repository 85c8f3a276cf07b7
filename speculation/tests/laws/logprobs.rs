//! Log-probabilities against their definitions.

use crate::reference::{self, any_row, any_sampling, model_row, sampling};
use proptest::prelude::*;
use speculation::{Law, LogprobRow, LogprobsMode, LogprobsOptions, Sampling, TokenId};

fn row<'a>(
    mode: LogprobsMode,
    top: usize,
    raw: &'a [f32],
    processed: &[f32],
    sampling: &Sampling,
) -> LogprobRow<'a> {
    LogprobRow::new(&LogprobsOptions { mode, top }, raw, processed, sampling)
}

/// The logits as numbers, NaN being impossible and nothing infinitely likely.
fn numbers(raw: &[f32]) -> Vec<f64> {
    let number = |logit: &f32| {
        if logit.is_nan() {
            f32::NEG_INFINITY
        } else {
            logit.min(f32::MAX)
        }
    };
    raw.iter().map(number).map(f64::from).collect()
}

/// The log-softmax of `raw`.
fn log_softmax(raw: &[f32]) -> Vec<f64> {
    let numbers = numbers(raw);
    let peak = numbers.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let total: f64 = numbers.iter().map(|logit| (logit - peak).exp()).sum();
    numbers
        .iter()
        .map(|logit| logit - peak - total.ln())
        .map(|l| if l.is_nan() { f64::NEG_INFINITY } else { l })
        .collect()
}

/// Ids by falling value, the lower first on a tie; none that is impossible.
fn ranked(values: &[f64]) -> Vec<TokenId> {
    let mut ids: Vec<TokenId> = (0..values.len() as TokenId)
        .filter(|id| values[*id as usize] > f64::NEG_INFINITY)
        .collect();
    ids.sort_by(|a, b| values[*b as usize].total_cmp(&values[*a as usize]));
    ids
}

fn near(got: f32, expected: f64) -> bool {
    // What no `f32` holds is as impossible as can be.
    got == expected as f32 || (f64::from(got) - expected).abs() <= 1e-6 * expected.abs().max(1e-3)
}

proptest! {
    #[test]
    fn raw_ones_are_the_log_softmax_of_the_models_logits(
        raw in any_row(),
        top in 0_usize..25,
        sampling in any_sampling(),
    ) {
        let got = row(LogprobsMode::Raw, top, &raw, &[], &sampling);
        let expected = log_softmax(&raw);
        for (id, expected) in (0..).zip(&expected) {
            let logprob = got.of(id).logprob;
            prop_assert!(near(logprob, *expected), "id {}: {} is not {}", id, logprob, expected);
        }
        // A zero of either sign is the same logit.
        let ranked = ranked(&numbers(&raw).iter().map(|logit| logit + 0.0).collect::<Vec<_>>());
        let ids: Vec<_> = got.of(0).top.iter().map(|entry| entry.0).collect();
        prop_assert_eq!(&ids[..], &ranked[..top.min(ranked.len())]);
    }

    #[test]
    fn processed_ones_are_those_of_the_law(
        logits in any_row(),
        top in 0_usize..25,
        sampling in any_sampling(),
    ) {
        let law = Law::new(&logits, &sampling);
        let got = row(LogprobsMode::Processed, top, &[], &logits, &sampling);
        for id in 0..=logits.len() as TokenId {
            let (logprob, expected) = (got.of(id).logprob, law.probability(id).ln());
            prop_assert!(near(logprob, expected), "id {}: {} is not {}", id, logprob, expected);
        }
        let mut likely = law.entries().to_vec();
        likely.sort_by(|a, b| b.1.total_cmp(&a.1));
        likely.truncate(top);
        let likely: Vec<_> = likely.into_iter().map(|entry| entry.0).collect();
        let ids: Vec<_> = got.of(0).top.iter().map(|entry| entry.0).collect();
        prop_assert_eq!(ids, likely);
    }

    /// One token has one log-probability: among the likeliest or not, and whatever else is asked.
    #[test]
    fn a_number_depends_on_its_row_alone(
        raw in any_row(),
        other in any_row(),
        sampling in any_sampling(),
        top in 1_usize..25,
    ) {
        for mode in [LogprobsMode::Raw, LogprobsMode::Processed] {
            let most = row(mode, top, &raw, &raw, &sampling);
            let none = row(mode, 0, &raw, &raw, &sampling);
            prop_assert!(none.of(0).top.is_empty());
            for (id, logprob) in most.of(u32::MAX).top {
                prop_assert_eq!(logprob.to_bits(), most.of(id).logprob.to_bits());
                prop_assert_eq!(logprob.to_bits(), none.of(id).logprob.to_bits());
            }
        }
        let other_sampling = reference::sampling(1.0, 0, 1.0, 0.0);
        let plain = row(LogprobsMode::Raw, top, &raw, &raw, &other_sampling);
        let adjusted = row(LogprobsMode::Raw, top, &raw, &other, &sampling);
        prop_assert_eq!(plain.of(3), adjusted.of(3));
    }
}

#[test]
fn what_is_impossible_is_minus_infinity() {
    let logits = [1.0, f32::NEG_INFINITY, f32::NAN, 1.0];
    let cut = sampling(1.0, 1, 1.0, 0.0);
    let raw = row(LogprobsMode::Raw, 9, &logits, &logits, &cut);
    let half = -std::f32::consts::LN_2;
    for (token, logprob) in [
        (0, half),
        (1, f32::NEG_INFINITY),
        (2, f32::NEG_INFINITY),
        (3, half),
        (4, f32::NEG_INFINITY),
    ] {
        assert_eq!(raw.of(token).logprob, logprob, "token {token}");
    }
    assert_eq!(raw.of(1).top, [(0, half), (3, half)]);
    let processed = row(LogprobsMode::Processed, 9, &logits, &logits, &cut);
    assert_eq!(
        processed.of(3).logprob,
        f32::NEG_INFINITY,
        "top-k leaves it out"
    );
    assert_eq!(processed.of(0).top, [(0, 0.0)]);
    let nothing = row(LogprobsMode::Raw, 2, &[f32::NAN; 3], &logits, &cut);
    assert_eq!(
        (nothing.of(0).logprob, nothing.of(0).top),
        (f32::NEG_INFINITY, vec![])
    );
}

/// A whole vocabulary, whose sum of exponentials is long.
#[test]
fn raw_ones_of_a_whole_vocabulary_sum_to_one() {
    let logits = model_row(5, 151_936);
    let got = row(
        LogprobsMode::Raw,
        20,
        &logits,
        &logits,
        &sampling(0.5, 3, 0.5, 0.5),
    );
    let sum: f64 = (0..151_936)
        .map(|id| f64::from(got.of(id).logprob).exp())
        .sum();
    assert!((sum - 1.0).abs() < 1e-5, "{sum}");
    assert_eq!(got.of(0).top.len(), 20);
}
