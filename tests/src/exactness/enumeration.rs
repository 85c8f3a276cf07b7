//! The arithmetic of the rules that compare probabilities, without chance: all drafted paths and all
//! outcomes of small random models, added up, against the target's law.

use super::table::Line;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use speculation::enumeration::{Committed, DraftEntries, Pair, by_block, by_token};
use speculation::{DraftLaw, Law, Sampling, SamplingOptions, TokenId};

/// How many pairs of models are added up.
const PAIRS: u64 = 400;

/// What a rule commits.
type Rule = fn(&Pair<'_>) -> Committed;

/// A line for each rule, with the largest error over all texts of all pairs.
pub fn lines(seed: u64) -> Vec<Line> {
    let rules: [(&str, Rule); 2] = [("token", by_token), ("block", by_block)];
    rules
        .map(|(name, rule)| {
            let errors = (0..PAIRS).map(|number| error(rule, seed.wrapping_add(number)));
            Line::enumeration(name, PAIRS, errors.fold(0.0, f64::max))
        })
        .into()
}

/// The largest error of `rule` over the texts of one random pair. The vocabulary has up to 6 tokens,
/// proposals up to 4; every second pair has some that end by their own tokens.
fn error(rule: Rule, seed: u64) -> f64 {
    let mut rng = StdRng::seed_from_u64(seed);
    let vocabulary = rng.random_range(1..=6);
    let longest = rng.random_range(0..=if vocabulary > 4 { 3 } else { 4 });
    let stops = rng.random_bool(0.5);
    let target = |path: &[TokenId]| random_law(&mut local(seed, path), vocabulary);
    let draft = |path: &[TokenId]| -> DraftEntries {
        let ended = stops && path.last().is_some_and(|last| last % 3 == 0);
        if path.len() == longest || ended {
            return Vec::new();
        }
        let mut rng = local(!seed, path);
        // Mostly unrelated to the target's law, sometimes close to it.
        let law = if rng.random_bool(0.3) {
            target(path)
        } else {
            random_law(&mut rng, vocabulary)
        };
        DraftLaw::quantize(&law).probabilities().collect()
    };
    let pair = Pair {
        target: &target,
        draft: &draft,
    };
    rule(&pair).distance(&target, longest + 1)
}

/// The generator of what depends on `seed` and the tokens so far.
fn local(seed: u64, path: &[TokenId]) -> StdRng {
    let hash = |sum: u64, id: &TokenId| sum.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ u64::from(id + 1);
    StdRng::seed_from_u64(path.iter().fold(seed, hash))
}

/// A law with impossible, unlikely and likely tokens; of one token alone where chance will have it.
fn random_law(rng: &mut StdRng, vocabulary: TokenId) -> Law {
    let logits: Vec<f32> = (0..vocabulary)
        .map(|_| match rng.random_range(0..6) {
            0 => f32::NEG_INFINITY,
            1 => -20.0,
            _ => rng.random_range(-3.0..3.0),
        })
        .collect();
    let sampling = Sampling::new(SamplingOptions::default()).expect("the defaults are valid");
    Law::new(&logits, &sampling)
}
