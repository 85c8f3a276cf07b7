//! Laws that a draft declares: exact, few ids, near to what the draft thinks.

use crate::reference::{any_row, any_sampling, model_row, sampling};
use proptest::prelude::*;
use speculation::{DraftLaw, Law, MAX_SUPPORT, TOTAL_COUNT, TokenId};
use std::collections::HashMap;

fn variation(law: &Law, rounded: &DraftLaw) -> f64 {
    let missing = |(id, p): &(TokenId, f64)| (p - rounded.probability(*id)).max(0.0);
    law.entries().iter().map(missing).sum()
}

/// How often each id is drawn, over all that a variable can mean to the law.
fn drawn(law: &DraftLaw) -> HashMap<TokenId, u32> {
    let mut counts = HashMap::new();
    for cell in 0..TOTAL_COUNT {
        let uniform = (f64::from(cell) + 0.5) / f64::from(TOTAL_COUNT);
        *counts.entry(law.draw(uniform)).or_default() += 1;
    }
    counts
}

proptest! {
    /// Counts may differ by what rounding does to the last bit of a quotient.
    #[test]
    fn a_row_has_the_rounded_law_of_its_law(logits in any_row(), sampling in any_sampling()) {
        let expected = DraftLaw::quantize(&Law::new(&logits, &sampling));
        let direct = DraftLaw::of_logits(&logits, &sampling);
        let ids = |law: &DraftLaw| law.entries().iter().map(|entry| entry.0).collect::<Vec<_>>();
        prop_assert_eq!(ids(&direct), ids(&expected));
        for (direct, expected) in direct.entries().iter().zip(expected.entries()) {
            prop_assert!(direct.1.abs_diff(expected.1) <= 1, "{:?} for {:?}", direct, expected);
        }
    }

    #[test]
    fn a_law_is_rounded_to_few_ids_that_are_its_likeliest(
        logits in any_row(),
        sampling in any_sampling(),
    ) {
        let law = Law::new(&logits, &sampling);
        let rounded = DraftLaw::quantize(&law);
        let entries = rounded.entries();
        prop_assert!(DraftLaw::from_entries(entries.to_vec()) == Ok(rounded.clone()));
        prop_assert!(entries.len() <= MAX_SUPPORT);
        let mut likeliest = law.entries().to_vec();
        likeliest.sort_by(|a, b| b.1.total_cmp(&a.1));
        likeliest.truncate(entries.len());
        let mass: f64 = likeliest.iter().map(|entry| entry.1).sum();
        let least = likeliest.last().map_or(0.0, |entry| entry.1);
        prop_assert!(likeliest.iter().all(|(id, _)| rounded.probability(*id) > 0.0));
        // As few as have the mass, and the mass unless there are too many.
        prop_assert!(mass - least < 0.995);
        prop_assert!(mass >= 0.995 || entries.len() == MAX_SUPPORT.min(law.entries().len()));
        for (id, p) in likeliest {
            let error = (rounded.probability(id) - p / mass).abs() * f64::from(TOTAL_COUNT);
            prop_assert!(error < MAX_SUPPORT as f64 + 1.0, "id {}: off by {} counts", id, error);
        }
        let bound = 1.0 - mass + MAX_SUPPORT as f64 / f64::from(TOTAL_COUNT) + 1e-9;
        prop_assert!(variation(&law, &rounded) <= bound);
    }

    #[test]
    fn a_probability_is_its_count(logits in any_row(), id: TokenId) {
        let rounded = DraftLaw::quantize(&Law::new(&logits, &sampling(1.0, 0, 1.0, 0.0)));
        let total: f64 = rounded.probabilities().map(|(_, p)| p).sum();
        prop_assert_eq!(total, 1.0);
        for ((id, count), (same, p)) in rounded.entries().iter().zip(rounded.probabilities()) {
            prop_assert_eq!(*id, same);
            prop_assert_eq!(p, f64::from(*count) / 65_536.0);
            prop_assert_eq!(rounded.probability(*id), p);
        }
        if rounded.entries().iter().all(|entry| entry.0 != id) {
            prop_assert_eq!(rounded.probability(id), 0.0);
        }
    }
}

#[test]
fn tokens_are_drawn_as_often_as_the_counts_say() {
    for seed in 0..20 {
        let law = Law::new(&model_row(seed, 400), &sampling(0.8, 0, 1.0, 0.0));
        let rounded = DraftLaw::quantize(&law);
        let expected: HashMap<_, _> = rounded.entries().iter().copied().collect();
        assert_eq!(drawn(&rounded), expected, "seed {seed}");
    }
    let uneven = DraftLaw::from_entries(vec![(3, 1), (5, 65_534), (9, 1)]).expect("a law");
    assert_eq!(drawn(&uneven), HashMap::from([(3, 1), (5, 65_534), (9, 1)]));
    assert_eq!(uneven.draw(f64::MIN_POSITIVE), 3);
    assert_eq!(uneven.draw(1.0 - f64::EPSILON), 9);
}

#[test]
fn rounding_costs_little_of_a_law_with_few_ids() {
    let mut worst = 0.0_f64;
    for seed in 0..300 {
        let law = Law::new(
            &model_row(seed, 2000),
            &sampling(0.8, MAX_SUPPORT as u32, 0.95, 0.0),
        );
        worst = worst.max(variation(&law, &DraftLaw::quantize(&law)));
    }
    eprintln!("total variation: at most {worst:.5}");
    // The mass that is left out, and the rounding.
    assert!(worst < 0.0053, "{worst}");
}

#[test]
fn a_certain_token_is_always_drawn() {
    for token in [0, 7, u32::MAX] {
        let law = DraftLaw::certain(token);
        assert_eq!(law.entries(), [(token, TOTAL_COUNT)]);
        assert_eq!(law.probability(token), 1.0);
        assert_eq!(drawn(&law), HashMap::from([(token, TOTAL_COUNT)]));
    }
    let greedy = Law::new(&[1.0, 3.0, 2.0], &sampling(0.0, 0, 1.0, 0.0));
    assert_eq!(DraftLaw::quantize(&greedy), DraftLaw::certain(1));
}

#[test]
fn entries_that_are_no_law_are_refused() {
    let many = |ids: u32| {
        (0..ids)
            .map(|id| (id, TOTAL_COUNT / 64))
            .collect::<Vec<_>>()
    };
    for (wrong, why) in [
        (vec![], "add up"),
        (vec![(1, 65_535)], "add up"),
        (vec![(1, 65_537)], "add up"),
        (vec![(1, u32::MAX), (2, 65_537)], "add up"),
        (vec![(1, 65_536), (2, 0)], "over 0"),
        (vec![(2, 32_768), (1, 32_768)], "ascend"),
        (vec![(2, 32_768), (2, 32_768)], "ascend"),
        (many(65), "at most 64"),
    ] {
        let error = DraftLaw::from_entries(wrong.clone()).expect_err("no law");
        assert!(error.to_string().contains(why), "{wrong:?}: {error}");
    }
    assert!(DraftLaw::from_entries(many(64)).is_ok());
}
