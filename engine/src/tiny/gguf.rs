//! Writes tiny models as GGUF files.

use super::{NORM_EPSILON, ROPE_BASE, Sizes, TinyModel, TokenList, WINDOW, Weight};
use crate::checkpoint::{Role, gguf_name};
use crate::{Family, Rope, RopeScaling};
use candle_core::quantized::gguf_file::{self, Value};
use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{Device, Result, Tensor};
use std::fs::File;
use std::io::{BufWriter, Error, Write};
use std::path::Path;

pub(super) fn write(
    model: &TinyModel,
    sizes: &Sizes,
    tokens: &TokenList,
    path: &Path,
) -> std::io::Result<()> {
    let mut metadata = metadata(model, sizes);
    metadata.extend(tokens.metadata(model.family));
    let mut weights = model.weights(sizes, tokens);
    weights.extend(divisors(model, sizes));
    let tensors = weights
        .into_iter()
        .map(|weight| tensor(weight, model.dtype));
    let tensors: Vec<_> = tensors.collect::<Result<_>>().map_err(Error::other)?;
    let mut file = BufWriter::new(File::create(path)?);
    gguf_file::write(
        &mut file,
        &borrowed::<Value>(&metadata),
        &borrowed::<QTensor>(&tensors),
    )
    .map_err(Error::other)?;
    file.flush()
}

fn tensor(weight: Weight, matrices: GgmlDType) -> Result<(String, QTensor)> {
    let dtype = match weight.shape.len() {
        1 => GgmlDType::F32,
        _ => matrices,
    };
    let values = Tensor::from_vec(weight.values, weight.shape, &Device::Cpu)?;
    Ok((gguf_name(weight.role), QTensor::quantize(&values, dtype)?))
}

/// Such files spell Llama 3.1's rotation out in a tensor.
fn divisors(model: &TinyModel, sizes: &Sizes) -> Option<Weight> {
    let RopeScaling::Llama3 { .. } = model.rope else {
        return None;
    };
    let plain = Rope::new(sizes.head_dim, ROPE_BASE, &RopeScaling::None);
    let stretched = Rope::new(sizes.head_dim, ROPE_BASE, &model.rope);
    let pairs = plain.frequencies.iter().zip(&stretched.frequencies);
    Some(Weight {
        role: Role::RopeDivisors,
        shape: vec![sizes.head_dim / 2],
        values: pairs.map(|(plain, stretched)| plain / stretched).collect(),
    })
}

fn metadata(model: &TinyModel, sizes: &Sizes) -> Vec<(String, Value)> {
    let architecture = model.family.architecture();
    let count = |key: &str, value: usize| {
        (
            format!("{architecture}.{key}"),
            Value::U32(u32::try_from(value).expect("a tiny model's sizes are small")),
        )
    };
    let number = |key: &str, value: f32| (format!("{architecture}.{key}"), Value::F32(value));
    let mut metadata = vec![
        text("general.architecture", architecture),
        text(
            "general.name",
            &format!("tiny {architecture} of seed {}", model.seed),
        ),
        count("context_length", model.context_length),
        count("embedding_length", sizes.hidden),
        count("block_count", model.layers),
        count("feed_forward_length", sizes.intermediate),
        count("attention.head_count", model.heads),
        count("attention.head_count_kv", sizes.kv_heads),
        count("rope.dimension_count", sizes.head_dim),
        number("rope.freq_base", ROPE_BASE),
        number("attention.layer_norm_rms_epsilon", NORM_EPSILON),
    ];
    if matches!(model.family, Family::Qwen3 | Family::Gemma3) {
        metadata.push(count("attention.key_length", sizes.head_dim));
        metadata.push(count("attention.value_length", sizes.head_dim));
    }
    let window = match model.family {
        Family::Gemma3 => Some(model.window.unwrap_or(WINDOW)),
        _ => model.window,
    };
    metadata.extend(window.map(|window| count("attention.sliding_window", window)));
    match model.rope {
        RopeScaling::Linear { factor } => {
            metadata.push(text(&format!("{architecture}.rope.scaling.type"), "linear"));
            metadata.push(number("rope.scaling.factor", factor as f32));
        }
        RopeScaling::Yarn {
            factor,
            original_context,
            ..
        } => {
            let key = "rope.scaling.original_context_length";
            metadata.push(text(&format!("{architecture}.rope.scaling.type"), "yarn"));
            metadata.push(number("rope.scaling.factor", factor as f32));
            metadata.push(count(key, original_context as usize));
        }
        RopeScaling::None | RopeScaling::Llama3 { .. } | RopeScaling::Divided(_) => {}
    }
    metadata
}

pub(super) fn text(key: &str, value: &str) -> (String, Value) {
    (key.to_owned(), Value::String(value.to_owned()))
}

fn borrowed<T>(named: &[(String, T)]) -> Vec<(&str, &T)> {
    named
        .iter()
        .map(|(name, value)| (name.as_str(), value))
        .collect()
}
