//! What a plan is made for.

use crate::control::{Acceptance, Ranks, StepCosts};

/// The time of a step by its size: a base and a part for each row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepTime {
    /// Seconds of every step.
    pub base: f64,
    /// Seconds more for each row.
    pub row: f64,
}

impl StepTime {
    /// Seconds of a step of `rows`.
    pub fn seconds(&self, rows: f64) -> f64 {
        self.base + self.row * rows
    }

    /// The same as if it had been measured. Costs are interpolated and continued linearly, so two
    /// sizes are enough.
    pub(super) fn measured(&self) -> StepCosts {
        let mut costs = StepCosts::new();
        for size in [1, 1024] {
            // Once is not enough to be believed.
            costs.observe(size, self.seconds(size as f64));
            costs.observe(size, self.seconds(size as f64));
        }
        costs
    }
}

/// A system of one target, some draft workers, and requests that run at once.
#[derive(Debug, Clone)]
pub struct System {
    /// The target's step, by rows: one for each sequence and one for each drafted token.
    pub verify: StepTime,
    /// A draft worker's step, by the sequences (and branches) that it advances by a token.
    pub draft: StepTime,
    /// Round trip to a draft worker, in seconds.
    pub draft_rtt: f64,
    /// Round trip to the target, in seconds.
    pub target_rtt: f64,
    /// How many drafted tokens are accepted.
    pub acceptance: Acceptance,
    /// Where the target's token is among the draft's candidates.
    pub ranks: Ranks,
    /// Requests that run at once.
    pub requests: usize,
    /// Draft workers. Unset: as many as are needed.
    pub draft_workers: Option<usize>,
    /// The longest draft.
    pub max_draft_tokens: usize,
}

impl System {
    /// One request, one draft worker, no round trips, every length that can be; acceptance by
    /// position, the last one holding beyond.
    pub fn new(verify: StepTime, draft: StepTime, acceptance: &[f64]) -> Self {
        Self {
            verify,
            draft,
            draft_rtt: 0.0,
            target_rtt: 0.0,
            acceptance: Acceptance::stated(acceptance),
            ranks: Ranks::new(),
            requests: 1,
            draft_workers: Some(1),
            max_draft_tokens: crate::control::MAX_DRAFT,
        }
    }
}
