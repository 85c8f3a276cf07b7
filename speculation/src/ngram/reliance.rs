//! How far what followed before can be relied on to follow again.
//!
//! A token that followed a string c times out of n follows it again with probability (c - d) / n:
//! absolute discounting, as language models of n-grams do it (Ney, Essen and Kneser, *On structuring
//! probabilistic dependences in stochastic language modelling*, 1994). The discount d falls with the
//! length of the string. What a text is like moves all of this up or down, and is learned from it.

use super::automaton::Step;

/// Discounts for strings of up to so many tokens, as measured on texts of a 1.5B model (Spec-Bench's
/// prompts and files to edit, temperature 0).
const DISCOUNTS: [(usize, f64); 8] = [
    (1, 0.67),
    (2, 0.57),
    (3, 0.35),
    (4, 0.29),
    (8, 0.26),
    (16, 0.18),
    (32, 0.05),
    (64, 0.02),
];
/// The discount for longer ones.
const LEAST_DISCOUNT: f64 = 0.008;
/// Nothing is more certain than this.
const MOST: f64 = 0.998;
/// Nor less than this: where predictions always fail, they are not tried often enough to learn more.
const LEAST: f64 = 0.003;

/// How far one prediction that came true or did not moves the log-odds of all, per unit of surprise.
const LEARNING_RATE: f64 = 0.2;
/// What is left of that after the next prediction.
const MEMORY: f64 = 0.98;

/// Predictions by whose outcomes all are scaled, and how many tokens that are as predicted are assumed.
const SCALE_MEMORY: f64 = 256.0;
const SCALE_PRIOR: f64 = 2.0;

/// What one text taught: log-odds over the measured probabilities, which follow it quickly, and how
/// many of the tokens came that those predicted. In a text that does not repeat itself the odds come
/// back up again and again, and the scale does not.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Reliance {
    offset: f64,
    predicted: f64,
    came: f64,
}

impl Reliance {
    /// The probability that the token of `step` comes next, where the text so far ends with the string
    /// that it followed.
    pub(super) fn probability(self, step: &Step) -> f64 {
        let scale = (self.came + SCALE_PRIOR) / (self.predicted + SCALE_PRIOR);
        self.unscaled(step) * scale.min(1.0)
    }

    fn unscaled(self, step: &Step) -> f64 {
        let measured = measured(step);
        let log_odds = libm::log(measured / (1.0 - measured)) + self.offset;
        let probability = 1.0 / (1.0 + libm::exp(-log_odds));
        probability.clamp(LEAST, MOST)
    }

    /// Learns whether the token of `step` came.
    pub(super) fn learn(&mut self, step: &Step, came: bool) {
        let predicted = self.unscaled(step);
        let came = f64::from(u8::from(came));
        let keep = 1.0 - 1.0 / SCALE_MEMORY;
        self.predicted = self.predicted * keep + predicted;
        self.came = self.came * keep + came;
        let surprise = came - predicted;
        self.offset = self.offset * MEMORY + LEARNING_RATE * surprise;
    }
}

/// The measured probability that the token of `step` comes next.
fn measured(step: &Step) -> f64 {
    let discount = DISCOUNTS
        .iter()
        .find(|(len, _)| step.context <= *len)
        .map_or(LEAST_DISCOUNT, |(_, discount)| *discount);
    let share = (f64::from(step.count) - discount) / f64::from(step.total.max(1));
    share.clamp(LEAST, MOST)
}
