//! Acceptance by position.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use speculation::control::{Acceptance, Round};

fn full(wanted: usize, accepted: usize) -> Round {
    Round {
        wanted,
        drafted: wanted,
        verified: wanted,
        accepted,
    }
}

/// Tokens accepted of `k`, where each is with probability `alpha`.
fn accepted(rng: &mut StdRng, alpha: f64, k: usize) -> usize {
    (0..k).take_while(|_| rng.random_bool(alpha)).count()
}

#[test]
fn it_starts_near_what_drafts_usually_do() {
    let acceptance = Acceptance::prior();
    assert!((acceptance.survival(1) - 0.7).abs() < 1e-9);
    assert!((acceptance.survival(2) - 0.49).abs() < 1e-9);
    assert_eq!(acceptance.survival(0), 1.0);
    assert_eq!(acceptance.survival(17), 0.0);
    assert!((acceptance.expected(2) - 2.19).abs() < 1e-9);
    assert_eq!(acceptance.expected(0), 1.0);
}

#[test]
fn it_learns_each_position() {
    for alpha in [0.05, 0.3, 0.8, 0.95] {
        let mut rng = StdRng::seed_from_u64(7);
        let mut acceptance = Acceptance::of_worker();
        for _ in 0..3000 {
            acceptance.observe(full(4, accepted(&mut rng, alpha, 4)));
        }
        for l in 1..=4 {
            let expected = alpha.powi(l as i32);
            let got = acceptance.survival(l);
            assert!(
                (got - expected).abs() < 0.06,
                "alpha {alpha}, position {l}: {got}"
            );
        }
    }
}

#[test]
fn survival_never_rises_and_stays_a_probability() {
    let mut rng = StdRng::seed_from_u64(3);
    let mut acceptance = Acceptance::prior();
    for _ in 0..500 {
        let wanted = rng.random_range(1..=16);
        let drafted = rng.random_range(0..=wanted);
        let verified = rng.random_range(0..=drafted);
        acceptance.observe(Round {
            wanted,
            drafted,
            verified,
            accepted: rng.random_range(0..=verified),
        });
        for l in 1..=16 {
            let survival = acceptance.survival(l);
            assert!((0.0..=acceptance.survival(l - 1)).contains(&survival));
        }
    }
}

#[test]
fn what_we_cut_off_ourselves_is_unknown() {
    // Every token would be accepted, but only one of four is ever verified.
    let mut acceptance = Acceptance::prior();
    for _ in 0..200 {
        acceptance.observe(Round {
            wanted: 4,
            drafted: 4,
            verified: 1,
            accepted: 1,
        });
    }
    assert!(acceptance.survival(1) > 0.95);
    // Beyond, it must not have become worse than it was assumed to be.
    assert!(acceptance.survival(2) / acceptance.survival(1) >= 0.7);
    // A rejection before the cut is a rejection all the same.
    for _ in 0..200 {
        acceptance.observe(Round {
            wanted: 4,
            drafted: 4,
            verified: 2,
            accepted: 1,
        });
    }
    assert!(acceptance.survival(2) < 0.1);
}

#[test]
fn trimming_by_chance_does_not_bias() {
    let mut rng = StdRng::seed_from_u64(11);
    let mut acceptance = Acceptance::of_worker();
    for _ in 0..4000 {
        let verified = rng.random_range(1..=4);
        acceptance.observe(Round {
            wanted: 4,
            drafted: 4,
            verified,
            accepted: accepted(&mut rng, 0.8, verified),
        });
    }
    for l in 1..=4 {
        let expected = 0.8_f64.powi(l);
        let got = acceptance.survival(l as usize);
        assert!((got - expected).abs() < 0.06, "position {l}: {got}");
    }
}

#[test]
fn a_draft_that_stops_early_does_not_survive_beyond() {
    let mut acceptance = Acceptance::prior();
    for _ in 0..200 {
        acceptance.observe(Round {
            wanted: 8,
            drafted: 2,
            verified: 2,
            accepted: 2,
        });
    }
    assert!(acceptance.survival(2) > 0.9);
    assert!(acceptance.survival(3) < 0.1);
    assert!((acceptance.drafted(8) - 2.0).abs() < 0.5);
}

#[test]
fn no_proposal_at_all_is_a_failure_of_the_draft_and_no_wish_is_nothing() {
    let mut acceptance = Acceptance::prior();
    for _ in 0..100 {
        acceptance.observe(full(0, 0));
    }
    assert!((acceptance.survival(1) - 0.7).abs() < 1e-9);
    for _ in 0..100 {
        acceptance.observe(Round {
            wanted: 4,
            drafted: 0,
            verified: 0,
            accepted: 0,
        });
    }
    assert!(acceptance.survival(1) < 0.1);
}

#[test]
fn a_sequence_starts_from_its_worker_and_then_follows_its_own_rounds() {
    let mut worker = Acceptance::of_worker();
    for _ in 0..500 {
        worker.observe(full(4, 0));
    }
    let mut sequence = Acceptance::from_prior(&worker);
    assert!((sequence.survival(1) - worker.survival(1)).abs() < 1e-9);
    for _ in 0..16 {
        sequence.observe(full(4, 4));
    }
    assert!(sequence.survival(1) > 0.8, "{}", sequence.survival(1));
}

#[test]
fn a_change_is_noticed_within_a_few_rounds() {
    for (before, after) in [(0.8, 0.05), (0.05, 0.8)] {
        let mut rng = StdRng::seed_from_u64(5);
        let mut acceptance = Acceptance::prior();
        for _ in 0..500 {
            acceptance.observe(full(4, accepted(&mut rng, before, 4)));
        }
        let mut rounds = 0;
        while (acceptance.survival(1) - after).abs() > 0.3 {
            acceptance.observe(full(4, accepted(&mut rng, after, 4)));
            rounds += 1;
            assert!(
                rounds <= 16,
                "{before} to {after}: {}",
                acceptance.survival(1)
            );
        }
    }
}

#[test]
fn what_cannot_be_is_left_out() {
    let mut acceptance = Acceptance::prior();
    acceptance.observe(Round {
        wanted: 4,
        drafted: 4,
        verified: 2,
        accepted: 3,
    });
    acceptance.observe(Round {
        wanted: 4,
        drafted: 1,
        verified: 2,
        accepted: 0,
    });
    assert!((acceptance.survival(1) - 0.7).abs() < 1e-9);
    // Longer than any position that is counted.
    acceptance.observe(full(40, 40));
    assert!(acceptance.survival(16) > 0.0);
}
