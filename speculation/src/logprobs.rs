//! Log-probabilities to report: of the token that was committed, and of the most likely ones.

use crate::logits::{Logits, cap};
use crate::scores::Scores;
use crate::{Law, Sampling, TokenId};

/// Which probabilities are reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogprobsMode {
    /// Those of the model's own logits.
    Raw,
    /// Those of the law that tokens are drawn from, after all processing.
    Processed,
}

/// What to report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogprobsOptions {
    /// Which probabilities.
    pub mode: LogprobsMode,
    /// How many of the most likely tokens.
    pub top: usize,
}

/// The log-probabilities at one position, in nats; minus infinity where impossible.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenLogprobs {
    /// That of the token that was asked for.
    pub logprob: f32,
    /// The most likely tokens with theirs: the most likely first, the lower id first on a tie.
    pub top: Vec<(TokenId, f32)>,
}

/// The log-probabilities of one row, for any token.
#[derive(Debug)]
pub struct LogprobRow<'a> {
    source: Source<'a>,
    top: Vec<(TokenId, f32)>,
}

#[derive(Debug)]
enum Source<'a> {
    /// Logits, the largest of them, and the logarithm of the sum of their exponentials relative to
    /// that one: apart, as the sum of the two can lose the smaller.
    Raw(&'a [f32], f64, f64),
    Processed(Law),
}

impl<'a> LogprobRow<'a> {
    /// The row of the model's `raw` logits, which the request's adjustments turned into `processed`
    /// ones and which `sampling` makes a law of.
    pub fn new(
        options: &LogprobsOptions,
        raw: &'a [f32],
        processed: &[f32],
        sampling: &Sampling,
    ) -> Self {
        let (source, ids) = match options.mode {
            LogprobsMode::Raw => {
                let logits = Logits::new(raw);
                // Portable, so that two machines agree to the bit.
                let log_total = libm::log(Scores::new(&logits, 1.0).total());
                let source = Source::Raw(raw, f64::from(logits.peak()), log_total);
                (source, logits.largest(options.top))
            }
            LogprobsMode::Processed => {
                let law = Law::new(processed, sampling);
                let likely = law.most_likely(options.top);
                let ids = likely.into_iter().map(|entry| entry.0).collect();
                (Source::Processed(law), ids)
            }
        };
        let top = ids.into_iter().map(|id| (id, source.of(id))).collect();
        Self { source, top }
    }

    /// What is to be reported where `token` is committed.
    pub fn of(&self, token: TokenId) -> TokenLogprobs {
        TokenLogprobs {
            logprob: self.source.of(token),
            top: self.top.clone(),
        }
    }
}

impl Source<'_> {
    fn of(&self, token: TokenId) -> f32 {
        match self {
            Self::Raw(logits, peak, log_total) => {
                let logit = logits.get(token as usize).copied().map(cap);
                logit
                    .filter(|logit| *logit > f32::NEG_INFINITY)
                    .map_or(f32::NEG_INFINITY, |logit| {
                        (f64::from(logit) - peak - log_total) as f32
                    })
            }
            Self::Processed(law) => libm::log(law.probability(token)) as f32,
        }
    }
}
