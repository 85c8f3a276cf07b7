//! One layer: attention and the feed-forward part, each behind a norm and a residual sum.

use super::{Norm, rotary::Rotation};
use crate::{
    BLOCK_TOKENS, BlockId, DecoderConfig,
    attention::{Attention, Row},
    cache::Storage,
    kernels::{add, silu_mul},
    linear::{Linear, Rows, Stacked, StackedRows},
    parallel::for_each_piece,
};
use candle_core::Result;

/// A layer's weights.
pub(super) struct Layer {
    pub(super) attention_norm: Norm,
    /// Queries, keys and values.
    pub(super) qkv: Stacked,
    /// What is added to queries, keys and values, where the family does that.
    pub(super) qkv_bias: Option<[Vec<f32>; 3]>,
    pub(super) attention_output: Linear,
    pub(super) feed_forward_norm: Norm,
    /// The gate and what it gates.
    pub(super) gate_up: Stacked,
    pub(super) down: Linear,
}

/// What a layer is told of the step that it takes part in.
pub(super) struct Step<'a> {
    pub(super) config: &'a DecoderConfig,
    pub(super) layer: usize,
    pub(super) rows: &'a [Row],
    /// One per row.
    pub(super) rotations: &'a [Rotation],
    /// The block tables, one per input.
    pub(super) tables: &'a [&'a [BlockId]],
}

impl Layer {
    /// Moves `hidden` through the layer and leaves the rows' keys and values in the cache.
    pub(super) fn forward(
        &self,
        step: &Step<'_>,
        cache: &mut Storage,
        hidden: &mut Rows,
    ) -> Result<()> {
        let mut qkv = self.qkv.forward(&self.attention_norm.forward(hidden))?;
        self.place(step, &mut qkv, cache);
        let attended = self.attention_output.forward(&attend(step, &qkv, cache))?;
        add(hidden.values_mut(), attended.values());
        let normed = self.feed_forward_norm.forward(hidden);
        let gated = gate(&self.gate_up.forward(&normed)?, normed.count(), step.config);
        add(hidden.values_mut(), self.down.forward(&gated)?.values());
        Ok(())
    }

    /// Gives queries and keys their positions, and puts keys and values into the cache.
    fn place(&self, step: &Step<'_>, qkv: &mut StackedRows<'_>, cache: &mut Storage) {
        let key_width = step.config.kv_heads * step.config.head_dim;
        let widths = [
            step.config.heads * step.config.head_dim,
            key_width,
            key_width,
        ];
        for (index, (row, rotation)) in step.rows.iter().zip(step.rotations).enumerate() {
            for (part, bias) in self.qkv_bias.iter().flatten().enumerate() {
                add(qkv.row_mut(part, index), bias);
            }
            for part in [0, 1] {
                rotation.apply(&mut qkv.row_mut(part, index)[..widths[part]]);
            }
            let keys = &qkv.row(1, index)[..widths[1]];
            let values = &qkv.row(2, index)[..widths[2]];
            let block = step.tables[row.input][row.position / BLOCK_TOKENS];
            cache.write(step.layer, block, row.position % BLOCK_TOKENS, keys, values);
        }
    }
}

fn attend(step: &Step<'_>, qkv: &StackedRows<'_>, cache: &Storage) -> Rows {
    let attention = Attention {
        layer: step.layer,
        heads: step.config.heads,
        kv_heads: step.config.kv_heads,
        head_dim: step.config.head_dim,
        rows: step.rows,
        tables: step.tables,
        cache,
    };
    let attended = attention.forward(|row| qkv.row(0, row));
    Rows::new(attended, step.config.heads * step.config.head_dim)
}

/// silu(gate) · up, of each row.
fn gate(gate_up: &StackedRows<'_>, count: usize, config: &DecoderConfig) -> Rows {
    let width = config.intermediate;
    let mut values = vec![0.0; count * width];
    for_each_piece(&mut values, width, |row, out| {
        silu_mul(gate_up.row(0, row), gate_up.row(1, row), out);
    });
    Rows::new(values, width)
}
