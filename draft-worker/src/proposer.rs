//! Drafts tokens from the draft model's logits, as the engine computes them.

use crate::line::Line;
use crate::wish::Wish;
use engine::{EngineError, Reader, Row};
use proto::v1::DraftLaws;
use speculation::{Adjustments, DraftLaw, Rule, Sampler, Stream, TOTAL_COUNT, TokenId, uniform};
use std::sync::{Arc, OnceLock};

/// How the tokens of a sequence are drafted.
#[derive(Debug, Clone)]
pub(crate) struct Drawing {
    pub(crate) rule: Rule,
    pub(crate) sampler: Sampler,
    pub(crate) adjustments: Arc<Adjustments>,
}

/// Drafts the tokens of one proposal.
#[derive(Debug)]
pub(crate) struct Proposer {
    drawing: Drawing,
    /// Committed tokens before the proposal.
    base: u64,
    /// It ends before the first token that is less likely.
    min_confidence: f64,
    /// How many candidates are noted at each position.
    candidates: usize,
    line: Line,
    /// The laws that they were drawn from; none under the rule `coupled`.
    laws: Vec<DraftLaw>,
    /// What the first row is for, where that is no drafted token.
    pick: Option<Pick>,
}

/// A presumed token that is known only once the row before it is computed.
#[derive(Debug, Clone)]
pub(crate) struct Pick {
    /// Which of the candidates it is, from 1.
    pub(crate) rank: usize,
    /// The token, once it is known.
    pub(crate) token: Arc<OnceLock<TokenId>>,
}

/// Drafted tokens and the laws that they were drawn from, where the rule needs them and not all
/// tokens were certain.
#[derive(Debug, Default)]
pub(crate) struct Drafted {
    pub(crate) line: Line,
    pub(crate) laws: Option<DraftLaws>,
}

impl Proposer {
    /// Goes on after `line`, which follows `base` committed tokens.
    pub(crate) fn new(drawing: Drawing, wish: &Wish, base: u64, line: Line) -> Self {
        Self {
            drawing,
            base,
            min_confidence: wish.min_confidence,
            candidates: wish.candidates(),
            line,
            laws: Vec::new(),
            pick: None,
        }
    }

    /// The same, where the first row chooses a token that is presumed.
    pub(crate) fn after(self, pick: Option<Pick>) -> Self {
        Self { pick, ..self }
    }

    pub(crate) fn finish(self) -> Drafted {
        let certain = self.laws.iter().all(|law| law.entries().len() == 1);
        Drafted {
            line: self.line,
            laws: (!certain).then(|| self.laws.as_slice().into()),
        }
    }

    /// The presumed token.
    fn pick(&self, pick: &Pick, logits: &[f32], position: u64) -> Option<TokenId> {
        let sampler = &self.drawing.sampler;
        let mut best = sampler.candidates(logits, position, pick.rank).into_iter();
        let token = best.nth(pick.rank - 1)?;
        // It is set here alone.
        let _ = pick.token.set(token);
        Some(token)
    }

    /// The next drafted token; none where it is too unlikely.
    fn draw(&mut self, logits: &[f32], position: u64) -> Option<TokenId> {
        match self.drawing.rule {
            Rule::Coupled => self.choose(logits, position),
            Rule::Token | Rule::Block => self.sample(logits, position),
        }
    }

    fn choose(&mut self, logits: &[f32], position: u64) -> Option<TokenId> {
        let sampler = &self.drawing.sampler;
        let candidates = match self.candidates {
            1 => vec![sampler.choose(logits, position).token],
            count => sampler.candidates(logits, position, count),
        };
        let token = *candidates.first()?;
        let confidence = sampler.confidence(logits, token);
        if confidence < self.min_confidence {
            return None;
        }
        self.line.push(candidates, confidence);
        Some(token)
    }

    /// Whether the proposal ends here must not depend on the token drawn, or the text's law would be
    /// another: it depends on the law alone.
    fn sample(&mut self, logits: &[f32], position: u64) -> Option<TokenId> {
        let sampler = &self.drawing.sampler;
        let law = DraftLaw::of_logits(logits, &sampler.sampling);
        let largest = law.entries().iter().map(|entry| entry.1).max();
        let likeliest = f64::from(largest.unwrap_or(0)) / f64::from(TOTAL_COUNT);
        if likeliest < self.min_confidence {
            return None;
        }
        let u = uniform(sampler.key, Stream::Draft, self.base, position);
        let token = law.draw(u);
        self.laws.push(law);
        self.line.ids.push(token);
        Some(token)
    }
}

impl Reader for Proposer {
    /// Ends the proposal where the text ends or where the request leaves no token: what the target
    /// makes of that is its own affair. Neither depends on anything but the tokens before, so the
    /// rules that compare probabilities stay exact.
    fn read(&mut self, mut row: Row<'_>) -> Result<Option<TokenId>, EngineError> {
        let Ok(processed) = row.processed() else {
            return Ok(None);
        };
        let token = match self.pick.take() {
            Some(pick) => self.pick(&pick, &processed, row.position()),
            None => self.draw(&processed, row.position()),
        };
        let ends = &self.drawing.adjustments.options().end_tokens;
        Ok(token.filter(|token| !ends.contains(token)))
    }
}
