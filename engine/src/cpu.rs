//! Computes decoders on the processor, over keys and values in the host's memory.
//!
//! The arithmetic lies in `linear`, `kernels` and `attention`; here it is put together.

mod gelu;
mod rotary;

use crate::{
    Activation, BLOCK_TOKENS, BlockId, DecoderConfig, Input, KvLayout,
    attention::{self, Row},
    cache::Storage,
    decoder::{Attention, Backend, Norm},
    kernels::{add, rms_norm, silu_mul},
    linear::{Linear, Rows, Stacked, StackedRows},
    parallel::for_each_piece,
};
use candle_core::Result;
use candle_core::quantized::QTensor;
use gelu::gelu_mul;
use rotary::Rotation;
use std::sync::Arc;

/// The processor.
pub(crate) struct Cpu {
    batch_invariant: bool,
    /// Once it is allocated.
    cache: Option<Storage>,
}

/// A step's rows.
pub(crate) struct Step<'b> {
    rows: Vec<Row>,
    /// The block tables, one per input.
    tables: Vec<&'b [BlockId]>,
    /// For each of the model's rotations, one per row.
    rotations: Vec<Vec<Rotation>>,
}

impl Cpu {
    /// With `batch_invariant`, a row's numbers are the same to the bit whatever the other rows.
    pub(crate) fn new(batch_invariant: bool) -> Self {
        Self {
            batch_invariant,
            cache: None,
        }
    }
}

impl Backend for Cpu {
    type Vector = Vec<f32>;
    type Matrix = Linear;
    type Stack = Stacked;
    type Embedding = Linear;
    type Rows = Rows;
    type Parts<'w> = StackedRows<'w>;
    type Step<'b> = Step<'b>;

    fn vector(&self, values: Vec<f32>) -> Result<Vec<f32>> {
        Ok(values)
    }

    fn matrix(&self, weight: QTensor) -> Result<Linear> {
        Linear::new(Arc::new(weight), self.batch_invariant)
    }

    fn stack(&self, weights: Vec<QTensor>) -> Result<Stacked> {
        Stacked::new(weights, self.batch_invariant)
    }

    fn embedding(&self, embedding: QTensor, output: Option<QTensor>) -> Result<(Linear, Linear)> {
        let embedding = self.matrix(embedding)?;
        let output = output.map(|output| self.matrix(output)).transpose()?;
        let output = output.unwrap_or_else(|| embedding.clone());
        Ok((embedding, output))
    }

    fn allocate(&mut self, layout: KvLayout, _blocks: usize) -> Result<()> {
        self.cache = Some(Storage::new(layout));
        Ok(())
    }

    fn copy_block(&mut self, from: BlockId, to: BlockId) -> Result<()> {
        self.cache_mut()?.copy(from, to);
        Ok(())
    }

    fn begin<'b>(&self, config: &DecoderConfig, batch: &'b [Input<'b>]) -> Result<Step<'b>> {
        let rows: Vec<Row> = batch
            .iter()
            .enumerate()
            .flat_map(|(input, part)| {
                let positions = part.start..part.start + part.tokens.len();
                positions.map(move |position| Row { input, position })
            })
            .collect();
        let rotation = |rope| {
            let at = |row: &Row| Rotation::new(rope, config.rope_pairs, row.position);
            rows.iter().map(at).collect()
        };
        Ok(Step {
            rotations: config.ropes.iter().map(rotation).collect(),
            tables: batch.iter().map(|input| input.blocks).collect(),
            rows,
        })
    }

    fn embed(&self, embedding: &Linear, batch: &[Input<'_>], scale: f32) -> Result<Rows> {
        let tokens: Vec<u32> = batch
            .iter()
            .flat_map(|input| input.tokens)
            .copied()
            .collect();
        let width = embedding.inputs();
        let mut hidden = vec![0.0; tokens.len() * width];
        for (&token, row) in tokens.iter().zip(hidden.chunks_exact_mut(width)) {
            embedding.row(token as usize, row)?;
        }
        if scale != 1.0 {
            hidden.iter_mut().for_each(|value| *value *= scale);
        }
        Ok(Rows::new(hidden, width))
    }

    fn norm(&self, norm: &Norm<Vec<f32>>, rows: &Rows) -> Result<Rows> {
        let width = norm.weight.len();
        let mut values = vec![0.0; rows.values().len()];
        let pairs = rows.values().chunks_exact(width);
        for (row, out) in pairs.zip(values.chunks_exact_mut(width)) {
            rms_norm(row, &norm.weight, norm.epsilon, out);
        }
        Ok(Rows::new(values, width))
    }

    fn product(&self, matrix: &Linear, rows: &Rows) -> Result<Rows> {
        matrix.forward(rows)
    }

    fn products<'w>(&self, stack: &'w Stacked, rows: &Rows) -> Result<StackedRows<'w>> {
        stack.forward(rows)
    }

