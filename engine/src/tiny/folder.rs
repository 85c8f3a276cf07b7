//! Writes tiny models as folders of safetensors.

use super::{NORM_EPSILON, ROPE_BASE, Sizes, TinyModel, TokenList, WINDOW, Weight};
use crate::checkpoint::{Part, Role, folder_name};
use crate::{Family, RopeScaling};
use candle_core::quantized::GgmlDType;
use candle_core::{DType, Device, Result, Tensor};
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::fs;
use std::io::{Error, ErrorKind};
use std::path::Path;

pub(super) fn write(
    model: &TinyModel,
    sizes: &Sizes,
    tokens: &TokenList,
    folder: &Path,
    shards: usize,
) -> std::io::Result<()> {
    let dtype = dtype(model.dtype)?;
    let document =
        |name: &str, value: &Value| fs::write(folder.join(name), serde_json::to_vec_pretty(value)?);
    document("config.json", &config(model, sizes, tokens))?;
    document("generation_config.json", &tokens.generation_config())?;
    document("tokenizer.json", &tokens.tokenizer_json())?;
    document("tokenizer_config.json", &tokens.tokenizer_config())?;
    let tensors = model
        .weights(sizes, tokens)
        .into_iter()
        .map(|weight| tensor(weight, model, sizes, dtype))
        .collect::<Result<Vec<_>>>()
        .map_err(Error::other)?;
    let save = |name: &str, part: HashMap<String, Tensor>| {
        candle_core::safetensors::save(&part, folder.join(name)).map_err(Error::other)
    };
    if shards <= 1 {
        return save("model.safetensors", tensors.into_iter().collect());
    }
    let mut parts = vec![HashMap::new(); shards];
    let mut map = Map::new();
    for (index, (name, tensor)) in tensors.into_iter().enumerate() {
        let shard = index % shards;
        map.insert(name.clone(), shard_name(shard, shards).into());
        parts[shard].insert(name, tensor);
    }
    for (shard, part) in parts.into_iter().enumerate() {
        save(&shard_name(shard, shards), part)?;
    }
    document(
        "model.safetensors.index.json",
        &json!({"metadata": {}, "weight_map": map}),
    )
}

fn shard_name(shard: usize, shards: usize) -> String {
    format!("model-{:05}-of-{shards:05}.safetensors", shard + 1)
}

fn dtype(dtype: GgmlDType) -> std::io::Result<DType> {
    match dtype {
        GgmlDType::F32 => Ok(DType::F32),
        GgmlDType::F16 => Ok(DType::F16),
        GgmlDType::BF16 => Ok(DType::BF16),
        other => Err(Error::new(
            ErrorKind::InvalidInput,
            format!("safetensors hold no {other:?}"),
        )),
    }
}

fn tensor(
    mut weight: Weight,
    model: &TinyModel,
    sizes: &Sizes,
    dtype: DType,
) -> Result<(String, Tensor)> {
    match weight.role {
        Role::Matrix(_, Part::Query | Part::Key) if model.family == Family::Llama => {
            weight.values = halves(&weight.values, sizes);
        }
        Role::Norm(..) | Role::OutputNorm if model.family == Family::Gemma3 => {
            weight.values.iter_mut().for_each(|value| *value -= 1.0);
        }
        _ => {}
    }
    let name = folder_name(weight.role, model.family);
    let values = Tensor::from_vec(weight.values, weight.shape, &Device::Cpu)?;
    Ok((name, values.to_dtype(dtype)?))
}

/// The rows of each head as published: GGUF files of Llama have them in another order, by which
/// numbers that turn together are neighbours.
fn halves(interleaved: &[f32], sizes: &Sizes) -> Vec<f32> {
    let (head_dim, columns) = (sizes.head_dim, sizes.hidden);
    let mut values = Vec::with_capacity(interleaved.len());
    for head in interleaved.chunks_exact(head_dim * columns) {
        for half in 0..2 {
            for pair in 0..head_dim / 2 {
                let row = 2 * pair + half;
                values.extend_from_slice(&head[row * columns..][..columns]);
            }
        }
    }
    values
}

fn config(model: &TinyModel, sizes: &Sizes, tokens: &TokenList) -> Value {
    let gemma = model.family == Family::Gemma3;
    let mut config = json!({
        "model_type": model_type(model),
        "hidden_size": sizes.hidden,
        "intermediate_size": sizes.intermediate,
        "num_hidden_layers": model.layers,
        "num_attention_heads": model.heads,
        "num_key_value_heads": sizes.kv_heads,
        "head_dim": sizes.head_dim,
        "vocab_size": tokens.len(),
        "max_position_embeddings": model.context_length,
        "rms_norm_eps": NORM_EPSILON,
        "rope_theta": ROPE_BASE,
        "rope_scaling": rope_scaling(&model.rope),
        "tie_word_embeddings": model.tied,
        "attention_bias": false,
        "sliding_window": model.window,
        "torch_dtype": format!("{:?}", model.dtype).to_lowercase(),
    });
    let more = match model.family {
        Family::Gemma3 => json!({
            "hidden_activation": "gelu_pytorch_tanh",
            "query_pre_attn_scalar": sizes.head_dim,
            "rope_local_base_freq": ROPE_BASE,
            "sliding_window": model.window.unwrap_or(WINDOW),
            "sliding_window_pattern": 6,
            "attn_logit_softcapping": null,
            "final_logit_softcapping": null,
        }),
        Family::Qwen2 | Family::Qwen3 => json!({
            "use_sliding_window": false,
            "sliding_window": model.context_length,
            "max_window_layers": model.layers,
        }),
        Family::Llama => json!({}),
    };
    if let (Value::Object(config), Value::Object(more)) = (&mut config, more) {
        config.extend(more);
        if !gemma {
            config.insert("hidden_act".to_owned(), "silu".into());
        }
    }
    config
}

fn model_type(model: &TinyModel) -> &'static str {
    match model.family {
        Family::Llama if model.window.is_some() => "mistral",
        Family::Llama => "llama",
        Family::Qwen2 => "qwen2",
        Family::Qwen3 => "qwen3",
        Family::Gemma3 => "gemma3_text",
    }
}

fn rope_scaling(scaling: &RopeScaling) -> Value {
    match *scaling {
        RopeScaling::None | RopeScaling::Divided(_) => Value::Null,
        RopeScaling::Linear { factor } => json!({"rope_type": "linear", "factor": factor}),
        RopeScaling::Llama3 {
            factor,
            low_frequency_factor,
            high_frequency_factor,
            original_context,
        } => json!({
            "rope_type": "llama3",
            "factor": factor,
            "low_freq_factor": low_frequency_factor,
            "high_freq_factor": high_frequency_factor,
            "original_max_position_embeddings": original_context as usize,
        }),
        RopeScaling::Yarn {
            factor,
            original_context,
            ..
        } => json!({
            "rope_type": "yarn",
            "factor": factor,
            "original_max_position_embeddings": original_context as usize,
        }),
    }
}
