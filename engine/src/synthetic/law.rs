//! The toy model's law: logits as a pure function of the last few tokens.
//!
//! In every context a few words are likely, as in a real text, and all else is improbable
//! background.

use super::words;
use speculation::TokenId;
use std::ops::Range;

/// Tokens that the law looks back: enough that greedy text does not soon go in circles.
pub(super) const WINDOW: usize = 4;
const REFERENCE_SEED: u64 = 1;
const FOREIGN_SEED: u64 = 2;

/// Likely words per context.
const LIKELY: u64 = 8;
/// The logit of the likeliest word; the mass of the background is about 1.8, so its logit is 0.6.
const TOP: f32 = 4.0;
/// The text ends in one context of this many.
const END_ONE_IN: u64 = 1024;

#[derive(Debug)]
pub(super) struct Law {
    vocab: usize,
    agreement: f64,
    likely: Range<usize>,
}

impl Law {
    pub(super) fn new(vocab: usize, agreement: f64) -> Self {
        Self {
            vocab,
            agreement,
            likely: words::with_space(vocab),
        }
    }

    /// Appends the logits of the token after `tokens`: one per id.
    pub(super) fn append_logits(&self, tokens: &[TokenId], logits: &mut Vec<f32>) {
        let window = &tokens[tokens.len().saturating_sub(WINDOW)..];
        let reference = hash(REFERENCE_SEED, window);
        let context = if fraction(mix(reference)) < self.agreement {
            reference
        } else {
            hash(FOREIGN_SEED, window)
        };
        let mut draws = (1..).map(|draw: u64| mix(context.wrapping_add(draw << 32)));
        let mut draw = || draws.next().unwrap_or_default();

        let start = logits.len();
        self.append_background(context, logits);
        let row = &mut logits[start..];
        // Some contexts leave hardly a choice, others many.
        let gap = 0.2 + 1.2 * fraction(draw()) as f32;
        for rank in 0..LIKELY {
            let word = self.likely.start + (draw() % self.likely.len() as u64) as usize;
            row[word] = row[word].max(TOP - gap * rank as f32);
        }
        if draw().is_multiple_of(END_ONE_IN) {
            row[words::end_id(self.vocab)] = TOP + 1.0;
        }
        row[words::start_id(self.vocab)] = -30.0;
    }

    /// Noise whose mass does not depend on the size of the vocabulary. Bytes and bare syllables
    /// are less likely still, so that text stays readable.
    fn append_background(&self, context: u64, logits: &mut Vec<f32>) {
        let level = -(self.vocab as f32).ln();
        logits.extend((0..self.vocab).map(|id| {
            let noise = 4.0 * fraction(mix(context ^ id as u64)) as f32 - 2.0;
            let word = self.likely.contains(&id);
            level + noise - if word { 0.0 } else { 6.0 }
        }));
    }
}

fn hash(seed: u64, tokens: &[TokenId]) -> u64 {
    let start = mix(seed);
    tokens
        .iter()
        .fold(start, |state, &token| mix(state ^ u64::from(token)))
}

/// The output function of SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number
/// generators", 2014), with its increment.
fn mix(state: u64) -> u64 {
    let z = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A number from 0 to below 1, of 53 random bits.
fn fraction(bits: u64) -> f64 {
    (bits >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn logits(law: &Law, tokens: &[TokenId]) -> Vec<f32> {
        let mut logits = Vec::new();
        law.append_logits(tokens, &mut logits);
        logits
    }

    fn likeliest(logits: &[f32]) -> TokenId {
        let best = (0..logits.len()).max_by(|&a, &b| logits[a].total_cmp(&logits[b]));
        best.unwrap() as TokenId
    }

    /// The greedy text of `law` after `prompt`.
    fn text(law: &Law, prompt: TokenId, len: usize) -> Vec<TokenId> {
        let mut tokens = vec![prompt];
        while tokens.len() < len {
            let next = likeliest(&logits(law, &tokens));
            tokens.push(next);
        }
        tokens
    }

    #[test]
    fn a_draft_agrees_as_often_as_described() {
        let target = Law::new(512, 1.0);
        let tokens = text(&target, 1, 4000);
        for agreement in [0.0, 0.5, 0.9, 1.0] {
            let draft = Law::new(512, agreement);
            let agreed = (1..tokens.len())
                .filter(|&end| likeliest(&logits(&draft, &tokens[..end])) == tokens[end])
                .count();
            let share = agreed as f64 / (tokens.len() - 1) as f64;
            // Four standard deviations of the mean, and what two laws have in common by chance.
            assert!(
                (share - agreement).abs() < 0.04,
                "{share} where {agreement} is described"
            );
        }
    }

    #[test]
    fn the_law_is_neither_flat_nor_certain() {
        let law = Law::new(512, 1.0);
        let tokens = text(&law, 7, 500);
        let mut total = 0.0;
        for end in 1..tokens.len() {
            let row = logits(&law, &tokens[..end]);
            let mass: f32 = row.iter().map(|logit| logit.exp()).sum();
            total += row[likeliest(&row) as usize].exp() / mass;
        }
        let mean = total / (tokens.len() - 1) as f32;
        assert!((0.3..0.8).contains(&mean), "mean top probability {mean}");
    }

    #[test]
    fn greedy_text_is_varied_and_rarely_ends() {
        let law = Law::new(512, 1.0);
        let tokens = text(&law, 3, 4000);
        let end = words::end_id(512) as TokenId;
        let ends = tokens.iter().filter(|&&token| token == end).count();
        assert!(ends <= 16, "{ends} ends in {} tokens", tokens.len());
        let mut distinct: Vec<_> = tokens.windows(WINDOW).collect();
        distinct.sort_unstable();
        distinct.dedup();
        assert!(distinct.len() > 2000, "{} contexts", distinct.len());
    }
}
