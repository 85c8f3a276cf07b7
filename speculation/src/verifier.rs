//! Verification, row by row, under each of the rules.
//!
//! A row is the target's logits after the committed tokens and the first few drafted ones, with all
//! of the request's processing done. Rows come in order; once a row settles the verdict, those
//! after it are of no interest.

use crate::logits::Logits;
use crate::ratio::Node;
use crate::row_law::RowLaw;
use crate::{DraftLaw, Sampler, Stream, TokenId, uniform};

/// How proposals are verified. Every rule leaves the target's law of the text as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Rule {
    /// Draft and target choose with the same noise; a drafted token is accepted where it is the
    /// target's own choice. See [`Sampler`].
    ///
    /// The target's choices depend on the prefix, its logits, the key and the position alone, so by
    /// induction the text is the one that it decodes without any draft.
    Coupled,
    /// Speculative sampling: a token drawn from `q` is accepted with probability `min(1, p / q)`;
    /// after a rejection the next is drawn from what `p` has over `q` (Leviathan, Kalman and
    /// Matias 2023; Chen et al. 2023).
    Token,
    /// Block verification: with `r_0 = 1` and `r_i = min(1, r_(i-1) p_i(x_i) / q_i(x_i))` the
    /// drafted tokens are accepted up to the largest `i` that passes a test of its own, where
    /// `Token` stops at the first that fails. Never fewer on average (Sun et al. 2024).
    Block,
}

/// What the target says of a proposal: `draft[..accepted]` and then `next` are committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    /// How many drafted tokens are accepted, from the first.
    pub accepted: usize,
    /// The correction or, where all were accepted, the bonus token.
    pub next: TokenId,
}

/// What verifies one proposal.
///
/// Under [`Rule::Token`] and [`Rule::Block`] it is exact only where each token was drawn from its
/// law with a variable of [`Stream::Draft`], for the same `base`; and where what is verified of a
/// proposal was settled without a look at the tokens left out. So an id that is no token stays in
/// the proposal: the target's law excludes it, and no row after it is needed.
#[derive(Debug, Clone)]
pub struct Verifier {
    rule: Rule,
    sampler: Sampler,
    /// Committed tokens before the proposal.
    base: u64,
    draft: Vec<TokenId>,
    /// One law per drafted token; empty where all were certain.
    laws: Vec<DraftLaw>,
    /// Rows read.
    row: usize,
    /// With which probability the tokens before the row are accepted. Block rule only.
    ratio: f64,
    /// The verdict, if no later row changes it.
    verdict: Option<Verdict>,
    settled: bool,
}

impl Verifier {
    /// Verifies `draft`, which follows `base` committed tokens and was drawn from `laws`, one per
    /// token, or none where every token was certain. The coupled rule needs no laws.
    ///
    /// # Panics
    /// Unless there are no laws or one for each token.
    pub fn new(
        rule: Rule,
        sampler: Sampler,
        base: u64,
        draft: Vec<TokenId>,
        laws: Vec<DraftLaw>,
    ) -> Self {
        assert!(
            laws.is_empty() || laws.len() == draft.len(),
            "one law per drafted token"
        );
        Self {
            rule,
            sampler,
            base,
            draft,
            laws,
            row: 0,
            ratio: 1.0,
            verdict: None,
            settled: false,
        }
    }

    /// The drafted token that the next row judges; none for the last row, which brings the bonus
    /// token.
    pub fn drafted(&self) -> Option<TokenId> {
        self.draft.get(self.row).copied()
    }

    /// True where no further row can change the verdict; none needs to be computed, then.
    pub fn is_settled(&self) -> bool {
        self.settled
    }

    /// Reads the next row: the processed logits after `draft[..i]`, for the `i`th call from 0.
    ///
    /// Returns the token that the target commits at this position if it commits the drafted tokens
    /// before it and no more; none where it surely does not end there. A row after the verdict is
    /// settled changes nothing.
    pub fn read(&mut self, logits: &[f32]) -> Option<TokenId> {
        if self.settled {
            return None;
        }
        let next = match self.rule {
            Rule::Coupled => self.read_coupled(logits),
            Rule::Token => self.read_token(&self.law(&Logits::new(logits))),
            Rule::Block => self.read_block(&self.law(&Logits::new(logits))),
        };
        if let Some(next) = next {
            self.verdict = Some(Verdict {
                accepted: self.row,
                next,
            });
        }
        self.settled |= self.row == self.draft.len();
        self.row += 1;
        next
    }

    /// What the target says, once it is settled.
    pub fn verdict(&self) -> Option<Verdict> {
        self.verdict.filter(|_| self.settled)
    }

    fn read_coupled(&mut self, logits: &[f32]) -> Option<TokenId> {
        let choice = self.sampler.choose(logits, self.position()).token;
        self.settled = self.drafted() != Some(choice);
        self.settled.then_some(choice)
    }

    fn read_token(&mut self, p: &RowLaw<'_>) -> Option<TokenId> {
        let q = self.draft_law();
        let (q, ratio) = (&q, 1.0);
        let node = Node { p, q, ratio };
        let u = self.uniform(Stream::Accept);
        self.settled = self
            .drafted()
            .is_none_or(|drafted| u >= node.ratio_after(drafted));
        self.settled.then(|| self.continuation(&node))
    }

    fn read_block(&mut self, p: &RowLaw<'_>) -> Option<TokenId> {
        let (q, ratio) = (&self.draft_law(), self.ratio);
        let node = Node { p, q, ratio };
        let ends = self.uniform(Stream::Accept) < node.ending();
        let next = ends.then(|| self.continuation(&node));
        if let Some(drafted) = self.drafted() {
            self.ratio = node.ratio_after(drafted);
            // Nothing that follows an impossible token is ever accepted.
            self.settled = self.ratio == 0.0;
        }
        next
    }

    fn continuation(&self, node: &Node<'_, RowLaw<'_>>) -> TokenId {
        node.continuation(self.uniform(Stream::Residual))
    }

    /// The target's law of a row.
    fn law<'a>(&self, logits: &'a Logits<'a>) -> RowLaw<'a> {
        RowLaw::new(logits, &self.sampler.sampling)
    }

    /// The law that the drafted token of this row came from; empty where there is none.
    fn draft_law(&self) -> Vec<(TokenId, f64)> {
        match (self.laws.get(self.row), self.drafted()) {
            (Some(law), _) => law.probabilities().collect(),
            (None, Some(certain)) => vec![(certain, 1.0)],
            (None, None) => Vec::new(),
        }
    }

    fn uniform(&self, stream: Stream) -> f64 {
        uniform(self.sampler.key, stream, self.base, self.position())
    }

    /// The absolute position of the token that the row decides.
    fn position(&self) -> u64 {
        self.base + self.row as u64
    }
}
