//! The tokens before a position, and what they mean for the logits of the next one.

use crate::{Adjustments, TokenId};
use std::borrow::Cow;
use std::fmt::Debug;
use std::sync::Arc;

/// A rule that a text obeys, for example a grammar, advanced token by token.
pub trait Constraint: Debug + Send {
    /// Makes the tokens that cannot follow impossible.
    ///
    /// # Errors
    /// Where that cannot be told, for example because a limit of work was reached.
    fn mask(&mut self, logits: &mut [f32]) -> Result<(), ConstraintError>;

    /// Takes a token; false, and nothing changed, where it cannot follow.
    fn push(&mut self, token: TokenId) -> bool;

    /// Takes back the last `count` tokens.
    fn pop(&mut self, count: usize);

    /// Another of its own that has taken the same tokens; none where there can be no second one.
    fn fork(&self) -> Option<Box<dyn Constraint>> {
        None
    }
}

/// What a request demands could not be evaluated, or leaves no token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConstraintError(pub String);

/// A sequence of tokens, committed or hypothetical, with what a request demands of the next one.
///
/// It follows a model's cache: what is cut off there is cut off here, and leaves no trace.
#[derive(Debug)]
pub struct Prefix {
    adjustments: Arc<Adjustments>,
    tokens: Vec<TokenId>,
    constraint: Option<Box<dyn Constraint>>,
    /// How many tokens of the output the constraint has taken. Fewer than there are from the first
    /// on that cannot follow: nothing after that one is ever committed.
    constrained: usize,
}

impl Prefix {
    /// An empty sequence. `constraint` holds for the output: it gets the tokens after the prompt.
    pub fn new(adjustments: Arc<Adjustments>, constraint: Option<Box<dyn Constraint>>) -> Self {
        Self {
            adjustments,
            tokens: Vec::new(),
            constraint,
            constrained: 0,
        }
    }

    /// The tokens.
    pub fn tokens(&self) -> &[TokenId] {
        &self.tokens
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// True where there are none.
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Appends a token.
    pub fn push(&mut self, token: TokenId) {
        let output = self.output_len();
        let is_output = self.tokens.len() >= self.prompt_len();
        self.tokens.push(token);
        if let Some(constraint) = &mut self.constraint
            && is_output
            && self.constrained == output
            && constraint.push(token)
        {
            self.constrained += 1;
        }
    }

    /// Takes back all tokens but the first `len`.
    pub fn truncate(&mut self, len: usize) {
        self.tokens.truncate(len);
        let output = self.output_len();
        if let Some(constraint) = &mut self.constraint
            && self.constrained > output
        {
            constraint.pop(self.constrained - output);
            self.constrained = output;
        }
    }

    /// A prefix of its own of the first `len` tokens, at most as many as there are; none where the
    /// constraint cannot be had twice.
    pub fn fork(&self, len: usize) -> Option<Self> {
        let constraint = match &self.constraint {
            Some(constraint) => Some(constraint.fork()?),
            None => None,
        };
        let mut fork = Self {
            adjustments: Arc::clone(&self.adjustments),
            tokens: self.tokens.clone(),
            constraint,
            constrained: self.constrained,
        };
        fork.truncate(len);
        Some(fork)
    }

    /// The logits of the next token after all of the request's adjustments.
    ///
    /// # Errors
    /// Those of the constraint, and where no token is left.
    pub fn process<'a>(&mut self, logits: &'a [f32]) -> Result<Cow<'a, [f32]>, ConstraintError> {
        let output = self.output_len();
        // After a token that cannot follow, the constraint has nothing to say.
        let constraint = self
            .constraint
            .as_mut()
            .filter(|_| self.constrained == output);
        if self.adjustments.are_none() && constraint.is_none() {
            return Ok(Cow::Borrowed(logits));
        }
        let mut processed = logits.to_vec();
        self.adjustments.apply(&self.tokens, &mut processed);
        if let Some(constraint) = constraint {
            constraint.mask(&mut processed)?;
        }
        // A NaN is no number, hence not over minus infinity.
        if processed.iter().any(|logit| *logit > f32::NEG_INFINITY) {
            return Ok(Cow::Owned(processed));
        }
        Err(ConstraintError(format!(
            "the request excludes every token at position {}",
            self.tokens.len()
        )))
    }

    fn prompt_len(&self) -> usize {
        self.adjustments.options().prompt_len
    }

    fn output_len(&self) -> usize {
        self.tokens.len().saturating_sub(self.prompt_len())
    }
}

/// The length of the longest common prefix.
pub fn common_prefix(a: &[TokenId], b: &[TokenId]) -> usize {
    a.iter().zip(b).take_while(|(x, y)| x == y).count()
}
