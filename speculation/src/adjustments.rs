//! What a request does to logits before a law is made of them, checked once.
//!
//! The adjustments of one position are a pure function of the tokens before it: nothing is counted
//! along the way, so a token that is taken back leaves no trace.

use crate::{InvalidSampling, TokenId};
use std::collections::{BTreeMap, HashMap};

/// Adjustments of logits as a user states them, and what they need to know of the request.
#[derive(Debug, Clone, PartialEq)]
pub struct AdjustmentOptions {
    /// Divides the positive and multiplies the negative logits of tokens that were seen, the
    /// prompt's included. Over 0, at most 100; 1 is off.
    pub repetition_penalty: f32,
    /// Taken off the logit of each token that the output holds. -2 to 2.
    pub presence_penalty: f32,
    /// Taken off the logit of a token for each time that the output holds it. -2 to 2.
    pub frequency_penalty: f32,
    /// The penalties look at this many last tokens of prompt and output; 0 looks at all.
    pub penalty_window: usize,
    /// Added to logits. Each -100 to 100.
    pub logit_bias: BTreeMap<TokenId, f32>,
    /// Only these can be chosen; empty allows all.
    pub allowed_tokens: Vec<TokenId>,
    /// These are never chosen.
    pub banned_tokens: Vec<TokenId>,
    /// Sequences that the output must not hold; none is empty.
    pub bad_words: Vec<Vec<TokenId>>,
    /// Until the output is this long, none of `end_tokens` can be chosen.
    pub min_tokens: usize,
    /// The tokens that end the text.
    pub end_tokens: Vec<TokenId>,
    /// How many of the first tokens are the prompt; what follows is output.
    pub prompt_len: usize,
}

impl Default for AdjustmentOptions {
    fn default() -> Self {
        Self {
            repetition_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            penalty_window: 0,
            logit_bias: BTreeMap::new(),
            allowed_tokens: Vec::new(),
            banned_tokens: Vec::new(),
            bad_words: Vec::new(),
            min_tokens: 0,
            end_tokens: Vec::new(),
            prompt_len: 0,
        }
    }
}

/// Adjustments that are known to be valid.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Adjustments {
    options: AdjustmentOptions,
    /// The allowed ids, ascending.
    allowed: Vec<TokenId>,
}

impl Adjustments {
    /// Checks `options`.
    ///
    /// # Errors
    /// The first number out of its range.
    pub fn new(options: AdjustmentOptions) -> Result<Self, InvalidSampling> {
        let repetition = options.repetition_penalty;
        InvalidSampling::unless(
            repetition > 0.0 && repetition <= 100.0,
            "repetition_penalty",
            "over 0 and at most 100",
            repetition,
        )?;
        for (field, value) in [
            ("presence_penalty", options.presence_penalty),
            ("frequency_penalty", options.frequency_penalty),
        ] {
            let within = (-2.0..=2.0).contains(&value);
            InvalidSampling::unless(within, field, "a number from -2 to 2", value)?;
        }
        for bias in options.logit_bias.values().copied() {
            let within = (-100.0..=100.0).contains(&bias);
            InvalidSampling::unless(within, "logit_bias", "numbers from -100 to 100", bias)?;
        }
        let mut allowed = options.allowed_tokens.clone();
        allowed.sort_unstable();
        Ok(Self { options, allowed })
    }

    /// The checked options.
    pub fn options(&self) -> &AdjustmentOptions {
        &self.options
    }

    /// True where no logit is ever changed.
    pub fn are_none(&self) -> bool {
        let options = &self.options;
        !self.penalizes()
            && options.logit_bias.is_empty()
            && options.allowed_tokens.is_empty()
            && options.banned_tokens.is_empty()
            && options.bad_words.is_empty()
            && (options.min_tokens == 0 || options.end_tokens.is_empty())
    }

    /// Adjusts the `logits` of the token after `tokens`, prompt and output together: penalties,
    /// then bias, then what is impossible.
    pub fn apply(&self, tokens: &[TokenId], logits: &mut [f32]) {
        let options = &self.options;
        let output = tokens.get(options.prompt_len..).unwrap_or_default();
        if self.penalizes() {
            self.penalize(tokens, logits);
        }
        for (token, bias) in &options.logit_bias {
            if let Some(logit) = logits.get_mut(*token as usize) {
                *logit += bias;
            }
        }
        if output.len() < options.min_tokens {
            forbid(logits, &options.end_tokens);
        }
        if !self.allowed.is_empty() {
            self.forbid_others(logits);
        }
        forbid(logits, &options.banned_tokens);
        for word in &options.bad_words {
            if let Some((last, before)) = word.split_last()
                && output.ends_with(before)
            {
                forbid(logits, &[*last]);
            }
        }
    }

    fn penalizes(&self) -> bool {
        let options = &self.options;
        options.repetition_penalty != 1.0
            || options.presence_penalty != 0.0
            || options.frequency_penalty != 0.0
    }

    fn penalize(&self, tokens: &[TokenId], logits: &mut [f32]) {
        let options = &self.options;
        let window = match options.penalty_window {
            0 => 0,
            window => tokens.len().saturating_sub(window),
        };
        // How often the output part of the window holds each token that the window holds.
        let mut counts: HashMap<TokenId, u32> = HashMap::new();
        for (position, token) in tokens.iter().enumerate().skip(window) {
            *counts.entry(*token).or_default() += u32::from(position >= options.prompt_len);
        }
        for (token, count) in counts {
            let Some(logit) = logits.get_mut(token as usize) else {
                continue;
            };
            if *logit > 0.0 {
                *logit /= options.repetition_penalty;
            } else {
                *logit *= options.repetition_penalty;
            }
            if count > 0 {
                *logit -= options.presence_penalty + options.frequency_penalty * count as f32;
            }
        }
    }

    /// Makes everything but the allowed ids impossible.
    fn forbid_others(&self, logits: &mut [f32]) {
        let mut next = 0;
        for allowed in self.allowed.iter().map(|id| *id as usize) {
            if allowed >= logits.len() {
                break;
            }
            if allowed >= next {
                logits[next..allowed].fill(f32::NEG_INFINITY);
                next = allowed + 1;
            }
        }
        logits[next..].fill(f32::NEG_INFINITY);
    }
}

/// Makes `tokens` impossible.
fn forbid(logits: &mut [f32], tokens: &[TokenId]) {
    for token in tokens {
        if let Some(logit) = logits.get_mut(*token as usize) {
            *logit = f32::NEG_INFINITY;
        }
    }
}
