//! Drafts one proposal from the draft model's logits, as the engine computes them.

use engine::{EngineError, Reader, Row};
use proto::v1::DraftLaws;
use speculation::{Adjustments, DraftLaw, Rule, Sampler, Stream, TokenId, uniform};
use std::sync::Arc;

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
    ids: Vec<TokenId>,
    /// The laws that they were drawn from; none under the rule `coupled`.
    laws: Vec<DraftLaw>,
}

/// Drafted tokens and the laws that they were drawn from, where the rule needs them and not all
/// tokens were certain.
#[derive(Debug, Default)]
pub(crate) struct Drafted {
    pub(crate) ids: Vec<TokenId>,
    pub(crate) laws: Option<DraftLaws>,
}

impl Proposer {
    pub(crate) fn new(drawing: Drawing, base: u64) -> Self {
        Self {
            drawing,
            base,
            ids: Vec::new(),
            laws: Vec::new(),
        }
    }

    pub(crate) fn finish(self) -> Drafted {
        let certain = self.laws.iter().all(|law| law.entries().len() == 1);
        Drafted {
            ids: self.ids,
            laws: (!certain).then(|| self.laws.as_slice().into()),
        }
    }

    fn draw(&mut self, logits: &[f32], position: u64) -> TokenId {
        let sampler = &self.drawing.sampler;
        match self.drawing.rule {
            Rule::Coupled => sampler.choose(logits, position).token,
            Rule::Token | Rule::Block => {
                let law = DraftLaw::of_logits(logits, &sampler.sampling);
                let u = uniform(sampler.key, Stream::Draft, self.base, position);
                let token = law.draw(u);
                self.laws.push(law);
                token
            }
        }
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
        let token = self.draw(&processed, row.position());
        self.ids.push(token);
        let ends = &self.drawing.adjustments.options().end_tokens;
        Ok((!ends.contains(&token)).then_some(token))
    }
}
