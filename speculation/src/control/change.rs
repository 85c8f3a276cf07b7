//! Notices that a probability is no longer what it was.

/// A change that is looked for multiplies or divides the odds by this.
const ODDS: f64 = 4.0;

/// So much evidence is a change: the logarithm of how much likelier the last observations are if
/// there was one. An observation in some thousands has it by chance.
const EVIDENCE: f64 = 6.0;

/// Page's cumulative sums of log-likelihood ratios, one for a rise and one for a fall: each starts
/// anew where what was seen so far speaks against it.
#[derive(Debug, Clone, Default)]
pub(super) struct Change {
    rise: f64,
    fall: f64,
}

impl Change {
    /// Takes in an event that was expected with probability `expected`. True where there was a
    /// change; then it starts anew.
    pub(super) fn observe(&mut self, happened: bool, expected: f64) -> bool {
        let expected = expected.clamp(0.01, 0.99);
        self.rise = (self.rise + ratio(happened, expected, ODDS)).max(0.0);
        self.fall = (self.fall + ratio(happened, expected, 1.0 / ODDS)).max(0.0);
        let changed = self.rise.max(self.fall) > EVIDENCE;
        if changed {
            *self = Self::default();
        }
        changed
    }
}

/// The log-likelihood of what happened if the odds are `odds` times what was expected, over that
/// if they are as expected.
fn ratio(happened: bool, expected: f64, odds: f64) -> f64 {
    let scale = 1.0 - expected + odds * expected;
    if happened {
        (odds / scale).ln()
    } else {
        -scale.ln()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    /// Events until a change is seen.
    fn seen_after(rng: &mut StdRng, expected: f64, real: f64, at_most: usize) -> usize {
        let mut change = Change::default();
        let mut events = 0..at_most;
        events
            .find(|_| change.observe(rng.random_bool(real), expected))
            .unwrap_or(at_most)
    }

    #[test]
    fn a_change_is_seen_soon_and_no_change_rarely() {
        let mut rng = StdRng::seed_from_u64(9);
        let mut mean = |expected, real| {
            let runs = (0..50).map(|_| seen_after(&mut rng, expected, real, 20_000));
            runs.sum::<usize>() as f64 / 50.0
        };
        assert!(mean(0.8, 0.05) < 10.0);
        assert!(mean(0.05, 0.8) < 10.0);
        for same in [0.05, 0.5, 0.8, 0.95] {
            let rare = mean(same, same);
            assert!(rare > 1500.0, "{same}: every {rare}");
        }
    }
}
