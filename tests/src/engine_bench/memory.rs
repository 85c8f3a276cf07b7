//! Resident memory: of the weights, and over many requests.

use super::subject::{Greedy, Subject};
use anyhow::{Context as _, Result};
use serde::Serialize;
use std::fs;

/// What many requests left behind.
#[derive(Debug, Serialize)]
pub(crate) struct Figures {
    requests: usize,
    /// After the first tenth, when the cache is full and all buffers have their size.
    before_bytes: u64,
    after_bytes: u64,
    /// The most that the process held until target and draft were loaded.
    loading_peak_bytes: u64,
}

impl Figures {
    /// Bytes by which the process grew with each.
    pub(crate) fn growth(&self) -> f64 {
        self.after_bytes.saturating_sub(self.before_bytes) as f64 / self.requests as f64
    }

    pub(crate) fn loading_peak(&self) -> f64 {
        self.loading_peak_bytes as f64
    }
}

/// Runs short requests of changing length and content.
pub(crate) async fn measure(
    draft: &Subject,
    requests: usize,
    loading_peak_bytes: u64,
) -> Result<Figures> {
    let mut before_bytes = 0;
    for number in 0..requests {
        if number == requests / 10 {
            before_bytes = resident_bytes()?;
        }
        let prompt = draft.prompt(number, 16 + number % 48);
        let mut sequence = draft.open()?;
        sequence.decode(0, prompt, 4, Greedy::new()?).await?;
    }
    Ok(Figures {
        requests,
        before_bytes,
        after_bytes: resident_bytes()?,
        loading_peak_bytes,
    })
}

/// What the process holds in memory now.
pub(crate) fn resident_bytes() -> Result<u64> {
    status("VmRSS")
}

/// The most that it ever held.
pub(crate) fn peak_bytes() -> Result<u64> {
    status("VmHWM")
}

fn status(key: &str) -> Result<u64> {
    let status = fs::read_to_string("/proc/self/status").context("read /proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix(key));
    let kib = line.and_then(|line| {
        line.trim_matches([':', ' ', '\t', 'k', 'B'])
            .parse::<u64>()
            .ok()
    });
    Ok(kib.with_context(|| format!("{key} is not in /proc/self/status"))? * 1024)
}
