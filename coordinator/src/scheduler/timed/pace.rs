//! What steps take: by their size, and otherwise than by their size.

use super::Micros;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeSet;

/// What a step takes in the long run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Step {
    pub(super) base: Micros,
    pub(super) row: f64,
}

/// How steps differ from that.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rough {
    /// So many steps of a worker at first, and the first of each size, are cold,
    pub(super) cold_steps: usize,
    /// and take so many times as long.
    pub(super) cold: f64,
    /// Each takes up to this part more or less.
    pub(super) jitter: f64,
}

impl Rough {
    pub(super) const NONE: Self = Self {
        cold_steps: 0,
        cold: 1.0,
        jitter: 0.0,
    };
}

/// One worker's steps.
#[derive(Debug)]
pub(super) struct Pace {
    step: Step,
    rough: Rough,
    taken: usize,
    sizes: BTreeSet<usize>,
    rng: StdRng,
}

impl Pace {
    pub(super) fn new(step: Step, rough: Rough) -> Self {
        Self {
            step,
            rough,
            taken: 0,
            sizes: BTreeSet::new(),
            rng: StdRng::seed_from_u64(5),
        }
    }

    /// What the next step takes.
    pub(super) fn next(&mut self, rows: usize) -> Micros {
        let Rough {
            cold_steps,
            cold,
            jitter,
        } = self.rough;
        let micros = self.step.base + (self.step.row * rows as f64) as Micros;
        let is_cold = self.sizes.insert(rows) || self.taken < cold_steps;
        self.taken += 1;
        let factor = if is_cold { cold } else { 1.0 };
        let off = 1.0 + jitter * self.rng.random_range(-1.0..1.0);
        (micros as f64 * factor * off).round() as Micros
    }
}
