//! When the log says what speculation did.

use crate::scheduler::Counters;
use std::time::Duration;
use tokio::time::Instant;

/// The time between two lines, while anything is decoded.
const EVERY: Duration = Duration::from_secs(10);

/// Watches the counters.
#[derive(Debug, Default)]
pub(super) struct Report {
    /// What the last line has told.
    told: Counters,
    /// When the first token was seen that it has not.
    since: Option<Instant>,
}

impl Report {
    /// When the next line is due. None while nothing is decoded.
    pub(super) fn due(&self) -> Option<Instant> {
        Some(self.since? + EVERY)
    }

    /// Sees at `now` that `committed` tokens were committed since the start.
    pub(super) fn see(&mut self, committed: u64, now: Instant) {
        if self.since.is_none() && committed > self.told.committed {
            self.since = Some(now);
        }
    }

    /// The line, where it is due at `now`.
    pub(super) fn line(
        &mut self,
        counters: impl FnOnce() -> Counters,
        now: Instant,
    ) -> Option<String> {
        let since = self.since.take_if(|since| *since + EVERY <= now)?;
        let counters = counters();
        let done = counters.since(&self.told);
        let line = done.line((now - since).as_secs_f64()).to_string();
        self.told = counters;
        Some(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters(committed: u64) -> Counters {
        Counters {
            committed,
            ..Counters::default()
        }
    }

    #[test]
    fn there_is_a_line_every_ten_seconds_while_anything_is_decoded_and_none_else() {
        let (start, mut report) = (Instant::now(), Report::default());
        let at = |seconds| start + Duration::from_secs(seconds);
        report.see(0, at(0));
        assert_eq!(report.due(), None);
        report.see(5, at(100));
        report.see(20, at(105));
        assert_eq!(report.due(), Some(at(110)));
        assert_eq!(report.line(|| counters(20), at(109)), None);
        let line = report.line(|| counters(20), at(110)).unwrap();
        assert!(
            line.contains("Generation throughput: 2.00 tokens/s"),
            "{line}"
        );
        report.see(20, at(110));
        assert_eq!(report.due(), None, "nothing new");
        report.see(30, at(500));
        let line = report.line(|| counters(30), at(510)).unwrap();
        assert!(
            line.contains("Generation throughput: 1.00 tokens/s"),
            "{line}"
        );
    }
}
