//! The decoder computes what candle's own models compute, however the text is cut into steps and
//! whatever is decoded beside it.
//!
//! The stock models share the matrix products with ours and nothing else: neither attention, nor
//! rotation, nor norms, nor the cache. Quantised products round their activations to eight bits,
//! which turns differences in the last bits of a sum into differences of some percent after some
//! layers. So the tight tolerances are those of float weights, SmolLM2's among them.

use crate::stock::{DECODED, Decoded, Stock, best};
use crate::support::{Text, decoder, folder, pool, step, written};
use candle_core::Device;
use candle_core::quantized::{GgmlDType, QTensor, gguf_file};
use engine::gguf::GgufFile;
use engine::tiny::TinyModel;
use engine::{Family, Model, RopeScaling, Vocabulary};
use std::fs::File;
use std::path::{Path, PathBuf};
use tokenizers::Tokenizer;

const PROMPTS: [&str; 3] = [
    "The capital of France is",
    "fn main() {\n    let numbers = vec![1, 2, 3, 4];\n    let sum: i32 = numbers.iter().sum();\n    println!(",
    "Question: What is seven times six?\nAnswer:",
];

/// Feeds all prompts side by side, each with the tokens that the stock model chose after it, and
/// returns the logits at each choice. Prompts are taken in pieces of `piece`, tokens one by one.
fn follow(
    model: &mut dyn Model,
    prompts: &[Vec<u32>],
    expected: &[Decoded],
    piece: usize,
) -> Vec<Vec<Vec<f32>>> {
    let pool = pool(model);
    let mut texts: Vec<_> = prompts
        .iter()
        .map(|p| Text::new(&pool, p.clone()))
        .collect();
    let mut logits = vec![Vec::new(); prompts.len()];
    while texts.iter().any(|text| text.pending() > 0) {
        let (places, mut batch): (Vec<_>, Vec<_>) = texts
            .iter_mut()
            .enumerate()
            .filter(|(_, text)| text.pending() > 0)
            .map(|(index, text)| {
                let count = piece.min(text.pending());
                (index, (text, count))
            })
            .unzip();
        let rows = step(model, &mut batch);
        for (index, mut rows) in places.into_iter().zip(rows) {
            if texts[index].pending() == 0 {
                let chosen = logits[index].len();
                logits[index].push(rows.swap_remove(rows.len() - 1));
                if chosen + 1 < DECODED {
                    texts[index].tokens.push(expected[index].tokens[chosen]);
                }
            }
        }
    }
    logits
}

/// The length of the difference, in standard deviations of the expected logits.
pub(crate) fn distance(logits: &[f32], expected: &[f32]) -> f64 {
    assert_eq!(logits.len(), expected.len());
    let pairs = logits.iter().zip(expected);
    let difference: f64 = pairs.map(|(&a, &b)| f64::from(a - b).powi(2)).sum();
    (difference / expected.len() as f64).sqrt() / deviation(expected)
}

fn deviation(logits: &[f32]) -> f64 {
    let count = logits.len() as f64;
    let mean = logits.iter().map(|&x| f64::from(x)).sum::<f64>() / count;
    let variance = logits
        .iter()
        .map(|&x| (f64::from(x) - mean).powi(2))
        .sum::<f64>()
        / count;
    variance.sqrt()
}

/// The logits are the expected ones, and the token chosen by them is the expected one or as good.
fn assert_close(logits: &[Vec<f32>], expected: &Decoded, tolerance: f64, what: &str) {
    assert_eq!(logits.len(), expected.logits.len(), "{what}");
    let distances: Vec<f64> = logits
        .iter()
        .zip(&expected.logits)
        .map(|(logits, expected)| distance(logits, expected))
        .collect();
    for (step, (logits, expected)) in logits.iter().zip(&expected.logits).enumerate() {
        assert!(
            distances[step] < tolerance,
            "{what}: logits of the steps differ by {distances:.4?}"
        );
        let lost = f64::from(expected[best(expected)] - expected[best(logits)]);
        let bound = 4.0 * tolerance * deviation(expected);
        assert!(
            lost < bound,
            "{what}: step {step} chooses a token that is {lost} worse"
        );
    }
}

/// All prompts side by side, in pieces, and each alone, against the stock model.
fn compare(path: &Path, family: Family, prompts: &[Vec<u32>], tolerance: f64) {
    let mut stock = Stock::open(path, family);
    let expected: Vec<_> = prompts.iter().map(|prompt| stock.decode(prompt)).collect();
    drop(stock);
    compare_with(path, &expected, prompts, tolerance);
}

