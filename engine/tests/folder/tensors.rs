//! safetensors, in one file and in shards.

use crate::{assert_contains, edit, load, refusal, written};
use candle_core::quantized::GgmlDType;
use candle_core::safetensors;
use candle_core::{DType, Device, Tensor};
use engine::safetensors::SafetensorsHeader;
use engine::tiny::TinyModel;
use engine::{BlockId, CacheType, Input, LoadError};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::fs;
use std::path::Path;

const SINGLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";

fn logits(folder: &Path) -> Vec<f32> {
    let mut model = load(folder).unwrap().model;
    model.allocate(1, CacheType::F32).unwrap();
    let input = Input {
        blocks: &[BlockId::new(0)],
        start: 0,
        tokens: &[5, 6, 7],
        wanted: 1,
    };
    let logits = model.forward(&[input]).unwrap();
    logits.rows().next().unwrap().to_vec()
}

/// Writes the tensors again, changed.
fn rewrite(folder: &Path, change: impl FnOnce(&mut HashMap<String, Tensor>)) {
    let path = folder.join(SINGLE);
    let mut tensors = safetensors::load(&path, &Device::Cpu).unwrap();
    change(&mut tensors);
    safetensors::save(&tensors, &path).unwrap();
}

#[test]
fn shards_are_one_model() {
    let tiny = TinyModel::default();
    let whole = logits(written(&tiny, 1).path());
    assert_eq!(logits(written(&tiny, 3).path()), whole);
}

#[test]
fn a_header_of_any_length_is_read() {
    for dtype in [GgmlDType::F32, GgmlDType::BF16] {
        let tiny = TinyModel {
            dtype,
            ..TinyModel::default()
        };
        let folder = written(&tiny, 1);
        let expected = logits(folder.path());
        let path = folder.path().join(SINGLE);
        let bytes = fs::read(&path).unwrap();
        let length = u64::from_le_bytes(bytes[..8].try_into().unwrap());
        // Spaces behind the header move the numbers to odd addresses.
        for spaces in 1..4 {
            let mut longer = (length + spaces).to_le_bytes().to_vec();
            longer.extend(&bytes[8..8 + length as usize]);
            longer.extend(vec![b' '; spaces as usize]);
            longer.extend(&bytes[8 + length as usize..]);
            fs::write(&path, longer).unwrap();
            assert_eq!(logits(folder.path()), expected, "{spaces} bytes on");
        }
    }
}

#[test]
fn tensors_that_are_wrong_are_named_with_their_file() {
    let name = "model.layers.1.mlp.down_proj.weight";
    type Damage = fn(&mut HashMap<String, Tensor>);
    let damages: [(Damage, &[&str]); 3] = [
        (
            |t| drop(t.remove("lm_head.weight")),
            &["lm_head.weight", "absent"],
        ),
        (
            |t| {
                let tensor = t["model.layers.1.mlp.down_proj.weight"].t().unwrap();
                let tensor = tensor.contiguous().unwrap();
                t.insert("model.layers.1.mlp.down_proj.weight".to_owned(), tensor);
            },
            &[
                "model.layers.1.mlp.down_proj.weight",
                "[256, 128]",
                "[128, 256]",
            ],
        ),
        (
            |t| {
                let tensor = t["model.norm.weight"].to_dtype(DType::I64).unwrap();
                t.insert("model.norm.weight".to_owned(), tensor);
            },
            &["model.norm.weight", "I64", "BF16"],
        ),
    ];
    for (damage, named) in damages {
        let folder = written(&TinyModel::default(), 1);
        rewrite(folder.path(), damage);
        let shown = refusal(folder.path()).to_string();
        assert_contains(&shown, &[&[SINGLE], named].concat());
    }
    let folder = written(&TinyModel::default(), 2);
    edit(folder.path(), INDEX, |index| {
        index["weight_map"].as_object_mut().unwrap().remove(name);
    });
    assert_contains(
        &refusal(folder.path()).to_string(),
        &[INDEX, name, "absent"],
    );
}

