//! Takes a decoder's weights from a checkpoint.

use super::backend::{Attention, Backend, Norm};
use super::layer::Layer;
use crate::checkpoint::{Checkpoint, Part, Role};
use crate::lean::Diet;
use crate::{DecoderConfig, LoadError};
use candle_core::quantized::QTensor;

/// A checkpoint, and what to make of it.
pub(super) struct Weights<'a, B> {
    pub(super) checkpoint: &'a Checkpoint,
    pub(super) config: &'a DecoderConfig,
    pub(super) diet: &'a Diet,
    pub(super) backend: &'a B,
}

impl<B: Backend> Weights<'_, B> {
    pub(super) fn embedding_and_output(&self) -> Result<(B::Embedding, B::Matrix), LoadError> {
        let shape = [self.config.vocabulary_rows, self.config.hidden];
        let embedding = self.checkpoint.tensor(Role::Embedding, &shape)?;
        let output = match self.config.tied {
            true => None,
            false => Some(self.checkpoint.tensor(Role::Output, &shape)?),
        };
        let taken = self
            .diet
            .output(&embedding, output)
            .and_then(|output| self.backend.embedding(embedding, output));
        taken.map_err(|error| self.failed(Role::Embedding, &error))
    }

    pub(super) fn output_norm(&self) -> Result<Norm<B::Vector>, LoadError> {
        self.norm(Role::OutputNorm, self.config.hidden)
    }

    pub(super) fn layer(&self, index: usize) -> Result<Layer<B>, LoadError> {
        let DecoderConfig {
            hidden,
            intermediate,
            post_norms,
            ..
        } = *self.config;
        let [query, key] = [self.config.query_width(), self.config.key_width()];
        let norm = |part| self.norm(Role::Norm(index, part), hidden);
        let post_norm = |part| post_norms.then(|| norm(part)).transpose();
        let qkv = [(Part::Query, query), (Part::Key, key), (Part::Value, key)];
        let gate_up = [(Part::Gate, intermediate), (Part::Up, intermediate)];
        Ok(Layer {
            attention_norm: norm(Part::Attention)?,
            qkv: self.stack(index, &qkv)?,
            attention: self.attention(index)?,
            attention_output: self.matrix(index, Part::AttentionOutput, [hidden, query])?,
            attention_post_norm: post_norm(Part::PostAttention)?,
            feed_forward_norm: norm(Part::FeedForward)?,
            gate_up: self.stack(index, &gate_up)?,
            activation: self.config.activation,
            intermediate,
            down: self.matrix(index, Part::Down, [hidden, intermediate])?,
            feed_forward_post_norm: post_norm(Part::PostFeedForward)?,
        })
    }

    fn attention(&self, index: usize) -> Result<Attention<B::Vector>, LoadError> {
        let config = self.config;
        let bias = |part, len| self.vector(Role::Bias(index, part), len);
        let head_norm = |part| self.norm(Role::Norm(index, part), config.head_dim);
        Ok(Attention {
            layer: index,
            heads: config.heads,
            kv_heads: config.kv_heads,
            head_dim: config.head_dim,
            bias: match config.qkv_bias {
                true => Some([
                    bias(Part::Query, config.query_width())?,
                    bias(Part::Key, config.key_width())?,
                    bias(Part::Value, config.key_width())?,
                ]),
                false => None,
            },
            head_norms: match config.qk_norm {
                true => Some([head_norm(Part::Query)?, head_norm(Part::Key)?]),
                false => None,
            },
            rope: config.layers[index].rope,
            window: config.layers[index].window,
            scale: config.attention_scale,
        })
    }

    fn norm(&self, role: Role, len: usize) -> Result<Norm<B::Vector>, LoadError> {
        Ok(Norm {
            weight: self.vector(role, len)?,
            epsilon: self.config.norm_epsilon as f32,
        })
    }

    fn vector(&self, role: Role, len: usize) -> Result<B::Vector, LoadError> {
        let values = self.checkpoint.vector(role, len)?;
        let taken = self.backend.vector(values);
        taken.map_err(|error| self.failed(role, &error))
    }

    fn matrix(&self, index: usize, part: Part, shape: [usize; 2]) -> Result<B::Matrix, LoadError> {
        let role = Role::Matrix(index, part);
        let weight = self.checkpoint.tensor(role, &shape)?;
        let taken = self
            .diet
            .matrix(weight)
            .and_then(|weight| self.backend.matrix(weight));
        taken.map_err(|error| self.failed(role, &error))
    }

    /// Matrices of a layer, with their rows, that are multiplied with the hidden numbers.
    fn stack(&self, index: usize, parts: &[(Part, usize)]) -> Result<B::Stack, LoadError> {
        let tensor = |&(part, rows): &(Part, usize)| {
            let role = Role::Matrix(index, part);
            let weight = self.checkpoint.tensor(role, &[rows, self.config.hidden])?;
            let taken = self.diet.matrix(weight);
            taken.map_err(|error| self.failed(role, &error))
        };
        let tensors = parts
            .iter()
            .map(tensor)
            .collect::<Result<Vec<QTensor>, _>>()?;
        let taken = self.backend.stack(tensors);
        taken.map_err(|error| self.failed(Role::Matrix(index, parts[0].0), &error))
    }

    fn failed(&self, role: Role, error: &candle_core::Error) -> LoadError {
        let name = self.checkpoint.name(role);
        self.checkpoint.invalid(format!("tensor {name}: {error}"))
    }
}
