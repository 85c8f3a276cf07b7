//! What the scheduler makes of workers: tokens per second on the virtual clock.

use super::{DraftSetting, Setting, SpecOptions, Step, World};

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
        }],
        options: SpecOptions {
            ahead,
            ..SpecOptions::default()
        },
    }
}

/// Tokens per second of `requests` at once, once the controller has found its way.
fn rate(mut world: World, requests: usize) -> f64 {
    for _ in 0..requests {
        world.admit(1_000_000);
    }
    let seconds = if requests > 4 { 3 } else { 10 };
    world.run(3 * SECOND);
    let before = world.committed;
    world.run((3 + seconds) * SECOND);
    (world.committed - before) as f64 / seconds as f64
}

fn plain(setting: &Setting, requests: usize) -> f64 {
    rate(World::new(setting.clone()).fixed(0), requests)
}

#[test]
fn print_rates() {
    for rtt in [0.0, 0.5, 5.0, 20.0, 80.0] {
        let sync = setting(0.75, rtt, false);
        let plain = plain(&sync, 1);
        let fixed: Vec<_> = (1..=8)
            .map(|k| rate(World::new(sync.clone()).fixed(k), 1))
            .collect();
        let best = fixed.iter().copied().fold(0.0, f64::max);
        let auto = rate(World::new(sync), 1);
        let ahead = rate(World::new(setting(0.75, rtt, true)), 1);
        println!(
            "rtt {rtt}: plain {plain:.1} sync best {best:.1} ({fixed:.1?}) auto {auto:.1} ahead {ahead:.1} = {:.2}",
            ahead / best
        );
    }
}

#[test]
fn print_load() {
    for agreement in [0.0, 0.5, 0.9] {
        for requests in [1, 4, 16, 64] {
            for ahead in [false, true] {
                let mut setting = setting(agreement, 0.5, ahead);
                setting.target.row = 50.0;
                setting.drafts[0].step.row = 20.0;
                let plain = plain(&setting, requests);
                let auto = rate(World::new(setting), requests);
                println!(
                    "agreement {agreement} requests {requests} ahead {ahead}: plain {plain:.1} auto {auto:.1} = {:.2}",
                    auto / plain
                );
            }
        }
    }
}
