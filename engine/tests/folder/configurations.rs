//! `config.json`.

use crate::{assert_contains, edit, load, refusal, written};
use engine::folder::Folder;
use engine::tiny::TinyModel;
use engine::{DecoderConfig, Family, LoadError, Rope, RopeScaling};
use serde_json::{Value, json};
use std::path::Path;

const CONFIG: &str = "config.json";

fn configuration(folder: &Path) -> Result<DecoderConfig, LoadError> {
    DecoderConfig::from_folder(&Folder::open(folder)?)
}

/// The configuration of a tiny model with some keys changed; null takes a key away.
fn changed(family: Family, keys: &[(&str, Value)]) -> Result<DecoderConfig, LoadError> {
    let tiny = TinyModel {
        family,
        layers: 7,
        ..TinyModel::default()
    };
    let folder = written(&tiny, 1);
    edit(folder.path(), CONFIG, |config| {
        for (key, value) in keys {
            config[key] = value.clone();
        }
    });
    configuration(folder.path())
}

#[test]
fn files_and_folders_of_a_model_say_the_same() {
    for family in [Family::Llama, Family::Qwen2, Family::Qwen3, Family::Gemma3] {
        let tiny = TinyModel {
            family,
            layers: 7,
            window: matches!(family, Family::Llama | Family::Gemma3).then_some(24),
            rope: RopeScaling::Linear { factor: 4.0 },
            ..TinyModel::default()
        };
        let folder = written(&tiny, 1);
        let file = folder.path().join("tiny.gguf");
        tiny.write(&file).unwrap();
        let of_file = engine::Checkpoint::open(&file).unwrap().config().unwrap();
        let mut of_folder = configuration(folder.path()).unwrap();
        // Files of Llama have the rows of q and k in another order.
        of_folder.rope_pairs = of_file.rope_pairs;
        // Files and folders differ in how they round it.
        assert!((of_folder.norm_epsilon - of_file.norm_epsilon).abs() < 1e-9);
        of_folder.norm_epsilon = of_file.norm_epsilon;
        assert_eq!(of_folder, of_file);
    }
}

#[test]
fn windows_are_where_the_configuration_has_them() {
    let windows = |config: DecoderConfig| -> Vec<bool> {
        let layers = config.layers.into_iter();
        layers.map(|layer| layer.window == Some(24)).collect()
    };
    let mut listed = vec!["sliding_attention"; 7];
    listed[2] = "full_attention";
    let kinds = [
        ("layer_types", json!(listed)),
        ("sliding_window", json!(24)),
    ];
    let by_list = windows(changed(Family::Gemma3, &kinds).unwrap());
    assert_eq!(by_list, [true, true, false, true, true, true, true]);
    let used = [
        ("use_sliding_window", json!(true)),
        ("sliding_window", json!(24)),
        ("max_window_layers", json!(5)),
    ];
    let of_qwen = windows(changed(Family::Qwen2, &used).unwrap());
    assert_eq!(of_qwen, [false, false, false, false, false, true, true]);
    let unused = windows(changed(Family::Qwen2, &used[1..]).unwrap());
    assert_eq!(unused, [false; 7]);
}

#[test]
fn rotations_are_read_from_either_place() {
    let rope = |base, scaling| Rope::new(32, base, &scaling);
    let linear = rope(5000.0, RopeScaling::Linear { factor: 4.0 });
    let old = changed(
        Family::Llama,
        &[
            ("rope_theta", json!(5000.0)),
            ("rope_scaling", json!({"type": "linear", "factor": 4.0})),
        ],
    );
    assert_eq!(old.unwrap().ropes[0], linear);
    let stated = json!({"rope_type": "linear", "factor": 4.0, "rope_theta": 5000.0});
    let new = changed(Family::Llama, &[("rope_parameters", stated)]);
    assert_eq!(new.unwrap().ropes[0], linear);
    let both = json!({
        "full_attention": {"rope_type": "default", "rope_theta": 1e6},
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e3},
    });
    let gemma = changed(Family::Gemma3, &[("rope_parameters", both)]).unwrap();
    let plain = |base| Rope::new(64, base, &RopeScaling::None);
    assert_eq!(gemma.ropes, [plain(1e6), plain(1e3)]);
}

