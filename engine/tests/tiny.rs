//! Tiny models are what tests of speculation need: real files, long varied texts, and drafts
//! that agree as often as asked for. Run by candle-transformers' own decoders.

#![expect(
    clippy::unwrap_used,
    reason = "in helpers of tests too, a failure is the test's"
)]

use candle_core::quantized::{GgmlDType, gguf_file::Content};
use candle_core::{Device, Tensor};
use candle_transformers::models::{
    quantized_gemma3, quantized_llama, quantized_qwen2, quantized_qwen3,
};
use engine::Family;
use engine::tiny::TinyModel;
use std::collections::HashSet;
use std::fs::{self, File};
use tempfile::TempDir;

const TOKENS: usize = 256 + 48 + 3;
const PROMPT: [u32; 4] = [10, 200, 30, 7];

enum Stock {
    Llama(quantized_llama::ModelWeights),
    Qwen2(quantized_qwen2::ModelWeights),
    Qwen3(quantized_qwen3::ModelWeights),
    Gemma3(quantized_gemma3::ModelWeights),
}

impl Stock {
    fn load(model: &TinyModel) -> Self {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("tiny.gguf");
        model.write(&path).unwrap();
        let mut file = File::open(&path).unwrap();
        let content = Content::read(&mut file).unwrap();
        let device = Device::Cpu;
        match model.family {
            Family::Llama => Self::Llama(
                quantized_llama::ModelWeights::from_gguf(content, &mut file, &device).unwrap(),
            ),
            Family::Qwen2 => Self::Qwen2(
                quantized_qwen2::ModelWeights::from_gguf(content, &mut file, &device).unwrap(),
            ),
            Family::Qwen3 => Self::Qwen3(
                quantized_qwen3::ModelWeights::from_gguf(content, &mut file, &device).unwrap(),
            ),
            Family::Gemma3 => Self::Gemma3(
                quantized_gemma3::ModelWeights::from_gguf(content, &mut file, &device).unwrap(),
            ),
        }
    }

    /// The logits after `tokens`, which follow `position` others.
    fn logits(&mut self, tokens: &[u32], position: usize) -> Vec<f32> {
        let input = Tensor::new(tokens, &Device::Cpu)
            .unwrap()
            .unsqueeze(0)
            .unwrap();
        let logits = match self {
            Self::Llama(model) => model.forward(&input, position),
            Self::Qwen2(model) => model.forward(&input, position),
            Self::Qwen3(model) => model.forward(&input, position),
            Self::Gemma3(model) => model.forward(&input, position),
        };
        logits.unwrap().flatten_all().unwrap().to_vec1().unwrap()
    }

    /// The most likely text and the mean entropy of its laws in nats.
    fn greedy(&mut self, length: usize) -> (Vec<u32>, f32) {
        let mut logits = self.logits(&PROMPT, 0);
        let mut text = Vec::new();
        let mut entropies = 0.0;
        for position in PROMPT.len()..PROMPT.len() + length {
            entropies += entropy(&logits);
            let token = most_likely(&logits[..TOKENS]);
            text.push(token);
            logits = self.logits(&[token], position);
        }
        (text, entropies / length as f32)
    }

    /// The most likely token after each token of `text`.
    fn choices(&mut self, text: &[u32]) -> Vec<u32> {
        text.iter()
            .enumerate()
            .map(|(position, &token)| most_likely(&self.logits(&[token], position)[..TOKENS]))
            .collect()
    }
}

fn most_likely(logits: &[f32]) -> u32 {
    (0..logits.len())
        .max_by(|&left, &right| logits[left].total_cmp(&logits[right]))
        .unwrap() as u32
}

fn entropy(logits: &[f32]) -> f32 {
    let most = logits.iter().copied().fold(f32::MIN, f32::max);
    let total: f32 = logits.iter().map(|logit| (logit - most).exp()).sum();
    let surprise = |logit: f32| total.ln() + most - logit;
    logits
        .iter()
        .map(|&logit| (-surprise(logit)).exp() * surprise(logit))
        .sum()
}

