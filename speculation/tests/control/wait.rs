//! Waiting for proposals, against trying everything.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use speculation::control::{Arrival, Offer, StepCosts, wait_for};

fn costs(base: f64, row: f64) -> StepCosts {
    let mut costs = StepCosts::new();
    for size in [1, 4, 16, 64] {
        // Once is not enough to be believed.
        costs.observe(size, base + row * size as f64);
        costs.observe(size, base + row * size as f64);
    }
    costs
}

/// Tokens per second where the batch begins after `wait` seconds.
fn rate(now: &Offer, later: &[Arrival], verify: &StepCosts, wait: f64) -> f64 {
    let there = later.iter().filter(|arrival| arrival.seconds <= wait);
    let (tokens, rows) = there.fold((now.tokens, now.rows), |(tokens, rows), arrival| {
        (tokens + arrival.tokens, rows + arrival.rows)
    });
    tokens / (wait + verify.seconds(rows).expect("measured") + now.other_seconds)
}

#[test]
fn no_other_wait_is_better() {
    for seed in 0..500 {
        let mut rng = StdRng::seed_from_u64(seed);
        let verify = costs(rng.random_range(0.005..0.03), rng.random_range(0.0..0.002));
        let sequences = rng.random_range(1..6);
        let now = Offer {
            sequences,
            tokens: sequences as f64 * rng.random_range(1.0..3.0),
            rows: sequences * rng.random_range(1..5),
            other_seconds: rng.random_range(0.0..0.02),
        };
        let later: Vec<Arrival> = (0..rng.random_range(0..5))
            .map(|_| Arrival {
                seconds: rng.random_range(-0.001..0.03),
                tokens: rng.random_range(0.0..3.0),
                rows: rng.random_range(0..5),
            })
            .collect();
        let got = wait_for(&now, &later, &verify, &verify);
        let taken = rate(&now, &later, &verify, got.unwrap_or(0.0));
        let at_once = rate(&now, &[], &verify, 0.0);
        for arrival in &later {
            let other = rate(&now, &later, &verify, arrival.seconds.max(0.0));
            let better = got.is_some() || other > at_once * 1.01;
            assert!(
                !better || other <= taken + 1e-9,
                "seed {seed}: {arrival:?} over {got:?}"
            );
        }
        assert!(got.is_none() || taken > at_once, "seed {seed}");
    }
}

#[test]
fn a_proposal_that_comes_soon_is_worth_it_and_one_that_comes_late_is_not() {
    let verify = costs(0.017, 0.0);
    let alone = Offer {
        sequences: 1,
        tokens: 1.0,
        rows: 1,
        other_seconds: 0.0,
    };
    let arrival = |seconds| Arrival {
        seconds,
        tokens: 1.7,
        rows: 3,
    };
    assert_eq!(
        wait_for(&alone, &[arrival(0.008)], &verify, &verify),
        Some(0.008)
    );
    assert_eq!(wait_for(&alone, &[arrival(0.080)], &verify, &verify), None);
    assert_eq!(wait_for(&alone, &[], &verify, &verify), None);
    // Where the target itself is far away, a round is long anyway.
    let far = Offer {
        other_seconds: 0.080,
        ..alone
    };
    assert_eq!(
        wait_for(&far, &[arrival(0.080)], &verify, &verify),
        Some(0.080)
    );
    // Fifteen others that are ready do not wait for one.
    let many = Offer {
        sequences: 16,
        tokens: 45.0,
        rows: 60,
        other_seconds: 0.0,
    };
    assert_eq!(wait_for(&many, &[arrival(0.008)], &verify, &verify), None);
    // Two that come one after the other: for both.
    let both = [arrival(0.006), arrival(0.004)];
    assert_eq!(wait_for(&alone, &both, &verify, &verify), Some(0.006));
}

#[test]
fn nothing_measured_no_waiting() {
    let now = Offer {
        sequences: 1,
        tokens: 1.0,
        rows: 1,
        other_seconds: 0.0,
    };
    let soon = Arrival {
        seconds: 0.0,
        tokens: 5.0,
        rows: 5,
    };
    assert_eq!(
        wait_for(&now, &[soon], &StepCosts::new(), &StepCosts::new()),
        None
    );
}
