//! One text's progress through its grammar.

use crate::error::one_line;
use crate::grammars::Shared;
use llguidance::TokenParser;
use llguidance::api::StopReason;
use llguidance::panic_utils::catch_unwind;
use llguidance::toktrie::SimpleVob;
use speculation::{Constraint, ConstraintError, TokenId};
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

/// A parser, and what it has been fed.
///
/// The library knows no end tokens: where one was pushed, only `ended` says so. Its failures,
/// panics too, are errors of the mask, and where something is pushed, refusals. They are gone when
/// the tokens that led to them are taken back, but for those of its lexer, which has only one state
/// for all that was tried.
pub(crate) struct Session {
    shared: Arc<Shared>,
    /// Before the first token.
    start: TokenParser,
    parser: TokenParser,
    /// What was pushed, less an end token.
    tokens: Vec<TokenId>,
    ended: bool,
    /// The parser failed and may be in any state; `start` and `tokens` say what it should be.
    stale: bool,
}

/// What may come next.
struct Next {
    /// The tokens that go on, where any can.
    text: Option<SimpleVob>,
    /// Whether the text may end.
    end: bool,
}

impl Session {
    pub(crate) fn new(shared: Arc<Shared>, start: TokenParser) -> Self {
        Self {
            shared,
            parser: start.clone(),
            start,
            tokens: Vec::new(),
            ended: false,
            stale: false,
        }
    }

    fn next(&mut self) -> Result<Next, ConstraintError> {
        const ONLY_END: Next = Next {
            text: None,
            end: true,
        };
        if self.ended {
            return Ok(ONLY_END);
        }
        self.with_parser(|parser| {
            if parser.stopped() {
                return Ok(ONLY_END);
            }
            let end = parser.is_accepting();
            match parser.compute_mask() {
                Ok(text) => Ok(Next {
                    text: Some(text),
                    end,
                }),
                Err(_) if parser.stop_reason() == StopReason::NoExtensionBias => {
                    Err("no token of the model can follow".to_owned())
                }
                Err(error) => Err(one_line(error)),
            }
        })
    }

    /// Runs `f` on the parser in the state that it should be in. Whatever fails leaves it stale.
    fn with_parser<R>(
        &mut self,
        f: impl FnOnce(&mut TokenParser) -> Result<R, String>,
    ) -> Result<R, ConstraintError> {
        let Self { start, parser, .. } = self;
        let (stale, tokens) = (self.stale, &self.tokens);
        let result = guarded(|| {
            if stale {
                *parser = start.clone();
                tokens.iter().try_for_each(|&token| feed(parser, token))?;
            }
            f(parser)
        });
        self.stale = result.is_err();
        result.map_err(|reason| ConstraintError(format!("structured output: {reason}")))
    }

    fn is_end(&self, token: TokenId) -> bool {
        self.shared.end_tokens.contains(&token)
    }
}

impl Constraint for Session {
    fn mask(&mut self, logits: &mut [f32]) -> Result<(), ConstraintError> {
        let Next { text, end } = self.next()?;
        let Shared {
            size, end_tokens, ..
        } = &*self.shared;
        let ends: Vec<Option<f32>> = end_tokens
            .iter()
            .map(|&id| logits.get(id as usize).copied().filter(|_| end))
            .collect();
        forbid_but(text.as_ref(), *size, logits);
        for (&id, logit) in end_tokens.iter().zip(ends) {
            if let Some(slot) = logits.get_mut(id as usize) {
                *slot = logit.unwrap_or(f32::NEG_INFINITY);
            }
        }
        Ok(())
    }

    fn push(&mut self, token: TokenId) -> bool {
        if self.ended || token as usize >= self.shared.size {
            return false;
        }
        if self.is_end(token) {
            let end = self.with_parser(|parser| Ok(parser.stopped() || parser.is_accepting()));
            self.ended = end.unwrap_or(false);
            return self.ended;
        }
        // Tried first: a token that the parser takes and cannot follow leaves it in an error, out of
        // which only feeding all tokens anew would lead.
        let pushed = self.with_parser(|parser| {
            let valid = parser.validate_token(token).map_err(one_line)?;
            if valid {
                feed(parser, token)?;
            }
            Ok(valid)
        });
        let pushed = pushed.unwrap_or(false);
        if pushed {
            self.tokens.push(token);
        }
        pushed
    }

