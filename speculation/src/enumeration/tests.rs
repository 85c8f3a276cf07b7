//! The rules on random small models, and on the example of a paper.

use super::*;
use crate::DraftLaw;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// The generator of what depends on `seed` and the tokens so far.
fn local(seed: u64, path: &[TokenId]) -> StdRng {
    let hash = |sum: u64, id: &TokenId| sum.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ u64::from(id + 1);
    StdRng::seed_from_u64(path.iter().fold(seed, hash))
}

/// A law with impossible, unlikely and likely ids, sometimes with a single one.
fn random_law(rng: &mut StdRng, vocabulary: TokenId) -> Law {
    if rng.random_bool(0.15) {
        let certain = rng.random_range(0..vocabulary);
        return Law::of_weights(vec![(certain, 1.0)]).expect("a law");
    }
    let weights = (0..vocabulary).map(|id| match rng.random_range(0..6) {
        0 => (id, 0.0),
        1 => (id, rng.random_range(0.0..1e-6)),
        _ => (id, rng.random_range(0.0..1.0)),
    });
    let weights: Vec<_> = weights.collect();
    Law::of_weights(weights).unwrap_or_else(|| random_law(rng, vocabulary))
}

/// Where a draft's laws come from.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    /// Unrelated to the target's, on a support of its own.
    Unrelated,
    /// The target's, rounded.
    Rounded,
    /// The target's to the bit.
    Same,
    /// One token at a time.
    Certain,
}

fn random_draft(kind: Kind, rng: &mut StdRng, target: &Law, vocabulary: TokenId) -> DraftEntries {
    match kind {
        Kind::Unrelated => DraftLaw::quantize(&random_law(rng, vocabulary))
            .probabilities()
            .collect(),
        Kind::Rounded => DraftLaw::quantize(target).probabilities().collect(),
        Kind::Same => target.entries().to_vec(),
        Kind::Certain => DraftLaw::certain(rng.random_range(0..vocabulary))
            .probabilities()
            .collect(),
    }
}

const KINDS: [Kind; 4] = [Kind::Unrelated, Kind::Rounded, Kind::Same, Kind::Certain];

/// Runs `check` on many pairs, with the length of the longest text, the kind of the draft, and what
/// tells the case.
fn for_random_pairs(mut check: impl FnMut(&Pair<'_>, usize, Kind, &str)) {
    for seed in 0..400 {
        let mut rng = StdRng::seed_from_u64(seed);
        let vocabulary = rng.random_range(1..=6);
        let most = if vocabulary > 4 { 3 } else { 4 };
        let k = rng.random_range(0..=most);
        let kind = KINDS[seed as usize % KINDS.len()];
        // Some proposals end after some of their own tokens.
        let stops = rng.random_bool(0.5);
        let target = |path: &[TokenId]| random_law(&mut local(seed, path), vocabulary);
        let draft = |path: &[TokenId]| {
            let mut rng = local(!seed, path);
            let ended = stops && path.last().is_some_and(|last| last % 3 == 0);
            if path.len() == k || ended {
                return Vec::new();
            }
            random_draft(kind, &mut rng, &target(path), vocabulary)
        };
        let pair = Pair {
            target: &target,
            draft: &draft,
        };
        let case = format!("seed {seed}: {vocabulary} ids, k {k}, {kind:?}, stops {stops}");
        check(&pair, k + 1, kind, &case);
    }
}

#[test]
fn the_committed_text_has_the_targets_law() {
    for_random_pairs(|pair, length, _, case| {
        for (rule, committed) in [("token", by_token(pair)), ("block", by_block(pair))] {
            let distance = committed.distance(pair.target, length);
            assert!(distance < 1e-12, "{rule}, {case}: off by {distance:e}");
        }
    });
}

#[test]
fn block_accepts_no_fewer_than_token_and_as_many_of_a_certain_draft() {
    let mut gain = 0.0_f64;
    for_random_pairs(|pair, _, kind, case| {
        let (token, block) = (by_token(pair).accepted(), by_block(pair).accepted());
        assert!(block >= token - 1e-12, "{case}: {block} under {token}");
        if kind == Kind::Certain {
            assert!(
                (block - token).abs() < 1e-12,
                "{case}: {block}, not {token}"
            );
        }
        gain = gain.max(block - token);
    });
    assert!(gain > 0.1, "at most {gain} more");
}

#[test]
fn a_greedy_target_accepts_as_many_under_both_rules() {
    for seed in 0..50 {
        let target = |path: &[TokenId]| {
            let choice = local(seed, path).random_range(0..4);
            Law::of_weights(vec![(choice, 1.0)]).expect("a law")
        };
        let draft = |path: &[TokenId]| {
            let mut rng = local(!seed, path);
            let ended = path.len() == 4;
            let kind = KINDS[rng.random_range(0..KINDS.len())];
            let law = random_draft(kind, &mut rng, &target(path), 4);
            if ended { Vec::new() } else { law }
        };
        let pair = Pair {
            target: &target,
            draft: &draft,
        };
        let (token, block) = (by_token(&pair).accepted(), by_block(&pair).accepted());
        assert!(
            (block - token).abs() < 1e-12,
            "seed {seed}: {block}, not {token}"
        );
    }
}

/// The example of the paper on block verification (Sun et al. 2024), in thirds as near as `f64` is.
#[test]
fn the_papers_example_accepts_as_many_as_the_paper_says() {
    let target = |_: &[TokenId]| Law::of_weights(vec![(0, 1.0), (1, 2.0)]).expect("a law");
    let draft = |path: &[TokenId]| match path.len() {
        2 => Vec::new(),
        _ => vec![(0, 2.0 / 3.0), (1, 1.0 / 3.0)],
    };
    let pair = Pair {
        target: &target,
        draft: &draft,
    };
    let (token, block) = (by_token(&pair).accepted(), by_block(&pair).accepted());
    assert!((token - 10.0 / 9.0).abs() < 1e-15, "token: {token}");
    assert!((block - 11.0 / 9.0).abs() < 1e-15, "block: {block}");
}

/// One token without its law in it: the verdict is on what the target allows all the same.
#[test]
fn a_token_that_the_drafts_law_excludes_is_worth_nothing() {
    let p = Law::of_weights(vec![(0, 1.0), (2, 1.0)]).expect("a law");
    let q = [(0, 0.5), (3, 0.5)];
    let node = Node {
        p: &p,
        q: &q,
        ratio: 1.0,
    };
    for (token, ratio) in [(0, 1.0), (1, 0.0), (2, 0.0), (3, 0.0)] {
        assert_eq!(node.ratio_after(token), ratio, "token {token}");
    }
}
