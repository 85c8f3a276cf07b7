//! What single tokens stand for: the bytes, for a token may be a part of a character.

use crate::model::Model;
use serde_json::Value;
use speculation::TokenId;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock};
use tokenizers::Tokenizer;

/// The tokens of a model.
#[derive(Debug)]
pub(super) struct Tokens {
    model: Arc<Model>,
    writing: Writing,
}

/// How a vocabulary writes bytes.
#[derive(Debug)]
enum Writing {
    /// A character for each byte.
    ByteLevel,
    /// As text, in which these stand for others; but `<0x41>` and the like are bytes.
    Text(Vec<(String, String)>),
}

impl Tokens {
    /// Those of `model`.
    pub(super) fn new(model: Arc<Model>) -> Self {
        let writing = Writing::of(&model.tokenizer);
        Self { model, writing }
    }

    /// The bytes of a token; none where there is no such token.
    pub(super) fn bytes(&self, id: TokenId) -> Vec<u8> {
        let written = self.model.tokenizer.id_to_token(id).unwrap_or_default();
        self.writing.bytes(&written)
    }
}

/// `bytes` as a string, in OpenAI's way: where they are no text of their own, `bytes:\xe2\x9c`.
pub(super) fn shown(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => {
            let hex = bytes.iter().map(|byte| format!("\\x{byte:02x}"));
            format!("bytes:{}", hex.collect::<String>())
        }
    }
}

impl Writing {
    fn of(tokenizer: &Tokenizer) -> Self {
        // Its steps are no part of the library's interface, but of the file format.
        let decoder = serde_json::to_value(tokenizer.get_decoder()).unwrap_or_default();
        let steps = match &decoder["decoders"] {
            Value::Array(steps) => steps.as_slice(),
            _ => std::slice::from_ref(&decoder),
        };
        if steps.iter().any(|step| step["type"] == "ByteLevel") {
            return Self::ByteLevel;
        }
        Self::Text(steps.iter().filter_map(replaced).collect())
    }

    fn bytes(&self, written: &str) -> Vec<u8> {
        match self {
            // With any other character in it, it is an added token: text as it is.
            Self::ByteLevel => written
                .chars()
                .map(|c| ALPHABET.get(&c).copied())
                .collect::<Option<_>>()
                .unwrap_or_else(|| written.as_bytes().to_vec()),
            Self::Text(replaced) => match byte(written) {
                Some(byte) => vec![byte],
                None => replaced
                    .iter()
                    .fold(written.to_owned(), |text, (from, to)| {
                        text.replace(from, to)
                    })
                    .into_bytes(),
            },
        }
    }
}

/// What a decoder's step replaces by what.
fn replaced(step: &Value) -> Option<(String, String)> {
    let string = |value: &Value| value.as_str().map(str::to_owned);
    match step["type"].as_str()? {
        "Replace" => Some((
            string(&step["pattern"]["String"])?,
            string(&step["content"])?,
        )),
        "Metaspace" => Some((string(&step["replacement"])?, " ".to_owned())),
        _ => None,
    }
}

/// The byte that `<0x41>` and the like stand for.
fn byte(written: &str) -> Option<u8> {
    let digits = written.strip_prefix("<0x")?.strip_suffix('>')?;
    (digits.len() == 2).then(|| u8::from_str_radix(digits, 16).ok())?
}

/// The byte of each character, by GPT-2's rule: a visible one of Latin-1 stands for itself, those
/// from U+0100 on, in turn, for the others.
static ALPHABET: LazyLock<HashMap<char, u8>> = LazyLock::new(|| {
    let mut others = '\u{100}'..;
    (0..=u8::MAX)
        .filter_map(|byte| match byte {
            b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff => Some((char::from(byte), byte)),
            _ => others.next().map(|c| (c, byte)),
        })
        .collect()
});

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn every_byte_of_a_byte_level_vocabulary_is_itself() {
        let tokens = Tokens::new(testing::shared_model());
        for byte in 0..=u8::MAX {
            assert_eq!(tokens.bytes(testing::byte_token(byte)), [byte]);
        }
        assert_eq!(tokens.bytes(testing::END_TOKEN), b"<|end|>");
    }

    #[test]
    fn a_sentencepiece_vocabulary_is_text_with_spaces_and_bytes() {
        let writing = Writing::of(&testing::sentencepiece_tokenizer());
        assert_eq!(writing.bytes("▁a"), b" a");
        assert_eq!(writing.bytes("<0xE2>"), [0xe2]);
    }

    #[test]
    fn what_is_no_text_is_shown_as_bytes() {
        assert_eq!(shown("é".as_bytes()), "é");
        assert_eq!(shown(&[0xe2, 0x9c]), r"bytes:\xe2\x9c");
    }
}
