//! Speculation changes no text.

use crate::reference::sampling;
use proptest::prelude::*;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use speculation::{NoiseKey, Rule, Sampler, TokenId, Verdict, Verifier, common_prefix};

const VOCABULARY: usize = 12;

/// A model of the previous two tokens; `bias` makes another of the same family.
fn logits(text: &[TokenId], model: u64, bias: f32) -> Vec<f32> {
    let context = text
        .iter()
        .rev()
        .take(2)
        .fold(0, |sum, id| sum * 31 + u64::from(*id));
    let mut own = StdRng::seed_from_u64(model ^ context);
    let mut shared = StdRng::seed_from_u64(context);
    (0..VOCABULARY)
        .map(|_| shared.random_range(-2.0..2.0) + bias * own.random_range(-1.0..1.0))
        .collect()
}

/// Decodes token by token from `text`.
fn decode(
    sampler: &Sampler,
    text: &[TokenId],
    count: usize,
    model: u64,
    bias: f32,
) -> Vec<TokenId> {
    let mut text = text.to_vec();
    let start = text.len();
    for _ in 0..count {
        let row = logits(&text, model, bias);
        text.push(sampler.choose(&row, text.len() as u64).token);
    }
    text.split_off(start)
}

/// What `rule` makes of a `draft` after `text`. Deterministic drafts: they need no laws.
fn verify(
    rule: Rule,
    sampler: &Sampler,
    text: &[TokenId],
    draft: &[TokenId],
    row: impl Fn(&[TokenId]) -> Vec<f32>,
) -> Verdict {
    let base = text.len() as u64;
    let mut verifier = Verifier::new(rule, *sampler, base, draft.to_vec(), Vec::new());
    for length in 0..=draft.len() {
        verifier.read(&row(&[text, &draft[..length]].concat()));
    }
    verifier.verdict().expect("all rows were read")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_text_is_the_targets_own_whatever_the_draft(
        seed: u64,
        temperature in prop_oneof![Just(0.0_f32), 0.2_f32..1.5],
        top_p in prop_oneof![Just(1.0_f32), 0.5_f32..1.0],
        bias in 0.0_f32..2.0,
        lengths in prop::collection::vec(0_usize..6, 20),
    ) {
        let sampler = Sampler {
            sampling: sampling(temperature, 0, top_p, 0.0),
            key: NoiseKey::from_seed(seed),
        };
        let mut text = vec![1, 2, 3];
        for k in lengths {
            let draft = decode(&sampler, &text, k, seed.wrapping_add(1), bias);
            let row = |text: &[TokenId]| logits(text, seed, bias);
            let verdict = verify(Rule::Coupled, &sampler, &text, &draft, row);
            prop_assert_ne!(draft.get(verdict.accepted), Some(&verdict.next));
            text.extend(&draft[..verdict.accepted]);
            text.push(verdict.next);
        }
        let plain = decode(&sampler, &[1, 2, 3], text.len() - 3, seed, bias);
        prop_assert_eq!(&text[3..], plain);
    }

    #[test]
    fn an_equal_draft_is_accepted_whole(seed: u64, temperature in 0.0_f32..1.5, k in 0_usize..6) {
        let sampler = Sampler {
            sampling: sampling(temperature, 0, 1.0, 0.0),
            key: NoiseKey::from_seed(seed),
        };
        let choices = decode(&sampler, &[1], k + 1, seed, 1.0);
        let row = |text: &[TokenId]| logits(text, seed, 1.0);
        let verdict = verify(Rule::Coupled, &sampler, &[1], &choices[..k], row);
        prop_assert_eq!((verdict.accepted, verdict.next), (k, choices[k]));
    }

    #[test]
    fn at_temperature_0_every_rule_writes_the_greedy_text(
        seed: u64,
        k in 0_usize..6,
        bias in 0.0_f32..1.0,
    ) {
        let sampler = Sampler {
            sampling: sampling(0.0, 0, 1.0, 0.0),
            key: NoiseKey::from_seed(seed),
        };
        let draft = decode(&sampler, &[1], k, seed.wrapping_add(1), bias);
        let greedy = decode(&sampler, &[1], k + 1, seed, bias);
        let accepted = common_prefix(&draft, &greedy);
        for rule in [Rule::Coupled, Rule::Token, Rule::Block] {
            let verdict = verify(rule, &sampler, &[1], &draft, |text| logits(text, seed, bias));
            prop_assert_eq!((verdict.accepted, verdict.next), (accepted, greedy[accepted]));
        }
    }

    #[test]
    fn a_common_prefix_ends_at_the_first_difference(
        a in prop::collection::vec(0_u32..3, 0..8),
        b in prop::collection::vec(0_u32..3, 0..8),
    ) {
        let length = common_prefix(&a, &b);
        prop_assert_eq!(&a[..length], &b[..length]);
        prop_assert!(a.get(length).is_none() || a.get(length) != b.get(length));
        prop_assert_eq!(common_prefix(&b, &a), length);
    }
}
