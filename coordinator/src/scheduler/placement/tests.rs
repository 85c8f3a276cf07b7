use super::*;
use crate::request::Choice;
use crate::scheduler::sequence::AtTarget;
use crate::scheduler::{Event, Patience, Processors, SpecOptions, TargetLimits};
use crate::testing;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use speculation::NoiseKey;
use std::sync::Arc;

/// Steps that are measured: of so many sequences.
const SIZES: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];

/// Draft workers and sequences without messages: what is measured is stated, and time is the test's.
struct World {
    scheduler: Scheduler,
    now: Instant,
    sequences: SequenceId,
    moves: usize,
}

impl World {
    /// A target that takes 20 ms and some for each row, and workers of these speeds.
    fn new(speeds: &[f64]) -> Self {
        let patience = Patience {
            draft: Duration::from_secs(2),
            target: Duration::from_secs(30),
        };
        let mut world = Self {
            scheduler: Scheduler::new(patience, SpecOptions::default()),
            now: Instant::now(),
            sequences: 0,
            moves: 0,
        };
        for rows in [1, 4, 16, 64, 256, 1024] {
            for _ in 0..4 {
                let seconds = 0.020 + 0.000_01 * rows as f64;
                world.scheduler.verifying.step.observe(rows, seconds);
            }
        }
        let limits = TargetLimits {
            max_sequences: 1000,
            max_draft_tokens: 16,
            processors: Processors::default(),
        };
        world.event(Event::TargetUp {
            limits,
            replaced: false,
        });
        for (worker, speed) in speeds.iter().enumerate() {
            world.join(worker);
            world.measure(worker, *speed, 1.0);
        }
        world
    }

    fn event(&mut self, event: Event) {
        self.scheduler.handle(event, self.now);
        self.scheduler.advance(self.now);
    }

    fn join(&mut self, worker: WorkerId) {
        let limits = DraftLimits {
            max_sequences: 100,
            max_draft_tokens: 16,
            context_length: 1000,
            processors: Processors::default(),
        };
        self.event(Event::DraftUp(worker, limits));
    }

    /// A worker of speed 1 takes 1 ms and 1 ms for each sequence; `noise` times that.
    fn measure(&mut self, worker: WorkerId, speed: f64, noise: f64) {
        let measured = &mut self.scheduler.drafts[worker].measured;
        for size in SIZES {
            for _ in 0..4 {
                let seconds = 0.001 * (1.0 + size as f64) / speed * noise;
                measured.step.observe(size, seconds);
            }
        }
        measured.rtt.observe(0.0005);
    }

    fn admit(&mut self, count: usize) {
        for _ in 0..count {
            self.sequences += 1;
            let choice = Choice {
                generation: Arc::new(testing::generation(vec![1], 500)),
                key: NoiseKey(1),
            };
            self.event(Event::Admit(self.sequences, choice));
            self.decode(self.sequences);
        }
    }

    /// The sequence is open everywhere.
    fn decode(&mut self, id: SequenceId) {
        let sequence = self.scheduler.sequences.get_mut(&id).unwrap();
        sequence.at_target = AtTarget::Idle;
        if let Some(seat) = &mut sequence.seat {
            seat.opened = true;
        }
    }

    /// Every sequence has a round, one after the other within 25 ms, and may move at its end.
    fn round(&mut self) {
        for id in 1..=self.sequences {
            let sequence = self.scheduler.sequences.get_mut(&id).unwrap();
            sequence.stats.rounds += 1;
            self.now += Duration::from_millis(25) / self.sequences as u32;
            if self.scheduler.migrate(id, self.now) {
                self.moves += 1;
                self.decode(id);
            }
        }
    }

    fn seats(&self) -> Vec<usize> {
        let workers = self.scheduler.drafts.iter();
        workers.map(|worker| worker.seats).collect()
    }
}

#[test]
fn sequences_are_spread_by_speed_and_stay() {
    let mut world = World::new(&[1.0, 2.0, 4.0, 8.0]);
    world.admit(60);
    let seats = world.seats();
    println!("seats {seats:?}");
    assert!(seats.is_sorted() && seats[0] > 0, "{seats:?}");
    assert!(seats[3] >= 4 * seats[0], "{seats:?}");
    for _ in 0..200 {
        world.round();
    }
    assert!(world.moves <= 2, "{:?}", world.seats());
}

#[test]
fn a_worker_that_becomes_fast_draws_sequences() {
    let mut world = World::new(&[1.0, 1.0]);
    world.admit(20);
    let before = world.seats();
    assert!(before[0].abs_diff(before[1]) <= 2, "{before:?}");
    world.measure(1, 8.0, 1.0);
    for _ in 0..160 {
        world.round();
    }
    let (after, moves) = (world.seats(), world.moves);
    println!("seats {before:?}, then {after:?} by {moves} moves");
    assert!(after[1] >= 2 * after[0], "{after:?}");
    assert_eq!(moves, before[0] - after[0], "each of them once");
}

#[test]
fn noise_does_not_send_sequences_to_and_fro() {
    let seed = rand::random();
    println!("seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let speeds = [1.0, 1.0, 2.0];
    let mut world = World::new(&speeds);
    world.admit(25);
    for _ in 0..400 {
        for (worker, speed) in speeds.into_iter().enumerate() {
            world.measure(worker, speed, random.random_range(0.8..1.2));
        }
        world.round();
    }
    let (seats, moves) = (world.seats(), world.moves);
    println!("seats {seats:?}, {moves} moves in 10,000 events");
    assert!(moves <= 10, "{moves}");
    assert!(seats[2] > seats[0].max(seats[1]), "{seats:?}");
}

#[test]
fn a_worker_that_joins_is_tried_by_one_sequence_and_draws_more_once_it_is_known() {
    let mut world = World::new(&[1.0, 1.0]);
    world.admit(20);
    world.join(2);
    for _ in 0..80 {
        world.round();
    }
    assert_eq!((world.seats()[2], world.moves), (1, 1));
    world.measure(2, 8.0, 1.0);
    for _ in 0..160 {
        world.round();
    }
    let seats = world.seats();
    println!("seats {seats:?}, {} moves", world.moves);
    assert!(seats[2] > seats[0].max(seats[1]), "{seats:?}");
}

#[test]
fn few_new_sequences_are_spent_on_a_worker_that_nobody_knows() {
    let mut world = World::new(&[1.0, 1.0]);
    world.join(2);
    world.admit(8);
    assert_eq!(world.seats()[2], TO_MEASURE);
}

#[test]
fn sequences_of_a_worker_that_is_lost_or_taken_away_move_at_once() {
    for retired in [false, true] {
        let mut world = World::new(&[1.0, 2.0, 4.0]);
        world.admit(12);
        let event = if retired {
            Event::DraftRetired(2)
        } else {
            Event::DraftDown(2)
        };
        world.event(event);
        let seats = world.seats();
        assert_eq!((seats[2], seats[0] + seats[1]), (0, 12), "{seats:?}");
        let losses = world.scheduler.sequences.values();
        let losses = losses.map(|sequence| sequence.seat_losses).sum::<u32>();
        assert_eq!(
            losses > 0,
            !retired,
            "nothing is wrong with those that left"
        );
    }
}
