//! Text becomes the ids that the models were trained with, and comes back.
//!
//! The reference ids are llama.cpp's, for the same model files. The tests on real models need the
//! files of the manifest.

#![expect(
    clippy::unwrap_used,
    reason = "in helpers of tests too, a failure is the test's"
)]

use engine::Vocabulary;
use engine::gguf::GgufFile;
use serde::Deserialize;
use std::path::PathBuf;
use tokenizers::{NormalizedString, Normalizer, Tokenizer};

const CODER_TARGET: &str = "qwen2.5-coder-1.5b-instruct-q4_k_m";
const CODER_DRAFT: &str = "qwen2.5-coder-0.5b-instruct-q4_k_m";
const SMOLLM: &str = "smollm2-135m-instruct-q4_1";
const GEMMA: &str = "gemma-3-270m-q4_k_m";

fn model_file(name: &str) -> PathBuf {
    let folder = std::env::var_os("SPECDEC_MODELS").map(PathBuf::from);
    let cache = || {
        let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
        let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
        Some(cache.or_else(home)?.join("specdec").join("models"))
    };
    let folder = folder.or_else(cache).expect("SPECDEC_MODELS or HOME");
    let path = folder.join(format!("{name}.gguf"));
    assert!(
        path.is_file(),
        "{} is absent: run `cargo xtask models fetch qwen2.5-coder smollm2-135m \
         gemma-3-270m`, or set \
         SPECDEC_MODELS to the folder of the models",
        path.display()
    );
    path
}

fn vocabulary(name: &str) -> Vocabulary {
    let file = GgufFile::open(&model_file(name)).unwrap();
    Vocabulary::from_gguf(&file).unwrap()
}

fn tokenizer(vocabulary: &Vocabulary) -> Tokenizer {
    Tokenizer::from_bytes(&vocabulary.tokenizer_json).unwrap()
}

fn encode(tokenizer: &Tokenizer, text: &str) -> Vec<u32> {
    tokenizer.encode(text, false).unwrap().get_ids().to_vec()
}

fn normalised(tokenizer: &Tokenizer, text: &str) -> String {
    let mut text = NormalizedString::from(text);
    if let Some(normalizer) = tokenizer.get_normalizer() {
        normalizer.normalize(&mut text).unwrap();
    }
    text.get().to_owned()
}

#[derive(Deserialize)]
struct Reference {
    text: String,
    ids: Vec<u32>,
}

#[track_caller]
fn differences(vocabulary: &Vocabulary, reference: &str) -> Vec<String> {
    let tokenizer = tokenizer(vocabulary);
    let references: Vec<Reference> = serde_json::from_str(reference).unwrap();
    assert!(references.len() >= 30);
    references
        .into_iter()
        .filter(|reference| {
            let ids = encode(&tokenizer, &reference.text);
            let differs = ids != reference.ids;
            if differs {
                eprintln!("{:?}: {ids:?}, not {:?}", reference.text, reference.ids);
            }
            differs
        })
        .map(|reference| reference.text)
        .collect()
}

#[test]
fn qwen_text_becomes_the_reference_ids() {
    let vocabulary = vocabulary(CODER_TARGET);
    let differences = differences(&vocabulary, include_str!("data/qwen2.5-coder.json"));
    let justified = [
        // llama.cpp takes what looks like control tokens for such, although neither the file's
        // token types nor the tokenizer that Qwen published say so.
        "<s></s><unk>",
        // llama.cpp does not normalise; Qwen's tokenizer composes the accent first (NFC).
        "a\u{301} combining",
    ];
    assert_eq!(differences, justified);
    assert_eq!(
        encode(&tokenizer(&vocabulary), "a\u{301}"),
        encode(&tokenizer(&vocabulary), "\u{e1}")
    );
}

#[test]
fn smollm_text_becomes_the_reference_ids() {
    let vocabulary = vocabulary(SMOLLM);
    let differences = differences(&vocabulary, include_str!("data/smollm2.json"));
    assert_eq!(differences, [""; 0]);
}

