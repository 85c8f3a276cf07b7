//! A machine that computes steps: where several run at once, each gets its part of the time.

use super::Micros;

/// Whose step it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Worker {
    Target,
    Draft(usize),
}

/// Work below this, in microseconds, is rounding.
const DONE: f64 = 1e-6;

#[derive(Debug, Default)]
pub(super) struct Machine {
    /// Steps that run, and what is left of them: microseconds if each ran alone.
    running: Vec<(Worker, f64)>,
    since: Micros,
    /// How often what runs has changed: an end that was foreseen before that is none.
    pub(super) version: u64,
}

impl Machine {
    pub(super) fn start(&mut self, worker: Worker, work: Micros, now: Micros) {
        self.pass(now);
        self.running.push((worker, work as f64));
        self.version += 1;
    }

    /// Takes out the steps that are done.
    pub(super) fn finish(&mut self, now: Micros) -> Vec<Worker> {
        self.pass(now);
        self.version += 1;
        let done = self.running.extract_if(.., |(_, left)| *left <= DONE);
        done.map(|(worker, _)| worker).collect()
    }

    /// Until the next step is done, if nothing begins meanwhile.
    pub(super) fn next_end(&self) -> Option<Micros> {
        let left = self.running.iter().map(|(_, left)| *left);
        let least = left.reduce(f64::min)?;
        Some((least * self.running.len() as f64 - DONE).ceil().max(0.0) as Micros)
    }

    fn pass(&mut self, now: Micros) {
        let part = (now - self.since) as f64 / self.running.len().max(1) as f64;
        for (_, left) in &mut self.running {
            *left -= part;
        }
        self.since = now;
    }
}
