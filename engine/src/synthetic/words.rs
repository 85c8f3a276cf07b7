//! The toy model's tokens: a byte-level BPE tokenizer of pseudo-words.
//!
//! Ids are the 256 bytes, then bare syllables, then words with their leading space, from one
//! syllable up, then the two special tokens.

use crate::{Vocabulary, vocabulary};
use serde_json::{Value, json};
use speculation::TokenId;
use std::ops::Range;

const CONSONANTS: &str = "bdfgklmnprstvz";
const VOWELS: &str = "aeiou";
const BYTES: usize = 256;
const SPECIAL: [&str; 2] = ["<|im_start|>", "<|im_end|>"];

/// ChatML.
const CHAT_TEMPLATE: &str = "\
{%- for message in messages -%}
{{ '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}";

/// The vocabulary of exactly `size` ids.
///
/// # Panics
/// If `size` leaves no room for words.
pub(super) fn vocabulary(size: usize) -> Vocabulary {
    let tokens = Tokens::new(size);
    let document = tokens.document();
    let ids = tokens.all.iter().map(|token| (token.as_str(), false));
    let specials = SPECIAL.iter().map(|&token| (token, true));
    Vocabulary {
        tokenizer_json: document.to_string().into_bytes(),
        size,
        fingerprint: vocabulary::fingerprint(ids.chain(specials)),
        eos_ids: vec![end_id(size) as TokenId],
        bos_id: None,
        chat_template: CHAT_TEMPLATE.to_owned(),
    }
}

/// The ids of the words with a leading space.
pub(super) fn with_space(size: usize) -> Range<usize> {
    BYTES + syllable_count(size)..start_id(size)
}

/// The special token that starts a chat message.
pub(super) fn start_id(size: usize) -> usize {
    size - SPECIAL.len()
}

/// The special token that ends a chat message, and the text.
pub(super) fn end_id(size: usize) -> usize {
    start_id(size) + 1
}

/// A small vocabulary has fewer syllables, so that there is room for longer words.
fn syllable_count(size: usize) -> usize {
    (CONSONANTS.len() * VOWELS.len()).min((start_id(size) - BYTES) / 4)
}

/// Ordinary tokens in the byte alphabet, by id, and the merges that make them.
struct Tokens {
    all: Vec<String>,
    merges: Vec<[String; 2]>,
}

impl Tokens {
    fn new(size: usize) -> Self {
        let alphabet = byte_alphabet();
        let space = alphabet[usize::from(b' ')].to_string();
        let mut tokens = Self {
            all: alphabet.iter().map(char::to_string).collect(),
            merges: Vec::new(),
        };
        let pairs = CONSONANTS
            .chars()
            .flat_map(|consonant| VOWELS.chars().map(move |vowel| (consonant, vowel)));
        for (consonant, vowel) in pairs.take(syllable_count(size)) {
            tokens.merge(&consonant.to_string(), &vowel.to_string());
        }
        let syllables = tokens.all[BYTES..].to_vec();
        let mut level = tokens.all.len()..tokens.all.len() + syllables.len();
        for syllable in &syllables {
            tokens.merge(&space, syllable);
        }
        // Words of a syllable more, level by level. The stride varies the ends of the first few.
        while tokens.all.len() < start_id(size) {
            let words = tokens.all[level.clone()].to_vec();
            level = tokens.all.len()..tokens.all.len() + words.len() * syllables.len();
            let left = start_id(size) - tokens.all.len();
            let pairs = (0..syllables.len())
                .flat_map(|round| words.iter().enumerate().map(move |pair| (round, pair)));
            for (round, (index, word)) in pairs.take(left) {
                tokens.merge(word, &syllables[(round + 7 * index) % syllables.len()]);
            }
        }
        tokens
    }

    fn merge(&mut self, left: &str, right: &str) {
        self.all.push(format!("{left}{right}"));
        self.merges.push([left.to_owned(), right.to_owned()]);
    }

    /// The `tokenizer.json` document.
    fn document(&self) -> Value {
        let ids = self.all.iter().zip(0..);
        let vocab: serde_json::Map<String, Value> = ids
            .map(|(token, id): (_, usize)| (token.clone(), id.into()))
            .collect();
        let added: Vec<Value> = SPECIAL
            .iter()
            .zip(self.all.len()..)
            .map(|(content, id)| {
                json!({
                    "id": id, "content": content, "special": true, "normalized": false,
                    "single_word": false, "lstrip": false, "rstrip": false,
                })
            })
            .collect();
        let bytes = json!({
            "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true,
        });
        json!({
            "version": "1.0", "truncation": null, "padding": null, "normalizer": null,
            "added_tokens": added,
            "pre_tokenizer": bytes,
            "post_processor": null,
            "decoder": bytes,
            "model": {
                "type": "BPE", "dropout": null, "unk_token": null,
                "continuing_subword_prefix": null, "end_of_word_suffix": null,
                "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
                "vocab": vocab, "merges": self.merges,
            },
        })
    }
}

/// The character that stands for each byte, by GPT-2's rule: a printable one stands for itself,
/// the others are numbered from U+0100.
fn byte_alphabet() -> Vec<char> {
    let mut others = '\u{100}'..;
    (0..=u8::MAX)
        .map(|byte| match byte {
            b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff => char::from(byte),
            _ => others.next().unwrap_or_default(),
        })
        .collect()
}
