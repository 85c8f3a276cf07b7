//! The draft's probabilities, calibrated.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use speculation::control::Confidence;

/// Learns from tokens whose acceptance is `truth` of what the draft says.
fn learned(seed: u64, rounds: usize, truth: impl Fn(f64) -> f64) -> Confidence {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut confidence = Confidence::new();
    for _ in 0..rounds {
        let said: Vec<u8> = (0..4).map(|_| rng.random()).collect();
        let accepted = said
            .iter()
            .take_while(|said| rng.random_bool(truth(f64::from(**said) / 255.0)))
            .count();
        confidence.observe(&said, accepted, said.len());
    }
    confidence
}

#[test]
fn a_draft_is_taken_at_its_word_at_first() {
    let confidence = Confidence::new();
    for said in [30_u8, 128, 200, 240] {
        let acceptance = confidence.acceptance(said);
        assert!(
            (acceptance - f64::from(said) / 255.0).abs() < 0.02,
            "{said}: {acceptance}"
        );
    }
    let survival = confidence.survival(&[200, 200]);
    assert!((survival[1] - survival[0] * survival[0]).abs() < 1e-9);
    assert!(confidence.survival(&[]).is_empty());
}

#[test]
fn it_learns_how_much_a_word_is_worth() {
    let modest = learned(1, 4000, |said| said.sqrt());
    let boastful = learned(2, 4000, |said| said * said);
    for said in [60_u8, 128, 200] {
        let p = f64::from(said) / 255.0;
        assert!(
            (modest.acceptance(said) - p.sqrt()).abs() < 0.09,
            "{said}: {}",
            modest.acceptance(said)
        );
        assert!(
            (boastful.acceptance(said) - p * p).abs() < 0.09,
            "{said}: {}",
            boastful.acceptance(said)
        );
    }
}

#[test]
fn more_confidence_is_never_worth_less() {
    for seed in 0..20 {
        let confidence = learned(seed, 30, |_| 0.5);
        let all: Vec<f64> = (0..=255).map(|said| confidence.acceptance(said)).collect();
        assert!(all.is_sorted(), "seed {seed}");
        assert!(all.iter().all(|p| (0.0..=1.0).contains(p)), "seed {seed}");
    }
}

#[test]
fn tokens_that_were_not_verified_say_nothing() {
    let mut confidence = Confidence::new();
    for _ in 0..500 {
        confidence.observe(&[250, 100, 100], 1, 1);
        confidence.observe(&[250, 100], 0, 2);
    }
    assert!((confidence.acceptance(100) - 100.0 / 255.0).abs() < 0.02);
    confidence.observe(&[1], 7, 9);
}

#[test]
fn drafting_ends_where_a_token_costs_more_than_it_brings() {
    let confidence = Confidence::new();
    // At 80 tokens per second a step of 2.5 ms stands for .2 tokens.
    let least = confidence.min_confidence(80.0, 0.0025, 1.0);
    assert!((least - 0.2).abs() < 0.03, "{least}");
    // After tokens that are accepted half of the time, the next is worth half.
    let later = confidence.min_confidence(80.0, 0.0025, 0.5);
    assert!((later - 0.4).abs() < 0.03, "{later}");
    assert_eq!(confidence.min_confidence(80.0, 0.0, 1.0), 0.0);
    assert_eq!(confidence.min_confidence(0.0, 0.0025, 1.0), 0.0);
    assert_eq!(confidence.min_confidence(1000.0, 0.0025, 1.0), 1.0);
    assert_eq!(confidence.min_confidence(f64::NAN, 0.0025, 1.0), 0.0);
}
