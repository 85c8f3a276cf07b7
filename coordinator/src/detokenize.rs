//! Token ids to text, piece by piece: the pieces, joined, are what decoding all ids at once gives.
//!
//! A token may hold part of a character, so the text of the last few tokens can still change; that
//! tail, and no more, is held back until it is complete. Knows nothing of requests.

use speculation::TokenId;
use std::sync::Arc;
use tokenizers::Tokenizer;

/// An incomplete character shows as at most this many replacement characters: one for each byte
/// that is there, and a character has at most four.
const TAIL: usize = 3;

/// From this many tokens on, those whose text cannot change are let go.
const WINDOW: usize = 12;

/// The text of one growing sequence.
#[derive(Debug, Default)]
pub(crate) struct Detokenizer {
    /// The last tokens; what came before them has no say in their text.
    window: Vec<TokenId>,
    /// How many bytes of the window's text were given out.
    emitted: usize,
    /// Special tokens that have a text all the same.
    shown: Arc<[TokenId]>,
}

impl Detokenizer {
    /// Of special tokens, these have a text, and no others.
    pub(crate) fn showing(shown: Arc<[TokenId]>) -> Self {
        Self {
            shown,
            ..Self::default()
        }
    }

    /// Adds `tokens` and returns the text that became certain.
    pub(crate) fn push(&mut self, tokenizer: &Tokenizer, tokens: &[TokenId]) -> String {
        self.window.extend_from_slice(tokens);
        let text = self.decode(tokenizer, &self.window);
        let certain = text.len() - tail_bytes(&text);
        let piece = self.take(&text[..certain]);
        self.shrink(tokenizer, &text);
        piece
    }

    /// Ends the sequence and returns what was held back; what is no character becomes U+FFFD.
    pub(crate) fn finish(mut self, tokenizer: &Tokenizer) -> String {
        let text = self.decode(tokenizer, &self.window);
        self.take(&text)
    }

    /// The part of `text`, the window's, that was not given out before.
    fn take(&mut self, text: &str) -> String {
        let piece = text.get(self.emitted..).unwrap_or_default().to_owned();
        self.emitted += piece.len();
        piece
    }

    /// Lets tokens go from the front, where that leaves the text of the others as it is.
    fn shrink(&mut self, tokenizer: &Tokenizer, text: &str) {
        if self.window.len() < WINDOW {
            return;
        }
        for at in (WINDOW / 2..self.window.len()).rev() {
            let (front, back) = self.window.split_at(at);
            let front = self.decode(tokenizer, front);
            let separable = front.len() <= self.emitted
                && text.strip_prefix(front.as_str()) == Some(self.decode(tokenizer, back).as_str());
            if separable {
                self.window.drain(..at);
                self.emitted -= front.len();
                return;
            }
        }
    }

    fn decode(&self, tokenizer: &Tokenizer, tokens: &[TokenId]) -> String {
        if !tokens.iter().any(|token| self.shown.contains(token)) {
            return decode(tokenizer, tokens, true);
        }
        let added = tokenizer.get_added_vocabulary();
        let is_special = |token: TokenId| {
            let text = tokenizer.id_to_token(token);
            text.is_some_and(|text| added.is_special_token(&text))
        };
        let tokens = tokens.iter().copied();
        let with_text: Vec<_> = tokens
            .filter(|token| self.shown.contains(token) || !is_special(*token))
            .collect();
        decode(tokenizer, &with_text, false)
    }
}

/// The length of the tail that may be an incomplete character.
fn tail_bytes(text: &str) -> usize {
    text.chars()
        .rev()
        .take(TAIL)
        .take_while(|c| *c == char::REPLACEMENT_CHARACTER)
        .map(char::len_utf8)
        .sum()
}

