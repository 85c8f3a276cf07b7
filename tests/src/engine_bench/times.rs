//! How long something took, over several tries.

use serde::Serialize;
use std::time::Duration;

/// The times of several tries, in seconds.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Times(Vec<f64>);

impl Times {
    pub(crate) fn add(&mut self, time: Duration) {
        self.0.push(time.as_secs_f64());
    }

    /// The shortest: what the machine can do when nobody disturbs it.
    pub(crate) fn best(&self) -> f64 {
        self.0.iter().copied().fold(f64::INFINITY, f64::min)
    }
}
