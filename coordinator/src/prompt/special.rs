//! What users write is text, also where it spells a special token.
//!
//! A conversation's strings go through the model's template, which writes special tokens between
//! them, and only then become ids. So that the two can be told apart, a sign that no text holds is
//! put into whatever a user wrote that spells a special token, or could become a part of one beside
//! what the template or another message writes. The sign stands behind the token's first letter (or
//! before the first letter of the text), where templates that trim, compare or split the text hardly
//! ever see it. In the rendered text special tokens without the sign are the template's own.

use super::trie::Trie;
use service::{Class, Error};
use speculation::TokenId;
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::OnceLock;
use tokenizers::{AddedToken, Tokenizer};

/// Breaks special tokens that users write. A code point that is reserved for uses like this.
const MARK: char = '\u{fdd0}';

/// Begins the stand-in of a special token that the template wrote; another such code point.
const STAND_IN: char = '\u{fdd1}';

/// What follows it: the first of as many characters as there are special tokens, of private use.
const FIRST_NUMBER: u32 = 0xf_0000;

/// The special tokens of a model.
#[derive(Debug)]
pub(crate) struct SpecialTokens {
    /// All special tokens of two letters or more.
    special: Trie,
    /// What they end with, short of all of it.
    endings: Trie,
    /// All tokens that are found before text is split, with the number of the special ones.
    added: Trie,
    tokens: Vec<(TokenId, AddedToken)>,
    literal: OnceLock<Result<Literal, String>>,
}

/// A tokenizer that takes special tokens for text, and their stand-ins for special tokens.
#[derive(Debug)]
struct Literal {
    tokenizer: Tokenizer,
    /// The special token of a stand-in.
    meant: HashMap<TokenId, TokenId>,
    special: HashSet<TokenId>,
}

impl SpecialTokens {
    /// Those of `tokenizer`.
    pub(crate) fn new(tokenizer: &Tokenizer) -> Self {
        let added = tokenizer.get_added_vocabulary().get_added_tokens_decoder();
        let mut tokens: Vec<_> = added
            .iter()
            .filter(|(_, token)| token.special && token.content.chars().nth(1).is_some())
            .map(|(id, token)| (*id, token.clone()))
            .collect();
        tokens.sort_unstable_by_key(|(id, _)| *id);
        let mut tries = [Trie::default(), Trie::default(), Trie::default()];
        let [special, endings, all] = &mut tries;
        for token in added.values() {
            all.insert(&token.content, None);
        }
        for ((_, token), number) in tokens.iter().zip(FIRST_NUMBER..) {
            special.insert(&token.content, None);
            all.insert(&token.content, char::from_u32(number));
            for (at, _) in token.content.char_indices().skip(1) {
                endings.insert(&token.content[at..], None);
            }
        }
        let [special, endings, added] = tries;
        Self {
            special,
            endings,
            added,
            tokens,
            literal: OnceLock::new(),
        }
    }

    /// `text`, which a user wrote, for the template. Code points that we use ourselves and that no
    /// text holds become U+FFFD.
    pub(super) fn mark(&self, text: &str) -> String {
        self.marked(text, true)
    }

    /// `text`, which is a key within what a user wrote, for the template. Templates look entries up by
    /// short names, so a key is left alone where it is only a piece of a special token.
    pub(super) fn mark_key(&self, text: &str) -> String {
        self.marked(text, false)
    }

    fn marked(&self, text: &str, may_go_on: bool) -> String {
        let own = [MARK, STAND_IN];
        let text = if text.contains(own) {
            Cow::Owned(text.replace(own, "\u{fffd}"))
        } else {
            Cow::Borrowed(text)
        };
        // A template may take white space off at both ends.
        let end = text.trim_end().len();
        let start = end - text.trim().len();
        let mut marked = String::with_capacity(text.len());
        for (at, c) in text.char_indices() {
            if may_go_on && at == start && self.may_go_on_with(&text[start..end]) {
                marked.push(MARK);
            }
            marked.push(c);
            if at < end && self.may_begin_with(&text[at..end]) {
                marked.push(MARK);
            }
        }
        marked
    }

