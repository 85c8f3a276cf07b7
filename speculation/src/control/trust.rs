//! How far plans hold.

use super::{Mode, Plan, Way};

/// Rounds of sequences that are remembered.
const MEMORY: f64 = 512.0;

/// Rounds of each sequence after which a way that was not gone meanwhile is mostly trusted again: so
/// often it is tried anew, whatever it gave.
const FORGIVEN_AFTER: f64 = 384.0;

/// For how many tokens a plan is trusted without having been seen to hold.
const PRIOR_TOKENS: f64 = 64.0;

/// Below this, something else is wrong; and more than a plan says is not promised.
const RANGE: (f64, f64) = (0.5, 1.0);

/// What sequences really gain by speculation, over what their plans said, for each [`Way`].
///
/// A plan assumes that all sequences do the same, that costs are as measured, and that nothing else
/// takes time. This measures what is left of it: the tokens that were committed, over those that
/// the plans predicted for the time that it took. A sequence that decodes plainly in a batch with
/// others' drafts loses time by them; what it falls short of its plain rate counts against the
/// plans too, so that speculation which costs others more than it brings is seen as the loss that
/// it is.
///
/// One for all sequences of a target.
#[derive(Debug, Clone, Default)]
pub struct Trust {
    ways: [Account; Way::ALL.len()],
}

/// Of one way.
#[derive(Debug, Clone, Copy, Default)]
struct Account {
    /// Tokens of sequences that speculate, and those that others lack.
    got: f64,
    predicted: f64,
}

impl Trust {
    /// Nothing seen.
    pub fn new() -> Self {
        Self::default()
    }

    /// In a round of `seconds`, from its last verdict to this one, one of `sequences` with this plan and
    /// mode got `tokens`.
    pub fn observe(
        &mut self,
        plan: &Plan,
        mode: Mode,
        tokens: usize,
        seconds: f64,
        sequences: usize,
    ) {
        let measured = plan.known && plan.plain_known;
        if !(measured && seconds > 0.0 && seconds.is_finite()) {
            return;
        }
        let unused = 1.0 - 1.0 / (FORGIVEN_AFTER * sequences.max(1) as f64);
        for way in Way::ALL {
            let used = way == plan.way();
            self.ways[way as usize].forget(if used { 1.0 - 1.0 / MEMORY } else { unused });
        }
        // A pause, of a client or a machine, is no round.
        let seconds = seconds.min(8.0 / plan.plain_rate.max(1e-9));
        let account = &mut self.ways[plan.way() as usize];
        match mode {
            Mode::On => {
                account.got += tokens as f64;
                account.predicted += plan.predicted * seconds;
            }
            // Where nobody speculates there is nothing to blame.
            Mode::Off | Mode::Probe if account.predicted > PRIOR_TOKENS / 2.0 => {
                account.got += tokens as f64 - plan.plain_rate * seconds;
            }
            Mode::Off | Mode::Probe => {}
        }
    }

    /// Tokens per predicted token.
    pub fn of(&self, way: Way) -> f64 {
        let Account { got, predicted } = self.ways[way as usize];
        let value = (got + PRIOR_TOKENS) / (predicted + PRIOR_TOKENS);
        value.clamp(RANGE.0, RANGE.1)
    }
}

impl Account {
    fn forget(&mut self, keep: f64) {
        self.got *= keep;
        self.predicted *= keep;
    }
}