#[test]
fn gemma_text_becomes_the_reference_ids() {
    let vocabulary = vocabulary(GEMMA);
    let differences = differences(&vocabulary, include_str!("data/gemma-3.json"));
    assert_eq!(differences, [""; 0]);
}

#[test]
fn gemma_metadata_is_understood() {
    let vocabulary = vocabulary(GEMMA);
    assert_eq!(vocabulary.size, 262_144);
    assert_eq!(vocabulary.eos_ids, [1, 106], "and the end of a turn");
    assert_eq!(vocabulary.bos_id, Some(2));
    let tokenizer = tokenizer(&vocabulary);
    assert_eq!(tokenizer.get_vocab_size(true), vocabulary.size);
    let shown = |ids: &[u32]| tokenizer.decode(ids, true).unwrap();
    assert_eq!(shown(&[2, 106]), "", "control tokens are special");
    assert_eq!(shown(&[138, 26016]), "  leading");
    assert_eq!(
        shown(&[238 + 0xc3, 238 + 0xa9]),
        "\u{e9}",
        "bytes make text"
    );
}

#[test]
fn qwen_metadata_is_understood() {
    let vocabulary = vocabulary(CODER_TARGET);
    assert_eq!(vocabulary.size, 151_665, "padding is left out");
    assert_eq!(vocabulary.eos_ids, [151_645, 151_643]);
    assert_eq!(vocabulary.bos_id, None);
    assert!(vocabulary.chat_template.contains("<|im_start|>"));
    let tokenizer = tokenizer(&vocabulary);
    assert_eq!(tokenizer.get_vocab_size(true), vocabulary.size);
    let shown = |id| tokenizer.decode(&[id], true).unwrap();
    assert_eq!(shown(151_645), "", "control tokens are special");
    assert_eq!(shown(151_657), "<tool_call>", "user-defined ones are text");
}

#[test]
fn smollm_metadata_is_understood() {
    let vocabulary = vocabulary(SMOLLM);
    assert_eq!(vocabulary.size, 49_152);
    assert_eq!(vocabulary.eos_ids, [2, 0]);
    assert_eq!(vocabulary.bos_id, None);
    assert!(vocabulary.chat_template.contains("SmolLM"));
}

#[test]
fn pairs_of_one_vocabulary_are_recognised_by_fingerprint() {
    let target = vocabulary(CODER_TARGET);
    assert_eq!(target.fingerprint, vocabulary(CODER_DRAFT).fingerprint);
    assert_ne!(target.fingerprint, vocabulary(SMOLLM).fingerprint);
    assert_eq!(target.fingerprint.len(), 64);
}

#[test]
fn every_id_decodes_to_what_it_encodes() {
    for (name, encoded_step) in [(CODER_TARGET, 8), (SMOLLM, 1), (GEMMA, 8)] {
        let vocabulary = vocabulary(name);
        let tokenizer = tokenizer(&vocabulary);
        let (mut alone, mut encoded) = (0, 0);
        for id in 0..vocabulary.size as u32 {
            let text = tokenizer.decode(&[id], false).unwrap();
            assert!(!text.is_empty(), "{name}: {id} decodes to nothing");
            // Encoding takes long; and a token may hold a part of a character.
            if id % encoded_step != 0 || text.contains(char::REPLACEMENT_CHARACTER) {
                continue;
            }
            let again = encode(&tokenizer, &text);
            let decoded = tokenizer.decode(&again, false).unwrap();
            let mut expected = normalised(&tokenizer, &text);
            if name == GEMMA {
                // Normal is how pieces are written.
                expected = expected.replace('\u{2581}', " ");
            }
            assert_eq!(decoded, expected, "{name}: {id}");
            encoded += 1;
            alone += usize::from(again == [id]);
        }
        println!("{name}: {alone} of {encoded} ids come back alone");
        assert!(alone > encoded * 9 / 10);
    }
}
