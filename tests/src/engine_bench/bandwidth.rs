//! The rate at which the threads that compute can read memory.

use serde::Serialize;
use std::hint::black_box;
use std::thread;
use std::time::Instant;

/// Larger than any cache.
const BYTES: usize = 1 << 30;

/// The best rate seen, in bytes per second.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Bandwidth {
    best: f64,
    samples: Vec<f64>,
}

/// Threads that compute: what candle was told, or all cores.
pub(crate) fn threads() -> usize {
    let told = std::env::var("CANDLE_NUM_THREADS").ok();
    let told = told.and_then(|text| text.parse().ok());
    told.or_else(|| thread::available_parallelism().map(usize::from).ok())
        .unwrap_or(1)
}

impl Bandwidth {
    pub(crate) fn best(&self) -> f64 {
        self.best
    }

    /// Reads a large piece of memory three times, each thread its own part of it.
    pub(crate) fn measure(&mut self) {
        let words = vec![1_u64; BYTES / size_of::<u64>()];
        let part = words.len().div_ceil(threads());
        for _ in 0..3 {
            let begun = Instant::now();
            thread::scope(|scope| {
                for part in words.chunks(part) {
                    scope.spawn(|| black_box(sum(part)));
                }
            });
            let rate = BYTES as f64 / begun.elapsed().as_secs_f64();
            self.samples.push(rate);
            self.best = self.best.max(rate);
        }
    }
}

/// A sum that the compiler makes of wide loads.
fn sum(words: &[u64]) -> u64 {
    let mut sums = [0_u64; 32];
    let (whole, _) = words.as_chunks::<32>();
    for words in whole {
        for (sum, word) in sums.iter_mut().zip(words) {
            *sum = sum.wrapping_add(*word);
        }
    }
    sums.into_iter().fold(0, u64::wrapping_add)
}
