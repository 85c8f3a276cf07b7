//! The tokenizer's files.

use crate::{assert_contains, edit, load, refusal, written};
use engine::tiny::TinyModel;
use engine::{LoadError, Vocabulary};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use tempfile::TempDir;
use tokenizers::Tokenizer;

const TOKENIZER: &str = "tokenizer.json";
const TOKENIZER_CONFIG: &str = "tokenizer_config.json";
const GENERATION: &str = "generation_config.json";
const TOKENS: u64 = 256 + 48 + 3;

fn folder() -> TempDir {
    let tiny = TinyModel {
        padding: 5,
        ..TinyModel::default()
    };
    written(&tiny, 1)
}

fn vocabulary(folder: &Path) -> Vocabulary {
    load(folder).unwrap().vocabulary
}

/// The vocabulary after a change to one file.
fn changed(file: &str, change: impl FnOnce(&mut Value)) -> Vocabulary {
    let folder = folder();
    edit(folder.path(), file, change);
    vocabulary(folder.path())
}

#[test]
fn files_and_folders_have_the_same_tokens() {
    let folder = folder();
    let file = folder.path().join("tiny.gguf");
    TinyModel::default().write(&file).unwrap();
    let of_file = engine::Checkpoint::open(&file)
        .unwrap()
        .vocabulary()
        .unwrap();
    let of_folder = vocabulary(folder.path());
    assert_eq!(of_folder.fingerprint, of_file.fingerprint);
    assert_eq!(of_folder.size, of_file.size);
    assert_eq!(of_folder.eos_ids, of_file.eos_ids);
    assert_eq!(of_folder.bos_id, of_file.bos_id);
    assert_eq!(of_folder.chat_template, of_file.chat_template);
    let ids = |vocabulary: &Vocabulary| {
        let tokenizer = Tokenizer::from_bytes(&vocabulary.tokenizer_json).unwrap();
        let encoding = tokenizer.encode("hello world<|im_end|>", false).unwrap();
        encoding.get_ids().to_vec()
    };
    assert_eq!(ids(&of_folder), ids(&of_file));
}

#[test]
fn ends_of_text_are_a_number_or_a_list() {
    let [end_of_text, end_of_turn] = [TOKENS as u32 - 3, TOKENS as u32 - 1];
    let one = changed(GENERATION, |config| config["eos_token_id"] = json!(9));
    assert_eq!(one.eos_ids, [9, end_of_turn, end_of_text]);
    let list = changed(GENERATION, |config| config["eos_token_id"] = json!([9, 8]));
    assert_eq!(list.eos_ids, [9, 8, end_of_turn, end_of_text]);
    let folder = folder();
    fs::remove_file(folder.path().join(GENERATION)).unwrap();
    edit(folder.path(), "config.json", |c| {
        c["eos_token_id"] = json!(7)
    });
    let ids = vocabulary(folder.path()).eos_ids;
    assert_eq!(ids, [7, end_of_turn, end_of_text]);
}

#[test]
fn prompts_begin_as_the_tokenizer_would_have_it() {
    let first = TOKENS as u32 - 2;
    let processor = json!({
        "type": "TemplateProcessing",
        "single": [
            {"SpecialToken": {"id": "<|im_start|>", "type_id": 0}},
            {"Sequence": {"id": "A", "type_id": 0}},
        ],
        "pair": [],
        "special_tokens": {"<|im_start|>": {
            "id": "<|im_start|>", "ids": [first], "tokens": ["<|im_start|>"],
        }},
    });
    let folder = folder();
    edit(folder.path(), TOKENIZER, |t| {
        t["post_processor"] = processor
    });
    let set = |flag: Value| {
        edit(folder.path(), TOKENIZER_CONFIG, |c| {
            c["add_bos_token"] = flag
        })
    };
    set(json!(null));
    assert_eq!(vocabulary(folder.path()).bos_id, Some(first));
    set(json!(false));
    assert_eq!(vocabulary(folder.path()).bos_id, None);
    edit(folder.path(), TOKENIZER_CONFIG, |config| {
        config["add_bos_token"] = json!(true);
        config["bos_token"] = json!({"content": "<|endoftext|>"});
    });
    assert_eq!(vocabulary(folder.path()).bos_id, Some(TOKENS as u32 - 3));
}

#[test]
fn templates_are_found_in_each_place() {
    let named = json!([
        {"name": "tool_use", "template": "tools"},
        {"name": "default", "template": "plain"},
    ]);
    let list = changed(TOKENIZER_CONFIG, |config| config["chat_template"] = named);
    assert_eq!(list.chat_template, "plain");
    let folder = folder();
    fs::write(folder.path().join("chat_template.jinja"), "of its own").unwrap();
    assert_eq!(vocabulary(folder.path()).chat_template, "of its own");
    fs::remove_file(folder.path().join("chat_template.jinja")).unwrap();
    fs::remove_file(folder.path().join(TOKENIZER_CONFIG)).unwrap();
    assert_eq!(vocabulary(folder.path()).chat_template, "");
}

#[test]
fn tokens_of_other_models_are_left_out() {
    let image = json!({
        "id": TOKENS + 5, "content": "<image>", "single_word": false, "lstrip": false,
        "rstrip": false, "normalized": false, "special": true,
    });
    let vocabulary = changed(TOKENIZER, |tokenizer| {
        tokenizer["added_tokens"]
            .as_array_mut()
            .unwrap()
            .push(image);
    });
    assert_eq!(vocabulary.size as u64, TOKENS);
    let tokenizer = Tokenizer::from_bytes(&vocabulary.tokenizer_json).unwrap();
    assert_eq!(tokenizer.token_to_id("<image>"), None);
}

#[test]
fn files_that_are_wrong_are_named() {
    type Damage = fn(&mut Value);
    let damages: [(&str, Damage, &str); 7] = [
        (
            TOKENIZER,
            |t| t["model"] = json!({"type": "BPE"}),
            "tokenizer",
        ),
        (TOKENIZER, |t| *t = json!([]), "JSON object"),
        (
            TOKENIZER,
            |t| t["model"]["vocab"]["!"] = json!(1 << 20),
            "model.vocab",
        ),
        (
            GENERATION,
            |c| c["eos_token_id"] = json!(1 << 20),
            "eos_token_id",
        ),
        (
            GENERATION,
            |c| c["eos_token_id"] = json!(["end"]),
            "eos_token_id",
        ),
        (
            TOKENIZER_CONFIG,
            |c| c["eos_token"] = json!("no token"),
            "eos_token",
        ),
        (
            TOKENIZER_CONFIG,
            |c| c["chat_template"] = json!(3),
            "chat_template",
        ),
    ];
    for (file, damage, said) in damages {
        let folder = folder();
        edit(folder.path(), file, damage);
        let shown = refusal(folder.path()).to_string();
        assert_contains(&shown, &[file, said]);
    }
    let folder = folder();
    fs::remove_file(folder.path().join(TOKENIZER)).unwrap();
    let absent = refusal(folder.path());
    assert!(matches!(absent, LoadError::Io { .. }), "{absent:?}");
    assert_contains(&absent.to_string(), &[TOKENIZER]);
}
