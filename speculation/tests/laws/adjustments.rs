//! Adjustments against their definition, id by id.

use crate::reference::{model_row, odd_row};
use proptest::prelude::*;
use speculation::{AdjustmentOptions, Adjustments, TokenId};
use std::collections::BTreeMap;

/// The adjusted logit of `id`, by definition.
fn adjusted(options: &AdjustmentOptions, tokens: &[TokenId], id: TokenId, mut logit: f32) -> f32 {
    let prompt_len = options.prompt_len.min(tokens.len());
    let window = match options.penalty_window {
        0 => tokens.len(),
        window => window.min(tokens.len()),
    };
    let start = tokens.len() - window;
    let seen = tokens[start..].contains(&id);
    let written = tokens[start.max(prompt_len)..]
        .iter()
        .filter(|token| **token == id)
        .count();
    if seen {
        let penalty = options.repetition_penalty;
        logit = if logit > 0.0 {
            logit / penalty
        } else {
            logit * penalty
        };
    }
    if written > 0 {
        logit -= options.presence_penalty + options.frequency_penalty * written as f32;
    }
    logit += options.logit_bias.get(&id).copied().unwrap_or(0.0);
    if impossible(options, &tokens[prompt_len..], id) {
        f32::NEG_INFINITY
    } else {
        logit
    }
}

fn impossible(options: &AdjustmentOptions, output: &[TokenId], id: TokenId) -> bool {
    let completes = |word: &Vec<TokenId>| {
        let text = [output, &[id]].concat();
        !word.is_empty() && text.len() >= word.len() && text[text.len() - word.len()..] == word[..]
    };
    (!options.allowed_tokens.is_empty() && !options.allowed_tokens.contains(&id))
        || options.banned_tokens.contains(&id)
        || (output.len() < options.min_tokens && options.end_tokens.contains(&id))
        || options.bad_words.iter().any(completes)
}

/// Ids that are often the same, and now and then no tokens at all.
fn ids(length: impl Into<prop::collection::SizeRange>) -> impl Strategy<Value = Vec<TokenId>> {
    let id = prop_oneof![20 => 0_u32..6, 2 => 0_u32..300, 1 => Just(u32::MAX), 1 => any::<u32>()];
    prop::collection::vec(id, length)
}

fn any_options() -> impl Strategy<Value = AdjustmentOptions> {
    let repetition = prop_oneof![Just(1.0), 0.5_f32..2.0, Just(100.0), Just(1e-45)];
    let penalty = || prop_oneof![Just(0.0), -2.0_f32..2.0];
    let bias = prop::collection::btree_map(0_u32..8, -100.0_f32..100.0, 0..4);
    (
        (
            repetition,
            penalty(),
            penalty(),
            prop_oneof![Just(0_usize), 1_usize..20],
        ),
        (bias, prop_oneof![Just(Vec::new()), ids(1..8)], ids(0..3)),
        (
            prop::collection::vec(ids(1..4), 0..4),
            0_usize..12,
            ids(0..3),
            0_usize..10,
        ),
    )
        .prop_map(
            |(penalties, masks, (bad_words, min_tokens, end_tokens, prompt_len))| {
                let (repetition_penalty, presence_penalty, frequency_penalty, penalty_window) =
                    penalties;
                let (logit_bias, allowed_tokens, banned_tokens) = masks;
                AdjustmentOptions {
                    repetition_penalty,
                    presence_penalty,
                    frequency_penalty,
                    penalty_window,
                    logit_bias,
                    allowed_tokens,
                    banned_tokens,
                    bad_words,
                    min_tokens,
                    end_tokens,
                    prompt_len,
                }
            },
        )
}

fn any_row() -> impl Strategy<Value = Vec<f32>> {
    prop_oneof![
        odd_row(),
        (any::<u64>(), 1_usize..300).prop_map(|(seed, length)| model_row(seed, length))
    ]
}

/// Bits, with one NaN and one zero.
fn bits(logit: f32) -> u32 {
    if logit.is_nan() {
        f32::NAN.to_bits()
    } else {
        (logit + 0.0).to_bits()
    }
}

fn apply(options: AdjustmentOptions, tokens: &[TokenId], logits: &[f32]) -> Vec<f32> {
    let mut logits = logits.to_vec();
    Adjustments::new(options)
        .expect("valid options")
        .apply(tokens, &mut logits);
    logits
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn adjustments_are_their_definition(
        options in any_options(),
        tokens in ids(0..24),
        row in any_row(),
    ) {
        let got = apply(options.clone(), &tokens, &row);
        for (id, (got, logit)) in (0..).zip(got.iter().zip(&row)) {
            let expected = adjusted(&options, &tokens, id, *logit);
            prop_assert_eq!(bits(*got), bits(expected), "id {}: {} is not {}", id, got, expected);
        }
    }

    #[test]
    fn what_changes_nothing_says_so(
        options in any_options(),
        tokens in ids(0..24),
        row in any_row(),
    ) {
        let adjustments = Adjustments::new(options.clone()).expect("valid options");
        if adjustments.are_none() {
            let got = apply(options, &tokens, &row);
            prop_assert!(got.iter().zip(&row).all(|(a, b)| a.to_bits() == b.to_bits()));
        }
    }
}

