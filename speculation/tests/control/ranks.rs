//! Where the target's token is among the draft's candidates.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use speculation::control::{Acceptance, Ranks};

#[test]
fn it_starts_as_the_real_pair_was_measured() {
    let ranks = Ranks::new();
    for (width, rejected, accepted) in [
        (1, 0.40, 0.73),
        (2, 0.55, 0.84),
        (4, 0.70, 0.90),
        (8, 0.81, 0.94),
    ] {
        assert!(
            (ranks.after_rejection(width) - rejected).abs() < 1e-9,
            "{width}"
        );
        assert!(
            (ranks.after_acceptance(width) - accepted).abs() < 1e-9,
            "{width}"
        );
    }
    let between = ranks.after_rejection(3);
    assert!((0.55..0.70).contains(&between), "{between}");
    assert_eq!(ranks.after_rejection(0), 0.0);
}

#[test]
fn it_learns_from_outcomes_whatever_was_followed() {
    // Ranks 1 to 4 with probability .1, .2, .3, .1; the rest is beyond.
    let mut rng = StdRng::seed_from_u64(2);
    let mut ranks = Ranks::new();
    for _ in 0..6000 {
        let rank = match rng.random_range(0..10) {
            0 => 1,
            1..3 => 2,
            3..6 => 3,
            6 => 4,
            _ => 100,
        };
        let followed = rng.random_range(1..=8);
        let seen = Some(rank).filter(|rank| *rank <= followed);
        ranks.observe_rejection(seen, followed);
    }
    for (width, expected) in [(1, 0.1), (2, 0.3), (4, 0.7)] {
        let got = ranks.after_rejection(width);
        assert!((got - expected).abs() < 0.07, "{width}: {got}");
    }
    assert!(
        (ranks.after_acceptance(1) - 0.73).abs() < 1e-9,
        "the other kind is untouched"
    );
}

#[test]
fn what_was_not_followed_is_unknown() {
    let mut ranks = Ranks::new();
    for _ in 0..1000 {
        ranks.observe_bonus(None, 1);
    }
    assert!(ranks.after_acceptance(1) < 0.05);
    // Of those not at rank 1, as many as assumed are at rank 2: (.84 - .73) / (1 - .73).
    let second =
        (ranks.after_acceptance(2) - ranks.after_acceptance(1)) / (1.0 - ranks.after_acceptance(1));
    assert!((second - 0.11 / 0.27).abs() < 1e-9, "{second}");
}

#[test]
fn a_wider_one_never_hits_less() {
    let mut rng = StdRng::seed_from_u64(4);
    let mut ranks = Ranks::new();
    for _ in 0..300 {
        let followed = rng.random_range(0..=16);
        let rank = rng.random_range(1..=20);
        ranks.observe_rejection(Some(rank).filter(|rank| *rank <= followed), followed);
        let widths: Vec<f64> = (0..=20).map(|width| ranks.after_rejection(width)).collect();
        assert!(widths.is_sorted(), "{widths:?}");
        assert!(widths[20] <= 1.0);
    }
}

#[test]
fn hits_are_weighted_by_how_a_round_ends() {
    let ranks = Ranks::new();
    let acceptance = Acceptance::stated(&[0.75]);
    let whole = 0.75_f64.powi(4);
    let hit = |width| ranks.hit(4, width, &acceptance);
    assert!((hit(1) - whole * 0.73).abs() < 1e-9);
    assert!((hit(4) - (whole * 0.90 + (1.0 - whole) * 0.70)).abs() < 1e-9);
    assert_eq!(hit(0), 0.0);
}
