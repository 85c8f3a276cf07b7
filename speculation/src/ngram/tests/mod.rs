mod histories;

use super::automaton::Automaton;
use super::*;
use proptest::prelude::*;
use rand::SeedableRng as _;
use rand::rngs::StdRng;

fn automaton(text: &[TokenId]) -> Automaton {
    let mut automaton = Automaton::new();
    for token in text {
        automaton.push(*token);
    }
    automaton
}

/// How often `string` occurs in `text` with `next` after it; with anything after it where that is none.
fn followed(text: &[TokenId], string: &[TokenId], next: Option<TokenId>) -> usize {
    let windows = text.windows(string.len() + 1);
    windows
        .filter(|window| {
            let (last, first) = window.split_last().unwrap();
            first == string && next.is_none_or(|next| next == *last)
        })
        .count()
}

/// The length of the longest suffix of the text that occurred before its end.
fn longest_repeated(text: &[TokenId]) -> usize {
    (0..text.len())
        .rev()
        .find(|len| followed(text, &text[text.len() - len..], None) > 0)
        .unwrap_or(0)
}

/// Texts of few different tokens.
fn texts(len: usize) -> impl Strategy<Value = Vec<TokenId>> {
    (1..5_u32).prop_flat_map(move |alphabet| proptest::collection::vec(0..alphabet, 1..len))
}

proptest! {
    #[test]
    fn the_longest_suffix_that_occurred_before_is_at_hand(text in texts(120)) {
        let mut automaton = Automaton::new();
        for (len, token) in (1..).zip(&text) {
            automaton.push(*token);
            prop_assert_eq!(automaton.repeated().len(), longest_repeated(&text[..len]));
        }
    }

    #[test]
    fn every_step_has_followed_its_context_before(text in texts(120)) {
        let automaton = automaton(&text);
        let mut ahead = text.clone();
        for step in automaton.steps(automaton.repeated()).take(16) {
            let context = &ahead[ahead.len() - step.context..];
            prop_assert!(followed(&text, context, Some(step.token)) > 0, "{:?} after {:?}", step, ahead);
            ahead.push(step.token);
        }
    }

    /// Short texts, whose tokens have no more contexts than are counted.
    #[test]
    fn what_followed_most_often_is_proposed(text in texts(16)) {
        let automaton = automaton(&text);
        let place = automaton.repeated();
        if let Some(step) = automaton.steps(place).next() {
            let context = &text[text.len() - place.len()..];
            let most = (0..5).map(|token| followed(&text, context, Some(token))).max();
            prop_assert_eq!(Some(followed(&text, context, Some(step.token))), most);
            prop_assert_eq!(step.count as usize, most.unwrap());
            prop_assert_eq!(step.total as usize, followed(&text, context, None));
        }
    }

    #[test]
    fn any_string_is_found_by_its_longest_suffix(text in texts(60), string in texts(20)) {
        let found = automaton(&text).find(&string).len();
        let occurs = |len: usize| {
            let suffix = &string[string.len() - len..];
            len == 0 || text.windows(len).any(|window| window == suffix)
        };
        prop_assert_eq!(Some(found), (0..=string.len()).rev().find(|len| occurs(*len)));
    }
}

#[test]
fn a_push_costs_the_same_whatever_the_text() {
    let len = 20_000;
    let mut rng = StdRng::seed_from_u64(1);
    let mut fibonacci = (vec![0], vec![0, 1]);
    while fibonacci.1.len() < len {
        let next = [fibonacci.1.clone(), fibonacci.0].concat();
        fibonacci = (fibonacci.1, next);
    }
    let texts = [
        ("one token", vec![7; len]),
        ("all different", (0..len as TokenId).collect()),
        ("coins", (0..len).map(|_| rng.random_range(0..2)).collect()),
        (
            "words",
            (0..len).map(|_| rng.random_range(0..300)).collect(),
        ),
        ("fibonacci", fibonacci.1[..len].to_vec()),
        (
            "a block again and again",
            (0..len).map(|i| (i % 97) as TokenId).collect(),
        ),
        (
            "run and break",
            (0..len).map(|i| TokenId::from(i % 1000 == 999)).collect(),
        ),
    ];
    for (name, text) in texts {
        let automaton = automaton(&text);
        let per_token = automaton.work as f64 / len as f64;
        println!(
            "{name}: {per_token:.1} steps, {:.0} bytes per token",
            automaton.bytes() as f64 / len as f64
        );
        assert!(per_token < 25.0, "{name}: {per_token} steps per token");
    }
}