#[test]
fn texts_are_long_and_varied() {
    let base = TinyModel::default();
    let models = [
        base.clone(),
        TinyModel {
            family: Family::Qwen2,
            ..base.clone()
        },
        TinyModel {
            family: Family::Qwen3,
            ..base.clone()
        },
        TinyModel {
            family: Family::Gemma3,
            ..base.clone()
        },
        TinyModel {
            family: Family::Gemma3,
            tied: true,
            layers: 7,
            ..base.clone()
        },
        TinyModel {
            seed: 2,
            dtype: GgmlDType::Q8_0,
            ..base.clone()
        },
        TinyModel {
            dtype: GgmlDType::Q4K,
            ..base.clone()
        },
        TinyModel {
            tied: true,
            ..base.clone()
        },
        TinyModel {
            family: Family::Qwen2,
            padding: 13,
            ..base.clone()
        },
        TinyModel {
            layers: 1,
            heads: 2,
            ..base
        },
    ];
    for model in models {
        let (text, entropy) = Stock::load(&model).greedy(200);
        let distinct = text.iter().collect::<HashSet<_>>().len();
        println!("{model:?}: {distinct} distinct, {entropy:.2} nats\n{text:?}");
        assert!(distinct > 80, "{model:?}: {text:?}");
        assert!(
            text.iter().all(|&token| (token as usize) < TOKENS - 3),
            "{model:?} ends early: {text:?}"
        );
        assert!((1.0..5.0).contains(&entropy), "{model:?}: {entropy} nats");
    }
}

#[test]
fn disagreement_grades_how_often_drafts_agree() {
    let target = TinyModel::default();
    let (text, _) = Stock::load(&target).greedy(200);
    let text = [&PROMPT[..], &text].concat();
    let of_target = Stock::load(&target).choices(&text);
    let agreement = |disagreement| {
        let draft = TinyModel {
            disagreement,
            ..target.clone()
        };
        let of_draft = Stock::load(&draft).choices(&text);
        let same = of_draft.iter().zip(&of_target).filter(|(a, b)| a == b);
        same.count() as f64 / text.len() as f64
    };
    let agreements = [0.0, 0.1, 0.3, 0.5, 1.0].map(agreement);
    println!("{agreements:?}");
    assert_eq!(agreements[0], 1.0);
    assert!(agreements.is_sorted_by(|more, less| more > less));
    assert!(agreements[1] > 0.7 && agreements[4] < 0.1);
}

#[test]
fn padding_changes_no_other_logit() {
    let bare = TinyModel::default();
    let padded = TinyModel {
        padding: 9,
        ..bare.clone()
    };
    let bare = Stock::load(&bare).logits(&PROMPT, 0);
    let padded = Stock::load(&padded).logits(&PROMPT, 0);
    assert_eq!((bare.len(), padded.len()), (TOKENS, TOKENS + 9));
    assert_eq!(bare, padded[..TOKENS]);
    assert!(padded[TOKENS..].iter().any(|&logit| logit > 1.0));
}

#[test]
fn the_description_decides_every_byte() {
    let folder = TempDir::new().unwrap();
    let bytes = |model: &TinyModel| {
        let path = folder.path().join("tiny.gguf");
        model.write(&path).unwrap();
        fs::read(&path).unwrap()
    };
    let model = TinyModel::default();
    assert!(bytes(&model) == bytes(&model));
    assert!(bytes(&model) != bytes(&TinyModel { seed: 2, ..model }));
}

#[test]
fn sizes_that_do_not_go_together_are_refused() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("tiny.gguf");
    let base = TinyModel::default();
    for model in [
        TinyModel {
            heads: 3,
            ..base.clone()
        },
        TinyModel {
            heads: 0,
            ..base.clone()
        },
        TinyModel {
            layers: 0,
            ..base.clone()
        },
        TinyModel {
            heads: 12,
            dtype: GgmlDType::Q4K,
            ..base.clone()
        },
        TinyModel {
            tied: true,
            disagreement: 0.5,
            ..base
        },
    ] {
        let error = model.write(&path).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput, "{model:?}");
        assert!(!path.exists(), "nothing is written");
    }
}