    fn place(
        &mut self,
        step: &Step<'_>,
        attention: &Attention<Vec<f32>>,
        qkv: &mut StackedRows<'_>,
    ) -> Result<()> {
        let cache = self.cache_mut()?;
        let widths = attention.widths();
        let rotations = &step.rotations[attention.rope];
        for (index, (row, rotation)) in step.rows.iter().zip(rotations).enumerate() {
            for (part, bias) in attention.bias.iter().flatten().enumerate() {
                add(qkv.row_mut(part, index), bias);
            }
            for (part, norm) in attention.head_norms.iter().flatten().enumerate() {
                norm_heads(norm, &mut qkv.row_mut(part, index)[..widths[part]]);
            }
            for part in [0, 1] {
                rotation.apply(&mut qkv.row_mut(part, index)[..widths[part]]);
            }
            let keys = &qkv.row(1, index)[..widths[1]];
            let values = &qkv.row(2, index)[..widths[2]];
            let block = step.tables[row.input][row.position / BLOCK_TOKENS];
            let slot = row.position % BLOCK_TOKENS;
            cache.write(attention.layer, block, slot, keys, values);
        }
        Ok(())
    }

    fn attend(
        &self,
        step: &Step<'_>,
        attention: &Attention<Vec<f32>>,
        qkv: &StackedRows<'_>,
    ) -> Result<Rows> {
        let attended = attention::Attention {
            layer: attention.layer,
            heads: attention.heads,
            kv_heads: attention.kv_heads,
            head_dim: attention.head_dim,
            rows: &step.rows,
            window: attention.window,
            scale: attention.scale,
            tables: &step.tables,
            cache: self.cache.as_ref().ok_or_else(not_allocated)?,
        };
        let values = attended.forward(|row| qkv.row(0, row));
        Ok(Rows::new(values, attention.widths()[0]))
    }

    fn gate(
        &self,
        activation: Activation,
        gate_up: &StackedRows<'_>,
        width: usize,
    ) -> Result<Rows> {
        let gated = match activation {
            Activation::Silu => silu_mul,
            Activation::GeluTanh => gelu_mul,
        };
        let mut values = vec![0.0; gate_up.count() * width];
        for_each_piece(&mut values, width, |row, out| {
            gated(gate_up.row(0, row), gate_up.row(1, row), out);
        });
        Ok(Rows::new(values, width))
    }

    fn add(&self, sum: &mut Rows, rows: &Rows) -> Result<()> {
        add(sum.values_mut(), rows.values());
        Ok(())
    }

    fn select(&self, rows: Rows, indices: &[usize]) -> Result<Rows> {
        if indices.iter().copied().eq(0..rows.count()) {
            return Ok(rows);
        }
        let width = rows.values().len() / rows.count();
        let mut values = Vec::with_capacity(indices.len() * width);
        for &index in indices {
            values.extend_from_slice(rows.range(index..index + 1));
        }
        Ok(Rows::new(values, width))
    }

    fn read(&self, rows: Rows) -> Result<Vec<f32>> {
        Ok(rows.into_values())
    }
}

impl Cpu {
    fn cache_mut(&mut self) -> Result<&mut Storage> {
        self.cache.as_mut().ok_or_else(not_allocated)
    }
}

fn not_allocated() -> candle_core::Error {
    candle_core::Error::Msg("the cache is not allocated".to_owned())
}

/// Norms each head of a row in place.
fn norm_heads(norm: &Norm<Vec<f32>>, row: &mut [f32]) {
    let mut head = vec![0.0; norm.weight.len()];
    for values in row.chunks_exact_mut(norm.weight.len()) {
        head.copy_from_slice(values);
        rms_norm(&head, &norm.weight, norm.epsilon, values);
    }
}
