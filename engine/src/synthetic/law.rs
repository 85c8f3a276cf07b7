//! The toy model's law: logits as a pure function of the last few tokens.
//!
//! In every context a few words are likely, as in a real text, and all else is improbable
//! background: that is the reference law, a target's. A draft has it too, but in some contexts puts a few other words,
//! decoys, far before all others. So far that no noise takes one past another: whatever the temperature and the noise, the
//! draft's first candidates are the decoys in order, and the next one is what the reference law chooses.

use super::{ranks::Ranks, words};
use speculation::TokenId;
use std::ops::Range;

/// Tokens that the law looks back: enough that greedy text does not soon go in circles.
pub(super) const WINDOW: usize = 4;
const REFERENCE_SEED: u64 = 1;
const DECOY_SEED: u64 = 2;

/// Likely words per context.
const LIKELY: u64 = 8;
/// The logit of the likeliest word; the mass of the background is about 1.8, so its logit is 0.6.
const TOP: f32 = 4.0;
/// That of the end, where the text may end.
const END: f32 = TOP + 1.0;
/// The text ends in one context of this many.
const END_ONE_IN: u64 = 1024;
/// By how much one decoy leads the next, and the last of them all other tokens. Shared noise differs by at most 26.1 times
/// the temperature, so this holds up to 1.2.
const LEAD: f32 = 32.0;

#[derive(Debug)]
pub(super) struct Law {
    vocab: usize,
    agreement: f64,
    ranks: Ranks,
    likely: Range<usize>,
}

impl Law {
    pub(super) fn new(vocab: usize, agreement: f64, ranks: Ranks) -> Self {
        Self {
            vocab,
            agreement,
            ranks,
            likely: words::with_space(vocab),
        }
    }

    /// Appends the logits of the token after `tokens`: one per id.
    pub(super) fn append_logits(&self, tokens: &[TokenId], logits: &mut Vec<f32>) {
        let window = &tokens[tokens.len().saturating_sub(WINDOW)..];
        let context = hash(REFERENCE_SEED, window);
        let start = logits.len();
        self.append_background(context, logits);
        let row = &mut logits[start..];
        let likely = self.favour(context, row);
        if fraction(mix(context)) >= self.agreement {
            self.deceive(hash(DECOY_SEED, window), &likely, row);
        }
    }

    /// Makes a few words likely, and returns them.
    fn favour(&self, context: u64, row: &mut [f32]) -> [usize; LIKELY as usize] {
        let mut draw = draws(context);
        // Some contexts leave hardly a choice, others many.
        let gap = 0.2 + 1.2 * fraction(draw()) as f32;
        let mut likely = [0; LIKELY as usize];
        for (rank, word) in likely.iter_mut().enumerate() {
            *word = self.word(draw());
            row[*word] = row[*word].max(TOP - gap * rank as f32);
        }
        if draw().is_multiple_of(END_ONE_IN) {
            row[words::end_id(self.vocab)] = END;
        }
        row[words::start_id(self.vocab)] = -30.0;
        likely
    }

    /// Puts decoys, none of them `likely`, before all else.
    fn deceive(&self, context: u64, likely: &[usize], row: &mut [f32]) {
        let mut draw = draws(context);
        let mut left = self.ranks.before(fraction(draw()));
        while left > 0 {
            let word = self.word(draw());
            if !likely.contains(&word) && row[word] < END {
                row[word] = END + LEAD * left as f32;
                left -= 1;
            }
        }
    }

    fn word(&self, draw: u64) -> usize {
        self.likely.start + (draw % self.likely.len() as u64) as usize
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

/// Random numbers that depend on `context` alone.
fn draws(context: u64) -> impl FnMut() -> u64 {
    let mut draws = (1..).map(move |draw: u64| mix(context.wrapping_add(draw << 32)));
    move || draws.next().unwrap_or_default()
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
    use speculation::{NoiseKey, Sampler, Sampling, SamplingOptions};

    fn law(agreement: f64) -> Law {
        Law::new(512, agreement, Ranks::default())
    }

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

    /// How far down the draft's candidates the target's token stands, by `sampler`, over a text of the target's.
    fn places(draft: &Law, sampler: &Sampler, positions: usize) -> Vec<usize> {
        let target = law(1.0);
        let mut tokens = vec![1];
        let mut places = Vec::new();
        while places.len() < positions {
            let at = tokens.len() as u64;
            let choice = sampler.choose(&logits(&target, &tokens), at).token;
            let candidates = sampler.candidates(&logits(draft, &tokens), at, 9);
            let place = candidates.iter().position(|id| *id == choice);
            places.push(place.map_or(10, |place| place + 1));
            tokens.push(choice);
        }
        places
    }

    /// At most four standard deviations apart.
    fn assert_share(of: usize, in_all: usize, share: f64, what: &str) {
        let measured = of as f64 / in_all as f64;
        let deviation = (share * (1.0 - share) / in_all as f64).sqrt();
        assert!(
            (measured - share).abs() <= 4.0 * deviation,
            "{what}: {measured} of {in_all}, where {share} is described"
        );
    }

    #[test]
    fn a_draft_agrees_and_ranks_the_targets_token_as_described_at_any_temperature() {
        let shares = [0.4, 0.55, 0.7, 0.81];
        for temperature in [0.0, 0.5, 1.0] {
            let options = SamplingOptions {
                temperature,
                ..SamplingOptions::default()
            };
            let sampler = Sampler {
                sampling: Sampling::new(options).unwrap(),
                key: NoiseKey::from_seed(5),
            };
            for agreement in [0.0, 0.75, 1.0] {
                let places = places(&law(agreement), &sampler, 4000);
                let what = format!("temperature {temperature}, agreement {agreement}");
                let wrong: Vec<_> = places.iter().filter(|place| **place > 1).collect();
                assert_share(places.len() - wrong.len(), places.len(), agreement, &what);
                if wrong.is_empty() {
                    continue;
                }
                for (width, share) in [1, 2, 4, 8].into_iter().zip(shares) {
                    let within = wrong.iter().filter(|place| ***place <= width + 1).count();
                    assert_share(
                        within,
                        wrong.len(),
                        share,
                        &format!("{what}, width {width}"),
                    );
                }
            }
        }
    }

    #[test]
    fn the_law_is_neither_flat_nor_certain() {
        let law = law(1.0);
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
        let law = law(1.0);
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
