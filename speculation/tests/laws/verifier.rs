//! What a caller of the verifier relies on, whatever the rows and the proposals.

use crate::reference::{any_sampling, odd_row, sampling};
use proptest::prelude::*;
use speculation::{DraftLaw, Law, NoiseKey, Rule, Sampler, TokenId, Verifier};

const RULES: [Rule; 3] = [Rule::Coupled, Rule::Token, Rule::Block];

fn sampler(temperature: f32, seed: u64) -> Sampler {
    let sampling = sampling(temperature, 0, 1.0, 0.0);
    Sampler {
        sampling,
        key: NoiseKey::from_seed(seed),
    }
}

fn law(entries: &[(TokenId, u32)]) -> DraftLaw {
    DraftLaw::from_entries(entries.to_vec()).expect("a law")
}

fn any_rule() -> impl Strategy<Value = Rule> {
    prop::sample::select(&RULES[..])
}

/// Laws on a few ids, of which some are no tokens of the rows.
fn any_law() -> impl Strategy<Value = DraftLaw> {
    let id = prop_oneof![4 => 0_u32..8, 1 => any::<u32>()];
    (
        prop::collection::btree_set(id, 1..6),
        prop::collection::vec(1_u32..10_000, 5),
    )
        .prop_map(|(ids, counts)| {
            let mut entries: Vec<_> = ids.into_iter().zip(counts).collect();
            let rest: u32 = entries[1..].iter().map(|entry| entry.1).sum();
            entries[0].1 = 65_536 - rest;
            law(&entries)
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// With tokens that were not drawn from their laws too, as of a draft that is wrong.
    #[test]
    fn every_proposal_has_a_verdict_that_the_target_allows(
        rule in any_rule(),
        rows in prop::collection::vec(odd_row(), 5),
        sampling in any_sampling(),
        drafted in prop::collection::vec((any_law(), 0_u32..8, any::<bool>(), 0_f64..1.0), 0..5),
        seed: u64,
        base in 0_u64..1000,
        certain: bool,
    ) {
        let token = |(law, other, honest, u): &(DraftLaw, TokenId, bool, f64)| {
            if *honest { law.draw(*u) } else { *other }
        };
        let draft: Vec<_> = drafted.iter().map(token).collect();
        let laws = drafted.into_iter().map(|entry| entry.0).filter(|_| !certain).collect();
        let sampler = Sampler { sampling, key: NoiseKey::from_seed(seed) };
        let mut verifier = Verifier::new(rule, sampler, base, draft.clone(), laws);
        let mut offered = Vec::new();
        for (index, row) in rows[..=draft.len()].iter().enumerate() {
            if verifier.is_settled() {
                break;
            }
            prop_assert_eq!(verifier.verdict(), None);
            prop_assert_eq!(verifier.drafted(), draft.get(index).copied());
            offered.push(verifier.read(row));
        }
        prop_assert!(verifier.is_settled());
        let verdict = verifier.verdict().expect("settled");
        let committed = draft[..verdict.accepted].iter().copied().chain([verdict.next]);
        for (token, row) in committed.zip(&rows) {
            prop_assert!(Law::new(row, &sampling).probability(token) > 0.0, "token {}", token);
        }
        prop_assert_eq!(offered[verdict.accepted], Some(verdict.next));
        prop_assert!(offered[verdict.accepted + 1..].iter().all(Option::is_none));
        // What comes after is of no interest.
        for row in &rows {
            prop_assert_eq!(verifier.read(row), None);
            prop_assert_eq!(verifier.verdict(), Some(verdict));
        }
    }
}

#[test]
fn a_token_that_the_target_excludes_settles_the_verdict() {
    let row = [0.0, f32::NEG_INFINITY, 0.0, 1.0];
    for rule in RULES {
        for impossible in [1, 4, u32::MAX] {
            for seed in 0..100 {
                let laws = vec![
                    law(&[(0, 60_000), (impossible, 5536)]),
                    DraftLaw::certain(2),
                ];
                let mut verifier =
                    Verifier::new(rule, sampler(1.0, seed), 9, vec![impossible, 2], laws);
                verifier.read(&row);
                let verdict = verifier.verdict().expect("settled by the first row");
                assert_eq!(
                    verdict.accepted, 0,
                    "{rule:?}, token {impossible}, seed {seed}"
                );
                assert!([0, 2, 3].contains(&verdict.next), "{rule:?}: {verdict:?}");
            }
        }
    }
}

/// A draft that claims never to have drawn its tokens gets none accepted, whatever the target says.
#[test]
fn a_token_outside_its_own_law_is_rejected() {
    for rule in [Rule::Token, Rule::Block] {
        for (row, next) in [
            ([9.0, 0.0], 0),
            ([f32::NEG_INFINITY, 0.0], 1),
            ([0.0, f32::NEG_INFINITY], 0),
        ] {
            for drafted in 0..2 {
                let laws = vec![DraftLaw::certain(1 - drafted)];
                let mut verifier = Verifier::new(rule, sampler(0.0, 1), 5, vec![drafted], laws);
                verifier.read(&row);
                let verdict = verifier.verdict().expect("settled");
                assert_eq!(
                    (verdict.accepted, verdict.next),
                    (0, next),
                    "{rule:?}, {row:?}, {drafted}"
                );
            }
        }
    }
}

/// Block verification may take back what it once was about to reject.
#[test]
fn a_block_is_judged_by_its_last_row_that_passes() {
    // The target is surer of the second token than the draft was, which makes up for the first.
    let rows = [[0.5_f32, 0.5], [1.0, 0.0], [0.5, 0.5]].map(|row| row.map(f32::ln));
    let mut revised = 0;
    for seed in 0..200 {
        let laws = vec![DraftLaw::certain(0), law(&[(0, 32_768), (1, 32_768)])];
        let mut verifier = Verifier::new(Rule::Block, sampler(1.0, seed), 5, vec![0, 0], laws);
        let offered = rows.map(|row| verifier.read(&row));
        let verdict = verifier.verdict().expect("settled");
        assert_eq!(verdict.accepted, 2, "r is 1/2 and then 1");
        revised += usize::from(offered[0].is_some());
    }
    assert_eq!(
        revised, 200,
        "the first row always has an answer of its own"
    );
}

#[test]
#[should_panic(expected = "one law per drafted token")]
fn laws_that_do_not_fit_the_proposal_are_refused() {
    Verifier::new(
        Rule::Token,
        sampler(1.0, 1),
        5,
        vec![1, 2],
        vec![DraftLaw::certain(1)],
    );
}
