//! What the scheduler makes of workers: tokens per second on the virtual clock.

use super::{DraftSetting, Rough, Setting, SpecOptions, Step, World};

const SECOND: u64 = 1_000_000;

/// The pair: 17 ms to verify, 2.5 ms to draft, 0.5 ms between.
fn setting(agreement: f64, rtt_ms: f64, ahead: bool) -> Setting {
    Setting {
        target: Step {
            base: 17_000,
            row: 0.0,
        },
        target_rtt: 200,
        drafts: vec![DraftSetting {
            step: Step {
                base: 2_500,
                row: 0.0,
            },
            rtt: (rtt_ms * 1e3) as u64,
            agreement,
            max_sequences: 256,
            prefill: 0,
        }],
        options: SpecOptions {
            ahead,
            ..SpecOptions::default()
        },
        shared: false,
        rough: Rough::NONE,
    }
}

/// Tokens per second of `requests` at once, once the controller has found its way.
fn rate(mut world: World, requests: usize) -> f64 {
    rate_in(&mut world, requests)
}

/// The same, in a world that others have been in before.
fn rate_in(world: &mut World, requests: usize) -> f64 {
    for _ in 0..requests {
        world.admit(1_000_000);
    }
    let seconds = if requests > 4 { 3 } else { 10 };
    world.run(world.now + 3 * SECOND);
    let before = world.committed;
    world.run(world.now + seconds * SECOND);
    world.leave();
    (world.committed - before) as f64 / seconds as f64
}

fn plain(setting: &Setting, requests: usize) -> f64 {
    rate(World::new(setting.clone()).fixed(0), requests)
}

/// The best rate of all fixed draft lengths.
fn best_fixed(setting: &Setting) -> f64 {
    let rates = (1..=8).map(|k| rate(World::new(setting.clone()).fixed(k), 1));
    rates.fold(0.0, f64::max)
}

#[test]
fn drafting_ahead_hides_the_draft_and_the_way_to_it() {
    for rtt_ms in [0.0, 0.5, 5.0, 20.0] {
        let best = best_fixed(&setting(0.75, rtt_ms, false));
        let ahead = rate(World::new(setting(0.75, rtt_ms, true)), 1);
        println!("round trip {rtt_ms} ms: {ahead:.1} tokens/s ahead, {best:.1} at best without");
        assert!(
            ahead >= 1.5 * best,
            "round trip {rtt_ms} ms: {ahead} over {best}"
        );
    }
}

#[test]
fn the_length_chosen_is_about_as_good_as_the_best_fixed_one_or_plain() {
    for rtt_ms in [0.5, 5.0, 20.0, 80.0] {
        let setting = setting(0.75, rtt_ms, false);
        let best = best_fixed(&setting).max(plain(&setting, 1));
        let chosen = rate(World::new(setting), 1);
        println!("round trip {rtt_ms} ms: {chosen:.1} tokens/s, {best:.1} at best");
        assert!(
            chosen >= 0.93 * best,
            "round trip {rtt_ms} ms: {chosen} over {best}"
        );
    }
}

#[test]
fn speculation_is_never_slower_than_plain_decoding() {
    for rtt_ms in [0.5, 80.0] {
        for (agreement, requests) in [(0.0, 1), (0.0, 16), (0.0, 64), (0.5, 4), (0.5, 64)] {
            let mut setting = setting(agreement, rtt_ms, true);
            setting.target.row = 50.0;
            setting.drafts[0].step.row = 20.0;
            let plain = plain(&setting, requests);
            let chosen = rate(World::new(setting), requests);
            let ratio = chosen / plain;
            println!(
                "agreement {agreement}, {requests} requests, {rtt_ms} ms: {ratio:.3} of plain"
            );
            let near = agreement == 0.5 && rtt_ms < 1.0;
            assert!(
                ratio >= if near { 1.07 } else { 0.98 },
                "agreement {agreement}, {requests} requests, {rtt_ms} ms"
            );
        }
    }
}

/// The same at load: each row costs.
fn loaded(agreement: f64) -> Setting {
    let mut setting = setting(agreement, 0.5, true);
    setting.target.row = 50.0;
    setting.drafts[0].step.row = 20.0;
    setting
}

/// What a few rounds of a text say of its drafts is little: many texts that come at once, where plain
/// decoding is known, do not all leave a draft that pays.
#[test]
fn texts_that_come_where_plain_decoding_is_known_gain_as_much() {
    for (agreement, gain) in [(0.5, 1.08), (0.9, 1.75)] {
        let mut world = World::new(loaded(agreement));
        for turn in 1..=2 {
            world.plain();
            let plain = rate_in(&mut world, 64);
            world.free();
            let ratio = rate_in(&mut world, 64) / plain;
            println!("agreement {agreement}, turn {turn}: {ratio:.3} of plain");
            assert!(ratio >= gain, "agreement {agreement}, turn {turn}: {ratio}");
        }
    }
}

#[test]
fn plain_decoding_is_not_divided_as_drafting_was() {
    let mut setting = loaded(0.9);
    setting.options.ahead = false;
    let alone = plain(&setting, 64);
    let mut world = World::new(setting);
    rate_in(&mut world, 64);
    world.plain();
    let after = rate_in(&mut world, 64);
    println!("{after:.0} tokens/s after drafting, {alone:.0} alone");
    assert!(after >= 0.99 * alone, "{after} over {alone}");
}

#[test]
fn many_requests_with_a_good_draft_gain() {
    let setting = loaded(0.9);
    for (requests, gain) in [(1, 3.8), (4, 2.8), (16, 2.0), (64, 1.8)] {
        let plain = plain(&setting, requests);
        let chosen = rate(World::new(setting.clone()), requests);
        let ratio = chosen / plain;
        println!("{requests} requests: {ratio:.2} of plain");
        assert!(ratio >= gain, "{requests} requests: {ratio}");
    }
}
