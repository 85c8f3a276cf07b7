//! Takes a decoder's weights from a GGUF file, by the names that such files use.

use super::{Norm, layer::Layer};
use crate::{
    DecoderConfig, Family, LoadError,
    gguf::GgufFile,
    linear::{Linear, Stacked},
};
use candle_core::{Device, quantized::QTensor};
use std::sync::Arc;

const EMBEDDING: &str = "token_embd.weight";
const OUTPUT: &str = "output.weight";

/// A file, and what to make of it.
pub(super) struct Weights<'a> {
    pub(super) file: &'a GgufFile,
    pub(super) config: &'a DecoderConfig,
    pub(super) batch_invariant: bool,
}

impl Weights<'_> {
    /// The embedding and the output matrix, which is the embedding where the file has no other.
    pub(super) fn embedding_and_output(&self) -> Result<(Arc<QTensor>, Linear), LoadError> {
        let shape = [self.config.vocabulary_rows, self.config.hidden];
        let embedding = Arc::new(self.tensor(EMBEDDING, &shape)?);
        let output = if self.file.has_tensor(OUTPUT) {
            Arc::new(self.tensor(OUTPUT, &shape)?)
        } else {
            Arc::clone(&embedding)
        };
        let output = Linear::new(output, self.batch_invariant)
            .map_err(|error| self.failed(OUTPUT, &error))?;
        Ok((embedding, output))
    }

    pub(super) fn layer(&self, index: usize) -> Result<Layer, LoadError> {
        let config = self.config;
        let (hidden, intermediate) = (config.hidden, config.intermediate);
        let query = config.heads * config.head_dim;
        let key = config.kv_heads * config.head_dim;
        let name = |part: &str| format!("blk.{index}.{part}");
        let qkv = [("attn_q", query), ("attn_k", key), ("attn_v", key)];
        let gate_up = [("ffn_gate", intermediate), ("ffn_up", intermediate)];
        Ok(Layer {
            attention_norm: self.norm(&name("attn_norm.weight"))?,
            qkv: self.stacked(index, &qkv)?,
            qkv_bias: match config.family {
                Family::Llama => None,
                Family::Qwen2 => Some([
                    self.vector(&name("attn_q.bias"), query)?,
                    self.vector(&name("attn_k.bias"), key)?,
                    self.vector(&name("attn_v.bias"), key)?,
                ]),
            },
            attention_output: self.linear(&name("attn_output.weight"), [hidden, query])?,
            feed_forward_norm: self.norm(&name("ffn_norm.weight"))?,
            gate_up: self.stacked(index, &gate_up)?,
            down: self.linear(&name("ffn_down.weight"), [hidden, intermediate])?,
        })
    }

    pub(super) fn norm(&self, name: &str) -> Result<Norm, LoadError> {
        Ok(Norm {
            weight: self.vector(name, self.config.hidden)?,
            epsilon: self.config.norm_epsilon as f32,
        })
    }

    /// Matrices of a layer, by name and rows, that are multiplied with the hidden numbers.
    fn stacked(&self, index: usize, parts: &[(&str, usize)]) -> Result<Stacked, LoadError> {
        let tensors = parts
            .iter()
            .map(|(part, rows)| {
                let name = format!("blk.{index}.{part}.weight");
                self.tensor(&name, &[*rows, self.config.hidden])
            })
            .collect::<Result<_, _>>()?;
        Stacked::new(tensors, self.batch_invariant)
            .map_err(|error| self.failed(&format!("blk.{index}.{}.weight", parts[0].0), &error))
    }

    fn linear(&self, name: &str, shape: [usize; 2]) -> Result<Linear, LoadError> {
        Linear::new(Arc::new(self.tensor(name, &shape)?), self.batch_invariant)
            .map_err(|error| self.failed(name, &error))
    }

    fn vector(&self, name: &str, len: usize) -> Result<Vec<f32>, LoadError> {
        self.tensor(name, &[len])?
            .dequantize(&Device::Cpu)
            .and_then(|tensor| tensor.to_vec1())
            .map_err(|error| self.failed(name, &error))
    }

    fn tensor(&self, name: &str, shape: &[usize]) -> Result<QTensor, LoadError> {
        self.file.tensor(name, shape, &Device::Cpu)
    }

    fn failed(&self, name: &str, error: &candle_core::Error) -> LoadError {
        self.file.invalid(format!("tensor {name}: {error}"))
    }
}
