//! Plans against what became of them.

use speculation::control::{Mode, Plan, Trust};

fn planned(rate: f64, plain_rate: f64) -> Plan {
    Plan {
        want: 3,
        ahead_want: 0,
        ahead_width: 0,
        groups: 1,
        rate,
        predicted: rate,
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
            trust.observe(&planned(100.0, 50.0), Mode::On, 3, 3.0 / real);
        }
        assert!((trust.value() - 1.0).abs() < 1e-9, "{}", trust.value());
    }
}

#[test]
fn a_plan_that_does_not_hold_is_tempered_by_what_it_gave() {
    let plan = planned(100.0, 50.0);
    let mut trust = Trust::new();
    for _ in 0..2000 {
        trust.observe(&plan, Mode::On, 3, 3.0 / 70.0);
    }
    let tempered = trust.temper(plan);
    assert!((tempered.rate - 70.0).abs() < 3.0, "{}", tempered.rate);
    assert_eq!(tempered.plain_rate, 50.0);
    // What was tempered is not what the plan is held to.
    for _ in 0..2000 {
        trust.observe(&tempered, Mode::On, 3, 3.0 / 70.0);
    }
    assert!((trust.temper(plan).rate - 70.0).abs() < 3.0);
}

#[test]
fn what_speculation_costs_others_counts_against_it() {
    // One of two has what its plan says; the other, plain, has half of its own rate by it.
    let mut trust = Trust::new();
    for _ in 0..2000 {
        trust.observe(&planned(60.0, 50.0), Mode::On, 3, 0.05);
        trust.observe(&planned(60.0, 50.0), Mode::Off, 1, 0.04);
    }
    let value = trust.value();
    assert!(value < 0.8, "{value}");
}

#[test]
fn plain_decoding_alone_and_long_pauses_say_nothing() {
    let mut trust = Trust::new();
    for _ in 0..1000 {
        trust.observe(&planned(60.0, 50.0), Mode::Off, 1, 0.04);
        trust.observe(&planned(60.0, 50.0), Mode::On, 3, f64::NAN);
    }
    assert_eq!(trust.value(), 1.0);
    trust.observe(&planned(60.0, 50.0), Mode::On, 3, 3600.0);
    assert!(trust.value() > 0.8);
}