/// All prompts side by side, in pieces, and each alone, against what is `expected`.
fn compare_with(path: &Path, expected: &[Decoded], prompts: &[Vec<u32>], tolerance: f64) {
    let mut model = decoder(path, true);
    for piece in [usize::MAX, 7, 1] {
        let together = follow(&mut *model, prompts, expected, piece);
        for (index, (logits, expected)) in together.iter().zip(expected).enumerate() {
            let what = format!("prompt {index} in pieces of at most {piece}, with others");
            assert_close(logits, expected, tolerance, &what);
        }
    }
    for (index, piece) in (0..prompts.len()).zip([usize::MAX, 16, 7]) {
        let (prompt, expected) = (&prompts[index..][..1], &expected[index..][..1]);
        let logits = follow(&mut *model, prompt, expected, piece);
        let what = format!("prompt {index} in pieces of at most {piece}, alone");
        assert_close(&logits[0], &expected[0], tolerance, &what);
    }
}

/// Prompts as the model's own tokenizer sees them.
fn prompts(path: &Path) -> Vec<Vec<u32>> {
    let vocabulary = Vocabulary::from_gguf(&GgufFile::open(path).unwrap()).unwrap();
    let tokenizer = Tokenizer::from_bytes(&vocabulary.tokenizer_json).unwrap();
    let ids = |text| tokenizer.encode(text, false).unwrap().get_ids().to_vec();
    PROMPTS.map(ids).to_vec()
}

/// The same model with float weights.
pub(crate) fn dequantised(path: &Path) -> tempfile::TempPath {
    let mut file = File::open(path).unwrap();
    let content = gguf_file::Content::read(&mut file).unwrap();
    let tensors: Vec<(&str, QTensor)> = content
        .tensor_infos
        .keys()
        .map(|name| {
            let tensor = content.tensor(&mut file, name, &Device::Cpu).unwrap();
            let values = tensor.dequantize(&Device::Cpu).unwrap();
            (
                name.as_str(),
                QTensor::quantize(&values, GgmlDType::F32).unwrap(),
            )
        })
        .collect();
    let tensors: Vec<_> = tensors
        .iter()
        .map(|(name, tensor)| (*name, tensor))
        .collect();
    let metadata: Vec<_> = content
        .metadata
        .iter()
        .map(|(k, v)| (k.as_str(), v))
        .collect();
    let (mut out, path) = tempfile::NamedTempFile::new().unwrap().into_parts();
    gguf_file::write(&mut out, &metadata, &tensors).unwrap();
    path
}

pub(crate) fn model_file(name: &str) -> PathBuf {
    let variable = |name| std::env::var_os(name).map(PathBuf::from);
    let folder = variable("SPECDEC_MODELS").unwrap_or_else(|| {
        let home = || variable("HOME").expect("HOME is set").join(".cache");
        let cache = variable("XDG_CACHE_HOME").unwrap_or_else(home);
        cache.join("specdec").join("models")
    });
    let path = folder.join(format!("{name}.gguf"));
    assert!(
        path.is_file(),
        "{} is absent: run `cargo xtask models fetch {name}`, or set SPECDEC_MODELS",
        path.display()
    );
    path
}

#[test]
fn smollm2_decodes_as_the_stock_model_does() {
    let path = model_file("smollm2-135m-instruct-q4_1");
    compare(&path, Family::Llama, &prompts(&path), 0.3);
}

#[test]
fn smollm2_with_float_weights_decodes_exactly_as_the_stock_model_does() {
    let path = model_file("smollm2-135m-instruct-q4_1");
    compare(&dequantised(&path), Family::Llama, &prompts(&path), 1e-3);
}

#[test]
fn qwen_half_a_billion_decodes_as_the_stock_model_does() {
    let path = model_file("qwen2.5-coder-0.5b-instruct-q4_k_m");
    compare(&path, Family::Qwen2, &prompts(&path), 0.15);
}

#[test]
fn qwen_one_and_a_half_billion_decodes_as_the_stock_model_does() {
    let path = model_file("qwen2.5-coder-1.5b-instruct-q4_k_m");
    compare(&path, Family::Qwen2, &prompts(&path), 0.15);
}

/// The stock model rounds no activations, and Gemma's have outliers. That what is computed is the
/// same shows with float weights.
#[test]
fn gemma_decodes_nearly_as_the_stock_model_does() {
    let path = model_file("gemma-3-270m-q4_k_m");
    compare(&path, Family::Gemma3, &prompts(&path), 0.3);
}

#[test]
fn gemma_with_float_weights_decodes_exactly_as_the_stock_model_does() {
    let path = model_file("gemma-3-270m-q4_k_m");
    compare(&dequantised(&path), Family::Gemma3, &prompts(&path), 1e-3);
}

