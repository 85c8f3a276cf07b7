//! What something takes whose size does not matter, as measured.

use super::Ewma;

/// So many in a row that are all this many times the mean, or less than its part, are a new measure: a
/// way has changed. Fewer, or nearer ones, are the jitter that a mean is there for.
const IN_A_ROW: usize = 4;
const JUMP: f64 = 2.0;

/// The mean seconds of a round trip, which follows at once where it jumps.
///
/// A mean, since what is late now and then costs what it is late; a mean alone would take its whole
/// memory to notice that a worker is reached by another way now.
#[derive(Debug, Clone)]
pub struct Delay {
    memory: f64,
    mean: Ewma,
    /// The latest ones that contradict the mean, all on the same side of it.
    against: Vec<f64>,
}

impl Delay {
    /// Of about the last `memory` values, at least 1.
    pub fn new(memory: f64) -> Self {
        Self {
            memory,
            mean: Ewma::new(memory),
            against: Vec::with_capacity(IN_A_ROW),
        }
    }

    /// It took `seconds` once. What cannot be is left out.
    pub fn observe(&mut self, seconds: f64) {
        if !seconds.is_finite() || seconds < 0.0 {
            return;
        }
        let mean = self.mean.value_or(seconds);
        let jumps = |seconds: f64| (seconds > mean * JUMP, seconds * JUMP < mean);
        let goes = jumps(seconds);
        self.against.retain(|before| jumps(*before) == goes);
        match goes {
            (false, false) => self.against.clear(),
            _ => self.against.push(seconds),
        }
        self.mean.observe(seconds);
        if self.against.len() == IN_A_ROW {
            self.mean = Ewma::new(self.memory);
            for seconds in self.against.drain(..) {
                self.mean.observe(seconds);
            }
        }
    }

    /// The mean; `None` before the first value.
    pub fn seconds(&self) -> Option<f64> {
        self.mean.value()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(values: impl IntoIterator<Item = f64>) -> Delay {
        let mut delay = Delay::new(32.0);
        values.into_iter().for_each(|value| delay.observe(value));
        delay
    }

    fn of(delay: &Delay) -> f64 {
        delay.seconds().unwrap_or(f64::NAN)
    }

    #[test]
    fn it_follows_a_jump_either_way_within_four() {
        for (before, after) in [(0.02, 0.08), (0.08, 0.02)] {
            let mut delay = seen([before; 100]);
            for _ in 0..4 {
                delay.observe(after);
            }
            assert!((of(&delay) - after).abs() < 1e-12, "{after}");
        }
    }

    #[test]
    fn jitter_is_averaged() {
        // Every third one is late, by more than the factor of a jump; the others are early by it.
        let values = [0.01, 0.01, 0.1];
        let delay = seen(values.into_iter().cycle().take(501));
        assert!((of(&delay) - 0.04).abs() < 5e-3, "{delay:?}");
    }

    #[test]
    fn what_cannot_be_is_left_out() {
        let delay = seen([0.02, f64::NAN, f64::INFINITY, -1.0]);
        assert_eq!(delay.seconds(), Some(0.02));
        assert_eq!(seen([]).seconds(), None);
    }
}
