//! Regimes one after the other.

use super::counts::{Counts, Policy};
use super::system::System;
use super::world::World;

/// Rounds of every sequence that the controller may take to settle.
const SETTLE: usize = 300;

/// Rounds of every sequence that are judged then.
const JUDGED: usize = 1500;

const CALM: World = World::CALM;

/// Rows that cost, so that a batch of sixteen has none to give away.
const DEAR: World = World {
    sequences: 16,
    verify: (0.005, 0.001),
    ..CALM
};

/// A draft that takes nearly as long as the target.
const SLOW: World = World {
    draft: (0.012, 0.0),
    ..CALM
};

fn bad(world: World) -> World {
    World {
        alpha: 0.05,
        ..world
    }
}

/// Tokens per second of a policy that never changes, in conditions that do not either.
fn fixed(world: World, policy: Policy) -> f64 {
    let mut system = System::new(world, policy, 99);
    system.run(50);
    let before = system.counts;
    system.run((6000 / world.sequences).max(300));
    system.counts.since(&before).rate()
}

fn plain(world: World) -> f64 {
    let rates = [1, 2].map(|groups| fixed(world, Policy::Fixed(0, 0, 0, groups)));
    rates[0].max(rates[1])
}

/// The best policy that never changes, and what it gives.
fn best(world: World) -> (f64, Policy) {
    let batches = |want: usize| [1, 2].map(|groups| Policy::Fixed(want, 0, 0, groups));
    let synchronous = [1, 2, 4, 8].into_iter().flat_map(batches);
    let ahead = [2, 4, 8].into_iter().flat_map(|want| {
        let widths = [1, 2, 4, 8].into_iter();
        widths.flat_map(move |width| [2, 4, 6, 8].map(|ahead| Policy::Fixed(want, ahead, width, 1)))
    });
    let policies = synchronous.chain(ahead);
    let rates = policies.map(|policy| (fixed(world, policy), policy));
    rates.max_by(|a, b| a.0.total_cmp(&b.0)).expect("a policy")
}

/// Drives one controller through `regimes`, and holds each to: never below .98 of plain decoding
/// and .9 of the best fixed policy once settled, .97 of plain decoding with settling, and few
/// switches. Hands back what was counted in each, settling included.
fn drive(seed: u64, regimes: &[(&str, World)]) -> Vec<Counts> {
    let mut system = System::new(regimes[0].1, Policy::Controller, seed);
    let run = |(name, world): &(&str, World)| {
        system.enter(*world);
        let (start, switches) = (system.counts, system.switches());
        system.run(SETTLE);
        let settled = system.counts;
        system.run(JUDGED);
        let whole = system.counts.since(&start);
        let judged = system.counts.since(&settled).rate();
        let switches = system.switches().saturating_sub(switches);
        let plain = plain(*world);
        let (best, policy) = best(*world);
        let best = best.max(plain);
        eprintln!(
            "seed {seed}, {name}: {:.3} of plain, {:.3} of {policy:?}, {:.3} of plain with \
             settling; {switches} switches, {whole:?}",
            judged / plain,
            judged / best,
            whole.rate() / plain
        );
        assert!(judged >= 0.98 * plain, "seed {seed}, {name}: below plain");
        assert!(
            judged >= 0.90 * best,
            "seed {seed}, {name}: far from the best"
        );
        assert!(
            whole.rate() >= 0.97 * plain,
            "seed {seed}, {name}: settling"
        );
        assert!(switches <= 14, "seed {seed}, {name}: {switches} switches");
        whole
    };
    regimes.iter().map(run).collect()
}

#[test]
fn drafts_that_turn_bad_and_good_again() {
    for seed in 0..2 {
        let counts = drive(
            seed,
            &[
                ("good", CALM),
                ("bad", bad(CALM)),
                ("good again", CALM),
                ("slow", SLOW),
                ("slow and bad", bad(SLOW)),
                ("good again", CALM),
            ],
        );
        let off = counts[4];
        let rest = off.rounds - off.plain;
        assert!(rest < 100, "seed {seed}: it goes on for {rest} rounds");
        assert!(
            off.drafts <= rest,
            "seed {seed}: off, and drafts asked for: {off:?}"
        );
        assert!(off.probes <= off.rounds / 48, "seed {seed}: {off:?}");
    }
}

#[test]
fn loads_that_rise_and_fall() {
    let load = |sequences| World { sequences, ..CALM };
    for seed in 10..12 {
        let regimes = [
            ("one", load(1)),
            ("two", load(2)),
            ("sixteen", load(16)),
            ("one", load(1)),
            ("sixteen, dear", DEAR),
            ("sixteen, dear, bad", bad(DEAR)),
            ("sixteen, good", load(16)),
        ];
        let counts = drive(seed, &regimes);
        let off = counts[5];
        assert!(
            off.plain as f64 > 0.97 * off.rounds as f64,
            "seed {seed}: {off:?}"
        );
    }
}

#[test]
fn round_trips_that_jump() {
    let far = World {
        draft_rtt: 0.080,
        ..CALM
    };
    let both = World {
        target_rtt: 0.080,
        ..far
    };
    for seed in 20..22 {
        drive(
            seed,
            &[
                ("near", CALM),
                ("far", far),
                ("both far", both),
                ("near", CALM),
            ],
        );
    }
}

#[test]
fn steps_out_of_line_and_machines_shared() {
    let outliers = World {
        outliers: 0.002,
        ..CALM
    };
    let shared = World {
        contention: 2.5,
        ..CALM
    };
    for seed in 30..32 {
        drive(
            seed,
            &[("outliers", outliers), ("shared", shared), ("calm", CALM)],
        );
    }
}
