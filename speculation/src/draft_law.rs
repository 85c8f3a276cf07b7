//! The law that a drafted token was drawn from, in a form that both sides hold exactly.
//!
//! The rules that compare probabilities are lossless only where `q` is the very law that the token
//! came from. So the draft first rounds its law to whole counts, draws from those, and sends those.

use crate::logits::Logits;
use crate::scores::Scores;
use crate::{Law, Sampling, TokenId};

/// The counts of a law add up to this.
pub const TOTAL_COUNT: u32 = 1 << 16;

/// The most ids that a draft keeps. Measured on a real pair, keeping 8 ids costs 1 % of the acceptance
/// and keeping 32 nothing; 11 keep even the flattest law over 150,000 ids below 60 bytes.
pub const MAX_SUPPORT: usize = 11;

/// The most ids that a law may have: what a peer is trusted with.
pub const MAX_ENTRIES: usize = 64;

/// The mass that is enough, however few ids have it.
const ENOUGH_MASS: f64 = 0.995;

/// A law on a few ids: each is drawn with probability `count / 65536`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DraftLaw {
    /// By ascending id, each count over 0.
    entries: Vec<(TokenId, u32)>,
}

/// Counts that are no law.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidDraftLaw(pub &'static str);

impl DraftLaw {
    /// The most likely ids of `law`, as few as make up most of it, rounded to counts.
    pub fn quantize(law: &Law) -> Self {
        let mut kept = law.most_likely(MAX_SUPPORT);
        let mut mass = 0.0;
        let enough = kept.iter().position(|entry| {
            mass += entry.1;
            mass >= ENOUGH_MASS
        });
        kept.truncate(enough.map_or(kept.len(), |last| last + 1));
        Self::rounded(&kept)
    }

    /// The law that `sampling` makes of `logits`, as [`quantize`](Self::quantize) rounds it: without
    /// a look at the ids that it leaves out.
    pub fn of_logits(logits: &[f32], sampling: &Sampling) -> Self {
        let logits = Logits::new(logits);
        let options = sampling.options();
        if logits.argmax().is_none() || sampling.is_greedy() || options.truncates() {
            return Self::quantize(&Law::of_row(&logits, sampling));
        }
        let scores = Scores::new(&logits, options.temperature);
        Self::rounded(&scores.most_likely(MAX_SUPPORT, ENOUGH_MASS))
    }

    fn rounded(kept: &[(TokenId, f64)]) -> Self {
        let mut entries = round(kept);
        entries.sort_unstable_by_key(|entry| entry.0);
        Self { entries }
    }

    /// The law of a token that was certain.
    pub fn certain(token: TokenId) -> Self {
        Self {
            entries: vec![(token, TOTAL_COUNT)],
        }
    }

    /// A law as a message states it.
    ///
    /// # Errors
    /// Where there are over 64 ids, they do not ascend, a count is 0, or the counts do not add up
    /// to 65536.
    pub fn from_entries(entries: Vec<(TokenId, u32)>) -> Result<Self, InvalidDraftLaw> {
        if entries.len() > MAX_ENTRIES {
            return Err(InvalidDraftLaw("ids must be at most 64"));
        }
        if !entries.is_sorted_by(|a, b| a.0 < b.0) {
            return Err(InvalidDraftLaw("ids must ascend"));
        }
        if entries.iter().any(|entry| entry.1 == 0) {
            return Err(InvalidDraftLaw("counts must be over 0"));
        }
        let total: u64 = entries.iter().map(|entry| u64::from(entry.1)).sum();
        if total != u64::from(TOTAL_COUNT) {
            return Err(InvalidDraftLaw("counts must add up to 65536"));
        }
        Ok(Self { entries })
    }

    /// Ids and counts, by ascending id.
    pub fn entries(&self) -> &[(TokenId, u32)] {
        &self.entries
    }

    /// The probability of `token`; exact.
    pub fn probability(&self, token: TokenId) -> f64 {
        self.entries
            .binary_search_by_key(&token, |entry| entry.0)
            .map_or(0.0, |index| probability(self.entries[index].1))
    }

    /// Ids with their probabilities, by ascending id.
    pub fn probabilities(&self) -> impl Iterator<Item = (TokenId, f64)> {
        self.entries
            .iter()
            .map(|(token, count)| (*token, probability(*count)))
    }

    /// The token that a uniform variable on (0, 1) draws: in verification one of
    /// [`Stream::Draft`](crate::Stream::Draft).
    pub fn draw(&self, uniform: f64) -> TokenId {
        let drawn = (uniform * f64::from(TOTAL_COUNT)) as u32;
        let mut sum = 0;
        let entry = self.entries.iter().find(|entry| {
            sum += entry.1;
            drawn < sum
        });
        // The variable is below 1, so one is always found.
        entry.or(self.entries.last()).map_or(0, |entry| entry.0)
    }
}

fn probability(count: u32) -> f64 {
    f64::from(count) / f64::from(TOTAL_COUNT)
}

/// Counts of at least 1 for `kept`, the most likely first, that add up to the total. What rounding
/// down leaves over goes to the most likely.
fn round(kept: &[(TokenId, f64)]) -> Vec<(TokenId, u32)> {
    let mass: f64 = kept.iter().map(|entry| entry.1).sum();
    let spare = TOTAL_COUNT - kept.len() as u32;
    let mut entries: Vec<_> = kept
        .iter()
        .map(|(token, p)| (*token, 1 + (p / mass * f64::from(spare)) as u32))
        .collect();
    let total: u32 = entries.iter().map(|entry| entry.1).sum();
    if let Some(first) = entries.first_mut() {
        // Rounding of the quotients could, at most, overshoot by one.
        first.1 = (first.1 + TOTAL_COUNT) - total;
    }
    entries
}
