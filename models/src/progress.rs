//! The progress of a fetch, on a terminal.

use indicatif::{ProgressBar, ProgressStyle};
use std::time::Duration;

/// A bar on standard error. Shows nothing where that is not a terminal, and is gone once dropped.
#[derive(Debug)]
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// A bar for `what`, of `total` bytes.
    pub(crate) fn new(what: &str, total: u64) -> Self {
        let bar = ProgressBar::new(total).with_message(what.to_owned());
        bar.set_style(
            ProgressStyle::with_template(
                "{msg} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec}, {eta} left",
            )
            .expect("the template is valid"),
        );
        bar.enable_steady_tick(Duration::from_millis(200));
        Self(bar)
    }

    /// Sets how many bytes will come.
    pub(crate) fn total(&self, bytes: u64) {
        self.0.set_length(bytes);
    }

    /// Adds bytes that have come.
    pub(crate) fn advance(&self, bytes: u64) {
        self.0.inc(bytes);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
