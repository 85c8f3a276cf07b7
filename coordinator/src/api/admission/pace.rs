//! How soon places come free, from how they did.

use std::time::{Duration, Instant};

/// The bounds of what a client is told.
const LEAST: Duration = Duration::from_secs(1);
const MOST: Duration = Duration::from_secs(60);

/// How much of the mean a new gap leaves as it was.
const KEPT: f64 = 0.9;

/// The gaps between places that come free, while any is taken.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// Their mean in seconds, the later ones weighing more.
    gap: Option<f64>,
    /// When the gap that is open began; none while nothing runs.
    open: Option<Instant>,
}

impl Pace {
    /// Something runs from `now` on.
    pub(super) fn busy(&mut self, now: Instant) {
        self.open.get_or_insert(now);
    }

    /// `places` came free; `idle` where nothing runs any more.
    pub(super) fn freed(&mut self, places: u32, idle: bool, now: Instant) {
        let Some(open) = self.open.filter(|_| places > 0) else {
            return;
        };
        let gap = now.saturating_duration_since(open).as_secs_f64() / f64::from(places);
        let kept = KEPT.powi(places.min(64) as i32);
        self.gap = Some(
            self.gap
                .map_or(gap, |mean| mean * kept + gap * (1.0 - kept)),
        );
        self.open = (!idle).then_some(now);
    }

    /// When one who is told so may find `places` free: 1 to 60 seconds.
    pub(super) fn wait_for(&self, places: u32, now: Instant) -> Duration {
        let open = self
            .open
            .map_or(Duration::ZERO, |open| now.saturating_duration_since(open));
        // A gap that is longer than they were says that they are longer now.
        let gap = self.gap.unwrap_or_default().max(open.as_secs_f64());
        Duration::try_from_secs_f64(gap * f64::from(places))
            .unwrap_or(MOST)
            .clamp(LEAST, MOST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hint_follows_the_rate_at_which_places_come_free() {
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let mut pace = Pace::default();
        assert_eq!(pace.wait_for(1, at(0)), LEAST, "nothing is known");
        pace.busy(at(0));
        assert_eq!(pace.wait_for(1, at(8)), Duration::from_secs(8));
        for second in 1..=100 {
            pace.freed(1, false, at(3 * second));
        }
        let hint = pace.wait_for(4, at(300)).as_secs_f64();
        assert!((hint - 12.0).abs() < 0.01, "{hint}");
        assert_eq!(pace.wait_for(1000, at(300)), MOST);
        pace.freed(1, true, at(303));
        let hint = pace.wait_for(1, at(9000)).as_secs_f64();
        assert!((hint - 3.0).abs() < 0.01, "idle time is no gap: {hint}");
    }
}
