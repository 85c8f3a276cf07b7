//! The one function through which tokens become committed, token by token.
//!
//! Everything that depends on what was committed (the end of a text, its length limit, the counts)
//! is decided here and nowhere else, so that a round of several tokens cannot differ from as many
//! rounds of one. Knows nothing of workers and clients.

use speculation::TokenId;
use std::sync::Arc;

/// Where a committed token came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The target wrote it.
    Target,
    /// A draft proposed it and the target accepted it.
    Draft,
}

/// Why a text ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FinishReason {
    /// The model ended it.
    Stop,
    /// The token budget is spent.
    Length,
}

/// The committed tokens of one sequence: its prompt and its output so far.
#[derive(Debug)]
pub(crate) struct Committed {
    tokens: Vec<TokenId>,
    prompt_len: usize,
    budget: usize,
    end_tokens: Arc<[TokenId]>,
    finish: Option<FinishReason>,
}

/// What one call of [`Committed::commit`] added.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Delta {
    /// The new tokens.
    pub(crate) tokens: Vec<TokenId>,
    /// Where each came from.
    pub(crate) origins: Vec<Origin>,
    /// Set where the last of them ended the text.
    pub(crate) finish: Option<FinishReason>,
}

impl Delta {
    /// How many of the tokens a draft proposed.
    pub(crate) fn drafted(&self) -> usize {
        self.origins
            .iter()
            .filter(|origin| **origin == Origin::Draft)
            .count()
    }
}

impl Committed {
    /// A sequence that starts as `prompt` and takes at most `budget` tokens more, fewer where one of
    /// `end_tokens` comes.
    pub(crate) fn new(prompt: Vec<TokenId>, budget: usize, end_tokens: Arc<[TokenId]>) -> Self {
        Self {
            prompt_len: prompt.len(),
            tokens: prompt,
            budget,
            end_tokens,
            finish: None,
        }
    }

    /// Prompt and output.
    pub(crate) fn tokens(&self) -> &[TokenId] {
        &self.tokens
    }

    /// The length of prompt and output together.
    pub(crate) fn len(&self) -> usize {
        self.tokens.len()
    }

    /// The length of the prompt.
    pub(crate) fn prompt_len(&self) -> usize {
        self.prompt_len
    }

    /// The length of the output.
    pub(crate) fn generated(&self) -> usize {
        self.tokens.len() - self.prompt_len
    }

    /// How many tokens may still come.
    pub(crate) fn budget_left(&self) -> usize {
        self.budget.saturating_sub(self.generated())
    }

    /// Commits `run` up to the first token that ends the text; what follows that is dropped.
    pub(crate) fn commit(&mut self, run: impl IntoIterator<Item = (TokenId, Origin)>) -> Delta {
        let mut delta = Delta::default();
        for (token, origin) in run {
            if self.finish.is_some() {
                break;
            }
            self.tokens.push(token);
            delta.tokens.push(token);
            delta.origins.push(origin);
            if self.end_tokens.contains(&token) {
                self.finish = Some(FinishReason::Stop);
            } else if self.budget_left() == 0 {
                self.finish = Some(FinishReason::Length);
            }
        }
        delta.finish = self.finish.filter(|_| !delta.tokens.is_empty());
        delta
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EOS: TokenId = 99;

    fn run(tokens: &[TokenId]) -> Vec<(TokenId, Origin)> {
        let last = tokens.len() - 1;
        tokens
            .iter()
            .enumerate()
            .map(|(index, token)| {
                let origin = if index == last {
                    Origin::Target
                } else {
                    Origin::Draft
                };
                (*token, origin)
            })
            .collect()
    }

    #[test]
    fn an_end_token_inside_an_accepted_run_drops_the_rest_at_every_offset() {
        for offset in 0..6 {
            let mut tokens: Vec<TokenId> = (1..=6).collect();
            tokens[offset] = EOS;
            let mut committed = Committed::new(vec![7, EOS], 100, [EOS].into());
            let delta = committed.commit(run(&tokens));
            assert_eq!(delta.tokens, tokens[..=offset]);
            assert_eq!(delta.origins.len(), offset + 1);
            assert_eq!(delta.drafted(), (offset + 1).min(5));
            assert_eq!(delta.finish, Some(FinishReason::Stop));
            assert_eq!(committed.generated(), offset + 1);
        }
    }

    #[test]
    fn the_budget_cuts_a_run_at_every_offset() {
        for budget in 1..=6 {
            let mut committed = Committed::new(vec![7], budget, [EOS].into());
            let delta = committed.commit(run(&[1, 2, 3, 4, 5, 6]));
            assert_eq!(delta.tokens.len(), budget);
            assert_eq!(delta.finish, Some(FinishReason::Length));
            assert_eq!(committed.budget_left(), 0);
        }
    }

    #[test]
    fn an_end_token_as_the_last_of_the_budget_is_a_stop() {
        let mut committed = Committed::new(vec![7], 2, [EOS].into());
        assert_eq!(
            committed.commit(run(&[1, EOS])).finish,
            Some(FinishReason::Stop)
        );
    }

    #[test]
    fn without_end_tokens_the_text_goes_on_past_them() {
        let mut committed = Committed::new(vec![7], 10, [].into());
        assert_eq!(committed.commit(run(&[EOS, 1])).finish, None);
        assert_eq!(committed.tokens(), [7, EOS, 1]);
    }

    #[test]
    fn nothing_is_committed_after_the_end() {
        let mut committed = Committed::new(vec![7], 1, [EOS].into());
        committed.commit(run(&[1]));
        assert_eq!(committed.commit(run(&[2])), Delta::default());
        assert_eq!(committed.tokens(), [7, 1]);
    }
}
