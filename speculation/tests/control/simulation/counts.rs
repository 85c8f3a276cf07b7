//! What drives the system, and what is counted.

/// What decides.
#[derive(Debug, Clone, Copy)]
pub(super) enum Policy {
    Controller,
    /// Always the same: tokens to draft, those ahead, width, batches.
    Fixed(usize, usize, usize, usize),
}

/// What was counted.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counts {
    pub(super) tokens: usize,
    /// Rounds of sequences.
    pub(super) rounds: usize,
    /// Proposals asked for, probes not among them.
    pub(super) drafts: usize,
    pub(super) probes: usize,
    pub(super) plain: usize,
    pub(super) seconds: f64,
}

impl Counts {
    pub(super) fn rate(&self) -> f64 {
        self.tokens as f64 / self.seconds
    }

    pub(super) fn since(&self, before: &Counts) -> Counts {
        Counts {
            tokens: self.tokens - before.tokens,
            rounds: self.rounds - before.rounds,
            drafts: self.drafts - before.drafts,
            probes: self.probes - before.probes,
            plain: self.plain - before.plain,
            seconds: self.seconds - before.seconds,
        }
    }
}
