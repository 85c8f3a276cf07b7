//! A row of logits at a temperature, and which of its ids the request's truncation leaves.
//!
//! The law and the choice both come from here, so that they cannot disagree on what is possible.
//! Must not know of noise.

use crate::TokenId;
use crate::exponential::{LEAST_EXPONENT, exp, rough_exp};
use crate::logits::{Logits, cap};
use crate::sampling::SamplingOptions;
use crate::typical::{typical, typical_of};
use crate::wide::wide;

/// Log-probabilities up to a common constant: `(logit - largest logit) / temperature`.
#[derive(Debug)]
pub(crate) struct Scores<'a> {
    logits: &'a Logits<'a>,
    peak: f64,
    temperature: f64,
    /// A product is several times faster than a quotient.
    inverse_temperature: f64,
}

impl<'a> Scores<'a> {
    /// The scores at a `temperature` over 0 of `logits` that make some id possible.
    pub(crate) fn new(logits: &'a Logits<'a>, temperature: f32) -> Self {
        let temperature = f64::from(temperature);
        Self {
            logits,
            peak: f64::from(logits.peak()),
            temperature,
            inverse_temperature: temperature.recip(),
        }
    }

    pub(crate) fn logits(&self) -> &'a Logits<'a> {
        self.logits
    }

    /// The score of `logit`, at most 0; none where its probability counts as 0, which is below
    /// `e^-700` times that of the most likely id.
    pub(crate) fn of_logit(&self, logit: f32) -> Option<f64> {
        let score = self.scale(logit);
        (score >= LEAST_EXPONENT).then_some(score)
    }

    /// The score of `token`.
    pub(crate) fn of(&self, token: TokenId) -> Option<f64> {
        self.of_logit(self.logits.values()[token as usize])
    }

    /// A logit below which every score is below `score`. Errs to the low side, by little.
    pub(crate) fn cutoff(&self, score: f64) -> f32 {
        let distance = score.max(LEAST_EXPONENT) * self.temperature;
        let slack = (self.peak.abs() + distance.abs()) * 1e-6;
        ((self.peak + distance - slack) as f32).next_down()
    }

    /// The probability of `token` relative to that of the most likely id; 0 past the last one.
    pub(crate) fn weight(&self, token: TokenId) -> f64 {
        let logit = self.logits.values().get(token as usize);
        logit.map_or(0.0, |logit| self.weight_of_logit(*logit))
    }

    /// The sum of all weights.
    pub(crate) fn total(&self) -> f64 {
        self.block_weights().iter().sum()
    }

    /// The sum of all weights, to some millionths of it.
    pub(crate) fn rough_total(&self) -> f64 {
        let peak = self.peak as f32;
        // Not infinite, so that the peak itself weighs 1.
        let inverse = self.inverse_temperature.min(f64::from(f32::MAX)) as f32;
        let blocks = self.logits.blocks();
        blocks
            .filter(|(_, peak, _)| self.of_logit(*peak).is_some())
            .map(|(_, _, block)| f64::from(rough_weight(block, peak, inverse)))
            .sum()
    }

    /// The sum of the weights of each block.
    pub(crate) fn block_weights(&self) -> Vec<f64> {
        let blocks = self.logits.blocks();
        blocks
            .map(|(_, peak, block)| self.block_weight(peak, block))
            .collect()
    }

    /// The sum of all weights, and that of their products with the scores.
    pub(crate) fn moments(&self) -> (f64, f64) {
        let blocks = self.logits.blocks();
        blocks
            .filter(|(_, peak, _)| self.of_logit(*peak).is_some())
            .map(|(_, _, block)| block_moments(block, self.peak, self.inverse_temperature))
            .fold((0.0, 0.0), |sum, own| (sum.0 + own.0, sum.1 + own.1))
    }

    /// All weights over 0, by ascending id.
    pub(crate) fn weights(&self) -> Vec<(TokenId, f64)> {
        let ids = self.logits.at_least(self.cutoff(LEAST_EXPONENT));
        ids.map(|id| (id, self.weight(id))).collect()
    }

    /// The ids of probability over 0 that top-k, then top-p, then min-p, then typical-p leave; none
    /// where all of them are off.
    ///
    /// Top-p measures against the mass that top-k leaves, and adds up from the most likely id; on a
    /// tie the lower id comes first.
    pub(crate) fn kept(&self, options: &SamplingOptions) -> Option<Vec<TokenId>> {
        let SamplingOptions {
            top_k,
            top_p,
            min_p,
            typical_p,
            ..
        } = *options;
        if !options.truncates() {
            return None;
        }
        let (top_p, min_p) = (f64::from(top_p), f64::from(min_p));
        let mut kept = match (top_k as usize, top_p < 1.0) {
            (0, false) if min_p == 0.0 => return Some(typical(self, f64::from(typical_p))),
            (0, false) => self
                .logits
                .at_least(self.cutoff(libm::log(min_p) - ROUNDING))
                .collect(),
            (0, true) => self.nucleus(top_p),
            (k, false) => self.logits.largest(k),
            (k, true) => {
                let largest = self.logits.largest(k);
                let mass = largest.iter().map(|id| self.weight(*id)).sum::<f64>();
                let length = self.reaching(&largest, top_p * mass);
                cut(largest, length)
            }
        };
        kept.retain(|id| self.of(*id).is_some() && (min_p == 0.0 || self.weight(*id) >= min_p));
        if typical_p < 1.0 {
            kept = typical_of(self, kept, f64::from(typical_p));
        }
        Some(kept)
    }

