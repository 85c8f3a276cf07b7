//! candle's own models, as oracles.

use candle_core::quantized::gguf_file;
use candle_core::{DType, Device, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models::{
    gemma3, llama, mistral, quantized_gemma3, quantized_llama, quantized_qwen2, quantized_qwen3,
    qwen2, qwen3,
};
use engine::Family;
use serde::de::DeserializeOwned;
use std::collections::HashMap;
use std::fs::{self, File};
use std::path::Path;

/// Tokens decoded after each prompt.
pub(crate) const DECODED: usize = 8;

/// A model of candle's: what computes the logits after the last of some tokens, which stand at a
/// position.
pub(crate) struct Stock(Box<Forward>);

type Forward = dyn FnMut(&Tensor, usize) -> candle_core::Result<Tensor>;

impl Stock {
    /// The model of a GGUF file or of a folder.
    pub(crate) fn open(path: &Path, family: Family) -> Self {
        if path.is_dir() {
            Self::folder(path, family)
        } else {
            Self::file(path, family)
        }
    }

    fn file(path: &Path, family: Family) -> Self {
        let mut file = File::open(path).unwrap();
        let content = gguf_file::Content::read(&mut file).unwrap();
        let device = Device::Cpu;
        match family {
            Family::Llama => {
                let model = quantized_llama::ModelWeights::from_gguf(content, &mut file, &device);
                let mut model = model.unwrap();
                Self(Box::new(move |tokens, at| model.forward(tokens, at)))
            }
            Family::Qwen2 => {
                let model = quantized_qwen2::ModelWeights::from_gguf(content, &mut file, &device);
                let mut model = model.unwrap();
                Self(Box::new(move |tokens, at| model.forward(tokens, at)))
            }
            Family::Qwen3 => {
                let model = quantized_qwen3::ModelWeights::from_gguf(content, &mut file, &device);
                let mut model = model.unwrap();
                Self(Box::new(move |tokens, at| {
                    if at == 0 {
                        model.clear_kv_cache();
                    }
                    model.forward(tokens, at)
                }))
            }
            Family::Gemma3 => {
                let model = quantized_gemma3::ModelWeights::from_gguf(content, &mut file, &device);
                let mut model = model.unwrap();
                Self(Box::new(move |tokens, at| model.forward(tokens, at)))
            }
        }
    }

    fn folder(path: &Path, family: Family) -> Self {
        let weights = || {
            let tensors = safetensors(path);
            VarBuilder::from_tensors(tensors, DType::F32, &Device::Cpu)
        };
        match family {
            Family::Llama if model_type(path) == "mistral" => {
                let mut model = mistral::Model::new(&config(path), weights()).unwrap();
                Self(Box::new(move |tokens, at| {
                    if at == 0 {
                        model.clear_kv_cache();
                    }
                    model.forward(tokens, at)
                }))
            }
            Family::Llama => {
                let config = config::<llama::LlamaConfig>(path).into_config(false);
                let model = llama::Llama::load(weights(), &config).unwrap();
                let cache = move || llama::Cache::new(true, DType::F32, &config, &Device::Cpu);
                let mut held = cache().unwrap();
                Self(Box::new(move |tokens, at| {
                    if at == 0 {
                        held = cache()?;
                    }
                    model.forward(tokens, at, &mut held)
                }))
            }
            Family::Qwen2 => {
                let mut model = qwen2::ModelForCausalLM::new(&config(path), weights()).unwrap();
                Self(Box::new(move |tokens, at| {
                    if at == 0 {
                        model.clear_kv_cache();
                    }
                    model.forward(tokens, at)
                }))
            }
            Family::Qwen3 => {
                let mut model = qwen3::ModelForCausalLM::new(&config(path), weights()).unwrap();
                Self(Box::new(move |tokens, at| {
                    if at == 0 {
                        model.clear_kv_cache();
                    }
                    model.forward(tokens, at)
                }))
            }
            Family::Gemma3 => {
                let mut model = gemma3::Model::new(false, &config(path), weights()).unwrap();
                Self(Box::new(move |tokens, at| {
                    if at == 0 {
                        model.clear_kv_cache();
                    }
                    model.forward(tokens, at)
                }))
            }
        }
    }

    fn forward(&mut self, tokens: &[u32], position: usize) -> Vec<f32> {
        let tokens = Tensor::new(tokens, &Device::Cpu).unwrap();
        let logits = (self.0)(&tokens.unsqueeze(0).unwrap(), position);
        logits.unwrap().flatten_all().unwrap().to_vec1().unwrap()
    }

    /// Decodes greedily after `prompt`.
    pub(crate) fn decode(&mut self, prompt: &[u32]) -> Decoded {
        let mut decoded = Decoded::default();
        let mut logits = self.forward(prompt, 0);
        for position in prompt.len().. {
            decoded.push(logits);
            if decoded.tokens.len() == DECODED {
                break;
            }
            logits = self.forward(&decoded.tokens[decoded.tokens.len() - 1..], position);
        }
        decoded
    }
}

fn config<T: DeserializeOwned>(folder: &Path) -> T {
    let document = fs::read(folder.join("config.json")).unwrap();
    serde_json::from_slice(&document).unwrap()
}

fn model_type(folder: &Path) -> String {
    let document: serde_json::Value = config(folder);
    document["model_type"].as_str().unwrap().to_owned()
}

/// The tensors of all shards.
fn safetensors(folder: &Path) -> HashMap<String, Tensor> {
    let files = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    files
        .filter(|path| path.extension().is_some_and(|end| end == "safetensors"))
        .flat_map(|path| candle_core::safetensors::load(path, &Device::Cpu).unwrap())
        .collect()
}

/// Tokens chosen one after the other, and the logits that each was chosen by.
#[derive(Default)]
pub(crate) struct Decoded {
    pub(crate) tokens: Vec<u32>,
    pub(crate) logits: Vec<Vec<f32>>,
}

impl Decoded {
    fn push(&mut self, logits: Vec<f32>) {
        self.tokens.push(best(&logits) as u32);
        self.logits.push(logits);
    }
}

/// The most likely token.
pub(crate) fn best(logits: &[f32]) -> usize {
    let best = logits.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1));
    best.unwrap().0
}
