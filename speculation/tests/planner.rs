//! Plans against closed forms, their own bounds, and a queue that is simulated.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use speculation::control::Acceptance;
use speculation::planner::{
    Bound, StepTime, System, Way, ahead_rate, plain_rate, plan, synchronous_rate,
};

const VERIFY: StepTime = StepTime {
    base: 0.017,
    row: 0.0,
};
const DRAFT: StepTime = StepTime {
    base: 0.0025,
    row: 0.0,
};

fn alone(acceptance: f64) -> System {
    System {
        draft_rtt: 0.0005,
        ..System::new(VERIFY, DRAFT, &[acceptance])
    }
}

fn busy(requests: usize) -> System {
    System {
        verify: StepTime {
            base: 0.015,
            row: 0.0002,
        },
        draft: StepTime {
            base: 0.002,
            row: 0.0002,
        },
        requests,
        draft_workers: None,
        ..alone(0.75)
    }
}

fn near(value: f64, expected: f64, tolerance: f64) -> bool {
    (value - expected).abs() <= tolerance * expected
}

#[test]
fn one_request_has_the_closed_form_at_every_length() {
    let system = alone(0.75);
    let planned = plan(&system);
    assert!(near(plain_rate(&system), 1.0 / 0.017, 1e-12));
    for (k, choice) in planned.by_length.iter().enumerate() {
        let expected: f64 = (0..=k as i32).map(|l| 0.75_f64.powi(l)).sum();
        let round = match k {
            0 => 0.017,
            _ => 0.0005 + 0.0025 * k as f64 + 0.017,
        };
        assert!(
            near(choice.tokens_per_second, expected / round, 1e-9),
            "{choice:?}"
        );
        assert!(
            near(synchronous_rate(k, &system), expected / round, 1e-9),
            "{k}"
        );
        assert!(near(choice.seconds_per_token, round / expected, 1e-9));
    }
    assert_eq!(planned.best, 4);
    assert_eq!(planned.best().binding, Bound::Concurrency);
    assert_eq!(planned.draft_workers, 1);
}

#[test]
fn drafting_ahead_gives_half_as_much_again_as_the_best_length() {
    let system = alone(0.75);
    let planned = plan(&system);
    let ahead = planned.ahead.expect("branches are free here");
    let best = planned.best().tokens_per_second;
    assert!(ahead.tokens_per_second > 1.5 * best, "{ahead:?} {best}");
    let form = ahead_rate(ahead.draft_tokens, ahead.ahead_tokens, ahead.width, &system);
    assert!(near(form, ahead.tokens_per_second, 1e-9), "{form}");
    assert_eq!(ahead_rate(4, 4, 3, &system), 0.0, "no such width");
    // Where a branch costs as much as a sequence, it does not pay to follow many.
    let dear = System {
        draft: StepTime {
            base: 0.0,
            row: 0.0025,
        },
        ..system
    };
    assert!(plan(&dear).ahead.is_none_or(|ahead| ahead.width == 1));
}

#[test]
fn nothing_is_drafted_where_nothing_pays() {
    let planned = plan(&alone(0.02));
    assert_eq!(planned.best, 0);
    let bad = System {
        draft_workers: None,
        verify: StepTime {
            base: 0.001,
            row: 0.001,
        },
        ..busy(64)
    };
    let bad = System {
        acceptance: Acceptance::stated(&[0.3]),
        ..bad
    };
    let planned = plan(&bad);
    assert_eq!((planned.best, planned.draft_workers), (0, 0), "{planned:?}");
    assert!(near(
        planned.tokens_per_second(),
        64.0 * plain_rate(&bad),
        1e-9
    ));
}

