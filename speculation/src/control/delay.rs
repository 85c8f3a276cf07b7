//! How long a way takes, as measured.

/// Values that the mean remembers.
const MEMORY: f64 = 32.0;

/// The usual delay of a way: a mean of medians of three, so that one that is out of line, as the
/// first often is, changes nothing.
#[derive(Debug, Clone, Default)]
pub struct Delay {
    last: [f64; 3],
    count: f64,
    seconds: Option<f64>,
}

impl Delay {
    /// Nothing measured.
    pub fn new() -> Self {
        Self::default()
    }

    /// It took `seconds` once. What is not finite is no measurement, and left out.
    pub fn observe(&mut self, seconds: f64) {
        if !seconds.is_finite() {
            return;
        }
        let Some(mean) = self.seconds else {
            self.last = [seconds; 3];
            (self.count, self.seconds) = (1.0, Some(seconds));
            return;
        };
        self.last = [self.last[1], self.last[2], seconds];
        self.count = (self.count + 1.0).min(MEMORY);
        let mut sorted = self.last;
        sorted.sort_by(f64::total_cmp);
        let [low, median, _] = sorted;
        // Of the first two the larger may be the one out of line.
        self.seconds = Some(match self.count {
            2.0 => low,
            3.0 => median,
            count => mean + (median - mean) / count,
        });
    }

    /// In seconds; `None` before anything was measured.
    pub fn seconds(&self) -> Option<f64> {
        self.seconds
    }

    /// The same, or `other` before anything was measured.
    pub fn seconds_or(&self, other: f64) -> f64 {
        self.seconds.unwrap_or(other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_out_of_line_changes_nothing_wherever_it_is() {
        for at in 0..10 {
            let mut delay = Delay::new();
            for value in 0..12 {
                delay.observe(if value == at { 0.3 } else { 0.001 });
                let seconds = delay.seconds_or(0.0);
                assert!(seconds < 0.0011 || (at, value) == (0, 0), "{at}: {seconds}");
            }
        }
    }

    #[test]
    fn it_follows_what_lasts() {
        let mut delay = Delay::new();
        assert_eq!(delay.seconds(), None);
        delay.observe(f64::NAN);
        assert_eq!(delay.seconds(), None);
        for seconds in [0.001, 0.080] {
            (0..200).for_each(|_| delay.observe(seconds));
            assert!((delay.seconds_or(0.0) - seconds).abs() < 0.001);
        }
    }
}