const FAMILIES: [Family; 4] = [Family::Llama, Family::Qwen2, Family::Qwen3, Family::Gemma3];

/// Of the family's size: Gemma has a layer that sees everything among those that do not, and one
/// key head, because the stock model can have no more.
fn tiny(family: Family, dtype: GgmlDType, tied: bool) -> TinyModel {
    TinyModel {
        family,
        dtype,
        tied,
        heads: if family == Family::Gemma3 { 2 } else { 8 },
        layers: if family == Family::Gemma3 { 7 } else { 2 },
        ..TinyModel::default()
    }
}

fn made_up_prompts(path: &Path) -> [Vec<u32>; 3] {
    let rows = decoder(path, true).shape().vocabulary_rows as u32;
    [5, 40, 21].map(|len: u32| (0..len).map(|i| i * i * 7 % rows).collect())
}

#[test]
fn tiny_models_of_every_type_decode_as_the_stock_models_do() {
    use GgmlDType::{F16, F32, Q4_0, Q4K, Q5_0, Q6K, Q8_0};
    let float = [F32, F16].map(|dtype| (dtype, 1e-3f64));
    let quantised = [Q4_0, Q5_0, Q8_0, Q4K, Q6K].map(|dtype| (dtype, 0.1));
    for family in FAMILIES {
        for (index, (dtype, tolerance)) in float.into_iter().chain(quantised).enumerate() {
            // The stock Gemma is always tied.
            let tied = index % 2 == 1 || family == Family::Gemma3;
            println!("{family:?} {dtype:?} tied {tied}");
            let path = written(&tiny(family, dtype, tied));
            let tolerance = match family {
                // The stock model keeps its rotations in 16 bits.
                Family::Qwen3 => tolerance.max(1e-2),
                // The stock model rounds no activations.
                Family::Gemma3 if tolerance > 1e-2 => 2.0 * tolerance,
                _ => tolerance,
            };
            compare(&path, family, &made_up_prompts(&path), tolerance);
        }
    }
}

#[test]
fn folders_decode_as_the_stock_models_do() {
    use GgmlDType::{BF16, F16, F32};
    for family in FAMILIES {
        for (index, (dtype, tolerance)) in [(F32, 1e-3), (F16, 1e-2), (BF16, 0.1)]
            .into_iter()
            .enumerate()
        {
            // The stock Gemma is always tied.
            let tied = index == 1 || family == Family::Gemma3;
            println!("{family:?} {dtype:?} tied {tied}");
            let folder = folder(&tiny(family, dtype, tied), index + 1);
            let prompts = made_up_prompts(folder.path());
            compare(folder.path(), family, &prompts, tolerance);
        }
    }
}

/// The rotation of Llama 3.1, stretched within the prompts of these tests.
const LLAMA_3: RopeScaling = RopeScaling::Llama3 {
    factor: 8.0,
    low_frequency_factor: 1.0,
    high_frequency_factor: 4.0,
    original_context: 64.0,
};

#[test]
fn the_rotation_of_llama_3_is_the_stock_models() {
    let stretched = TinyModel {
        rope: LLAMA_3,
        ..tiny(Family::Llama, GgmlDType::F32, false)
    };
    let published = folder(&stretched, 1);
    let prompts = made_up_prompts(published.path());
    let mut stock = Stock::open(published.path(), Family::Llama);
    let expected = [0, 1, 2].map(|index: usize| stock.decode(&prompts[index]));
    compare_with(published.path(), &expected, &prompts, 1e-3);
    // The same model spells its rotation out in a GGUF file.
    compare_with(&written(&stretched), &expected, &prompts, 1e-3);
    let plain = TinyModel {
        rope: RopeScaling::None,
        ..stretched
    };
    let logits = follow(
        &mut *decoder(&written(&plain), true),
        &prompts,
        &expected,
        64,
    );
    let distance = distance(&logits[1][0], &expected[1].logits[0]);
    assert!(distance > 0.1, "the rotation matters: {distance}");
}

#[test]
fn a_folder_and_a_file_of_the_same_weights_are_the_same_model() {
    for family in FAMILIES {
        let tiny = tiny(family, GgmlDType::F32, true);
        let (published, file) = (folder(&tiny, 3), written(&tiny));
        let prompts = made_up_prompts(&file);
        let mut stock = Stock::open(published.path(), family);
        let expected = [0, 1, 2].map(|index: usize| stock.decode(&prompts[index]));
        compare_with(&file, &expected, &prompts, 1e-3);
    }
}
