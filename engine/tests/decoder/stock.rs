//! candle's own models, as oracles.

use candle_core::quantized::gguf_file;
use candle_core::{DType, Device, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models::{
    gemma3, llama, mistral, quantized_llama, quantized_qwen2, quantized_qwen3, qwen2, qwen3,
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
            Family::Gemma3 => Self::gemma(&content, &mut file),
        }
    }

    /// candle's quantised Gemma 3 gates with SiLU, which is wrong. The other one takes the weights
    /// as they are published.
    fn gemma(content: &gguf_file::Content, file: &mut File) -> Self {
        let tensors = content.tensor_infos.keys().map(|name| {
            let tensor = content.tensor(file, name, &Device::Cpu).unwrap();
            let mut values = tensor.dequantize(&Device::Cpu).unwrap();
            if name.ends_with("_norm.weight") {
                values = (values - 1.0).unwrap();
            }
            (published_gemma(name), values)
        });
        let tensors = tensors.collect();
        let weights = VarBuilder::from_tensors(tensors, DType::F32, &Device::Cpu);
        let mut model = gemma3::Model::new(false, &gemma_config(content), weights).unwrap();
        Self(Box::new(move |tokens, at| {
            if at == 0 {
                model.clear_kv_cache();
            }
            model.forward(tokens, at)
        }))
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

/// The published name of a tensor of a GGUF file.
fn published_gemma(name: &str) -> String {
    let [_, layer, part, _] = name.split('.').collect::<Vec<_>>()[..] else {
        return match name {
            "token_embd.weight" => "model.embed_tokens.weight".to_owned(),
            "output_norm.weight" => "model.norm.weight".to_owned(),
            other => panic!("what is {other}"),
        };
    };
    let part = match part {
        "attn_norm" => "input_layernorm",
        "attn_q" => "self_attn.q_proj",
        "attn_k" => "self_attn.k_proj",
        "attn_v" => "self_attn.v_proj",
        "attn_q_norm" => "self_attn.q_norm",
        "attn_k_norm" => "self_attn.k_norm",
        "attn_output" => "self_attn.o_proj",
        "post_attention_norm" => "post_attention_layernorm",
        "ffn_norm" => "pre_feedforward_layernorm",
        "ffn_gate" => "mlp.gate_proj",
        "ffn_up" => "mlp.up_proj",
        "ffn_down" => "mlp.down_proj",
        "post_ffw_norm" => "post_feedforward_layernorm",
        other => panic!("what is {other}"),
    };
    format!("model.layers.{layer}.{part}.weight")
}

fn gemma_config(content: &gguf_file::Content) -> gemma3::Config {
    let value = |key: &str| &content.metadata[&format!("gemma3.{key}")];
    let count = |key: &str| value(key).to_u32().unwrap();
    let number = |key: &str| value(key).to_f32().unwrap();
    let config = serde_json::json!({
        "attention_bias": false,
        "head_dim": count("attention.key_length"),
        "hidden_activation": "gelu_pytorch_tanh",
        "hidden_size": count("embedding_length"),
        "intermediate_size": count("feed_forward_length"),
        "num_attention_heads": count("attention.head_count"),
        "num_hidden_layers": count("block_count"),
        "num_key_value_heads": count("attention.head_count_kv"),
        "rms_norm_eps": number("attention.layer_norm_rms_epsilon"),
        "rope_theta": number("rope.freq_base"),
        "rope_local_base_freq": 10_000.0,
        "vocab_size": content.tensor_infos["token_embd.weight"].shape.dims()[0],
        "query_pre_attn_scalar": count("attention.key_length"),
        "sliding_window": count("attention.sliding_window"),
        "sliding_window_pattern": 6,
        "max_position_embeddings": 4096,
    });
    serde_json::from_value(config).unwrap()
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
