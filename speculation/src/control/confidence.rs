//! What a draft's own probabilities say of acceptance.

use super::monotone::{interpolate, monotone};

/// Where the bins end in which probabilities are counted. Finer where most of a good draft's are.
const UPPER: [f64; 8] = [0.1, 0.25, 0.4, 0.6, 0.8, 0.9, 0.97, 1.0];

/// For how many observations a bin is taken at its word.
const PRIOR_WEIGHT: f64 = 8.0;

/// Observations that a bin remembers.
const MEMORY: f64 = 256.0;

/// How often a drafted token is accepted, by the probability that the draft gave it: a calibration
/// learned from verdicts. It begins with taking the draft at its word.
///
/// Confidences are those of a `Proposal`: 255 for certain.
#[derive(Debug, Clone)]
pub struct Confidence {
    bins: [Bin; UPPER.len()],
    /// What was said and how often that is accepted, ascending in both.
    curve: Vec<(f64, f64)>,
}

#[derive(Debug, Clone, Copy)]
struct Bin {
    seen: f64,
    /// The mean of what was said.
    said: f64,
    /// The part that was accepted.
    accepted: f64,
}

impl Default for Confidence {
    fn default() -> Self {
        Self::new()
    }
}

impl Confidence {
    /// Nothing seen.
    pub fn new() -> Self {
        let mut lower = 0.0;
        let bins = UPPER.map(|upper| {
            let middle = (lower + upper) / 2.0;
            lower = upper;
            Bin {
                seen: 0.0,
                said: middle,
                accepted: 0.0,
            }
        });
        let curve = curve(&bins);
        Self { bins, curve }
    }

    /// Of tokens drafted with these confidences the first `verified` were verified, and of those
    /// the first `accepted` accepted. What follows the first rejection says nothing.
    pub fn observe(&mut self, confidences: &[u8], accepted: usize, verified: usize) {
        let verified = verified.min(confidences.len());
        let known = verified.min(accepted.saturating_add(1));
        for (index, confidence) in confidences[..known].iter().enumerate() {
            let said = probability(*confidence);
            let bin = UPPER.partition_point(|upper| *upper < said);
            self.bins[bin.min(UPPER.len() - 1)].observe(said, index < accepted);
        }
        self.curve = curve(&self.bins);
    }

    /// The probability that a token of this confidence is accepted where those before it were.
    pub fn acceptance(&self, confidence: u8) -> f64 {
        self.at(probability(confidence))
    }

    fn at(&self, said: f64) -> f64 {
        interpolate(&self.curve, said).unwrap_or(said)
    }

    /// By position: the probability that all of these tokens up to it are accepted.
    pub fn survival(&self, confidences: &[u8]) -> Vec<f64> {
        let survival = confidences.iter().scan(1.0, |survival, confidence| {
            *survival *= self.acceptance(*confidence);
            Some(*survival)
        });
        survival.collect()
    }

    /// The least probability under the draft's law for which one more drafted token brings more
    /// than it costs: from 0 (always) to 1 (never).
    ///
    /// A token that costs the round `token_seconds` more (a draft step that nothing hides, and a
    /// row of verification) pays where its survival exceeds what goes on meanwhile, `rate` tokens
    /// per second. `survival` is that of the tokens before it.
    pub fn min_confidence(&self, rate: f64, token_seconds: f64, survival: f64) -> f32 {
        let needed = rate * token_seconds / survival.max(1e-6);
        if needed.is_nan() || needed <= 0.0 {
            return 0.0;
        }
        let enough = (0..=u8::MAX).find(|confidence| self.acceptance(*confidence) >= needed);
        enough.map_or(1.0, |confidence| probability(confidence) as f32)
    }
}

impl Bin {
    fn observe(&mut self, said: f64, accepted: bool) {
        let share = 1.0 / (self.seen + 1.0);
        self.said += (said - self.said) * share;
        self.accepted += (f64::from(u8::from(accepted)) - self.accepted) * share;
        self.seen = (self.seen + 1.0).min(MEMORY);
    }
}

fn curve(bins: &[Bin]) -> Vec<(f64, f64)> {
    let accepted = bins.iter().map(|bin| {
        let weight = bin.seen + PRIOR_WEIGHT;
        let accepted = (bin.accepted * bin.seen + PRIOR_WEIGHT * bin.said) / weight;
        (accepted, weight)
    });
    let said = bins.iter().map(|bin| bin.said);
    said.zip(monotone(accepted)).collect()
}

fn probability(confidence: u8) -> f64 {
    f64::from(confidence) / 255.0
}