#[test]
fn a_context_that_yarn_stretches_is_longer() {
    let yarn = json!({
        "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096,
    });
    let config = changed(Family::Qwen3, &[("rope_scaling", yarn)]).unwrap();
    assert_eq!(config.context_length, 4 * 4096);
}

#[test]
fn absurd_configurations_are_refused_by_key() {
    let refused: [(&str, Value, &str); 14] = [
        ("model_type", json!(null), "absent"),
        ("hidden_size", json!(null), "absent"),
        ("hidden_size", json!(0), "0"),
        ("hidden_size", json!(1u64 << 40), "expected"),
        ("num_hidden_layers", json!(1 << 20), "expected"),
        ("num_attention_heads", json!("four"), "four"),
        ("num_key_value_heads", json!(3), "does not divide"),
        ("head_dim", json!(7), "even"),
        ("vocab_size", json!(-1), "-1"),
        ("rms_norm_eps", json!(2.0), "between"),
        ("rope_theta", json!(0.5), "0.5"),
        ("tie_word_embeddings", json!("yes"), "true or false"),
        ("layer_types", json!(["full_attention"]), "7"),
        (
            "rope_scaling",
            json!({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 4.0,
                "high_freq_factor": 1.0}),
            "rope_scaling.high_freq_factor",
        ),
    ];
    for (key, value, said) in refused {
        let refusal = changed(Family::Llama, &[(key, value)]).unwrap_err();
        assert!(matches!(refusal, LoadError::Invalid { .. }), "{refusal:?}");
        assert_contains(&refusal.to_string(), &[CONFIG, key, said]);
    }
}

#[test]
fn what_is_not_known_is_refused_by_key_with_what_is() {
    let yarn = |key: &str, value: Value| {
        let mut yarn = json!({"rope_type": "yarn", "factor": 4.0});
        yarn[key] = value;
        yarn
    };
    let refused: [(&str, Value, &[&str]); 11] = [
        ("model_type", json!("mamba"), &["mamba", "qwen2"]),
        ("model_type", json!("gemma3"), &["gemma3_text"]),
        ("quantization_config", json!({"bits": 4}), &["f32", "GGUF"]),
        ("hidden_act", json!("relu"), &["relu", "silu"]),
        ("attention_bias", json!(true), &["true"]),
        ("partial_rotary_factor", json!(0.5), &["0.5"]),
        (
            "layer_types",
            json!(vec!["linear_attention"; 7]),
            &["entry 0"],
        ),
        (
            "rope_scaling",
            json!({"type": "dynamic", "factor": 2.0}),
            &["rope_scaling.rope_type", "dynamic", "yarn"],
        ),
        (
            "rope_scaling",
            json!({"rope_type": "longrope"}),
            &["longrope"],
        ),
        ("rope_scaling", yarn("mscale", json!(1.0)), &["mscale"]),
        (
            "rope_scaling",
            yarn("truncate", json!(false)),
            &["truncate"],
        ),
    ];
    for (key, value, said) in refused {
        let refusal = changed(Family::Llama, &[(key, value)]).unwrap_err();
        let known = matches!(refusal, LoadError::Unsupported { .. });
        assert!(known, "{refusal:?}");
        assert_contains(&refusal.to_string(), &[&[CONFIG, key], said].concat());
    }
}

#[test]
fn a_folder_without_a_configuration_is_refused() {
    let folder = written(&TinyModel::default(), 1);
    load(folder.path()).unwrap();
    std::fs::write(folder.path().join(CONFIG), "[1, 2]").unwrap();
    assert_contains(&refusal(folder.path()).to_string(), &[CONFIG, "JSON"]);
    std::fs::remove_file(folder.path().join(CONFIG)).unwrap();
    let absent = refusal(folder.path());
    assert!(matches!(absent, LoadError::Io { .. }), "{absent:?}");
    assert_contains(&absent.to_string(), &[CONFIG]);
}
