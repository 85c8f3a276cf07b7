//! How long a step takes.

use std::{
    thread,
    time::{Duration, Instant},
};

/// Keeps steps to their time by the clock.
///
/// A sleep overshoots by a tenth of a millisecond or more, which would add up: what one step took too long, the next ones
/// are shorter by. So steps take their time exactly, on average.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// What the steps so far took too long and those to come make up for.
    late: Duration,
}

/// What is made up for at most: a pause of the whole machine is no step.
const MOST_LATE: Duration = Duration::from_millis(5);

impl Pace {
    /// Waits until the step that began at `begun` has taken `long`, less what it makes up for.
    pub(super) fn wait(&mut self, begun: Instant, long: Duration) {
        let due = long.saturating_sub(self.late);
        let left = due.saturating_sub(begun.elapsed());
        if !left.is_zero() {
            thread::sleep(left);
        }
        self.took(begun.elapsed(), long);
    }

    /// A step took `took` where it was to take `long`.
    fn took(&mut self, took: Duration, long: Duration) {
        self.late = (self.late + took).saturating_sub(long).min(MOST_LATE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn what_a_step_took_too_long_the_next_ones_make_up_for() {
        let mut pace = Pace::default();
        pace.took(3 * MS, 2 * MS);
        assert_eq!(pace.late, MS);
        // Shorter by that, and too long again.
        pace.took(MS + MS / 4, 2 * MS);
        assert_eq!(pace.late, MS / 4);
        pace.took(2 * MS - MS / 4, 2 * MS);
        assert_eq!(pace.late, Duration::ZERO);
        pace.took(MS, 2 * MS);
        assert_eq!(
            pace.late,
            Duration::ZERO,
            "what was too short is not made up for"
        );
    }

    #[test]
    fn a_pause_of_the_whole_machine_is_not_made_up_for() {
        let mut pace = Pace::default();
        pace.took(10_000 * MS, MS);
        assert_eq!(pace.late, MOST_LATE);
    }
}