#[test]
fn an_index_that_is_wrong_is_refused_by_key() {
    let name = "model.norm.weight";
    let map = |file: &str| json!({"weight_map": {name: file}});
    let damages: [(Value, &[&str]); 6] = [
        (json!({}), &["weight_map is absent"]),
        (json!({"weight_map": []}), &["weight_map", "object"]),
        (
            json!({"weight_map": {name: 3}}),
            &["weight_map.model.norm.weight"],
        ),
        (
            map("../model.safetensors"),
            &["weight_map.model.norm.weight"],
        ),
        (map("/etc/passwd"), &["weight_map.model.norm.weight"]),
        // Both shards are there, and the norm is in the other.
        (
            map("model-00001-of-00002.safetensors"),
            &["weight_map.model.norm.weight", "does not hold"],
        ),
    ];
    for (document, named) in damages {
        let folder = written(&TinyModel::default(), 2);
        edit(folder.path(), INDEX, |index| *index = document);
        let shown = refusal(folder.path()).to_string();
        assert_contains(&shown, &[&[INDEX], named].concat());
    }
    let folder = written(&TinyModel::default(), 2);
    fs::remove_file(folder.path().join("model-00002-of-00002.safetensors")).unwrap();
    let absent = refusal(folder.path());
    assert!(matches!(absent, LoadError::Io { .. }), "{absent:?}");
    assert_contains(&absent.to_string(), &["model-00002-of-00002.safetensors"]);
}

/// A file of the given header, with some data behind it.
fn headed(header: &str, data: usize) -> Vec<u8> {
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.as_bytes());
    file.resize(file.len() + data, 0);
    file
}

#[test]
fn headers_are_read_or_refused_with_the_tensor() {
    let tensor = |dtype: &str, shape: Value, offsets: [u64; 2]| {
        json!({"w": {"dtype": dtype, "shape": shape, "data_offsets": offsets}}).to_string()
    };
    let read = |header: &str| SafetensorsHeader::read(&headed(header, 64));
    for good in [
        tensor("F32", json!([4, 4]), [0, 64]),
        tensor("F8_E4M3", json!([4, 4]), [0, 16]),
        tensor("F32", json!([]), [60, 64]),
        r#"{"__metadata__": {"format": "pt"}}"#.to_owned(),
    ] {
        read(&good).unwrap();
    }
    for (bad, named) in [
        (
            tensor("F32", json!([4, 4]), [4, 68]),
            "w takes bytes 4 to 68",
        ),
        (tensor("F32", json!([4, 4]), [8, 4]), "w takes bytes 8 to 4"),
        (tensor("F32", json!([4, 4]), [0, 32]), "32 bytes"),
        (tensor("F32", json!([u64::MAX, 2]), [0, 64]), "64 bytes"),
        (tensor("F32", json!([1u64 << 62]), [0, 64]), "64 bytes"),
        (tensor("F32", json!(vec![1; 9]), [0, 4]), "9 dimensions"),
        (tensor("F32", json!([-4]), [0, 64]), "tensor w"),
        (tensor("F32", json!("many"), [0, 64]), "tensor w"),
        (r#"{"w": {}}"#.to_owned(), "tensor w"),
        ("[]".to_owned(), "list of tensors"),
        ("{".to_owned(), "list of tensors"),
    ] {
        let refusal = read(&bad).unwrap_err();
        assert_contains(&refusal, &[named]);
    }
    let once = r#""w": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}"#;
    let refusal = read(&format!("{{{once}, {once}}}")).unwrap_err();
    assert_contains(&refusal, &["w appears twice"]);
}

#[test]
fn a_length_that_the_file_does_not_have_is_refused() {
    for length in [1, 65, 1 << 27, 1 << 40, u64::MAX] {
        let mut file = headed("", 0);
        file[..8].copy_from_slice(&length.to_le_bytes());
        let refusal = SafetensorsHeader::read(&file).unwrap_err();
        assert_contains(&refusal, &[&length.to_string(), "expected at most"]);
    }
    for length in 0..8 {
        SafetensorsHeader::read(&vec![0; length]).unwrap_err();
    }
}
