//! Plans against what became of them.

use speculation::control::{Mode, Plan, Trust, Way};

fn planned(rate: f64, plain_rate: f64) -> Plan {
    Plan {
        want: 3,
        ahead_want: 0,
        ahead_width: 0,
        groups: 1,
        rate,
        predicted: rate,
        hope: rate,
        plain_rate,
        plain_groups: 1,
        known: true,
        plain_known: true,
    }
}

#[test]
fn a_plan_that_holds_is_trusted_and_none_is_promised_more() {
    for real in [100.0, 150.0] {
        let mut trust = Trust::new();
        for _ in 0..1000 {
            trust.observe(&planned(100.0, 50.0), Mode::On, 3, 3.0 / real, 1);
        }
        assert!(
            (trust.of(Way::Waiting) - 1.0).abs() < 1e-9,
            "{}",
            trust.of(Way::Waiting)
        );
    }
}

#[test]
fn a_plan_that_does_not_hold_is_trusted_as_far_as_it_did() {
    let plan = planned(100.0, 50.0);
    let mut trust = Trust::new();
    for _ in 0..2000 {
        trust.observe(&plan, Mode::On, 3, 3.0 / 70.0, 1);
    }
    let value = trust.of(Way::Waiting);
    assert!((value - 0.7).abs() < 0.03, "{value}");
    assert_eq!(trust.of(Way::Ahead), 1.0, "of others it says nothing");
}

#[test]
fn a_way_that_was_not_gone_for_long_is_tried_again() {
    let ahead = Plan {
        ahead_want: 2,
        ..planned(100.0, 50.0)
    };
    for sequences in [1, 64] {
        let mut trust = Trust::new();
        let mut rounds = |plan: &Plan, rounds: usize, real: f64| {
            for _ in 0..rounds * sequences {
                trust.observe(plan, Mode::On, 3, 3.0 / real, sequences);
            }
            trust.of(Way::Ahead)
        };
        let distrusted = rounds(&ahead, 1000, 70.0);
        let still = rounds(&planned(100.0, 50.0), 200, 100.0);
        assert!(
            still < distrusted + 0.05,
            "{sequences}: {still}, {distrusted}"
        );
        let again = rounds(&planned(100.0, 50.0), 8000, 100.0);
        assert!(again > 0.95, "{sequences}: {again}");
    }
}

#[test]
fn what_speculation_costs_others_counts_against_it() {
    // One of two has what its plan says; the other, plain, has half of its own rate by it.
    let mut trust = Trust::new();
    for _ in 0..2000 {
        trust.observe(&planned(60.0, 50.0), Mode::On, 3, 0.05, 1);
        trust.observe(&planned(60.0, 50.0), Mode::Off, 1, 0.04, 1);
    }
    let value = trust.of(Way::Waiting);
    assert!(value < 0.8, "{value}");
}

#[test]
fn plain_decoding_alone_and_long_pauses_say_nothing() {
    let mut trust = Trust::new();
    for _ in 0..1000 {
        trust.observe(&planned(60.0, 50.0), Mode::Off, 1, 0.04, 1);
        trust.observe(&planned(60.0, 50.0), Mode::On, 3, f64::NAN, 1);
    }
    assert_eq!(trust.of(Way::Waiting), 1.0);
    trust.observe(&planned(60.0, 50.0), Mode::On, 3, 3600.0, 1);
    assert!(trust.of(Way::Waiting) > 0.8);
}
