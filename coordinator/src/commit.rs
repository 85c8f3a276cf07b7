//! The one function through which tokens become committed, token by token, and get their text.
//!
//! Everything that depends on what was committed (the end of a text, its length limit, the counts,
//! the text itself) is decided here and nowhere else, so that a round of several tokens cannot
//! differ from as many rounds of one. Knows nothing of workers and clients.
//!
//! The first boundary ends a text: a token that ends it, a stop string, the last token of the
//! budget. What comes on the same token counts in this order. A token that ends the text does so
//! before its own text is read. Text counts where it becomes certain: with the token that completes
//! a character, or that ends the text.

#[cfg(test)]
mod tests;

use crate::detokenize::Detokenizer;
use crate::request::Generation;
use crate::stop::StopMatcher;
use proto::v1::TokenLogprobs;
use speculation::TokenId;
use std::sync::Arc;

/// Where a committed token came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The target wrote it.
    Target,
    /// A draft worker proposed it and the target accepted it.
    Draft,
    /// It followed the same tokens earlier, was proposed for that, and the target accepted it.
    Ngram,
}

/// Why a text ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FinishReason {
    /// The model ended it, or what the client named.
    Stop(Matched),
    /// The token budget is spent.
    Length,
    /// The client left.
    Cancelled,
}

/// What a text stopped at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Matched {
    /// This token.
    Token(TokenId),
    /// This stop string.
    String(String),
}

/// A token to commit.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct NewToken {
    /// Its id.
    pub(crate) id: TokenId,
    /// Where it came from.
    pub(crate) origin: Origin,
    /// Its log-probabilities, where the client asked for them.
    pub(crate) logprobs: Option<TokenLogprobs>,
}

/// The committed tokens of one sequence: its prompt and its output so far.
#[derive(Debug)]
pub(crate) struct Committed {
    generation: Arc<Generation>,
    tokens: Vec<TokenId>,
    detokenizer: Detokenizer,
    matcher: StopMatcher,
    finish: Option<FinishReason>,
}

/// What one call of [`Committed::commit`] added.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Delta {
    /// The text that became certain.
    pub(crate) text: String,
    /// The new tokens.
    pub(crate) tokens: Vec<TokenId>,
    /// Where each came from.
    pub(crate) origins: Vec<Origin>,
    /// Their log-probabilities, where the client asked for them.
    pub(crate) logprobs: Vec<TokenLogprobs>,
    /// Set where the last of them ended the text.
    pub(crate) finish: Option<FinishReason>,
}

impl Delta {
    /// How many of the tokens were drafted.
    pub(crate) fn drafted(&self) -> usize {
        self.origins
            .iter()
            .filter(|origin| **origin != Origin::Target)
            .count()
    }
}

impl Committed {
    /// A sequence that starts as the prompt of `generation` and goes on by its rules.
    pub(crate) fn new(generation: Arc<Generation>) -> Self {
        let shown = generation.calls.as_ref();
        let shown = shown.map_or_else(Default::default, |calls| Arc::clone(&calls.shown));
        Self {
            tokens: generation.prompt.clone(),
            generation,
            detokenizer: Detokenizer::showing(shown),
            matcher: StopMatcher::default(),
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
        self.generation.prompt.len()
    }

    /// The length of the output.
    pub(crate) fn generated(&self) -> usize {
        self.tokens.len() - self.prompt_len()
    }

    /// How many tokens may still come.
    pub(crate) fn budget_left(&self) -> usize {
        self.generation.max_tokens.saturating_sub(self.generated())
    }

    /// Commits `run` up to the first token that ends the text; what follows that is dropped.
    pub(crate) fn commit(&mut self, run: impl IntoIterator<Item = NewToken>) -> Delta {
        let mut delta = Delta::default();
        for new in run {
            if self.finish.is_some() {
                break;
            }
            // The first tokens, so many as the client wants at least, end nothing, and their text
            // counts towards no stop string.
            let searching = self.generated() >= self.generation.stop.min_tokens;
            self.tokens.push(new.id);
            delta.tokens.push(new.id);
            delta.origins.push(new.origin);
            delta.logprobs.extend(new.logprobs);
            self.finish = self.write(new.id, searching, &mut delta.text);
            delta.finish.clone_from(&self.finish);
        }
        delta
    }

    /// Writes the text of `token`, the last one, up to where it ends.
    fn write(
        &mut self,
        token: TokenId,
        searching: bool,
        text: &mut String,
    ) -> Option<FinishReason> {
        let generation = Arc::clone(&self.generation);
        let tokenizer = &generation.model.tokenizer;
        if generation.stop.end_tokens.contains(&token) {
            text.push_str(&self.matcher.flush());
            if generation.stop.include {
                text.push_str(&self.detokenizer.push(tokenizer, &[token]));
            }
            text.push_str(&std::mem::take(&mut self.detokenizer).finish(tokenizer));
            return Some(FinishReason::Stop(Matched::Token(token)));
        }
        let mut piece = self.detokenizer.push(tokenizer, &[token]);
        let last = self.budget_left() == 0;
        if last {
            piece += &std::mem::take(&mut self.detokenizer).finish(tokenizer);
        }
        let stop = self.search(piece, searching, text);
        if stop.is_none() && last {
            text.push_str(&self.matcher.flush());
            return Some(FinishReason::Length);
        }
        stop
    }

    /// Adds `piece` to `text`, as far as no stop string may begin in it.
    fn search(
        &mut self,
        piece: String,
        searching: bool,
        text: &mut String,
    ) -> Option<FinishReason> {
        if !searching {
            text.push_str(&piece);
            return None;
        }
        let stop = &self.generation.stop;
        let searched = self.matcher.push(&stop.strings, &piece, stop.include);
        text.push_str(&searched.text);
        searched
            .found
            .map(|found| FinishReason::Stop(Matched::String(found)))
    }
}
