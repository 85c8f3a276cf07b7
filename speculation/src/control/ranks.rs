//! How often the target's token is among the draft's next candidates.

use super::Acceptance;

/// Candidates are counted in these bins, each up to so many.
const UPPER: [usize; 5] = [1, 2, 4, 8, 16];

/// Measured on the real pair (design, verification 7), but for 16, which continues the row.
const AFTER_REJECTION: [f64; 5] = [0.40, 0.55, 0.70, 0.81, 0.88];
const AFTER_ACCEPTANCE: [f64; 5] = [0.73, 0.84, 0.90, 0.94, 0.965];

/// For how many observations the assumption counts.
const PRIOR_WEIGHT: f64 = 8.0;

/// Observations that are remembered.
const MEMORY: f64 = 256.0;

/// The probability that the target's token is among the draft's next candidates: what tells how
/// often an outcome that was drafted ahead is the one that comes.
///
/// After a rejection the candidates are those other than the rejected token, so the likeliest of
/// them has rank 1 here, and rank 2 in a `Proposal`. After a full acceptance rank 1 is the draft's
/// own choice.
#[derive(Debug, Clone)]
pub struct Ranks {
    rejection: Counts,
    bonus: Counts,
}

impl Default for Ranks {
    fn default() -> Self {
        Self::new()
    }
}

impl Ranks {
    /// As measured on the real pair.
    pub fn new() -> Self {
        Self::stated(AFTER_REJECTION, AFTER_ACCEPTANCE)
    }

    /// Known beforehand: the probabilities for 1, 2, 4, 8 and 16 candidates.
    pub fn stated(after_rejection: [f64; 5], after_acceptance: [f64; 5]) -> Self {
        Self {
            rejection: Counts::new(after_rejection),
            bonus: Counts::new(after_acceptance),
        }
    }

    /// A drafted token was rejected, and `followed` candidates other than it were known: the
    /// target's token was the one of that rank, or none of them.
    pub fn observe_rejection(&mut self, rank: Option<usize>, followed: usize) {
        self.rejection.observe(rank, followed);
    }

    /// All drafted tokens were accepted, and `followed` candidates after them were known: the
    /// target's token was the one of that rank, or none of them.
    pub fn observe_bonus(&mut self, rank: Option<usize>, followed: usize) {
        self.bonus.observe(rank, followed);
    }

    /// The probability that the target's token is among the first `width` candidates after a
    /// rejection.
    pub fn after_rejection(&self, width: usize) -> f64 {
        self.rejection.within(width)
    }

    /// The same after a full acceptance.
    pub fn after_acceptance(&self, width: usize) -> f64 {
        self.bonus.within(width)
    }

    /// The probability that an outcome of verifying `k` drafted tokens is among those followed:
    /// `width` candidates at every position, or the draft's own choice at the end alone where it
    /// is 1.
    pub fn hit(&self, k: usize, width: usize, acceptance: &Acceptance) -> f64 {
        let accepted = acceptance.survival(k);
        match width {
            0 => 0.0,
            1 => accepted * self.after_acceptance(1),
            _ => {
                accepted * self.after_acceptance(width)
                    + (1.0 - accepted) * self.after_rejection(width)
            }
        }
    }
}

/// Hazards by bin: of the outcomes that are in no bin before, how many are in this one.
#[derive(Debug, Clone)]
struct Counts {
    assumed: [f64; UPPER.len()],
    /// Outcomes that came to the bin, up to the memory.
    reached: [f64; UPPER.len()],
    /// The part of them that is in it.
    found: [f64; UPPER.len()],
}

impl Counts {
    fn new(within: [f64; UPPER.len()]) -> Self {
        let mut beyond = 1.0;
        let assumed = within.map(|within: f64| {
            let left = (1.0 - within).clamp(0.0, beyond);
            let hazard = if beyond > 0.0 {
                1.0 - left / beyond
            } else {
                1.0
            };
            beyond = left;
            hazard
        });
        Self {
            assumed,
            reached: [0.0; UPPER.len()],
            found: [0.0; UPPER.len()],
        }
    }

    /// Beyond what was followed nothing is known; neither of a bin that was followed in part: its
    /// hits would count and its misses not.
    fn observe(&mut self, rank: Option<usize>, followed: usize) {
        let rank = rank.filter(|rank| *rank >= 1);
        for (bin, upper) in UPPER.into_iter().enumerate() {
            if upper > followed {
                return;
            }
            let found = rank.is_some_and(|rank| rank <= upper);
            let share = 1.0 / (self.reached[bin] + 1.0);
            self.found[bin] += (f64::from(u8::from(found)) - self.found[bin]) * share;
            self.reached[bin] = (self.reached[bin] + 1.0).min(MEMORY);
            if found {
                return;
            }
        }
    }

    fn hazard(&self, bin: usize) -> f64 {
        let (reached, found) = (self.reached[bin], self.found[bin]);
        (found * reached + PRIOR_WEIGHT * self.assumed[bin]) / (reached + PRIOR_WEIGHT)
    }

    fn within(&self, width: usize) -> f64 {
        let mut beyond = 1.0;
        let mut from = 0;
        for (bin, upper) in UPPER.into_iter().enumerate() {
            let after = beyond * (1.0 - self.hazard(bin));
            if width < upper {
                // Within a bin, as if every rank were as likely.
                let part = (width - from) as f64 / (upper - from) as f64;
                return 1.0 - (beyond + (after - beyond) * part);
            }
            (beyond, from) = (after, upper);
        }
        1.0 - beyond
    }
}
