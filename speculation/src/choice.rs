//! Choosing a token: the argmax of log-probability plus shared noise.

use crate::logits::{BLOCK, Logits, count_within};
use crate::noise::{GROUPS, LANES, MAX_GUMBEL, PositionNoise, gumbel_of_word, largest, least_word};
use crate::podium::{Best, FirstTwo, Podium};
use crate::scores::Scores;
use crate::{NoiseKey, Sampling, TokenId};

/// A chosen token.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Choice {
    /// The token.
    pub token: TokenId,
    /// By how much its perturbed score leads the next best; infinite where nothing else could be
    /// chosen. Unit: nats at the request's temperature; at temperature 0, logits.
    pub margin: f32,
}

/// How one request's tokens are chosen: its sampling parameters and its noise.
///
/// # The coupled rule
/// With independent Gumbel variables `g_i`, `argmax(ln p_i + g_i)` is a draw from `p` (the
/// Gumbel-max trick). Draft and target use the same variables, so that where their laws `q` and `p`
/// are close they choose the same token, with probability
/// `sum_i 1 / sum_j max(p_j / p_i, q_j / q_i) >= (1 - TV) / (1 + TV)` for the total variation `TV`
/// of the two (Daliri, Musco and Suresh, *Coupling without communication and drafter-invariant
/// speculative decoding*, 2024). The target commits only its own choices, so the text is the
/// target's whatever the draft says. The rejection rule of Leviathan, Kalman and Matias (*Fast
/// inference from transformers via speculative decoding*, 2023) accepts `1 - TV`, but needs the
/// draft's probabilities, and its text depends on the draft.
///
/// Never use this noise with the rejection rule: it needs draws independent of the draft's.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampler {
    /// The parameters.
    pub sampling: Sampling,
    /// The key of the noise.
    pub key: NoiseKey,
}

impl Sampler {
    /// Chooses the token at absolute `position` (0 is the first token of the prompt) from `logits`,
    /// one per token id. Ids past the end of `logits` have probability 0.
    ///
    /// It is the argmax of `ln p + g` over the [`Law`](crate::Law) `p` of the same logits, with the
    /// noise `g` of [`gumbel`](crate::gumbel), and without noise at temperature 0; the lowest id on
    /// a tie. Where no id is possible it is token 0, as in the law.
    pub fn choose(&self, logits: &[f32], position: u64) -> Choice {
        let logits = Logits::new(logits);
        let Some(most_likely) = logits.argmax() else {
            return Choice {
                token: 0,
                margin: f32::INFINITY,
            };
        };
        if self.sampling.is_greedy() {
            return Choice {
                token: most_likely,
                margin: logits.peak() - logits.largest_besides(most_likely),
            };
        }
        let options = self.sampling.options();
        let scores = Scores::new(&logits, options.temperature);
        let noise = PositionNoise::new(self.key, position);
        let mut race = Race::new(&scores, noise, FirstTwo::default());
        match scores.kept(options) {
            Some(kept) => race.enter_some(&kept),
            None => race.enter_all(),
        }
        race.podium.choice()
    }

    /// The `count` ids that [`choose`](Self::choose) would take at `position`, each if those before
    /// it were impossible: the first is its choice. Fewer where fewer are possible, but at least
    /// one where `count` is not 0.
    ///
    /// Where the request's truncation leaves fewer, the best of what it drops follow: another law of the
    /// same text, for example a target's, may well leave those.
    pub fn candidates(&self, logits: &[f32], position: u64, count: usize) -> Vec<TokenId> {
        let logits = Logits::new(logits);
        if logits.argmax().is_none() {
            return vec![0; count.min(1)];
        }
        if self.sampling.is_greedy() {
            return logits.largest(count);
        }
        let options = self.sampling.options();
        let scores = Scores::new(&logits, options.temperature);
        let noise = PositionNoise::new(self.key, position);
        let mut ids = Vec::new();
        if let Some(kept) = scores.kept(options) {
            let mut race = Race::new(&scores, noise, Best::new(count));
            race.enter_some(&kept);
            ids = race.podium.ids();
        }
        if ids.len() < count {
            let mut race = Race::new(&scores, noise, Best::new(count));
            race.enter_all();
            let missing = count - ids.len();
            let rest = race.podium.ids().into_iter();
            let rest: Vec<_> = rest.filter(|id| !ids.contains(id)).take(missing).collect();
            ids.extend(rest);
        }
        ids
    }