    /// True where a special token that began before may go on with all of `text`, or end in it.
    fn may_go_on_with(&self, text: &str) -> bool {
        let found = self.endings.find(text);
        !text.is_empty() && (found.string.is_some() || found.beginning == text.len())
    }

    /// True where `text` begins with a special token, with two letters of one, or is the beginning
    /// of one as a whole.
    fn may_begin_with(&self, text: &str) -> bool {
        let begun = self.special.find(text).beginning;
        begun > 0 && (begun == text.len() || text[..begun].chars().nth(1).is_some())
    }

    /// The token ids of `rendered`, in which what users wrote is marked, by `tokenizer`, whose
    /// special tokens these are.
    ///
    /// # Errors
    /// [`Class::Invalid`] where the tokenizer cannot write as text what is marked,
    /// [`Class::Internal`] where it fails.
    pub(super) fn encode(
        &self,
        rendered: &str,
        tokenizer: &Tokenizer,
    ) -> Result<Vec<TokenId>, Error> {
        let literal = self
            .literal
            .get_or_init(|| Literal::new(tokenizer, &self.tokens));
        let literal = literal.as_ref().map_err(|error| failed(error))?;
        literal.encode(&self.stand_ins(rendered))
    }

    /// `rendered` with stand-ins for special tokens, and without marks.
    fn stand_ins(&self, rendered: &str) -> String {
        let mut text = String::with_capacity(rendered.len());
        let mut rest = rendered;
        while let Some(c) = rest.chars().next() {
            let len = match self.added.find(rest).string {
                Some((len, Some(number))) => {
                    text.extend([STAND_IN, number]);
                    len
                }
                Some((len, None)) => {
                    text.push_str(&rest[..len]);
                    len
                }
                None => {
                    text.extend(Some(c).filter(|c| *c != MARK));
                    c.len_utf8()
                }
            };
            rest = &rest[len..];
        }
        text
    }
}

impl Literal {
    fn new(tokenizer: &Tokenizer, tokens: &[(TokenId, AddedToken)]) -> Result<Self, String> {
        let mut tokenizer = tokenizer.clone();
        tokenizer.set_encode_special_tokens(true);
        let mut stand_ins = Vec::with_capacity(tokens.len());
        for ((_, token), number) in tokens.iter().zip(FIRST_NUMBER..) {
            let number = char::from_u32(number).ok_or("there are too many special tokens")?;
            stand_ins.push(AddedToken {
                content: String::from_iter([STAND_IN, number]),
                special: false,
                normalized: false,
                ..token.clone()
            });
        }
        tokenizer
            .add_tokens(stand_ins.clone())
            .map_err(|error| error.to_string())?;
        let meant = stand_ins.iter().zip(tokens);
        let meant = meant.filter_map(|(stand_in, (id, _))| {
            Some((tokenizer.token_to_id(&stand_in.content)?, *id))
        });
        Ok(Self {
            meant: meant.collect(),
            special: tokens.iter().map(|(id, _)| *id).collect(),
            tokenizer,
        })
    }

    fn encode(&self, text: &str) -> Result<Vec<TokenId>, Error> {
        let encoding = self.tokenizer.encode_fast(text, false);
        let encoding = encoding.map_err(|error| failed(&error.to_string()))?;
        let ids = encoding.get_ids().iter();
        ids.map(|id| match self.meant.get(id) {
            Some(meant) => Ok(*meant),
            None if self.special.contains(id) => {
                let message = "spells a special token, which this model's tokenizer cannot write \
                               as text";
                Err(Error::invalid("prompt.chat", message))
            }
            None => Ok(*id),
        })
        .collect()
    }
}

fn failed(error: &str) -> Error {
    Error::new(Class::Internal, format!("the tokenizer failed: {error}"))
}

/// True where `rendered` holds a mark.
pub(super) fn is_marked(rendered: &str) -> bool {
    rendered.contains(MARK)
}

/// `rendered` without marks, as people are to see it.
pub(super) fn unmark(rendered: &str) -> String {
    rendered.replace(MARK, "")
}

#[cfg(test)]
mod tests;
