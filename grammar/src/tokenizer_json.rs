//! What each token stands for, by a Hugging Face `tokenizer.json`.
//!
//! Reads the tokens and how they are decoded, and disregards how text is split.

use crate::{Token, VocabularyError};
use serde_json::Value;
use std::collections::HashMap;

/// The tokens with ids 0 to `size`, less one.
pub(crate) fn tokens(json: &[u8], size: usize) -> Result<Vec<Token>, VocabularyError> {
    let document: Value =
        serde_json::from_slice(json).map_err(|error| invalid(format!("is not JSON: {error}")))?;
    let decoder = Decoder::new(&document["decoder"])?;
    let mut tokens = vec![Token::Unused; size];
    let vocab = document["model"]["vocab"].as_object();
    let vocab = vocab.ok_or_else(|| invalid("model.vocab is not an object"))?;
    for (text, id) in vocab {
        *slot(&mut tokens, "model.vocab", id)? = Token::Text(decoder.bytes(text));
    }
    let none = Vec::new();
    let added = match &document["added_tokens"] {
        Value::Null => &none,
        Value::Array(added) => added,
        _ => return Err(invalid("added_tokens is not a list")),
    };
    for token in added {
        let text = token["content"].as_str();
        let text = text.ok_or_else(|| invalid("added_tokens: a content is not a string"))?;
        *slot(&mut tokens, "added_tokens", &token["id"])? = match token["special"].as_bool() {
            Some(true) => Token::Special(text.to_owned()),
            _ => Token::Text(decoder.bytes(text)),
        };
    }
    Ok(tokens)
}

fn slot<'a>(
    tokens: &'a mut [Token],
    field: &str,
    id: &Value,
) -> Result<&'a mut Token, VocabularyError> {
    let size = tokens.len();
    id.as_u64()
        .and_then(|id| tokens.get_mut(usize::try_from(id).ok()?))
        .ok_or_else(|| invalid(format!("{field}: {id:.40} is not an id under {size}")))
}

fn invalid(reason: impl std::fmt::Display) -> VocabularyError {
    VocabularyError(format!("tokenizer.json: {reason}"))
}

/// How a token's string becomes bytes.
enum Decoder {
    /// Each character stands for a byte.
    ByteLevel(HashMap<char, u8>),
    /// Strings are text, but for `<0x41>` and the like, which are bytes, and for what is replaced.
    ByteFallback(Vec<(String, String)>),
}

impl Decoder {
    fn new(decoder: &Value) -> Result<Self, VocabularyError> {
        let steps = match &decoder["decoders"] {
            Value::Array(steps) => steps.as_slice(),
            _ => std::slice::from_ref(decoder),
        };
        let is = |kind: &str| steps.iter().any(|step| step["type"] == kind);
        if is("ByteLevel") {
            return Ok(Self::ByteLevel(byte_alphabet()));
        }
        if is("ByteFallback") {
            let replace = steps.iter().filter(|step| step["type"] == "Replace");
            let replaced = replace.filter_map(|step| {
                let pattern = step["pattern"]["String"].as_str()?;
                Some((pattern.to_owned(), step["content"].as_str()?.to_owned()))
            });
            return Ok(Self::ByteFallback(replaced.collect()));
        }
        Err(invalid(format!(
            "the decoder is {:.40}; supported are ByteLevel and ByteFallback",
            decoder["type"]
        )))
    }

    fn bytes(&self, token: &str) -> Vec<u8> {
        match self {
            // A string with any other character is text, as for the tokenizers that decode it.
            Self::ByteLevel(alphabet) => token
                .chars()
                .map(|c| alphabet.get(&c).copied())
                .collect::<Option<_>>()
                .unwrap_or_else(|| token.as_bytes().to_vec()),
            Self::ByteFallback(replaced) => match byte(token) {
                Some(byte) => vec![byte],
                None => replaced
                    .iter()
                    .fold(token.to_owned(), |text, (from, to)| text.replace(from, to))
                    .into_bytes(),
            },
        }
    }
}

/// The byte that `<0x41>` and the like stand for.
fn byte(token: &str) -> Option<u8> {
    let digits = token.strip_prefix("<0x")?.strip_suffix('>')?;
    (digits.len() == 2).then(|| u8::from_str_radix(digits, 16).ok())?
}

/// The byte that each character stands for, by GPT-2's rule: a printable one of Latin-1 for itself,
/// those from U+0100 on, in turn, for the others.
fn byte_alphabet() -> HashMap<char, u8> {
    let mut others = '\u{100}'..;
    (0..=u8::MAX)
        .filter_map(|byte| match byte {
            b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff => Some((char::from(byte), byte)),
            _ => others.next().map(|c| (c, byte)),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(document: &Value, size: usize) -> Result<Vec<Token>, String> {
        tokens(document.to_string().as_bytes(), size).map_err(|error| error.to_string())
    }

    fn text(bytes: &[u8]) -> Token {
        Token::Text(bytes.to_vec())
    }

    #[test]
    fn byte_level_tokens_are_bytes_and_added_ones_override_them() {
        let document = json!({
            "decoder": {"type": "ByteLevel"},
            "model": {"vocab": {"Ġhi": 0, "Ã": 1, "Ċ": 2, "ÄįĪ": 3, "<|end|>": 5, "ŀ": 6}},
            "added_tokens": [
                {"id": 4, "content": "a b", "special": false},
                {"id": 5, "content": "<|end|>", "special": true},
            ],
        });
        let expected = vec![
            text(b" hi"),
            text(&[0xc3]),
            text(b"\n"),
            text(&[0xc4, 0x8d, 0x88]),
            text(b"a b"),
            Token::Special("<|end|>".to_owned()),
            text(&[0x9e]),
            Token::Unused,
        ];
        assert_eq!(read(&document, 8).unwrap(), expected);
    }

    #[test]
    fn byte_fallback_tokens_are_text_or_bytes() {
        let document = json!({
            "decoder": {"type": "Sequence", "decoders": [
                {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
                {"type": "ByteFallback"}, {"type": "Fuse"},
            ]},
            "model": {"vocab": {"▁the": 0, "<0xC3>": 1, "<0x>": 2, "č": 3}},
        });
        let expected = [
            text(b" the"),
            text(&[0xc3]),
            text(b"<0x>"),
            text("č".as_bytes()),
        ];
        assert_eq!(read(&document, 4).unwrap(), expected);
    }

    #[test]
    fn what_cannot_be_read_is_refused_by_name() {
        let bytes = json!({"type": "ByteLevel"});
        let cases = [
            (
                json!({"decoder": {"type": "WordPiece"}}),
                "the decoder is \"WordPiece\"",
            ),
            (
                json!({"decoder": bytes, "model": {"vocab": []}}),
                "model.vocab is not an object",
            ),
            (
                json!({"decoder": bytes, "model": {"vocab": {"a": 2}}}),
                "model.vocab: 2 is not an id under 2",
            ),
            (
                json!({"decoder": bytes, "model": {"vocab": {}}, "added_tokens": [{"id": 0}]}),
                "added_tokens: a content is not a string",
            ),
        ];
        for (document, reason) in cases {
            let error = read(&document, 2).unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
        assert!(tokens(b"{", 2).unwrap_err().0.contains("is not JSON"));
    }
}
