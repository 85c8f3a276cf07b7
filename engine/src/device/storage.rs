//! Keys and values on a device.
//!
//! One pair of tensors per layer, `[kv_heads, blocks * BLOCK_TOKENS, head_dim]`: a block is 32 rows
//! of each head, and what a block table names is gathered into one matrix per head without further
//! copies. Knows nothing of whose blocks they are.

use super::writes::Writes;
use crate::KvLayout;
use crate::cache::BLOCK_TOKENS;
use candle_core::{DType, Device, Error, Result, Tensor};

/// The cache of all layers.
pub(super) struct Storage {
    layers: Vec<KeysValues>,
    layout: KvLayout,
}

struct KeysValues {
    keys: Tensor,
    values: Tensor,
}

impl Storage {
    /// Takes the memory of `blocks` blocks.
    pub(super) fn new(
        layout: KvLayout,
        blocks: usize,
        dtype: DType,
        device: &Device,
    ) -> Result<Self> {
        let slots = blocks
            .checked_mul(BLOCK_TOKENS)
            .filter(|&slots| u32::try_from(slots).is_ok())
            .ok_or_else(|| {
                Error::Msg(format!(
                    "a device's cache has fewer than 2^32 tokens, not {blocks} blocks"
                ))
            })?;
        let zeros = || Tensor::zeros((layout.kv_heads, slots, layout.head_dim), dtype, device);
        let layer = |_| {
            Ok(KeysValues {
                keys: zeros()?,
                values: zeros()?,
            })
        };
        Ok(Self {
            layers: (0..layout.layers).map(layer).collect::<Result<_>>()?,
            layout,
        })
    }

    pub(super) fn layout(&self) -> &KvLayout {
        &self.layout
    }

    pub(super) fn dtype(&self) -> DType {
        self.layers
            .first()
            .map_or(DType::F32, |layer| layer.keys.dtype())
    }

    /// Puts one layer's new rows, each `[rows, kv_heads * head_dim]`, where `writes` says.
    pub(super) fn write(
        &self,
        layer: usize,
        writes: &Writes,
        keys: &Tensor,
        values: &Tensor,
    ) -> Result<()> {
        let KeysValues {
            keys: all_keys,
            values: all_values,
        } = &self.layers[layer];
        for (rows, all) in [(keys, all_keys), (values, all_values)] {
            let count = rows.dim(0)?;
            // By head, as they are stored.
            let rows = rows
                .to_dtype(self.dtype())?
                .reshape((count, self.layout.kv_heads, self.layout.head_dim))?
                .transpose(0, 1)?
                .contiguous()?;
            writes.apply(&rows, all)?;
        }
        Ok(())
    }

    /// One layer's keys and values of the blocks that `table` names, one after the other:
    /// `[kv_heads, blocks of the table * BLOCK_TOKENS, head_dim]`.
    pub(super) fn gather(&self, layer: usize, table: &Tensor) -> Result<(Tensor, Tensor)> {
        let KeysValues { keys, values } = &self.layers[layer];
        let KvLayout {
            kv_heads, head_dim, ..
        } = self.layout;
        let gather = |all: &Tensor| {
            all.reshape((kv_heads, (), BLOCK_TOKENS * head_dim))?
                .index_select(table, 1)?
                .reshape((kv_heads, (), head_dim))
        };
        Ok((gather(keys)?, gather(values)?))
    }

    /// One layer's keys and values in `slots`: `[slots, kv_heads, head_dim]`.
    #[cfg(feature = "flash-attn")]
    pub(super) fn gather_tokens(&self, layer: usize, slots: &Tensor) -> Result<(Tensor, Tensor)> {
        let KeysValues { keys, values } = &self.layers[layer];
        let gather = |all: &Tensor| all.index_select(slots, 1)?.transpose(0, 1);
        Ok((gather(keys)?, gather(values)?))
    }

    #[cfg(feature = "flash-attn")]
    pub(super) fn is_on_cuda(&self) -> bool {
        self.layers
            .first()
            .is_some_and(|layer| layer.keys.device().is_cuda())
    }

    /// Copies block `from` to block `to` in all layers.
    pub(super) fn copy_block(&self, from: usize, to: usize) -> Result<()> {
        for KeysValues { keys, values } in &self.layers {
            for all in [keys, values] {
                let block = all.narrow(1, from * BLOCK_TOKENS, BLOCK_TOKENS)?;
                // A copy of its own: a tensor cannot be written from itself.
                all.slice_set(&block.copy()?.contiguous()?, 1, to * BLOCK_TOKENS)?;
            }
        }
        Ok(())
    }
}