    /// The probability of `token` under the law that `logits` make, to some millionths of it. At
    /// temperature 0, where that is certainty, the probability at temperature 1.
    pub fn confidence(&self, logits: &[f32], token: TokenId) -> f64 {
        let logits = Logits::new(logits);
        if logits.argmax().is_none() {
            return f64::from(u8::from(token == 0));
        }
        if self.sampling.is_greedy() {
            let scores = Scores::new(&logits, 1.0);
            return scores.weight(token) / scores.rough_total();
        }
        let options = self.sampling.options();
        let scores = Scores::new(&logits, options.temperature);
        match scores.kept(options) {
            None => scores.weight(token) / scores.rough_total(),
            Some(kept) if kept.contains(&token) => {
                let total: f64 = kept.iter().map(|id| scores.weight(*id)).sum();
                scores.weight(token) / total
            }
            Some(_) => 0.0,
        }
    }
}

/// Perturbed scores, the noise of all ids added to theirs, as far as they can matter.
///
/// Normalising a law adds the same to every log-probability, which moves neither the argmax nor the
/// margin: scores serve as log-probabilities.
struct Race<'a, P> {
    scores: &'a Scores<'a>,
    noise: PositionNoise,
    podium: P,
}

impl<'a, P: Podium> Race<'a, P> {
    fn new(scores: &'a Scores<'a>, noise: PositionNoise, podium: P) -> Self {
        Self {
            scores,
            noise,
            podium,
        }
    }

    /// Enters every id, each once.
    fn enter_all(&mut self) {
        let logits = self.scores.logits();
        // The favourites first: with them in, few of the rest can reach the bar, and so few of the
        // rest need noise.
        let favourite = logits.reached_by(FAVOURITES);
        self.enter_some(&logits.at_least(favourite).collect::<Vec<_>>());
        for (first, peak, block) in logits.blocks() {
            self.enter_block(first, peak.min(favourite), block, favourite);
        }
    }

    /// Enters those ids of a block whose logit is below `favourite`; none exceeds `peak`.
    fn enter_block(&mut self, first: TokenId, peak: f32, block: &[f32], favourite: f32) {
        // No noise lifts an id further than MAX_GUMBEL, so those below this stay below the bar.
        let bar = self.podium.bar();
        let cutoff = self.scores.cutoff(bar - MAX_GUMBEL);
        let Some(score) = self.scores.of_logit(peak).filter(|_| peak >= cutoff) else {
            return;
        };
        let field = cutoff..favourite;
        let least = least_word(bar - score);
        if count_within(block, cutoff, favourite) <= FEW {
            for (id, value) in (first..).zip(block) {
                if field.contains(value) {
                    self.enter_word(id, *value, self.noise.word(id), least);
                }
            }
            return;
        }
        let words = self.noise.many_words(first / LANES);
        // Mostly nobody in the block has a word as large as that.
        if largest(&words) < least {
            return;
        }
        for (lane, words) in (0..LANES).zip(words) {
            for (group, word) in (0..).zip(words) {
                let place = group * LANES + lane;
                if let Some(value) = block.get(place as usize)
                    && field.contains(value)
                {
                    self.enter_word(first + place, *value, word, least);
                }
            }
        }
    }

    /// Enters `ids`, each once.
    fn enter_some(&mut self, ids: &[TokenId]) {
        for run in ids.chunks(RUN) {
            let scores = run.iter().filter_map(|id| self.scores.of(*id));
            let Some(needed) = scores.reduce(f64::max).map(|best| self.podium.bar() - best) else {
                continue;
            };
            if needed > MAX_GUMBEL {
                continue;
            }
            let least = least_word(needed);
            let values = self.scores.logits().values();
            for &id in run {
                self.enter_word(id, values[id as usize], self.noise.word(id), least);
            }
        }
    }

    /// Enters an id by its logit and its random word, of which all below `least` stay below the bar.
    fn enter_word(&mut self, id: TokenId, logit: f32, word: u32, least: u32) {
        if word < least {
            return;
        }
        let Some(score) = self.scores.of_logit(logit) else {
            return;
        };
        self.podium.take(score + gumbel_of_word(word), id);
    }
}

/// How many ids enter a race before the rest.
const FAVOURITES: usize = 32;

/// Of a block, so many ids are looked at one by one; with more, the whole block's noise is cheaper.
const FEW: u32 = 6;

/// The noise of a block is evaluated at once.
const _: () = assert!(BLOCK == GROUPS * LANES as usize);

/// How many ids of a list share a bound.
const RUN: usize = 32;