#[test]
fn no_choice_exceeds_its_bounds_and_the_lowest_is_named() {
    for seed in 0..300 {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut time = |most: f64| StepTime {
            base: rng.random_range(0.0005..most),
            row: rng.random_range(0.0..most / 10.0),
        };
        let (verify, draft) = (time(0.05), time(0.01));
        let workers = rng.random_range(1..12);
        let system = System {
            draft_rtt: rng.random_range(0.0..0.1),
            target_rtt: rng.random_range(0.0..0.05),
            requests: rng.random_range(1..200),
            draft_workers: Some(workers).filter(|_| rng.random_bool(0.7)),
            max_draft_tokens: rng.random_range(0..=16),
            ..System::new(verify, draft, &[rng.random_range(0.0..1.0)])
        };
        let planned = plan(&system);
        assert_eq!(planned.by_length.len(), system.max_draft_tokens + 1);
        for choice in &planned.by_length {
            let bounds = choice.bounds;
            let lowest = bounds.target.min(bounds.drafts).min(bounds.concurrency);
            assert!(
                choice.tokens_per_second <= lowest * (1.0 + 1e-9),
                "seed {seed}: {choice:?}"
            );
            assert!(choice.tokens_per_second > 0.0, "seed {seed}: {choice:?}");
            let named = match choice.binding {
                Bound::Target => bounds.target,
                Bound::Drafts => bounds.drafts,
                Bound::Concurrency => bounds.concurrency,
            };
            assert_eq!(named, lowest, "seed {seed}: {choice:?}");
            assert!(choice.tokens_per_second <= planned.best().tokens_per_second * 1.0051);
        }
    }
}

#[test]
fn what_binds_depends_on_the_load_and_the_workers() {
    let binding = |requests, workers| {
        let system = System {
            draft_workers: Some(workers),
            ..busy(requests)
        };
        plan(&system).by_length[3].binding
    };
    assert_eq!(binding(1, 1), Bound::Concurrency);
    assert_eq!(binding(256, 64), Bound::Target);
    let starved = System {
        draft: StepTime {
            base: 0.002,
            row: 0.004,
        },
        draft_workers: Some(1),
        ..busy(256)
    };
    assert_eq!(plan(&starved).by_length[3].binding, Bound::Drafts);
}

#[test]
fn workers_needed_are_enough_and_not_too_many() {
    for requests in [1, 4, 16, 64] {
        let system = busy(requests);
        let with = |workers| {
            let system = System {
                draft_workers: Some(workers),
                ..system.clone()
            };
            plan(&system).tokens_per_second()
        };
        let planned = plan(&system);
        let needed = planned.draft_workers;
        assert!((1..=requests).contains(&needed), "{requests}: {needed}");
        let most = with(requests);
        assert!(with(needed) >= 0.97 * most, "{requests}: {needed}");
        assert!(
            needed == 1 || with(needed - 1) < 0.97 * most,
            "{requests}: {needed}"
        );
    }
}

/// Requests that draft for a random time around Z, and a target that verifies all that wait.
fn simulated(system: &System, k: usize, seed: u64) -> f64 {
    let mut rng = StdRng::seed_from_u64(seed);
    let away = system.draft_rtt + k as f64 * system.draft.seconds(1.0);
    let mut ready: Vec<f64> = (0..system.requests)
        .map(|_| rng.random_range(0.0..2.0 * away))
        .collect();
    let (mut now, mut rounds) = (0.0, 0);
    while rounds < 200 * system.requests {
        let first = ready.iter().copied().fold(f64::INFINITY, f64::min);
        now = f64::max(now, first);
        let batch: Vec<usize> = (0..ready.len()).filter(|one| ready[*one] <= now).collect();
        now += system.verify.seconds((batch.len() * (k + 1)) as f64);
        rounds += batch.len();
        for one in batch {
            ready[one] = now + away * rng.random_range(0.5..1.5);
        }
    }
    rounds as f64 * system.acceptance.expected(k) / now
}

#[test]
fn the_network_is_that_of_a_simulated_queue() {
    for requests in [2, 8, 32] {
        for draft_rtt in [0.005, 0.02, 0.08] {
            let system = System {
                draft_rtt,
                draft_workers: Some(requests),
                ..busy(requests)
            };
            let choice = plan(&system).by_length[3];
            let real = simulated(&system, 3, 5);
            // The plan may know a better way to form batches, and never a worse one.
            let ratio = choice.tokens_per_second / real;
            let most = if choice.way == Way::Continuous {
                1.12
            } else {
                1.35
            };
            assert!(
                (0.93..most).contains(&ratio),
                "{requests}, {draft_rtt}: {ratio} {choice:?}"
            );
        }
    }
}

#[test]
fn long_round_trips_ask_for_long_drafts_and_load_for_short_ones() {
    let best = |draft_rtt, requests| {
        let system = System {
            draft_rtt,
            acceptance: Acceptance::stated(&[0.9]),
            ..busy(requests)
        };
        plan(&system).best().draft_tokens
    };
    assert!(best(0.02, 1) > best(0.0005, 1));
    assert!(best(0.0005, 256) < best(0.0005, 1));
}
