//! What a decoder is like is read from the metadata, or refused by the key that is wrong.

use crate::handmade::{Handmade, assert_contains, string, tiny};
use engine::gguf::GgufFile;
use engine::tiny::TinyModel;
use engine::{Activation, DecoderConfig, Family, LoadError, Rope, RopePairs, RopeScaling};

fn configuration(model: &TinyModel) -> DecoderConfig {
    let (_folder, path) = tiny(model);
    DecoderConfig::from_gguf(&GgufFile::open(&path).unwrap()).unwrap()
}

#[test]
fn configurations_are_read_from_all_families() {
    for family in [Family::Llama, Family::Qwen2, Family::Qwen3, Family::Gemma3] {
        let config = configuration(&TinyModel {
            family,
            padding: 5,
            ..TinyModel::default()
        });
        let gemma = family == Family::Gemma3;
        let own_heads = gemma || family == Family::Qwen3;
        let head_dim = if own_heads { 64 } else { 32 };
        assert_eq!(config.family, family);
        assert_eq!((config.hidden, config.layers.len()), (128, 2));
        assert_eq!((config.heads, config.kv_heads), (4, 2));
        assert_eq!(config.head_dim, head_dim);
        assert_eq!(config.context_length, 4096);
        assert_eq!(config.vocabulary_rows, 256 + 48 + 3 + 5);
        assert!((config.norm_epsilon - 1e-5).abs() < 1e-9);
        assert_eq!(config.qkv_bias, family == Family::Qwen2);
        assert_eq!((config.qk_norm, config.post_norms), (own_heads, gemma));
        assert_eq!(config.activation == Activation::GeluTanh, gemma);
        assert_eq!(config.ropes[0].frequencies.len(), head_dim / 2);
        let interleaved = config.rope_pairs == RopePairs::Interleaved;
        assert_eq!(interleaved, family == Family::Llama);
    }
}

#[test]
fn gemma_sees_a_window_in_all_but_every_sixth_layer() {
    let gemma = TinyModel {
        family: Family::Gemma3,
        layers: 13,
        window: Some(24),
        ..TinyModel::default()
    };
    let config = configuration(&gemma);
    for (index, layer) in config.layers.iter().enumerate() {
        let global = index == 5 || index == 11;
        assert_eq!(layer.window, (!global).then_some(24), "layer {index}");
        assert_eq!(layer.rope, usize::from(!global), "layer {index}");
    }
    assert_eq!(config.ropes.len(), 2);
    assert!((config.embedding_scale - 128f32.sqrt()).abs() < 1e-6);
}

#[test]
fn the_whole_context_is_no_window() {
    for (window, expected) in [(24, Some(24)), (4096, None), (5000, None)] {
        let mistral = TinyModel {
            window: Some(window),
            ..TinyModel::default()
        };
        let config = configuration(&mistral);
        assert!(config.layers.iter().all(|layer| layer.window == expected));
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
        ("llama.final_logit_softcapping", 30),
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
}

/// A key of the file, or a tensor of divisors at the end of its data.
type Change = fn(Handmade) -> Handmade;

fn text(file: Handmade, key: &str, value: &str) -> Handmade {
    let mut bytes = Vec::new();
    string(&mut bytes, value);
    file.key(key, 8, &bytes)
}

fn number(file: Handmade, key: &str, value: f32) -> Handmade {
    file.key(key, 6, &value.to_le_bytes())
}

const KIND: &str = "llama.rope.scaling.type";
const FACTOR: &str = "llama.rope.scaling.factor";
const ORIGINAL: &str = "llama.rope.scaling.original_context_length";

#[test]
fn rotations_are_stretched_as_the_file_says() {
    let read = |change: Change| {
        let file = change(configured("")).open(1024).unwrap();
        DecoderConfig::from_gguf(&file).map(|mut config| config.ropes.remove(0))
    };
    let rope = |scaling| Rope::new(8, 10_000.0, &scaling);
    assert_eq!(read(|file| file).unwrap(), rope(RopeScaling::None));
    assert_eq!(
        read(|file| text(file, KIND, "none")).unwrap(),
        rope(RopeScaling::None)
    );
    let linear = rope(RopeScaling::Linear { factor: 2.0 });
    assert_eq!(read(|file| number(file, FACTOR, 2.0)).unwrap(), linear);
    assert_eq!(
        read(|file| number(text(file, KIND, "linear"), FACTOR, 2.0)).unwrap(),
        linear
    );
    let yarn = read(|file| {
        let file = number(text(file, KIND, "yarn"), FACTOR, 4.0);
        file.key(ORIGINAL, 4, &16u32.to_le_bytes())
    });
    let scaling = RopeScaling::Yarn {
        factor: 4.0,
        original_context: 16.0,
        beta_fast: 32.0,
        beta_slow: 1.0,
        magnitude: None,
    };
    assert_eq!(yarn.unwrap(), rope(scaling));
    // The data is 7 in every byte.
    let seven = f32::from_le_bytes([7; 4]);
    let divided = read(|file| file.tensor("rope_freqs.weight", &[4], 0, 512));
    let refusal = divided.unwrap_err().to_string();
    assert_contains(&refusal, &["rope_freqs.weight", "divides"]);
    assert!(seven < 1e-3, "{seven} is too small a divisor");
}

#[test]
fn rotations_that_are_not_known_are_refused_by_key() {
    let refused: [(Change, &[&str]); 5] = [
        (|f| text(f, KIND, "longrope"), &[KIND, "longrope", "yarn"]),
        (|f| text(f, KIND, "linear"), &[FACTOR, "absent"]),
        (|f| number(f, FACTOR, -2.0), &[FACTOR, "-2"]),
        (
            |f| number(text(f, KIND, "yarn"), FACTOR, 4.0),
            &[ORIGINAL, "absent"],
        ),
        (
            |f| f.tensor("rope_freqs.weight", &[3], 0, 512),
            &["rope_freqs.weight", "[3]"],
        ),
    ];
    for (change, named) in refused {
        let file = change(configured("")).open(1024).unwrap();
        let refusal = DecoderConfig::from_gguf(&file).unwrap_err();
        assert_contains(&refusal.to_string(), named);
    }
}

#[test]
fn vectors_that_are_not_added_are_refused() {
    let file = configured("").tensor("blk.0.attn_output.bias", &[32], 0, 512);
    let refusal = DecoderConfig::from_gguf(&file.open(1024).unwrap()).unwrap_err();
    assert!(matches!(refusal, LoadError::Unsupported { .. }));
    assert_contains(&refusal.to_string(), &["blk.0.attn_output.bias"]);
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
