//! The switch between plain decoding and speculation.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use speculation::control::{Gate, Mode, Plan};

pub(crate) fn promising(ratio: f64) -> Plan {
    Plan {
        want: 3,
        ahead_want: 0,
        ahead_width: 0,
        groups: 1,
        rate: ratio * 50.0,
        predicted: ratio * 50.0,
        hope: ratio * 50.0,
        plain_rate: 50.0,
        plain_groups: 1,
        known: true,
        plain_known: true,
    }
}

fn modes(gate: &mut Gate, plan: &Plan, rounds: usize) -> Vec<Mode> {
    (0..rounds).map(|_| gate.decide(plan)).collect()
}

fn count(modes: &[Mode], mode: Mode) -> usize {
    modes.iter().filter(|other| **other == mode).count()
}

#[test]
fn it_tries_what_it_does_not_know() {
    let unknown = Plan {
        known: false,
        rate: 0.0,
        plain_rate: 0.0,
        ..promising(1.0)
    };
    assert!(
        modes(&mut Gate::new(), &unknown, 50)
            .iter()
            .all(|mode| *mode == Mode::On)
    );
}

#[test]
fn it_ends_within_a_few_rounds_where_plain_is_better_and_stays_so() {
    let mut gate = Gate::new();
    let modes = modes(&mut gate, &promising(0.9), 1000);
    assert!(modes[..10].contains(&Mode::Off));
    assert_eq!(count(&modes[10..], Mode::On), 0);
    assert_eq!(gate.switches(), 1);
}

#[test]
fn a_new_text_tries_what_only_old_step_times_speak_against() {
    let old = Plan {
        hope: 1.5 * 50.0,
        ..promising(0.7)
    };
    assert_eq!(Gate::new().decide(&promising(0.7)), Mode::Off);
    let tried = modes(&mut Gate::new(), &old, 10);
    assert_eq!(tried[0], Mode::On);
    assert_eq!(tried[9], Mode::Off, "hope alone does not keep it on");
}

#[test]
fn while_off_it_probes_rarely_and_sooner_where_that_is_encouraging() {
    let mut gate = Gate::new();
    modes(&mut gate, &promising(0.5), 10);
    let discouraged = count(&modes(&mut gate, &promising(0.5), 640), Mode::Probe);
    assert!((9..=10).contains(&discouraged), "{discouraged}");
    let encouraged = count(&modes(&mut gate, &promising(1.03), 640), Mode::Probe);
    assert!((39..=40).contains(&encouraged), "{encouraged}");
}

#[test]
fn between_the_thresholds_it_stays_as_it_is() {
    let mut on = Gate::new();
    assert_eq!(count(&modes(&mut on, &promising(1.03), 500), Mode::On), 500);
    let mut off = Gate::new();
    modes(&mut off, &promising(0.5), 10);
    assert_eq!(count(&modes(&mut off, &promising(1.03), 500), Mode::On), 0);
    assert!(modes(&mut off, &promising(1.05), 70).contains(&Mode::On));
}

#[test]
fn one_bad_round_ends_nothing() {
    let mut gate = Gate::new();
    for round in 0..300 {
        let ratio = if round % 10 == 9 { 0.5 } else { 1.3 };
        assert_eq!(gate.decide(&promising(ratio)), Mode::On);
    }
}

#[test]
fn it_does_not_flap_whatever_it_is_told() {
    for seed in 0..20 {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut gate = Gate::new();
        for _ in 0..20_000 {
            // What looks good from outside and bad from inside.
            let ratio = if gate.is_on() { 0.9 } else { 1.2 };
            gate.decide(&promising(ratio * rng.random_range(0.95..1.05)));
        }
        assert!(gate.switches() < 170, "seed {seed}: {}", gate.switches());
    }
}

#[test]
fn nothing_to_draft_is_plain() {
    let nothing = Plan {
        want: 0,
        ..promising(1.0)
    };
    let modes = modes(&mut Gate::new(), &nothing, 300);
    assert_eq!(count(&modes, Mode::Off), 300);
}
