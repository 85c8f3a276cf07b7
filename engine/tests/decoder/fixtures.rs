//! Contexts longer than a window, and stretched rotations: what another implementation computes for
//! the same tiny weights, by `fixtures/long_context.py`.

use crate::oracle::distance;
use crate::support::{Text, decoder, folder, pool, step, written};
use candle_core::quantized::GgmlDType;
use engine::tiny::TinyModel;
use engine::{Family, RopeScaling};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Of logits, in their standard deviations; measured are 1.3e-5 at most.
const TOLERANCE: f64 = 1e-4;

#[derive(Deserialize)]
struct Case {
    tokens: Vec<u32>,
    /// After which of the tokens.
    positions: Vec<usize>,
    logits: Vec<Vec<f32>>,
}

fn models() -> Vec<(&'static str, TinyModel)> {
    let yarn = RopeScaling::Yarn {
        factor: 4.0,
        original_context: 64.0,
        beta_fast: 32.0,
        beta_slow: 1.0,
        magnitude: None,
    };
    let llama_3 = RopeScaling::Llama3 {
        factor: 8.0,
        low_frequency_factor: 1.0,
        high_frequency_factor: 4.0,
        original_context: 64.0,
    };
    let linear = RopeScaling::Linear { factor: 8.0 };
    let tiny = |family, rope, window| TinyModel {
        family,
        rope,
        window,
        layers: if family == Family::Gemma3 { 7 } else { 2 },
        // MLX rounds what Gemma's embeddings are multiplied by to 8 bits: 16 stays what it is.
        heads: if family == Family::Gemma3 { 8 } else { 4 },
        dtype: GgmlDType::F32,
        tied: family == Family::Gemma3,
        ..TinyModel::default()
    };
    use Family::{Gemma3, Llama, Qwen2, Qwen3};
    vec![
        ("gemma-linear", tiny(Gemma3, linear.clone(), Some(40))),
        ("gemma-window", tiny(Gemma3, RopeScaling::None, Some(12))),
        ("llama-3", tiny(Llama, llama_3, None)),
        ("llama-linear", tiny(Llama, linear, None)),
        ("llama-yarn", tiny(Llama, yarn.clone(), None)),
        ("mistral-window", tiny(Llama, RopeScaling::None, Some(12))),
        ("qwen2-yarn", tiny(Qwen2, yarn.clone(), None)),
        ("qwen3-yarn", tiny(Qwen3, yarn, None)),
    ]
}

/// The logits after each token, taken in pieces.
fn logits(path: &Path, tokens: &[u32], piece: usize) -> Vec<Vec<f32>> {
    let mut model = decoder(path, true);
    let mut text = Text::new(&pool(&*model), tokens.to_vec());
    let mut logits = Vec::new();
    while text.pending() > 0 {
        let count = piece.min(text.pending());
        logits.append(&mut step(&mut *model, &mut [(&mut text, count)])[0]);
    }
    logits
}

#[test]
fn long_contexts_are_what_another_implementation_makes_of_them() {
    let cases: BTreeMap<String, Case> =
        serde_json::from_str(include_str!("../data/long_context.json")).unwrap();
    let models = models();
    assert!(cases.keys().eq(models.iter().map(|(name, _)| name)));
    for (name, tiny) in models {
        let case = &cases[name];
        let (published, file) = (folder(&tiny, 1), written(&tiny));
        for (path, piece) in [
            (published.path(), usize::MAX),
            (published.path(), 7),
            (&*file, 33),
            (&*file, 1),
        ] {
            let logits = logits(path, &case.tokens, piece);
            for (&position, expected) in case.positions.iter().zip(&case.logits) {
                let distance = distance(&logits[position], expected);
                println!("{name} {position} in pieces of {piece}: {distance:.1e}");
                assert!(
                    distance < TOLERANCE,
                    "{name}: {distance:e} after {position}"
                );
            }
        }
    }
}

#[test]
#[ignore = "writes the models that fixtures/long_context.py reads"]
fn write_the_models() {
    let folder = std::env::var_os("SPECDEC_FIXTURE_MODELS").map(PathBuf::from);
    let folder = folder.expect("SPECDEC_FIXTURE_MODELS names a folder");
    for (name, tiny) in models() {
        let folder = folder.join(name);
        std::fs::create_dir_all(&folder).unwrap();
        tiny.write_folder(&folder, 1).unwrap();
        tiny.write(&folder.with_extension("gguf")).unwrap();
    }
}
