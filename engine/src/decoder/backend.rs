//! What a decoder asks of whatever computes it.
//!
//! Rows are packed: those of all inputs of a step lie one after the other, in the order of the
//! batch. Each operation treats a row on its own; only [`Backend::attend`] knows which rows belong
//! together, by the step's block tables. Shapes are stated as `[rows][numbers]`.
//!
//! A backend knows nothing of files and of families: it is given matrices and vectors, and is told
//! what to do with them.

use crate::{Activation, BlockId, DecoderConfig, Input, KvLayout};
use candle_core::Result;
use candle_core::quantized::QTensor;

/// The operations of a decoder, and the memory for keys and values.
///
/// Weights arrive as [`QTensor`]s in the host's memory, in the encoding of their file.
pub(crate) trait Backend: Send + Sync {
    /// A few numbers: a norm's weight, a bias.
    type Vector: Send + Sync;
    /// A matrix `[outputs][inputs]` to multiply rows with.
    type Matrix: Send + Sync;
    /// Matrices that share their input.
    type Stack: Send + Sync;
    /// A matrix `[vocabulary_rows][hidden]` to take rows from.
    type Embedding: Send + Sync;
    /// Numbers, as many in each row.
    type Rows;
    /// What each matrix of a [`Stack`](Self::Stack) makes of the rows.
    type Parts<'w>;
    /// What all layers need to know of a step: positions, rotations, block tables.
    type Step<'b>;

    /// Takes a vector in.
    fn vector(&self, values: Vec<f32>) -> Result<Self::Vector>;

    /// Takes a matrix in.
    fn matrix(&self, weight: QTensor) -> Result<Self::Matrix>;

    /// Takes matrices of the same inputs in.
    fn stack(&self, weights: Vec<QTensor>) -> Result<Self::Stack>;

    /// Takes the embedding and the output matrix in; without one, the embedding is both.
    fn embedding(
        &self,
        embedding: QTensor,
        output: Option<QTensor>,
    ) -> Result<(Self::Embedding, Self::Matrix)>;

    /// Provides for `blocks` blocks of keys and values.
    fn allocate(&mut self, layout: KvLayout, blocks: usize) -> Result<()>;

    /// Makes the block `to` hold what `from` holds.
    fn copy_block(&mut self, from: BlockId, to: BlockId) -> Result<()>;

    /// Prepares a step. The batch is checked: tables have room, tokens are known, and there is at
    /// least one.
    fn begin<'b>(&self, config: &DecoderConfig, batch: &'b [Input<'b>]) -> Result<Self::Step<'b>>;

    /// The rows of all the batch's tokens, times `scale`: `[rows][hidden]`.
    fn embed(
        &self,
        embedding: &Self::Embedding,
        batch: &[Input<'_>],
        scale: f32,
    ) -> Result<Self::Rows>;

    /// Divides each row by its root mean square and multiplies it by the norm's weight.
    fn norm(&self, norm: &Norm<Self::Vector>, rows: &Self::Rows) -> Result<Self::Rows>;

    /// The product of the matrix with each row: `[rows][outputs]`.
    fn product(&self, matrix: &Self::Matrix, rows: &Self::Rows) -> Result<Self::Rows>;

    /// The product of each matrix of the stack with each row.
    fn products<'w>(&self, stack: &'w Self::Stack, rows: &Self::Rows) -> Result<Self::Parts<'w>>;

    /// Finishes queries, keys and values, the parts of `qkv`: adds biases, norms the heads of
    /// queries and keys, turns them to their positions; then writes keys and values into the
    /// cache. The queries stay in `qkv`.
    fn place(
        &mut self,
        step: &Self::Step<'_>,
        attention: &Attention<Self::Vector>,
        qkv: &mut Self::Parts<'_>,
    ) -> Result<()>;

    /// What the rows' queries, placed before, find in the cache: `[rows][heads * head_dim]`. A row
    /// sees its own sequence up to itself, or of that the last `window` tokens.
    fn attend(
        &self,
        step: &Self::Step<'_>,
        attention: &Attention<Self::Vector>,
        qkv: &Self::Parts<'_>,
    ) -> Result<Self::Rows>;

    /// activation(gate) · up, the parts of `gate_up`, each `[rows][width]`.
    fn gate(
        &self,
        activation: Activation,
        gate_up: &Self::Parts<'_>,
        width: usize,
    ) -> Result<Self::Rows>;

    /// Adds `rows` to `sum`.
    fn add(&self, sum: &mut Self::Rows, rows: &Self::Rows) -> Result<()>;

    /// Some of the rows, by index and in that order.
    fn select(&self, rows: Self::Rows, indices: &[usize]) -> Result<Self::Rows>;

    /// The rows' numbers, one row after the other.
    fn read(&self, rows: Self::Rows) -> Result<Vec<f32>>;
}

/// An RMS norm.
pub(crate) struct Norm<V> {
    pub(crate) weight: V,
    pub(crate) epsilon: f32,
}

/// What attention is like in one layer, with its small weights.
pub(crate) struct Attention<V> {
    /// Where in the cache its keys and values go.
    pub(crate) layer: usize,
    pub(crate) heads: usize,
    pub(crate) kv_heads: usize,
    pub(crate) head_dim: usize,
    /// What is added to queries, keys and values.
    pub(crate) bias: Option<[V; 3]>,
    /// Of each head of queries and of keys.
    pub(crate) head_norms: Option<[Norm<V>; 2]>,
    /// Which of the configuration's rotations.
    pub(crate) rope: usize,
    /// How many last tokens a row sees, itself included; all where there is none.
    pub(crate) window: Option<usize>,
    /// Of the products of queries and keys.
    pub(crate) scale: f32,
}

impl<V> Attention<V> {
    /// Numbers in a row of queries, of keys and of values.
    pub(crate) fn widths(&self) -> [usize; 3] {
        let [queries, keys] = [self.heads, self.kv_heads].map(|heads| heads * self.head_dim);
        [queries, keys, keys]
    }
}
