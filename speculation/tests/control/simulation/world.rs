//! What is true, and not known to the controller.

use rand::Rng;
use rand::rngs::StdRng;

/// The conditions of a regime.
#[derive(Debug, Clone, Copy)]
pub(super) struct World {
    /// Probability that a drafted token is accepted.
    pub(super) alpha: f64,
    /// Sequences at once.
    pub(super) sequences: usize,
    /// Round trips to the draft worker and to the target, in seconds.
    pub(super) draft_rtt: f64,
    pub(super) target_rtt: f64,
    /// Seconds of a step: its base, and per row.
    pub(super) verify: (f64, f64),
    pub(super) draft: (f64, f64),
    /// By how much drafting ahead slows verification down.
    pub(super) contention: f64,
    /// Part of the steps that take twenty times as long.
    pub(super) outliers: f64,
}

impl World {
    pub(super) const CALM: Self = Self {
        alpha: 0.8,
        sequences: 1,
        draft_rtt: 0.0005,
        target_rtt: 0.0005,
        verify: (0.017, 0.0001),
        draft: (0.0025, 0.00002),
        contention: 1.0,
        outliers: 0.0,
    };

    pub(super) fn verify_seconds(&self, rng: &mut StdRng, rows: usize, ahead: bool) -> f64 {
        let contention = if ahead { self.contention } else { 1.0 };
        let seconds = self.verify.0 + self.verify.1 * rows as f64;
        seconds * contention * self.noise(rng)
    }

    pub(super) fn draft_seconds(&self, rng: &mut StdRng, rows: usize) -> f64 {
        (self.draft.0 + self.draft.1 * rows as f64) * self.noise(rng)
    }

    pub(super) fn noise(&self, rng: &mut StdRng) -> f64 {
        let outlier = if rng.random_bool(self.outliers) {
            20.0
        } else {
            1.0
        };
        rng.random_range(0.95..1.05) * outlier
    }

    /// How many of `k` drafted tokens the target accepts.
    pub(super) fn accepted(&self, rng: &mut StdRng, k: usize) -> usize {
        (0..k).take_while(|_| rng.random_bool(self.alpha)).count()
    }

    /// The rank of the target's token among the draft's candidates, as of the real pair.
    pub(super) fn rank(rng: &mut StdRng, all_accepted: bool) -> usize {
        let within = if all_accepted {
            [(1, 0.73), (2, 0.84), (4, 0.90), (8, 0.94)]
        } else {
            [(1, 0.40), (2, 0.55), (4, 0.70), (8, 0.81)]
        };
        let drawn = rng.random_range(0.0..1.0);
        let found = within.into_iter().find(|(_, within)| drawn < *within);
        found.map_or(1000, |(rank, _)| rank)
    }
}
