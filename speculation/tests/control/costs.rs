//! Measured costs of steps.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use speculation::control::{StepCosts, observe_apart};

fn near(value: Option<f64>, expected: f64, tolerance: f64) -> bool {
    value.is_some_and(|value| (value - expected).abs() <= tolerance * expected)
}

fn measured(points: &[(usize, f64)]) -> StepCosts {
    let mut costs = StepCosts::new();
    for _ in 0..20 {
        for (size, seconds) in points {
            costs.observe(*size, *seconds);
        }
    }
    costs
}

#[test]
fn nothing_is_known_before_anything_was_measured() {
    let mut costs = StepCosts::new();
    assert_eq!(costs.seconds(1), None);
    assert!(!costs.is_known(1));
    costs.observe(4, f64::NAN);
    costs.observe(4, -1.0);
    costs.observe(0, 1.0);
    assert_eq!(costs.seconds(4), None);
}

#[test]
fn one_size_says_the_same_of_all_others() {
    let costs = measured(&[(4, 0.02)]);
    for size in [1, 4, 5, 400] {
        assert!(near(costs.seconds(size), 0.02, 1e-9), "{size}");
    }
    assert!(costs.is_known(4));
    assert!(!costs.is_known(64));
}

#[test]
fn sizes_between_are_interpolated_and_sizes_beyond_continued() {
    let costs = measured(&[(1, 0.010), (4, 0.013), (16, 0.025)]);
    for (size, seconds) in [(1, 0.010), (2, 0.011), (4, 0.013), (10, 0.019), (31, 0.040)] {
        assert!(
            near(costs.seconds(size), seconds, 1e-6),
            "{size}: {:?}",
            costs.seconds(size)
        );
    }
}

#[test]
fn one_step_out_of_line_changes_nothing() {
    for before in 3..40 {
        let mut costs = StepCosts::new();
        for _ in 0..before {
            costs.observe(4, 0.02);
        }
        costs.observe(4, 0.4);
        assert!(near(costs.seconds(4), 0.02, 1e-9), "after {before}");
        for _ in 0..5 {
            costs.observe(4, 0.02);
            assert!(near(costs.seconds(4), 0.02, 1e-9), "after {before}");
        }
    }
    let mut first = StepCosts::new();
    first.observe(4, 0.4);
    first.observe(4, 0.02);
    assert!(near(first.seconds(4), 0.02, 1e-9), "the first of all");
}

#[test]
fn a_lasting_change_is_taken_in_within_a_few_steps() {
    for factor in [0.3, 0.6, 1.7, 16.0] {
        let mut costs = measured(&[(4, 0.02)]);
        for _ in 0..3 {
            costs.observe(4, 0.02 * factor);
        }
        assert!(near(costs.seconds(4), 0.02 * factor, 0.01), "{factor}");
    }
}

#[test]
fn noise_is_averaged() {
    let mut rng = StdRng::seed_from_u64(1);
    let mut costs = StepCosts::new();
    for _ in 0..200 {
        costs.observe(4, 0.02 * rng.random_range(0.9..1.1));
    }
    assert!(near(costs.seconds(4), 0.02, 0.03), "{:?}", costs.seconds(4));
}

#[test]
fn they_never_decrease_with_size() {
    for seed in 0..50 {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut costs = StepCosts::new();
        for _ in 0..rng.random_range(1..60) {
            costs.observe(rng.random_range(1..300), rng.random_range(0.001..0.1));
            let curve: Vec<f64> = (1..400).filter_map(|size| costs.seconds(size)).collect();
            assert!(curve.is_sorted(), "seed {seed}");
        }
    }
}

#[test]
fn a_size_out_of_use_moves_with_those_in_use() {
    let mut costs = measured(&[(1, 0.010), (4, 0.013), (16, 0.025)]);
    for _ in 0..100 {
        costs.observe(4, 0.013);
        costs.observe(16, 0.025);
    }
    // Everything becomes twice as slow; only two sizes are measured.
    for _ in 0..60 {
        costs.observe(4, 0.026);
        costs.observe(16, 0.050);
    }
    assert!(
        near(costs.seconds(1), 0.020, 0.05),
        "{:?}",
        costs.seconds(1)
    );
}

#[test]
fn what_was_measured_long_ago_gives_way() {
    let mut costs = measured(&[(1, 0.030)]);
    // Another size says that the old measurement cannot hold any more.
    for _ in 0..500 {
        costs.observe(5, 0.017);
    }
    assert!(
        near(costs.seconds(1), 0.017, 0.02),
        "{:?}",
        costs.seconds(1)
    );
    assert!(!costs.is_known(1));
}

#[test]
fn a_jump_is_taken_over_by_what_was_not_seen_since() {
    let mut costs = measured(&[(1, 0.012), (40, 0.014)]);
    for _ in 0..20 {
        costs.observe(1, 0.012);
    }
    for _ in 0..3 {
        costs.observe(1, 0.003);
    }
    assert!(
        near(costs.seconds(40), 0.0035, 0.1),
        "{:?}",
        costs.seconds(40)
    );
    // What a long unused size is corrected by is not taken for a jump of all.
    for _ in 0..300 {
        costs.observe(1, 0.003);
    }
    for _ in 0..3 {
        costs.observe(40, 0.030);
    }
    assert!(
        near(costs.seconds(1), 0.003, 0.01),
        "{:?}",
        costs.seconds(1)
    );
    assert!(
        near(costs.seconds(40), 0.030, 0.01),
        "{:?}",
        costs.seconds(40)
    );
}

#[test]
fn what_was_once_too_slow_is_tried_again() {
    let mut costs = measured(&[(1, 0.010), (5, 0.011), (40, 0.200)]);
    for _ in 0..2000 {
        costs.observe(1, 0.010);
        costs.observe(5, 0.011);
    }
    assert!(
        costs.seconds(40).is_some_and(|seconds| seconds < 0.03),
        "{:?}",
        costs.seconds(40)
    );
}

#[test]
fn verifications_with_drafts_ahead_drift_to_those_without_and_these_become_old() {
    let (mut without, mut with) = (StepCosts::new(), StepCosts::new());
    for _ in 0..20 {
        observe_apart(&mut without, &mut with, 1, 0.017, false);
        observe_apart(&mut without, &mut with, 5, 0.040, true);
    }
    assert!(near(with.seconds(5), 0.040, 0.1) && near(without.seconds(5), 0.017, 0.01));
    assert!(without.is_known(1));
    for _ in 0..400 {
        observe_apart(&mut without, &mut with, 5, 0.040, true);
    }
    assert!(!without.is_known(1) && near(with.seconds(5), 0.040, 0.01));
    for _ in 0..2000 {
        observe_apart(&mut without, &mut with, 1, 0.017, false);
    }
    assert!(near(with.seconds(5), 0.017, 0.05), "{:?}", with.seconds(5));
}

#[test]
fn steps_that_vary_a_lot_carry_nothing_away() {
    for seed in 0..20 {
        let mut random = StdRng::seed_from_u64(seed);
        let mut costs = StepCosts::new();
        // Short steps on a busy machine, of all sizes.
        let (shortest, longest) = (5e-5, 3e-3_f64);
        for _ in 0..10_000 {
            let size = random.random_range(1..=64);
            let spread = random.random_range(0.0..1.0);
            costs.observe(size, shortest * (longest / shortest).powf(spread));
        }
        for size in 1..=64 {
            let seconds = costs.seconds(size).unwrap();
            assert!(
                (shortest / 20.0..longest * 20.0).contains(&seconds),
                "seed {seed}: {seconds} s of {size}"
            );
        }
    }
}
