//! The decoder: one implementation for the Llama and Qwen2 families, parameterised by its
//! configuration.
//!
//! A batch is ragged: the rows of all its inputs lie one after the other in one matrix, and only
//! attention knows which rows belong together. Every step but the matrix products works on one
//! row at a time; the products see to it themselves. So a sequence's logits do not depend on what
//! else is in its batch.

mod layer;
mod rotary;
mod weights;

use crate::{
    BLOCK_TOKENS, BlockId, CacheType, DecoderConfig, EngineError, Input, KvLayout, LoadError,
    LoadOptions, Logits, Model, ModelShape,
    attention::Row,
    cache::Storage,
    gguf::GgufFile,
    kernels::rms_norm,
    linear::{Linear, Rows},
};
use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{Device, Tensor};
use layer::{Layer, Step};
use rayon::prelude::*;
use rotary::Rotary;
use std::sync::Arc;
use weights::Weights;

/// A decoder-only transformer with its weights.
pub struct Decoder {
    config: DecoderConfig,
    shape: ModelShape,
    embedding: Arc<QTensor>,
    rotary: Rotary,
    layers: Vec<Layer>,
    norm: Norm,
    output: Linear,
    /// What [`Model::allocate`] was told, and the memory itself.
    blocks: usize,
    cache: Storage,
}

/// An RMS norm.
struct Norm {
    weight: Vec<f32>,
    epsilon: f32,
}

impl Decoder {
    /// Takes the weights from `file`, which is not needed any more then.
    ///
    /// # Errors
    /// [`LoadError`] naming the tensor that is absent, of another shape or of an unknown type.
    pub fn from_gguf(
        file: &GgufFile,
        config: DecoderConfig,
        options: LoadOptions,
    ) -> Result<Self, LoadError> {
        let weights = Weights {
            file,
            config: &config,
            batch_invariant: options.batch_invariant,
        };
        let (embedding, output) = weights.embedding_and_output()?;
        let layers = (0..config.layers)
            .into_par_iter()
            .map(|index| weights.layer(index))
            .collect::<Result<_, _>>()?;
        let shape = shape(&config);
        Ok(Self {
            blocks: 0,
            cache: Storage::new(shape.kv),
            shape,
            rotary: Rotary::new(config.family, config.head_dim, config.rope_base),
            norm: weights.norm("output_norm.weight")?,
            embedding,
            layers,
            output,
            config,
        })
    }

    /// The encoding of most of the weights.
    pub(crate) fn weight_type(&self) -> Option<GgmlDType> {
        self.layers.first().map(|layer| layer.gate_up.dtype())
    }

