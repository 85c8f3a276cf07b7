//! Tokenizers are put together from metadata as it says, and refused where it makes no sense.

#![expect(
    clippy::unwrap_used,
    reason = "in helpers of tests too, a failure is the test's"
)]

mod pieces;

use candle_core::Device;
use candle_core::quantized::gguf_file::{self, Value};
use engine::gguf::GgufFile;
use engine::tiny::TinyModel;
use engine::{Family, LoadError, Vocabulary};
use std::collections::HashMap;
use std::fs::File;
use tempfile::TempDir;
use tokenizers::Tokenizer;

const TOKENS: &str = "tokenizer.ggml.tokens";
const TYPES: &str = "tokenizer.ggml.token_type";
const MERGES: &str = "tokenizer.ggml.merges";
const PRE: &str = "tokenizer.ggml.pre";

type Metadata = HashMap<String, Value>;

/// The vocabulary of `model` after `change` to its metadata.
fn changed(model: &TinyModel, change: impl FnOnce(&mut Metadata)) -> Result<Vocabulary, LoadError> {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("tiny.gguf");
    model.write(&path).unwrap();
    let mut reader = File::open(&path).unwrap();
    let mut content = gguf_file::Content::read(&mut reader).unwrap();
    let name = "token_embd.weight";
    let embedding = content.tensor(&mut reader, name, &Device::Cpu).unwrap();
    change(&mut content.metadata);
    let metadata: Vec<_> = content
        .metadata
        .iter()
        .map(|(key, value)| (key.as_str(), value))
        .collect();
    let mut file = File::create(&path).unwrap();
    gguf_file::write(&mut file, &metadata, &[(name, &embedding)]).unwrap();
    Vocabulary::from_gguf(&GgufFile::open(&path)?)
}

fn unchanged(model: &TinyModel) -> Vocabulary {
    changed(model, |_| {}).unwrap()
}

fn list<'a>(metadata: &'a mut Metadata, key: &str) -> &'a mut Vec<Value> {
    match metadata.get_mut(key) {
        Some(Value::Array(values)) => values,
        other => panic!("{key} is {other:?}"),
    }
}

fn text(value: &str) -> Value {
    Value::String(value.to_owned())
}

fn set(metadata: &mut Metadata, key: &str, value: Value) {
    metadata.insert(key.to_owned(), value);
}

fn encode(vocabulary: &Vocabulary, text: &str) -> Vec<String> {
    let tokenizer = Tokenizer::from_bytes(&vocabulary.tokenizer_json).unwrap();
    let encoding = tokenizer.encode(text, false).unwrap();
    encoding.get_tokens().to_vec()
}

#[test]
fn padding_is_no_part_of_a_vocabulary() {
    let bare = unchanged(&TinyModel::default());
    let padded = unchanged(&TinyModel {
        padding: 7,
        ..TinyModel::default()
    });
    assert_eq!(padded.size, bare.size);
    assert_eq!(padded.fingerprint, bare.fingerprint);
    assert_eq!(padded.tokenizer_json, bare.tokenizer_json);
    // Older files mark padding as user-defined.
    let model = TinyModel {
        padding: 7,
        ..TinyModel::default()
    };
    let old = changed(&model, |metadata| {
        for kind in list(metadata, TYPES) {
            if matches!(kind, Value::I32(5)) {
                *kind = Value::I32(4);
            }
        }
    });
    assert_eq!(old.unwrap().size, bare.size);
    let inner = changed(&TinyModel::default(), |metadata| {
        list(metadata, TYPES)[3] = Value::I32(5);
    });
    assert_eq!(inner.unwrap().size, bare.size, "unused, and not at the end");
}

#[test]
fn fingerprints_tell_tokens_and_their_meaning_apart() {
    let bare = unchanged(&TinyModel::default());
    let other_weights = unchanged(&TinyModel {
        seed: 9,
        ..TinyModel::default()
    });
    assert_eq!(bare.fingerprint, other_weights.fingerprint);
    let swapped = changed(&TinyModel::default(), |metadata| {
        list(metadata, TOKENS).swap(3, 4);
    });
    let not_special = changed(&TinyModel::default(), |metadata| {
        *list(metadata, TYPES).last_mut().unwrap() = Value::I32(4);
    });
    for other in [swapped, not_special] {
        assert_ne!(other.unwrap().fingerprint, bare.fingerprint);
    }
}

#[test]
fn text_of_all_kinds_comes_back() {
    for family in [Family::Llama, Family::Qwen2, Family::Qwen3, Family::Gemma3] {
        let vocabulary = unchanged(&TinyModel {
            family,
            ..TinyModel::default()
        });
        let tokenizer = Tokenizer::from_bytes(&vocabulary.tokenizer_json).unwrap();
        for text in [
            "hello world, and the rest of it",
            " leading, trailing ",
            "\0\u{1}\t\r\n\n  \u{a0}",
            "日本語 ÅÄÖ 👩‍👩‍👧‍👦 1234",
        ] {
            let ids = tokenizer.encode(text, false).unwrap();
            assert_eq!(tokenizer.decode(ids.get_ids(), false).unwrap(), text);
        }
        let ids = tokenizer.encode("<|im_start|>hello<|im_end|>", false);
        assert_eq!(
            ids.unwrap().get_tokens(),
            ["<|im_start|>", "hello", "<|im_end|>"]
        );
    }
}