    fn pop(&mut self, count: usize) {
        let mut count = count;
        if count > 0 && self.ended {
            self.ended = false;
            count -= 1;
        }
        let count = count.min(self.tokens.len());
        self.tokens.truncate(self.tokens.len() - count);
        if count == 0 || self.stale {
            return;
        }
        // Where it fails the next call puts the parser right.
        let _ = self.with_parser(|parser| {
            parser.rollback(count).map_err(one_line)?;
            // The library takes the last mask for the next one's where the parser is in the same
            // row again, whatever led there.
            parser.invalidate_bias_cache();
            Ok(())
        });
    }

    /// The two share the lexer's automaton, as all copies of a parser do: it only grows.
    fn fork(&self) -> Option<Box<dyn Constraint>> {
        let parsers = guarded(|| Ok((self.start.clone(), self.parser.clone())));
        let (start, parser) = parsers.ok()?;
        Some(Box::new(Self {
            shared: Arc::clone(&self.shared),
            start,
            parser,
            tokens: self.tokens.clone(),
            ended: self.ended,
            stale: self.stale,
        }))
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("tokens", &self.tokens.len())
            .field("ended", &self.ended)
            .finish_non_exhaustive()
    }
}

/// Advances `parser` by a token that can follow.
fn feed(parser: &mut TokenParser, token: TokenId) -> Result<(), String> {
    let backtracked = parser.consume_token(token).map_err(one_line)?;
    if backtracked > 0 {
        return Err(format!("token {token} was taken back"));
    }
    parser.check_stop().map_err(one_line)?;
    Ok(())
}

/// Makes the library's panics errors.
pub(crate) fn guarded<R>(f: impl FnOnce() -> Result<R, String>) -> Result<R, String> {
    catch_unwind(AssertUnwindSafe(|| Ok(f())))
        .map_err(one_line)
        .flatten()
}

/// Forbids all of `logits` but the first `size` that `allowed` has.
fn forbid_but(allowed: Option<&SimpleVob>, size: usize, logits: &mut [f32]) {
    let words = allowed.map_or(&[][..], SimpleVob::as_slice);
    let (known, beyond) = logits.split_at_mut(size.min(logits.len()));
    beyond.fill(f32::NEG_INFINITY);
    for (index, chunk) in known.chunks_mut(32).enumerate() {
        match words.get(index).copied().unwrap_or(0) {
            0 => chunk.fill(f32::NEG_INFINITY),
            u32::MAX => {}
            word => forbid_unset(word, chunk),
        }
    }
}

fn forbid_unset(word: u32, chunk: &mut [f32]) {
    for (bit, logit) in chunk.iter_mut().enumerate() {
        if word & (1 << bit) == 0 {
            *logit = f32::NEG_INFINITY;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Form, Grammars, Token};

    #[test]
    fn a_panic_of_the_library_is_an_error_of_this_text_alone() {
        let tokens = vec![Token::Text(b"a".to_vec()), Token::Unused];
        let grammars = Grammars::new(tokens, &[1]).unwrap();
        let form = Form::Regex("a+".to_owned());
        let mut session = grammars.session(&form).unwrap();
        assert!(session.push(0));
        let panicked = session.with_parser(|parser| {
            let result = parser.parser.test_trigger_lexer_error();
            result.map_err(one_line)
        });
        assert_eq!(
            panicked.unwrap_err().to_string(),
            "structured output: internal error: synthetic error"
        );
        let error = session.mask(&mut [0.0; 2]).unwrap_err().to_string();
        assert!(!error.contains('\n'), "{error}");
        assert!(!session.push(0) && !session.push(1));
        session.pop(1);
        let mut logits = [0.0; 2];
        let mut other = grammars.compile(&form).unwrap();
        other.mask(&mut logits).unwrap();
        assert_eq!(logits, [0.0, f32::NEG_INFINITY]);
    }
}
