//! Keys and values in the host's memory.
//!
//! A block's memory is allocated, zeroed, when it is first written to, and kept until the storage
//! is dropped: an idle server takes no memory for its cache, a busy one what it has used at most.

use super::{BLOCK_TOKENS, BlockId, KvLayout};

/// The keys and values of all blocks, in every layer.
#[derive(Debug)]
pub(crate) struct Storage {
    layout: KvLayout,
    /// Each empty, or laid out as `[layer][keys, values][kv_head]` and then, so that attention runs
    /// along rows in both, keys as `[head_dim][slot]` and values as `[slot][head_dim]`.
    blocks: Vec<Box<[f32]>>,
}

impl Storage {
    pub(crate) fn new(layout: KvLayout) -> Self {
        Self {
            layout,
            blocks: Vec::new(),
        }
    }

    /// Sets the keys and values of a block's token `slot` in one layer, each `[kv_head][head_dim]`.
    pub(crate) fn write(
        &mut self,
        layer: usize,
        block: BlockId,
        slot: usize,
        keys: &[f32],
        values: &[f32],
    ) {
        let layout = self.layout;
        let (head_len, head_dim) = (layout.head_len(), layout.head_dim);
        let side_len = layout.kv_heads * head_len;
        let (key_side, value_side) =
            self.block_mut(block)[layer * 2 * side_len..][..2 * side_len].split_at_mut(side_len);
        let heads = key_side.chunks_exact_mut(head_len);
        for (head, keys) in heads.zip(keys.chunks_exact(head_dim)) {
            for (column, &key) in head.chunks_exact_mut(BLOCK_TOKENS).zip(keys) {
                column[slot] = key;
            }
        }
        let heads = value_side.chunks_exact_mut(head_len);
        for (head, values) in heads.zip(values.chunks_exact(head_dim)) {
            head[slot * head_dim..][..head_dim].copy_from_slice(values);
        }
    }

    /// Copies all of a block.
    pub(crate) fn copy(&mut self, from: BlockId, to: BlockId) {
        let content = self.block_mut(from).to_vec();
        self.block_mut(to).copy_from_slice(&content);
    }

    /// One head's keys as `[head_dim][slot]` and values as `[slot][head_dim]` in one layer of a block
    /// that was written to. Slots that were not hold nothing of meaning.
    pub(crate) fn head(&self, layer: usize, block: BlockId, kv_head: usize) -> (&[f32], &[f32]) {
        let head_len = self.layout.head_len();
        let side_len = self.layout.kv_heads * head_len;
        let keys = layer * 2 * side_len + kv_head * head_len;
        let block = &self.blocks[block.index()];
        (
            &block[keys..][..head_len],
            &block[keys + side_len..][..head_len],
        )
    }

    fn block_mut(&mut self, id: BlockId) -> &mut [f32] {
        let index = id.index();
        if index >= self.blocks.len() {
            self.blocks.resize_with(index + 1, Box::default);
        }
        let block = &mut self.blocks[index];
        if block.is_empty() {
            *block = vec![0.0; self.layout.block_len()].into_boxed_slice();
        }
        block
    }
}
