//! How far plans hold.

use super::{Mode, Plan};

/// Rounds of sequences that are remembered.
const MEMORY: f64 = 512.0;

/// For how many tokens a plan is trusted without having been seen to hold.
const PRIOR_TOKENS: f64 = 64.0;

/// Below this, something else is wrong; and more than a plan says is not promised.
const RANGE: (f64, f64) = (0.5, 1.0);

/// What sequences really gain by speculation, over what their plans said.
///
/// A plan assumes that all sequences do the same, that costs are as measured, and that nothing else
/// takes time. This measures what is left of it: the tokens that were committed, over those that
/// the plans predicted for the time that it took. A sequence that decodes plainly in a batch with
/// others' drafts loses time by them; what it falls short of its plain rate counts against the
/// plans too, so that speculation which costs others more than it brings is seen as the loss that
/// it is.
///
/// One for all sequences of a target. [`Trust::temper`] goes between [`super::plan()`] and
/// [`super::Gate::decide`].
#[derive(Debug, Clone, Default)]
pub struct Trust {
    /// Tokens of sequences that speculate, and those that others lack.
    got: f64,
    predicted: f64,
}

impl Trust {
    /// Nothing seen.
    pub fn new() -> Self {
        Self::default()
    }

    /// In a round of `seconds`, from its last verdict to this one, a sequence with this plan and
    /// mode got `tokens`.
    pub fn observe(&mut self, plan: &Plan, mode: Mode, tokens: usize, seconds: f64) {
        let measured = plan.known && plan.plain_known;
        if !(measured && seconds > 0.0 && seconds.is_finite()) {
            return;
        }
        let keep = 1.0 - 1.0 / MEMORY;
        self.predicted *= keep;
        self.got *= keep;
        // A pause, of a client or a machine, is no round.
        let seconds = seconds.min(8.0 / plan.plain_rate.max(1e-9));
        match mode {
            Mode::On => {
                self.got += tokens as f64;
                self.predicted += plan.predicted * seconds;
            }
            // Where nobody speculates there is nothing to blame.
            Mode::Off | Mode::Probe if self.predicted > PRIOR_TOKENS / 2.0 => {
                self.got += tokens as f64 - plan.plain_rate * seconds;
            }
            Mode::Off | Mode::Probe => {}
        }
    }

    /// Tokens per predicted token.
    pub fn value(&self) -> f64 {
        let value = (self.got + PRIOR_TOKENS) / (self.predicted + PRIOR_TOKENS);
        value.clamp(RANGE.0, RANGE.1)
    }

    /// The plan, with the rate that it is likely to have.
    pub fn temper(&self, plan: Plan) -> Plan {
        Plan {
            rate: plan.predicted * self.value(),
            ..plan
        }
    }
}
