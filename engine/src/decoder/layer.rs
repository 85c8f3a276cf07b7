//! One layer: attention and the feed-forward part, each behind a norm and a residual sum.

use super::backend::{Attention, Backend, Norm};
use crate::Activation;
use candle_core::Result;

/// A layer's weights.
pub(super) struct Layer<B: Backend> {
    pub(super) attention_norm: Norm<B::Vector>,
    /// Queries, keys and values.
    pub(super) qkv: B::Stack,
    pub(super) attention: Attention<B::Vector>,
    pub(super) attention_output: B::Matrix,
    /// Of what attention adds, where the model has it.
    pub(super) attention_post_norm: Option<Norm<B::Vector>>,
    pub(super) feed_forward_norm: Norm<B::Vector>,
    /// The gate and what it gates.
    pub(super) gate_up: B::Stack,
    pub(super) activation: Activation,
    pub(super) intermediate: usize,
    pub(super) down: B::Matrix,
    /// Of what the feed-forward part adds, where the model has it.
    pub(super) feed_forward_post_norm: Option<Norm<B::Vector>>,
}

impl<B: Backend> Layer<B> {
    /// Moves `hidden` through the layer and leaves the rows' keys and values in the cache.
    pub(super) fn forward(
        &self,
        backend: &mut B,
        step: &B::Step<'_>,
        hidden: &mut B::Rows,
    ) -> Result<()> {
        let normed = backend.norm(&self.attention_norm, hidden)?;
        let mut qkv = backend.products(&self.qkv, &normed)?;
        backend.place(step, &self.attention, &mut qkv)?;
        let attended = backend.attend(step, &self.attention, &qkv)?;
        let found = backend.product(&self.attention_output, &attended)?;
        add(backend, hidden, found, self.attention_post_norm.as_ref())?;

        let normed = backend.norm(&self.feed_forward_norm, hidden)?;
        let gate_up = backend.products(&self.gate_up, &normed)?;
        let gated = backend.gate(self.activation, &gate_up, self.intermediate)?;
        let made = backend.product(&self.down, &gated)?;
        add(backend, hidden, made, self.feed_forward_post_norm.as_ref())
    }
}

/// Adds `rows`, normed where the model has it so.
fn add<B: Backend>(
    backend: &B,
    sum: &mut B::Rows,
    rows: B::Rows,
    norm: Option<&Norm<B::Vector>>,
) -> Result<()> {
    match norm {
        Some(norm) => backend.add(sum, &backend.norm(norm, &rows)?),
        None => backend.add(sum, &rows),
    }
}
