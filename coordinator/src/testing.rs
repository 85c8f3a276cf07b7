//! A small model for unit tests: every byte is a token.

use crate::model::{Model, ModelOptions};
use crate::request::{Generation, Sources, StopRules};
use proto::v1::{Decoding, ModelDescription, SamplingParams, VerificationRule};
use serde_json::{Map, Value, json};
use speculation::TokenId;
use std::sync::{Arc, LazyLock};
use tokenizers::Tokenizer;

pub(crate) const MODEL: &str = "bytes";
pub(crate) const CONTEXT: usize = 64;
/// `<|end|>`.
pub(crate) const END_TOKEN: TokenId = 256;

const TEMPLATE: &str = "{% for message in messages %}\
    {{ message.role }}: {{ message.content }}{{ eos_token }}\
    {% endfor %}{% if add_generation_prompt %}assistant: {% endif %}";

pub(crate) fn model() -> Model {
    model_with(TEMPLATE, &[])
}

/// [`model`] with another chat template and more special tokens, from id 257 on.
pub(crate) fn model_with(template: &str, special: &[&str]) -> Model {
    let description = ModelDescription {
        model_id: MODEL.to_owned(),
        context_length: CONTEXT as u32,
        tokenizer_size: END_TOKEN + 1 + special.len() as u32,
        eos_token_ids: vec![END_TOKEN],
        chat_template: template.to_owned(),
        ..ModelDescription::default()
    };
    let json = byte_level_json(special);
    Model::new(&ModelOptions::default(), &description, json.as_bytes()).expect("a valid model")
}

/// [`model`], made once.
pub(crate) fn shared_model() -> Arc<Model> {
    static MODEL: LazyLock<Arc<Model>> = LazyLock::new(|| Arc::new(model()));
    Arc::clone(&MODEL)
}

/// A model whose token `i` is `pieces[i]`, whatever bytes that has.
pub(crate) fn model_of(pieces: &[&[u8]]) -> Arc<Model> {
    let written =
        |piece: &&[u8]| -> String { piece.iter().map(|byte| BYTES[usize::from(*byte)]).collect() };
    let vocabulary = pieces
        .iter()
        .zip(0..)
        .map(|(piece, id)| (written(piece), json!(id)));
    let json = tokenizer_json(vocabulary.collect(), &json!([]));
    let description = ModelDescription {
        tokenizer_size: pieces.len() as u32,
        ..ModelDescription::default()
    };
    Arc::new(
        Model::new(&ModelOptions::default(), &description, json.as_bytes()).expect("a valid model"),
    )
}

/// `model` whose tokenizer joins these pairs.
pub(crate) fn with_merges(model: &Model, merges: &[(&str, &str)]) -> Model {
    let mut json: Value =
        serde_json::from_str(&model.tokenizer.to_string(false).expect("written")).expect("JSON");
    let merges = merges.iter().map(|(a, b)| json!([a, b]));
    json["model"]["merges"] = merges.collect();
    let description = ModelDescription {
        tokenizer_size: model.tokenizer_size,
        ..ModelDescription::default()
    };
    Model::new(
        &ModelOptions::default(),
        &description,
        json.to_string().as_bytes(),
    )
    .expect("a valid model")
}

/// Plain generation from `prompt`, up to the end of text.
pub(crate) fn generation(prompt: Vec<TokenId>, max_tokens: usize) -> Generation {
    Generation {
        tenant: "".into(),
        model: shared_model(),
        max_tokens,
        stop: StopRules {
            end_tokens: vec![END_TOKEN],
            ..StopRules::default()
        },
        decoding: Decoding {
            sampling: Some(SamplingParams::default()),
            rule: VerificationRule::Coupled.into(),
            prompt_len: prompt.len() as u32,
            end_token_ids: vec![END_TOKEN],
            ..Decoding::default()
        },
        prompt,
        logprobs: None,
        max_draft_tokens: 3,
        min_draft_tokens: 0,
        min_confidence: None,
        sources: Sources::ALL,
        calls: None,
    }
}

/// The token of a byte.
pub(crate) fn byte_token(byte: u8) -> TokenId {
    byte.into()
}

/// One token per byte, written as byte-level BPE writes bytes, and one special token.
pub(crate) fn byte_level_tokenizer() -> Tokenizer {
    Tokenizer::from_bytes(byte_level_json(&[])).expect("a valid tokenizer")
}

fn byte_level_json(special: &[&str]) -> String {
    let vocabulary = BYTES
        .iter()
        .zip(0..)
        .map(|(text, id)| (text.to_string(), json!(id)));
    let special = ["<|end|>"].iter().chain(special).zip(END_TOKEN..);
    let special = special.map(|(content, id)| {
        json!({"id": id, "content": content, "special": true, "single_word": false,
            "lstrip": false, "rstrip": false, "normalized": false})
    });
    tokenizer_json(vocabulary.collect(), &special.collect())
}

/// The character that byte-level BPE writes for each byte: itself where it is visible, else the
/// next free one from U+0100 on.
static BYTES: LazyLock<[char; 256]> = LazyLock::new(|| {
    let mut unused = 0x100..;
    std::array::from_fn(|byte| {
        let visible = matches!(byte, 33..=126 | 161..=172 | 174..=255);
        let code = if visible {
            byte as u32
        } else {
            unused.next().expect("endless")
        };
        char::from_u32(code).expect("a character")
    })
});

fn tokenizer_json(vocabulary: Map<String, Value>, added: &Value) -> String {
    let pieces = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true});
    json!({
        "version": "1.0",
        "added_tokens": added,
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