#[test]
fn no_adjustment_is_the_default() {
    let none = |change: fn(&mut AdjustmentOptions)| {
        let mut options = AdjustmentOptions::default();
        change(&mut options);
        Adjustments::new(options).expect("valid options").are_none()
    };
    assert!(none(|_| ()));
    // Neither of these does anything alone.
    assert!(none(|o| (o.penalty_window, o.prompt_len) = (5, 7)));
    assert!(none(|o| o.min_tokens = 3));
    assert!(none(|o| o.end_tokens = vec![1]));
    assert!(!none(|o| (o.min_tokens, o.end_tokens) = (3, vec![1])));
    assert!(!none(|o| o.repetition_penalty = 1.1));
    assert!(!none(|o| o.presence_penalty = -0.1));
    assert!(!none(|o| o.frequency_penalty = 0.1));
    assert!(!none(|o| o.logit_bias = BTreeMap::from([(1, 1.0)])));
    assert!(!none(|o| o.allowed_tokens = vec![1]));
    assert!(!none(|o| o.banned_tokens = vec![1]));
    assert!(!none(|o| o.bad_words = vec![vec![1]]));
}

#[test]
fn penalties_and_bias_are_the_numbers_that_the_protocol_names() {
    // 0 is in the prompt, 1 in the output once, 2 in both and twice in the output.
    let tokens = [0, 2, 1, 2, 2];
    let options = AdjustmentOptions {
        repetition_penalty: 2.0,
        presence_penalty: 0.5,
        frequency_penalty: 0.25,
        logit_bias: BTreeMap::from([(2, 10.0), (3, -1.0)]),
        prompt_len: 2,
        ..AdjustmentOptions::default()
    };
    assert_eq!(
        apply(options.clone(), &tokens, &[4.0; 4]),
        [2.0, 1.25, 11.0, 3.0]
    );
    assert_eq!(
        apply(options.clone(), &tokens, &[-4.0; 4]),
        [-8.0, -8.75, 1.0, -5.0]
    );
    // Two tokens back, all of which is output.
    let options = AdjustmentOptions {
        penalty_window: 2,
        ..options
    };
    assert_eq!(apply(options, &tokens, &[4.0; 4]), [4.0, 4.0, 11.0, 3.0]);
}

#[test]
fn the_end_is_possible_from_the_least_length_on() {
    let options = AdjustmentOptions {
        min_tokens: 2,
        end_tokens: vec![1],
        prompt_len: 3,
        ..AdjustmentOptions::default()
    };
    for (length, possible) in [(0, false), (3, false), (4, false), (5, true), (6, true)] {
        let row = apply(options.clone(), &vec![0; length], &[0.0, 0.0]);
        assert_eq!(row[1] == 0.0, possible, "after {length} tokens");
    }
}

#[test]
fn a_bad_word_is_one_of_the_output_alone() {
    let options = AdjustmentOptions {
        bad_words: vec![vec![1, 2, 3], vec![4]],
        prompt_len: 2,
        ..AdjustmentOptions::default()
    };
    let possible = |tokens: &[TokenId]| {
        let row = apply(options.clone(), tokens, &[0.0; 5]);
        assert_eq!(row[4], f32::NEG_INFINITY, "a word of one token");
        row[3] == 0.0
    };
    assert!(!possible(&[0, 0, 1, 2]));
    assert!(!possible(&[0, 0, 1, 2, 1, 2]));
    assert!(possible(&[1, 2]), "the word begins in the prompt");
    assert!(possible(&[0, 1, 2]), "the word begins in the prompt");
    assert!(possible(&[0, 0, 1, 2, 0]));
}

#[test]
fn numbers_out_of_range_are_refused_by_name() {
    let refused = |field: &str, values: &[f32], set: fn(&mut AdjustmentOptions, f32)| {
        let not_numbers = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY];
        for value in values.iter().chain(&not_numbers) {
            let mut options = AdjustmentOptions::default();
            set(&mut options, *value);
            let error = Adjustments::new(options).expect_err("out of range");
            assert_eq!(
                (error.field, error.value.to_bits()),
                (field, value.to_bits())
            );
        }
    };
    refused("repetition_penalty", &[0.0, -1.0, 100.1], |o, value| {
        o.repetition_penalty = value
    });
    refused("presence_penalty", &[-2.1, 2.1], |o, value| {
        o.presence_penalty = value
    });
    refused("frequency_penalty", &[-2.1, 2.1], |o, value| {
        o.frequency_penalty = value
    });
    refused("logit_bias", &[-100.1, 100.1], |o, value| {
        o.logit_bias = BTreeMap::from([(1, 0.0), (7, value)]);
    });
}
