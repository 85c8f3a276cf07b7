//! Attention over the cache of a device, by candle's operations.
//!
//! One group of like inputs at a time: gather its keys and values, and compute all its heads with
//! two batched products and a softmax, in 32 bits: some models' scores are in the hundreds, where
//! 16 bits leave no fractions. Query heads that share keys are rows of one product, so keys are
//! never repeated.

use super::sight::Sight;
use super::step::{Group, Step};
use super::storage::Storage;
use candle_core::{D, DType, Result, Tensor};
use candle_nn::ops::softmax_last_dim;
use std::ops::Range;

/// Scores that are held at once, unless one row of each input has more.
pub(super) const MAX_SCORES: usize = 1 << 26;

/// The heads of a layer.
pub(super) struct Heads {
    /// Query heads, a multiple of `kv_heads`.
    pub(super) heads: usize,
    pub(super) kv_heads: usize,
    pub(super) head_dim: usize,
    /// What the products of queries and keys are multiplied by.
    pub(super) scale: f32,
    /// How many last tokens a row attends to, its own included; all where there is none.
    pub(super) window: Option<usize>,
    /// The most scores that are held at once: more rows are computed piece by piece.
    pub(super) most_scores: usize,
}

impl Heads {
    /// Attention of `queries`, `[rows, heads * head_dim]`, over one layer's cache; of the same shape.
    pub(super) fn attend(
        &self,
        queries: &Tensor,
        layer: usize,
        step: &Step,
        storage: &Storage,
    ) -> Result<Tensor> {
        let scaled = (queries * f64::from(self.scale))?.to_dtype(DType::F32)?;
        let mut outs = Vec::with_capacity(step.groups.len());
        for group in &step.groups {
            let queries = match &group.select {
                Some(rows) => scaled.index_select(rows, 0)?,
                None => scaled.clone(),
            };
            outs.push(self.attend_group(&queries, layer, group, storage)?);
        }
        let out = match &step.order {
            Some(order) => joined(&outs, 0)?.index_select(order, 0)?,
            None => joined(&outs, 0)?,
        };
        out.to_dtype(queries.dtype())
    }

    fn attend_group(
        &self,
        queries: &Tensor,
        layer: usize,
        group: &Group,
        storage: &Storage,
    ) -> Result<Tensor> {
        let sight = group.sight(self.window)?;
        #[cfg(feature = "flash-attn")]
        if self.suit_flash(storage) {
            return self.attend_flash(queries, layer, (group, sight), storage);
        }
        let by_input = |all: Tensor| {
            all.to_dtype(DType::F32)?.reshape((
                self.kv_heads,
                group.inputs,
                sight.keys,
                self.head_dim,
            ))
        };
        let (keys, values) = storage.gather(layer, &sight.table)?;
        let (keys, values) = (by_input(keys)?, by_input(values)?);
        // A weight of zero does not silence what is not a number.
        let values = kept_where(&sight.held, &values, 0.0)?;
        let queries = queries.reshape((group.inputs, group.rows, self.heads * self.head_dim))?;
        let piece = (self.most_scores / (group.inputs * self.heads * sight.keys)).max(1);
        let mut outs = Vec::new();
        for begin in (0..group.rows).step_by(piece) {
            let rows = begin..group.rows.min(begin + piece);
            outs.push(self.attend_rows(&queries, &keys, &values, sight, rows)?);
        }
        joined(&outs, 1)?.reshape(((), self.heads * self.head_dim))
    }

    /// Of some rows of each input: `[inputs, rows, heads * head_dim]`.
    fn attend_rows(
        &self,
        queries: &Tensor,
        keys: &Tensor,
        values: &Tensor,
        sight: &Sight,
        rows: Range<usize>,
    ) -> Result<Tensor> {
        let (inputs, sharing, count) = (queries.dim(0)?, self.heads / self.kv_heads, rows.len());
        let flat =
            |tensor: &Tensor| tensor.reshape((self.kv_heads * inputs, (), tensor.dim(D::Minus1)?));
        let queries = queries
            .narrow(1, rows.start, count)?
            .reshape((inputs, count, self.kv_heads, sharing, self.head_dim))?
            .permute((2, 0, 3, 1, 4))?
            .contiguous()?;
        let scores = flat(&queries)?.matmul(&flat(keys)?.t()?)?.reshape((
            self.kv_heads,
            inputs,
            sharing,
            count,
            sight.keys,
        ))?;
        let attended = sight.attended.narrow(2, rows.start, count)?;
        let scores = kept_where(&attended, &scores, f32::NEG_INFINITY)?;
        let weights = softmax_last_dim(&scores)?;
        flat(&weights)?
            .matmul(&flat(values)?)?
            .reshape((self.kv_heads, inputs, sharing, count, self.head_dim))?
            .permute((1, 3, 0, 2, 4))?
            .contiguous()?
            .reshape((inputs, count, self.heads * self.head_dim))
    }
}

/// `values` where `mask` is 1, and `otherwise` where it is 0.
fn kept_where(mask: &Tensor, values: &Tensor, otherwise: f32) -> Result<Tensor> {
    let otherwise = Tensor::full(otherwise, (), values.device())?;
    mask.broadcast_as(values.shape())?
        .where_cond(values, &otherwise.broadcast_as(values.shape())?)
}

fn joined(parts: &[Tensor], dim: usize) -> Result<Tensor> {
    match parts {
        [one] => Ok(one.clone()),
        _ => Tensor::cat(parts, dim),
    }
}
