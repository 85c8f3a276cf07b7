//! The tokenizer of a tiny model: bytes, a few merges, ChatML's control tokens.

use super::gguf::text;
use crate::Family;
use candle_core::quantized::gguf_file::Value;
use serde_json::{Map, json};
use std::ops::Range;

/// Each joins two tokens that are bytes or stand further up. `Ġ` is the byte-level form of a
/// space.
const MERGES: [(&str, &str); 48] = [
    ("Ġ", "t"),
    ("h", "e"),
    ("Ġ", "a"),
    ("i", "n"),
    ("e", "r"),
    ("o", "n"),
    ("Ġ", "s"),
    ("r", "e"),
    ("Ġt", "he"),
    ("a", "t"),
    ("Ġ", "w"),
    ("o", "r"),
    ("e", "n"),
    ("Ġ", "c"),
    ("i", "s"),
    ("i", "t"),
    ("o", "u"),
    ("Ġ", "f"),
    ("n", "d"),
    ("e", "s"),
    ("Ġ", "b"),
    ("in", "g"),
    ("Ġ", "p"),
    ("e", "d"),
    ("a", "n"),
    ("a", "l"),
    ("Ġ", "o"),
    ("Ġa", "nd"),
    ("Ġ", "m"),
    ("a", "r"),
    ("l", "e"),
    ("Ġt", "o"),
    ("Ġo", "f"),
    ("i", "on"),
    ("Ġ", "in"),
    ("Ġ", "h"),
    ("l", "l"),
    ("a", "s"),
    ("Ġ", "d"),
    ("Ġ", "Ġ"),
    ("ĠĠ", "ĠĠ"),
    ("u", "s"),
    ("a", "m"),
    ("s", "t"),
    ("ll", "o"),
    ("he", "llo"),
    ("w", "or"),
    ("l", "d"),
];

const CONTROL: [&str; 3] = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"];
const END_OF_TURN: usize = 2;

/// As `tokenizer.ggml.token_type` numbers them.
const NORMAL: i32 = 1;
const CONTROL_TYPE: i32 = 3;
const UNUSED: i32 = 5;

const CHAT_TEMPLATE: &str = "{% for message in messages %}{{ '<|im_start|>' + message['role'] + \
     '\\n' + message['content'] + '<|im_end|>\\n' }}{% endfor %}\
     {% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

/// The tokens in the order of their ids.
pub(super) struct TokenList {
    tokens: Vec<String>,
    control: Range<usize>,
}

impl TokenList {
    pub(super) fn new(padding: usize) -> Self {
        let mut tokens: Vec<String> = byte_alphabet().map(String::from).collect();
        tokens.extend(MERGES.iter().map(|(left, right)| format!("{left}{right}")));
        let control = tokens.len()..tokens.len() + CONTROL.len();
        tokens.extend(CONTROL.map(String::from));
        let real = tokens.len();
        tokens.extend((real..real + padding).map(|id| format!("[PAD{id}]")));
        Self { tokens, control }
    }

    /// Tokens, padding included.
    pub(super) fn len(&self) -> usize {
        self.tokens.len()
    }

    /// The ids of the control tokens.
    pub(super) fn control_ids(&self) -> Range<usize> {
        self.control.clone()
    }

    /// All that a file says of its tokens.
    pub(super) fn metadata(&self, family: Family) -> Vec<(String, Value)> {
        let pre = match family {
            Family::Llama => "smollm",
            Family::Qwen2 | Family::Qwen3 => "qwen2",
            Family::Gemma3 => "default",
        };
        let merges = MERGES.map(|(left, right)| Value::String(format!("{left} {right}")));
        let tokens = self.tokens.iter().cloned().map(Value::String).collect();
        let types = (0..self.len())
            .map(|id| Value::I32(self.kind(id)))
            .collect();
        vec![
            text("tokenizer.ggml.model", "gpt2"),
            text("tokenizer.ggml.pre", pre),
            list("tokens", tokens),
            list("token_type", types),
            list("merges", merges.to_vec()),
            self.control_id("eos_token_id", END_OF_TURN),
            self.control_id("padding_token_id", 0),
            (
                "tokenizer.ggml.add_bos_token".to_owned(),
                Value::Bool(false),
            ),
            text("tokenizer.chat_template", CHAT_TEMPLATE),
        ]
    }

    /// The tokenizer as folders have it.
    pub(super) fn tokenizer_json(&self) -> serde_json::Value {
        let vocab: Map<_, _> = self.tokens[..self.control.start]
            .iter()
            .enumerate()
            .map(|(id, token)| (token.clone(), id.into()))
            .collect();
        let added: Vec<_> = self
            .control
            .clone()
            .map(|id| self.added_token(id))
            .collect();
        let merges = MERGES
            .map(|(left, right)| format!("{left} {right}"))
            .to_vec();
        json!({
            "version": "1.0",
            "truncation": null,
            "padding": null,
            "added_tokens": added,
            "normalizer": null,
            "pre_tokenizer": byte_level(),
            "post_processor": null,
            "decoder": byte_level(),
            "model": {"type": "BPE", "vocab": vocab, "merges": merges},
        })
    }

    fn added_token(&self, id: usize) -> serde_json::Value {
        json!({
            "id": id,
            "content": self.tokens[id],
            "single_word": false,
            "lstrip": false,
            "rstrip": false,
            "normalized": false,
            "special": true,
        })
    }

    pub(super) fn tokenizer_config(&self) -> serde_json::Value {
        json!({
            "add_bos_token": false,
            "eos_token": CONTROL[END_OF_TURN],
            "chat_template": CHAT_TEMPLATE,
        })
    }

    pub(super) fn generation_config(&self) -> serde_json::Value {
        let start = self.control.start;
        json!({"eos_token_id": [start + END_OF_TURN, start]})
    }

    fn kind(&self, id: usize) -> i32 {
        if self.control.contains(&id) {
            CONTROL_TYPE
        } else if id < self.control.start {
            NORMAL
        } else {
            UNUSED
        }
    }

    fn control_id(&self, key: &str, which: usize) -> (String, Value) {
        let id = u32::try_from(self.control.start + which).expect("a tiny vocabulary is small");
        (format!("tokenizer.ggml.{key}"), Value::U32(id))
    }
}

fn byte_level() -> serde_json::Value {
    json!({
        "type": "ByteLevel",
        "add_prefix_space": false,
        "trim_offsets": true,
        "use_regex": true,
    })
}

fn list(key: &str, values: Vec<Value>) -> (String, Value) {
    (format!("tokenizer.ggml.{key}"), Value::Array(values))
}

/// The characters by which byte-level BPE writes bytes, in the order that GPT-2 gave them ids:
/// the printable ones of Latin-1 stand for themselves, the others for what follows U+0100.
fn byte_alphabet() -> impl Iterator<Item = char> {
    let printable = |byte: &u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    let others = (0..=u8::MAX).filter(move |byte| !printable(byte)).count() as u32;
    (0..=u8::MAX)
        .filter(printable)
        .map(char::from)
        .chain((0x100..0x100 + others).filter_map(char::from_u32))
}
