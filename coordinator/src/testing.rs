//! A small model for unit tests: every byte is a token.

use crate::model::Model;
use proto::v1::ModelDescription;
use serde_json::{Map, json};
use speculation::TokenId;
use tokenizers::Tokenizer;

pub(crate) const MODEL: &str = "bytes";
pub(crate) const CONTEXT: usize = 64;
/// `<|end|>`.
pub(crate) const END_TOKEN: TokenId = 256;

const TEMPLATE: &str = "{% for message in messages %}\
    {{ message.role }}: {{ message.content }}{{ eos_token }}\
    {% endfor %}{% if add_generation_prompt %}assistant: {% endif %}";

pub(crate) fn model() -> Model {
    let description = ModelDescription {
        model_id: MODEL.to_owned(),
        context_length: CONTEXT as u32,
        tokenizer_size: END_TOKEN + 1,
        eos_token_ids: vec![END_TOKEN],
        chat_template: TEMPLATE.to_owned(),
        ..ModelDescription::default()
    };
    Model::new(None, &description, byte_level_json().as_bytes()).expect("a valid model")
}

/// The token of a byte.
pub(crate) fn byte_token(byte: u8) -> TokenId {
    byte.into()
}

/// One token per byte, written as byte-level BPE writes bytes, and one special token.
pub(crate) fn byte_level_tokenizer() -> Tokenizer {
    Tokenizer::from_bytes(byte_level_json()).expect("a valid tokenizer")
}

/// The character that byte-level BPE writes for each byte: itself where it is visible, else the
/// next free one from U+0100 on.
fn byte_level_json() -> String {
    let mut unused = 0x100..;
    let vocabulary: Map<_, _> = (0..=255u8)
        .map(|byte| {
            let visible = matches!(byte, 33..=126 | 161..=172 | 174..=255);
            let code = if visible {
                byte.into()
            } else {
                unused.next().expect("endless")
            };
            let text = char::from_u32(code).expect("a character").to_string();
            (text, json!(byte))
        })
        .collect();
    let pieces = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true});
    json!({
        "version": "1.0",
        "added_tokens": [{"id": END_TOKEN, "content": "<|end|>", "special": true, "single_word": false,
            "lstrip": false, "rstrip": false, "normalized": false}],
        "pre_tokenizer": pieces,
        "decoder": pieces,
        "model": {"type": "BPE", "vocab": vocabulary, "merges": []},
    })
    .to_string()
}

/// A decoder that strips the first space, as SentencePiece models have it; 3 is " a", 4 is "b".
pub(crate) fn sentencepiece_tokenizer() -> Tokenizer {
    let json = json!({
        "version": "1.0",
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
            {"type": "ByteFallback"},
            {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0},
        ]},
        "model": {"type": "BPE", "vocab": {"<unk>": 0, "a": 1, "▁": 2, "▁a": 3, "b": 4}, "merges": []},
    });
    Tokenizer::from_bytes(json.to_string()).expect("a valid tokenizer")
}
