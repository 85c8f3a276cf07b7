//! The decoder: one implementation for all families, parameterised by its configuration, and for
//! all devices, through a [`Backend`].
//!
//! A batch is ragged: the rows of all its inputs lie one after the other in one matrix, and only
//! attention knows which rows belong together. Every step but the matrix products works on one
//! row at a time; the products see to it themselves. So a sequence's logits do not depend on what
//! else is in its batch.

mod backend;
mod layer;
mod weights;

pub(crate) use backend::{Attention, Backend, Norm};

use crate::{
    BLOCK_TOKENS, BlockId, CacheType, DecoderConfig, EngineError, Input, KvLayout, LoadError,
    Logits, Model, ModelShape,
    checkpoint::Checkpoint,
    lean::{Diet, OutputIds},
};
use layer::Layer;
use rayon::prelude::*;
use weights::Weights;

/// A decoder-only transformer with its weights.
pub(crate) struct Decoder<B: Backend> {
    config: DecoderConfig,
    shape: ModelShape,
    backend: B,
    embedding: B::Embedding,
    layers: Vec<Layer<B>>,
    norm: Norm<B::Vector>,
    output: B::Matrix,
    /// What the output matrix has rows of, where that is not every id.
    output_ids: Option<OutputIds>,
    /// What [`Model::allocate`] was told.
    blocks: usize,
}

impl<B: Backend> Decoder<B> {
    /// Takes the weights from `checkpoint`, on a `diet`; it is not needed any more then.
    ///
    /// # Errors
    /// [`LoadError`] naming the tensor that is absent, of another shape or of an unknown type.
    pub(crate) fn load(
        backend: B,
        checkpoint: &Checkpoint,
        config: DecoderConfig,
        diet: Diet,
    ) -> Result<Self, LoadError> {
        let weights = Weights {
            checkpoint,
            diet: &diet,
            config: &config,
            backend: &backend,
        };
        let (embedding, output) = weights.embedding_and_output()?;
        let layers = (0..config.layers.len())
            .into_par_iter()
            .map(|index| weights.layer(index))
            .collect::<Result<_, _>>()?;
        let norm = weights.output_norm()?;
        Ok(Self {
            shape: shape(&config),
            backend,
            embedding,
            layers,
            norm,
            output,
            output_ids: diet.output,
            blocks: 0,
            config,
        })
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

    fn run(&mut self, batch: &[Input<'_>]) -> candle_core::Result<Logits> {
        let backend = &mut self.backend;
        let step = backend.begin(&self.config, batch)?;
        let mut hidden = backend.embed(&self.embedding, batch, self.config.embedding_scale)?;
        for layer in &self.layers {
            layer.forward(backend, &step, &mut hidden)?;
        }
        let width = self.shape.vocabulary_rows;
        let wanted = wanted_rows(batch);
        if wanted.is_empty() {
            return Ok(Logits::new(Vec::new(), width));
        }
        let wanted = backend.select(hidden, &wanted)?;
        let normed = backend.norm(&self.norm, &wanted)?;
        let logits = backend.product(&self.output, &normed)?;
        let logits = backend.read(logits)?;
        Ok(Logits::new(
            match &self.output_ids {
                Some(ids) => ids.spread(&logits),
                None => logits,
            },
            width,
        ))
    }
}

/// The rows whose logits are wanted.
fn wanted_rows(batch: &[Input<'_>]) -> Vec<usize> {
    let mut rows = Vec::new();
    let mut end = 0;
    for input in batch {
        end += input.tokens.len();
        rows.extend(end - input.wanted..end);
    }
    rows
}

impl<B: Backend> Model for Decoder<B> {
    fn shape(&self) -> &ModelShape {
        &self.shape
    }

    fn allocate(&mut self, blocks: usize, kind: CacheType) -> Result<(), EngineError> {
        self.shape.kv.kind = kind;
        self.blocks = blocks;
        self.backend.allocate(self.shape.kv, blocks).map_err(failed)
    }

    fn copy_block(&mut self, from: BlockId, to: BlockId) -> Result<(), EngineError> {
        self.backend.copy_block(from, to).map_err(failed)
    }

    fn forward(&mut self, batch: &[Input<'_>]) -> Result<Logits, EngineError> {
        for input in batch {
            self.check(input)?;
        }
        if batch.iter().all(|input| input.tokens.is_empty()) {
            return Ok(Logits::new(Vec::new(), self.shape.vocabulary_rows));
        }
        self.run(batch).map_err(failed)
    }
}

fn failed(error: candle_core::Error) -> EngineError {
    EngineError::Model(error.to_string())
}

fn shape(config: &DecoderConfig) -> ModelShape {
    ModelShape {
        vocabulary_rows: config.vocabulary_rows,
        context_length: config.context_length,
        kv: KvLayout {
            layers: config.layers.len(),
            kv_heads: config.kv_heads,
            head_dim: config.head_dim,
            kind: CacheType::F32,
        },
    }
}