    /// The fewest ids, the most likely first, whose probability reaches `top_p`.
    fn nucleus(&self, top_p: f64) -> Vec<TokenId> {
        let head = self.logits.largest(HEAD);
        if let Some(length) = self.surely_reaching(&head, top_p) {
            return cut(head, Some(length));
        }
        let mass = top_p * self.total();
        let mut size = HEAD;
        loop {
            let head = self.logits.largest(size);
            let length = self.reaching(&head, mass);
            if length.is_some() || head.len() < size {
                return cut(head, length);
            }
            size *= 16;
        }
    }

    /// The most likely ids with their weights, the most likely first: as few as have the probability
    /// `mass`, and at most `count`.
    pub(crate) fn most_likely(&self, count: usize, mass: f64) -> Vec<(TokenId, f64)> {
        let head = self.logits.largest(count);
        let length = self
            .surely_reaching(&head, mass)
            .or_else(|| self.reaching(&head, mass * self.total()));
        let kept = cut(head, length).into_iter();
        kept.map(|id| (id, self.weight(id)))
            .filter(|entry| entry.1 > 0.0)
            .collect()
    }

    /// How many of the most likely ids, `head`, have the probability `top_p`; none where that takes
    /// the exact weight of the whole vocabulary to tell. Mostly it does not, and saves the
    /// exponential of each logit.
    fn surely_reaching(&self, head: &[TokenId], top_p: f64) -> Option<usize> {
        let least = *head.last()?;
        let (low, high) = self.total_weight(self.logits.values()[least as usize]);
        let length = self.reaching(head, top_p * high * (1.0 + ROUNDING))?;
        let shortest = self.reaching(head, top_p * low * (1.0 - ROUNDING))?;
        (length == shortest).then_some(length)
    }

    /// How many of `ids`, from the first, it takes to weigh `mass`; none where all are too few.
    fn reaching(&self, ids: &[TokenId], mass: f64) -> Option<usize> {
        let mut sum = 0.0;
        let last = ids.iter().position(|id| {
            sum += self.weight(*id);
            sum >= mass
        })?;
        Some(last + 1)
    }

    /// Bounds of the sum of all weights, from below and above. Only blocks with a logit of at least
    /// `exact_from` are added up.
    fn total_weight(&self, exact_from: f32) -> (f64, f64) {
        self.logits
            .blocks()
            .fold((0.0, 0.0), |(low, high), (_, peak, block)| {
                if peak >= exact_from {
                    let weight = self.block_weight(peak, block);
                    (low + weight, high + weight)
                } else {
                    let weight = self.weight_of_logit(peak);
                    (low + weight, high + weight * block.len() as f64)
                }
            })
    }

    fn block_weight(&self, peak: f32, block: &[f32]) -> f64 {
        if self.of_logit(peak).is_none() {
            return 0.0;
        }
        block_weight(block, self.peak, self.inverse_temperature)
    }

    fn weight_of_logit(&self, logit: f32) -> f64 {
        weight(self.scale(logit))
    }

    fn scale(&self, logit: f32) -> f64 {
        scale(logit, self.peak, self.inverse_temperature)
    }
}

#[inline(always)]
fn scale(logit: f32, peak: f64, inverse_temperature: f64) -> f64 {
    (f64::from(cap(logit)) - peak) * inverse_temperature
}

/// The probability that belongs to a score, relative to that of the most likely id.
#[inline(always)]
fn weight(score: f64) -> f64 {
    let weight = exp(score);
    if score >= LEAST_EXPONENT { weight } else { 0.0 }
}

wide! {
    /// The sum of the weights of `block`.
    fn block_weight(block: &[f32], peak: f64, inverse_temperature: f64) -> f64 {
        let weight_of = |logit: &f32| weight(scale(*logit, peak, inverse_temperature));
        let (rows, rest) = block.as_chunks::<8>();
        // Eight sums side by side: one alone would wait for each addition.
        let mut lanes = [0.0; 8];
        for row in rows {
            for (lane, logit) in lanes.iter_mut().zip(row) {
                *lane += weight_of(logit);
            }
        }
        lanes.into_iter().chain(rest.iter().map(weight_of)).sum()
    }
}

wide! {
    /// The sum of the weights of `block`, roughly.
    fn rough_weight(block: &[f32], peak: f32, inverse_temperature: f32) -> f32 {
        let mut lanes = [0.0; 16];
        for row in block.chunks(16) {
            for (lane, logit) in lanes.iter_mut().zip(row) {
                *lane += rough_exp((cap(*logit) - peak) * inverse_temperature);
            }
        }
        lanes.into_iter().sum()
    }
}

wide! {
    /// The sum of the weights of `block`, and that of their products with the scores.
    fn block_moments(block: &[f32], peak: f64, inverse_temperature: f64) -> (f64, f64) {
        let (mut weights, mut products) = ([0.0; 8], [0.0; 8]);
        for row in block.chunks(8) {
            for ((sum, products), logit) in weights.iter_mut().zip(&mut products).zip(row) {
                let score = scale(*logit, peak, inverse_temperature);
                let weight = weight(score);
                *sum += weight;
                // A score without weight may be infinite, or no number.
                *products += if weight > 0.0 { weight * score } else { 0.0 };
            }
        }
        (weights.into_iter().sum(), products.into_iter().sum())
    }
}

/// The first `length` of `ids`; all of them where rounding kept their sum from ever reaching the mass.
fn cut(mut ids: Vec<TokenId>, length: Option<usize>) -> Vec<TokenId> {
    ids.truncate(length.unwrap_or(ids.len()));
    ids
}

/// How many ids top-p looks at first.
const HEAD: usize = 64;

/// Far more than additions and exponentials can be off, relatively.
pub(crate) const ROUNDING: f64 = 1e-9;
