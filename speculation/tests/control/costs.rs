//! Measured costs of steps.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use speculation::control::StepCosts;

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