#[test]
fn a_copy_is_proposed_as_it_goes_on_and_ever_surer() {
    let mut rng = StdRng::seed_from_u64(2);
    let file: Vec<TokenId> = (0..300).map(|_| rng.random_range(0..150)).collect();
    let mut text = Suffixes::new();
    text.extend(&file);
    text.extend(&[1000, 1001]);
    let mut last = 0.0;
    for (at, token) in file[..200].iter().enumerate() {
        text.push(*token);
        if at < 4 {
            continue;
        }
        let draft = text.propose(16).expect("a copy is under way");
        let next = &file[at + 1..at + 17];
        assert!(next.starts_with(&draft.ids), "after {at}: {draft:?}");
        if [10, 50, 199].contains(&at) {
            assert!(draft.survival[15] > last, "after {at}: {draft:?}");
            last = draft.survival[15];
        }
    }
    assert!(last > 0.8, "{last}");
}

#[test]
fn a_text_that_never_goes_on_as_before_soon_proposes_little() {
    let mut text = Suffixes::new();
    text.extend(&[1, 2, 3, 0, 1, 2, 3]);
    let before = text.propose(1).unwrap().survival[0];
    for next in 100..130 {
        text.push(next);
        for token in [1, 2, 3] {
            text.push(token);
        }
    }
    // What follows 1 2 3 is new each time; that of 1 and of 1 2 is not.
    assert!(text.propose(1).is_none(), "{:?}", text.propose(1));

    let mut misled = Suffixes::new();
    misled.extend(&[1, 2, 3, 0]);
    let mut rng = StdRng::seed_from_u64(3);
    let block: Vec<TokenId> = (0..400).map(|_| rng.random_range(0..1000)).collect();
    misled.extend(&block);
    // Every second token is not the block's.
    for (at, token) in block.iter().enumerate() {
        misled.push(if at % 4 == 3 {
            5000 + at as TokenId
        } else {
            *token
        });
    }
    misled.extend(&[1, 2, 3]);
    let after = misled.propose(1).unwrap().survival[0];
    assert!(after < before, "{after} is not below {before}");
}

#[test]
fn survival_falls_from_slot_to_slot_and_ends_where_it_is_worth_nothing() {
    let mut rng = StdRng::seed_from_u64(4);
    let tokens: Vec<TokenId> = (0..2000).map(|_| rng.random_range(0..3)).collect();
    let mut text = Suffixes::new();
    for token in tokens {
        text.push(token);
        let Some(draft) = text.propose(16) else {
            continue;
        };
        assert_eq!(draft.ids.len(), draft.survival.len());
        assert!(draft.survival.is_sorted_by(|a, b| a > b), "{draft:?}");
        assert!(
            draft
                .survival
                .iter()
                .all(|s| (LEAST_SURVIVAL..1.0).contains(s)),
            "{draft:?}"
        );
        // A coin of three sides cannot be foreseen.
        assert!(draft.survival.iter().sum::<f64>() < 4.0, "{draft:?}");
    }
}

#[test]
fn an_empty_text_and_a_new_one_propose_nothing() {
    let mut text = Suffixes::new();
    assert_eq!(text.propose(16), None);
    for token in 0..100 {
        text.push(token);
        assert_eq!(text.propose(16), None);
    }
    text.push(50);
    assert_eq!(text.propose(0), None);
    assert_eq!(text.propose(16).unwrap().ids[0], 51);
}