    /// Checks the batch, and says where each row belongs.
    fn admit(&self, batch: &[Input<'_>]) -> Result<Vec<Row>, EngineError> {
        let mut rows = Vec::new();
        for (input, part) in batch.iter().enumerate() {
            self.check(part)?;
            let positions = part.start..part.start + part.tokens.len();
            rows.extend(positions.map(|position| Row { input, position }));
        }
        Ok(rows)
    }

    fn check(&self, input: &Input<'_>) -> Result<(), EngineError> {
        let Input { tokens, wanted, .. } = *input;
        let len = input.start.saturating_add(tokens.len());
        if len > self.shape.context_length {
            return Err(EngineError::ContextExceeded {
                tokens: len,
                context_length: self.shape.context_length,
            });
        }
        if wanted > tokens.len() {
            let detail = format!("{wanted} rows wanted of {}", tokens.len());
            return Err(EngineError::Invalid(detail));
        }
        let table = input.blocks;
        if table.len() < len.div_ceil(BLOCK_TOKENS) {
            let detail = format!("{} blocks have no room for {len} tokens", table.len());
            return Err(EngineError::Invalid(detail));
        }
        if let Some(block) = table.iter().find(|block| block.index() >= self.blocks) {
            let detail = format!("block {} of {}", block.index(), self.blocks);
            return Err(EngineError::Invalid(detail));
        }
        let known = |&token: &u32| (token as usize) < self.shape.vocabulary_rows;
        match tokens.iter().find(|token| !known(token)) {
            None => Ok(()),
            Some(token) => Err(EngineError::Invalid(format!(
                "token {token} is not among the {} of the model",
                self.shape.vocabulary_rows
            ))),
        }
    }

    fn embed(&self, batch: &[Input<'_>]) -> candle_core::Result<Rows> {
        let tokens: Vec<u32> = batch
            .iter()
            .flat_map(|input| input.tokens)
            .copied()
            .collect();
        let count = tokens.len();
        let tokens = Tensor::from_vec(tokens, count, &Device::Cpu)?;
        let hidden = self
            .embedding
            .embedding(&tokens)?
            .flatten_all()?
            .to_vec1()?;
        Ok(Rows::new(hidden, self.config.hidden))
    }

    /// The logits of each input's wanted rows.
    fn logits(&self, hidden: &Rows, batch: &[Input<'_>]) -> candle_core::Result<Logits> {
        let width = self.shape.vocabulary_rows;
        let mut wanted = Vec::new();
        let mut end = 0;
        for input in batch {
            end += input.tokens.len();
            wanted.extend_from_slice(hidden.range(end - input.wanted..end));
        }
        if wanted.is_empty() {
            return Ok(Logits::new(wanted, width));
        }
        let normed = self.norm.forward(&Rows::new(wanted, self.config.hidden));
        Ok(Logits::new(
            self.output.forward(&normed)?.into_values(),
            width,
        ))
    }

    fn run(&mut self, rows: &[Row], batch: &[Input<'_>]) -> candle_core::Result<Logits> {
        let mut hidden = self.embed(batch)?;
        let rotations: Vec<_> = rows
            .iter()
            .map(|row| self.rotary.at(row.position))
            .collect();
        let tables: Vec<&[BlockId]> = batch.iter().map(|input| input.blocks).collect();
        for (index, layer) in self.layers.iter().enumerate() {
            let step = Step {
                config: &self.config,
                layer: index,
                rows,
                rotations: &rotations,
                tables: &tables,
            };
            layer.forward(&step, &mut self.cache, &mut hidden)?;
        }
        self.logits(&hidden, batch)
    }
}

impl Norm {
    fn forward(&self, input: &Rows) -> Rows {
        let width = self.weight.len();
        let mut values = vec![0.0; input.values().len()];
        let rows = input.values().chunks_exact(width);
        for (row, out) in rows.zip(values.chunks_exact_mut(width)) {
            rms_norm(row, &self.weight, self.epsilon, out);
        }
        Rows::new(values, width)
    }
}

impl Model for Decoder {
    fn shape(&self) -> &ModelShape {
        &self.shape
    }

    fn allocate(&mut self, blocks: usize, kind: CacheType) -> Result<(), EngineError> {
        self.shape.kv.kind = kind;
        self.blocks = blocks;
        self.cache = Storage::new(self.shape.kv);
        Ok(())
    }

    fn copy_block(&mut self, from: BlockId, to: BlockId) -> Result<(), EngineError> {
        self.cache.copy(from, to);
        Ok(())
    }

    fn forward(&mut self, batch: &[Input<'_>]) -> Result<Logits, EngineError> {
        let rows = self.admit(batch)?;
        if rows.is_empty() {
            return Ok(Logits::new(Vec::new(), self.shape.vocabulary_rows));
        }
        self.run(&rows, batch)
            .map_err(|error| EngineError::Model(error.to_string()))
    }
}

fn shape(config: &DecoderConfig) -> ModelShape {
    ModelShape {
        vocabulary_rows: config.vocabulary_rows,
        context_length: config.context_length,
        kv: KvLayout {
            layers: config.layers,
            kv_heads: config.kv_heads,
            head_dim: config.head_dim,
            kind: CacheType::F32,
        },
    }
}
