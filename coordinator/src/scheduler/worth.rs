//! What a draft worker gives its sequences, by how many it has: predicted from what was measured.

use super::measured::Verifying;
use super::placement::DraftWorker;
use speculation::control::{Overlap, Plan, Situation, StepCosts, plan};
use std::time::{Duration, Instant};

/// How long a prediction holds: many sequences may come at once, and none of them changes what was
/// measured.
const HOLDS: Duration = Duration::from_millis(100);

/// What is predicted for a worker with a number of sequences.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Worth {
    /// Tokens per second of each of them.
    pub(super) rate: f64,
    /// What all of them together have over plain decoding, in tokens per second.
    pub(super) gain: f64,
}

impl Worth {
    const NOTHING: Self = Self {
        rate: 0.0,
        gain: 0.0,
    };
}

/// Predictions of one worker.
#[derive(Debug, Default)]
pub(super) struct Predictions {
    since: Option<Instant>,
    /// By the number of its sequences.
    of: Vec<(usize, Option<Worth>)>,
}

impl Predictions {
    /// The prediction for `seats` sequences, made by `predict` where there is none that holds.
    pub(super) fn of(
        &mut self,
        seats: usize,
        now: Instant,
        predict: impl FnOnce() -> Option<Worth>,
    ) -> Option<Worth> {
        if self.since.is_none_or(|since| since + HOLDS <= now) {
            self.since = Some(now);
            self.of.clear();
        }
        let held = self.of.iter().find(|(of, _)| *of == seats);
        if let Some((_, worth)) = held {
            return *worth;
        }
        let worth = predict();
        self.of.push((seats, worth));
        worth
    }
}

/// What `worker` gives `seats` sequences of `decoding` that the target has. `None` where that was never
/// measured.
pub(super) fn predict(
    worker: &DraftWorker,
    target: &Verifying,
    decoding: usize,
    seats: usize,
    overlap: Overlap,
) -> Option<Worth> {
    if seats == 0 {
        return worker.measured.step.seconds(1).map(|_| Worth::NOTHING);
    }
    let measured = &worker.measured;
    let Plan {
        rate,
        plain_rate,
        known,
        ..
    } = plan(&Situation {
        acceptance: &measured.acceptance,
        ranks: &measured.ranks,
        verify: &target.step,
        verify_ahead: &target.step_ahead,
        draft: &measured.step,
        draft_rtt: measured.rtt.seconds(),
        target_rtt: target.beside(),
        sequences: decoding.max(seats),
        drafting: seats,
        min: 0,
        max: worker.limits.as_ref()?.max_draft_tokens,
        overlap,
        trust: &target.trust,
    });
    let over_plain = (rate - plain_rate).max(0.0);
    known.then(|| Worth {
        rate: rate.max(plain_rate),
        gain: seats as f64 * over_plain * certainty(&measured.step, seats),
    })
}

/// How much of a gain to believe where no steps as large as this were measured: sequences may have to
/// share what one had alone, so that many at once are not all sent where one was fast.
fn certainty(steps: &StepCosts, size: usize) -> f64 {
    if (size..=4 * size).any(|larger| steps.is_known(larger)) {
        return 1.0;
    }
    let known = (1..size).rev().find(|size| steps.is_known(*size));
    (known.unwrap_or(1) as f64 / size as f64).sqrt()
}
