//! What a system can do, from the times of its parts: the best draft length, tokens per second,
//! time per token, draft workers needed, and which bound binds.
//!
//! Pure, like all of this crate. [`plan`] is for whoever sizes a system (`coordinator plan`);
//! [`plain_rate`], [`synchronous_rate`] and [`ahead_rate`] are the closed forms that benchmarks
//! compare with. The controller ([`crate::control`]) decides from measured costs instead, with the
//! same formulas.

mod forms;
mod network;
mod system;

pub use forms::{ahead_rate, plain_rate, synchronous_rate};
pub use network::{Bound, Bounds, Choice, Way};
pub use system::{StepTime, System};

use crate::control;

/// A plan with more draft workers has to bring this much more to be preferred.
const WORTH_WORKERS: f64 = 0.97;

/// A longer draft has to bring this much more to be preferred.
const WORTH_LENGTH: f64 = 1.005;

/// What [`plan`] finds.
#[derive(Debug, Clone, PartialEq)]
pub struct Planned {
    /// What each draft length gives, from 0 (plain decoding) on.
    pub by_length: Vec<Choice>,
    /// The best of them.
    pub best: usize,
    /// Drafting ahead, where that is better still.
    pub ahead: Option<AheadChoice>,
    /// Draft workers: as stated, or else the fewest that give nearly what one for each request
    /// would. 0 where plain decoding is best.
    pub draft_workers: usize,
}

/// Drafting ahead while a proposal is verified.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AheadChoice {
    /// Tokens to draft where nothing was drafted ahead.
    pub draft_tokens: usize,
    /// Tokens to draft after each outcome.
    pub ahead_tokens: usize,
    /// Candidates followed at each position.
    pub width: usize,
    /// Of all requests.
    pub tokens_per_second: f64,
    /// Of one request.
    pub seconds_per_token: f64,
}

impl Planned {
    /// Plain decoding.
    pub fn plain(&self) -> &Choice {
        &self.by_length[0]
    }

    /// The best draft length, drafting ahead left out.
    pub fn best(&self) -> &Choice {
        &self.by_length[self.best]
    }

    /// Tokens per second of the best of all.
    pub fn tokens_per_second(&self) -> f64 {
        let ahead = self.ahead.map_or(0.0, |ahead| ahead.tokens_per_second);
        self.best().tokens_per_second.max(ahead)
    }
}

/// Plans `system`.
pub fn plan(system: &System) -> Planned {
    let workers = system.draft_workers.map(|workers| workers.max(1));
    let workers = workers.unwrap_or_else(|| fewest(system));
    let mut planned = with(system, workers);
    if planned.best == 0 && planned.ahead.is_none() && system.draft_workers.is_none() {
        planned.draft_workers = 0;
    }
    planned
}

/// The fewest workers that give nearly what one for each request would.
fn fewest(system: &System) -> usize {
    let most = system.requests.max(1);
    let enough = WORTH_WORKERS * with(system, most).tokens_per_second();
    let gives = |workers: usize| with(system, workers).tokens_per_second();
    (1..most)
        .find(|workers| gives(*workers) >= enough)
        .unwrap_or(most)
}

fn with(system: &System, workers: usize) -> Planned {
    let most = system.max_draft_tokens.min(control::MAX_DRAFT);
    let by_length: Vec<Choice> = (0..=most)
        .map(|k| network::choice(system, workers, k))
        .collect();
    let mut best = 0;
    for (k, choice) in by_length.iter().enumerate() {
        if choice.tokens_per_second > WORTH_LENGTH * by_length[best].tokens_per_second {
            best = k;
        }
    }
    let reached = by_length[best].tokens_per_second;
    let ahead = forms::best_ahead(system, workers, most)
        .filter(|ahead| ahead.tokens_per_second > reached / WORTH_WORKERS);
    Planned {
        by_length,
        best,
        ahead,
        draft_workers: workers,
    }
}