#[test]
fn each_splitting_rule_is_its_models_own() {
    let with_rule = |pre: &str| {
        changed(&TinyModel::default(), |metadata| {
            set(metadata, PRE, text(pre));
            // In the place of tokens that are not needed here.
            for (id, token) in [(300, "12"), (301, "123"), (302, "1234"), (303, ".t")] {
                list(metadata, TOKENS)[id] = text(token);
            }
            let merges = list(metadata, MERGES);
            merges.clear();
            merges.extend(["1 2", "12 3", "123 4", ". t"].map(text));
        })
        .unwrap()
    };
    for (pre, numbers, word) in [
        ("qwen2", &["1", "2", "3", "4"][..], &[".t"][..]),
        ("smollm", &["1", "2", "3", "4"], &[".", "t"]),
        ("llama-bpe", &["123", "4"], &[".t"]),
        ("gpt-2", &["1234"], &[".", "t"]),
        ("default", &["1234"], &[".", "t"]),
    ] {
        let vocabulary = with_rule(pre);
        assert_eq!(encode(&vocabulary, "1234"), numbers, "{pre}");
        assert_eq!(encode(&vocabulary, ".t"), word, "{pre}");
    }
}

#[test]
fn ends_of_text_are_those_named_and_those_known() {
    let vocabulary = unchanged(&TinyModel::default());
    let [im_end, endoftext] = vocabulary.eos_ids[..] else {
        panic!("{:?}", vocabulary.eos_ids);
    };
    assert_eq!(im_end as usize, vocabulary.size - 1);
    assert_eq!(endoftext as usize, vocabulary.size - 3);
    let named = changed(&TinyModel::default(), |metadata| {
        set(metadata, "tokenizer.ggml.eot_token_id", Value::U32(7));
        list(metadata, TYPES)[endoftext as usize] = Value::I32(1);
    });
    assert_eq!(named.unwrap().eos_ids, [im_end, 7], "no control token");
}

#[test]
fn prompts_begin_with_a_token_where_the_model_wants_it() {
    let with = |wanted| {
        changed(&TinyModel::default(), move |metadata| {
            set(metadata, "tokenizer.ggml.bos_token_id", Value::U32(5));
            set(metadata, "tokenizer.ggml.add_bos_token", wanted);
        })
    };
    assert_eq!(with(Value::Bool(true)).unwrap().bos_id, Some(5));
    assert_eq!(with(Value::Bool(false)).unwrap().bos_id, None);
    assert!(with(Value::U32(1)).is_err());
}

/// What is changed, and what the refusal must name.
type Damage = (fn(&mut Metadata), &'static [&'static str]);

#[test]
fn malformed_tokenizers_are_refused_by_key() {
    let damages: [Damage; 15] = [
        (|m| drop(m.remove(TOKENS)), &[TOKENS, "absent"]),
        (|m| list(m, TOKENS).clear(), &[TOKENS]),
        (|m| list(m, TOKENS).truncate(300), &[TYPES, TOKENS, "300"]),
        (|m| list(m, TOKENS)[4] = text("!"), &[TOKENS, "0 and 4"]),
        (|m| list(m, TOKENS)[4] = text(""), &[TOKENS, "4 is empty"]),
        (|m| list(m, TYPES)[4] = Value::I32(9), &[TYPES, "4"]),
        (|m| list(m, TYPES)[4] = Value::I32(-1), &[TYPES, "4"]),
        (|m| drop(m.remove(MERGES)), &[MERGES, "absent"]),
        (|m| list(m, MERGES)[2] = text("in"), &[MERGES, "2", "space"]),
        (|m| list(m, MERGES)[2] = text("! \""), &[MERGES, "2"]),
        (|m| list(m, MERGES)[2] = text("! nowhere"), &[MERGES, "2"]),
        (
            |m| list(m, MERGES)[2] = text("h e"),
            &[MERGES, "2", "twice"],
        ),
        (
            |m| set(m, "tokenizer.ggml.eos_token_id", Value::U32(1 << 20)),
            &["tokenizer.ggml.eos_token_id", "1048576"],
        ),
        (
            |m| set(m, "tokenizer.ggml.add_bos_token", Value::Bool(true)),
            &["tokenizer.ggml.bos_token_id"],
        ),
        (
            |m| set(m, "tokenizer.chat_template", Value::U8(0)),
            &["tokenizer.chat_template"],
        ),
    ];
    for (damage, named) in damages {
        let refusal = changed(&TinyModel::default(), damage).unwrap_err();
        let shown = refusal.to_string();
        assert!(matches!(refusal, LoadError::Invalid { .. }), "{shown}");
        for part in named {
            assert!(shown.contains(part), "{part:?} is not in {shown:?}");
        }
    }
}

#[test]
fn more_tokens_than_the_embedding_has_rows_are_refused() {
    let refusal = changed(&TinyModel::default(), |metadata| {
        list(metadata, TOKENS).push(text("one more"));
        list(metadata, TYPES).push(Value::I32(1));
    });
    let shown = refusal.unwrap_err().to_string();
    assert!(shown.contains(TOKENS) && shown.contains("rows"), "{shown}");
}

#[test]
fn other_tokenizers_are_named_with_what_is_supported() {
    for (key, value, supported) in [
        ("tokenizer.ggml.model", "bert", "gpt2"),
        (PRE, "tekken", "qwen2"),
    ] {
        let refusal = changed(&TinyModel::default(), |metadata| {
            set(metadata, key, text(value));
        })
        .unwrap_err();
        let shown = refusal.to_string();
        assert!(matches!(refusal, LoadError::Unsupported { .. }), "{shown}");
        for part in [key, value, supported] {
            assert!(shown.contains(part), "{part:?} is not in {shown:?}");
        }
    }
}