/// Decoding fails only for decoders that are wrongly configured; the ids are delivered all the same.
fn decode(tokenizer: &Tokenizer, tokens: &[TokenId], skip_special: bool) -> String {
    tokenizer.decode(tokens, skip_special).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{byte_level_tokenizer, byte_token, sentencepiece_tokenizer};
    use proptest::prelude::*;

    fn pieces(tokenizer: &Tokenizer, ids: &[TokenId], run: usize) -> (Vec<String>, String) {
        let mut detokenizer = Detokenizer::default();
        let pieces = ids
            .chunks(run)
            .map(|ids| detokenizer.push(tokenizer, ids))
            .collect();
        (pieces, detokenizer.finish(tokenizer))
    }

    fn bytes(text: &[u8]) -> Vec<TokenId> {
        text.iter().copied().map(byte_token).collect()
    }

    proptest! {
        #[test]
        fn pieces_join_to_the_whole_text(
            text in "[a-zěščř ]{0,12}(👩‍👩‍👧|日本語|🏳️‍🌈|é|�){0,8}[ -~]{0,6}",
            noise in prop::collection::vec(any::<u8>(), 0..12),
            run in 1usize..6,
        ) {
            let tokenizer = byte_level_tokenizer();
            let mut ids = bytes(text.as_bytes());
            ids.extend(bytes(&noise));
            ids.extend(bytes(text.as_bytes()));
            let (pieces, rest) = pieces(&tokenizer, &ids, run);
            prop_assert_eq!(pieces.concat() + &rest, decode(&tokenizer, &ids, true));
        }

        #[test]
        fn no_more_than_an_incomplete_character_is_held_back(text in "\\PC{1,24}") {
            prop_assume!(!text.contains('\u{fffd}'));
            let tokenizer = byte_level_tokenizer();
            let mut detokenizer = Detokenizer::default();
            let mut given = String::new();
            for (index, id) in bytes(text.as_bytes()).into_iter().enumerate() {
                given += &detokenizer.push(&tokenizer, &[id]);
                let complete = (0..=index + 1).rev().find(|at| text.is_char_boundary(*at));
                prop_assert_eq!(Some(given.len()), complete);
            }
        }
    }

    #[test]
    fn endless_invalid_bytes_flow_and_take_no_memory() {
        let tokenizer = byte_level_tokenizer();
        let mut detokenizer = Detokenizer::default();
        let mut given = String::new();
        for _ in 0..500 {
            given += &detokenizer.push(&tokenizer, &[byte_token(0x80)]);
            assert!(detokenizer.window.len() < 2 * WINDOW);
        }
        assert!(given.chars().count() >= 500 - TAIL);
        assert_eq!(
            given + &detokenizer.finish(&tokenizer),
            "\u{fffd}".repeat(500)
        );
    }

    #[test]
    fn special_tokens_have_no_text() {
        let tokenizer = byte_level_tokenizer();
        let end = tokenizer.token_to_id("<|end|>").unwrap();
        let (pieces, rest) = pieces(&tokenizer, &[byte_token(b'a'), end, byte_token(b'b')], 1);
        assert_eq!((pieces.concat(), rest), ("ab".to_owned(), String::new()));
    }

    #[test]
    fn a_special_token_that_is_shown_has_its_text() {
        let tokenizer = byte_level_tokenizer();
        let end = tokenizer.token_to_id("<|end|>").unwrap();
        let mut detokenizer = Detokenizer::showing(Arc::new([end]));
        let mut text = String::new();
        for id in [byte_token(b'a'), end, byte_token(b'b')] {
            text += &detokenizer.push(&tokenizer, &[id]);
        }
        assert_eq!(text + &detokenizer.finish(&tokenizer), "a<|end|>b");
    }

    #[test]
    fn a_decoder_that_strips_the_first_space_strips_no_other() {
        let tokenizer = sentencepiece_tokenizer();
        let ids: Vec<TokenId> = (0..40).map(|index| [3, 4][index % 2]).collect();
        let (pieces, rest) = pieces(&tokenizer, &ids, 1);
        assert_eq!(pieces.concat() + &rest, decode(&tokenizer, &ids, true));
    }
}
