//! What a decoder is like is read from the metadata, or refused by the key that is wrong.

use crate::handmade::{Handmade, assert_contains, string, tiny};
use engine::gguf::GgufFile;
use engine::tiny::TinyModel;
use engine::{DecoderConfig, Family, LoadError};

#[test]
fn configurations_are_read_from_both_families() {
    for family in [Family::Llama, Family::Qwen2] {
        let (_folder, path) = tiny(&TinyModel {
            family,
            padding: 5,
            ..TinyModel::default()
        });
        let config = DecoderConfig::from_gguf(&GgufFile::open(&path).unwrap()).unwrap();
        assert_eq!(config.family, family);
        assert_eq!((config.hidden, config.layers), (128, 2));
        assert_eq!((config.heads, config.kv_heads, config.head_dim), (4, 2, 32));
        assert_eq!(config.context_length, 4096);
        assert_eq!(config.vocabulary_rows, 256 + 48 + 3 + 5);
        assert_eq!(config.rope_base, 10_000.0);
        assert!((config.norm_epsilon - 1e-5).abs() < 1e-9);
    }
}

/// A handmade file of a valid configuration, less the key `without`.
fn configured(without: &str) -> Handmade {
    let counts = [
        ("llama.context_length", 64u32),
        ("llama.embedding_length", 32),
        ("llama.block_count", 1),
        ("llama.feed_forward_length", 64),
        ("llama.attention.head_count", 4),
        ("llama.attention.head_count_kv", 2),
        ("llama.rope.dimension_count", 8),
    ];
    let mut architecture = Vec::new();
    string(&mut architecture, "llama");
    let mut file = Handmade::default().tensor("token_embd.weight", &[32, 4], 0, 0);
    if without != "general.architecture" {
        file = file.key("general.architecture", 8, &architecture);
    }
    for (key, count) in counts {
        if key != without {
            file = file.key(key, 4, &count.to_le_bytes());
        }
    }
    let epsilon = "llama.attention.layer_norm_rms_epsilon";
    if epsilon != without {
        file = file.key(epsilon, 6, &1e-5f32.to_le_bytes());
    }
    file
}

#[test]
fn absurd_configurations_are_refused_by_key() {
    DecoderConfig::from_gguf(&configured("").open(512).unwrap()).unwrap();
    for key in [
        "general.architecture",
        "llama.context_length",
        "llama.embedding_length",
        "llama.block_count",
        "llama.feed_forward_length",
        "llama.attention.head_count",
        "llama.attention.layer_norm_rms_epsilon",
    ] {
        let refusal = DecoderConfig::from_gguf(&configured(key).open(512).unwrap()).unwrap_err();
        assert_contains(&refusal.to_string(), &[key, "absent"]);
    }
    for (key, count) in [
        ("llama.context_length", 0),
        ("llama.context_length", u32::MAX),
        ("llama.embedding_length", 33),
        ("llama.block_count", 0),
        ("llama.block_count", u32::MAX),
        ("llama.feed_forward_length", 0),
        ("llama.attention.head_count", 0),
        ("llama.attention.head_count", 3),
        ("llama.attention.head_count", 32),
        ("llama.attention.head_count_kv", 0),
        ("llama.attention.head_count_kv", 3),
        ("llama.attention.key_length", 7),
        ("llama.attention.value_length", 4),
        ("llama.rope.dimension_count", 4),
        ("llama.rope.freq_base", 0),
        ("llama.rope.scaling.factor", 2),
        ("llama.attention.sliding_window", 16),
        ("llama.expert_count", 8),
    ] {
        let file = configured(key).key(key, 4, &count.to_le_bytes());
        let refusal = DecoderConfig::from_gguf(&file.open(512).unwrap()).unwrap_err();
        let named = match key {
            // Shows as an embedding of other rows.
            "llama.embedding_length" => "embedding_length of 33",
            other => other,
        };
        assert_contains(&refusal.to_string(), &[named]);
    }
    let scaled = configured("").tensor("rope_freqs.weight", &[4], 0, 512);
    let refusal = DecoderConfig::from_gguf(&scaled.open(1024).unwrap()).unwrap_err();
    assert!(matches!(refusal, LoadError::Unsupported { .. }));
    assert_contains(&refusal.to_string(), &["rope_freqs.weight"]);
}

#[test]
fn other_architectures_are_named_with_what_is_supported() {
    let mut architecture = Vec::new();
    string(&mut architecture, "mamba");
    let file = configured("general.architecture").key("general.architecture", 8, &architecture);
    let refusal = DecoderConfig::from_gguf(&file.open(512).unwrap()).unwrap_err();
    assert!(matches!(refusal, LoadError::Unsupported { .. }));
    assert_contains(&refusal.to_string(), &["mamba", "llama", "qwen2"]);
}
