//! Attention by candle's flash attention, which holds no scores: for long contexts on a GPU of
//! compute capability 80 or later, over a cache of 16 bits.

use super::attention::Heads;
use super::sight::Sight;
use super::step::{Group, number};
use super::storage::Storage;
use crate::cache::BLOCK_TOKENS;
use candle_core::{DType, Device, Result, Tensor};
use candle_flash_attn::flash_attn_varlen_windowed;

/// Head sizes that the kernels are compiled for: multiples of this, up to that.
const HEAD_STEP: usize = 8;
const MOST_HEAD_DIM: usize = 256;

/// What a group's inputs attend to, without padding.
pub(super) struct Packed {
    /// The slots of all tokens of all inputs.
    slots: Tensor,
    /// Where each input's tokens and rows begin, and at last where they end.
    tokens: Tensor,
    rows: Tensor,
    /// The most tokens of an input.
    longest: usize,
}

impl Packed {
    /// Of inputs of `rows` rows each, given by their blocks and how many tokens these hold.
    pub(super) fn new<'a>(
        inputs: impl Iterator<Item = (&'a [u32], usize)>,
        rows: usize,
        device: &Device,
    ) -> Result<Self> {
        let (mut slots, mut tokens, mut firsts) = (Vec::new(), vec![0], vec![0]);
        let mut longest = 0;
        for (blocks, held) in inputs {
            let block = |&block: &u32| {
                (0..BLOCK_TOKENS as u32).map(move |slot| block * BLOCK_TOKENS as u32 + slot)
            };
            slots.extend(blocks.iter().flat_map(block).take(held));
            tokens.push(number(slots.len()));
            firsts.push(number(rows * firsts.len()));
            longest = longest.max(held);
        }
        Ok(Self {
            slots: Tensor::new(slots, device)?,
            tokens: Tensor::new(tokens, device)?,
            rows: Tensor::new(firsts, device)?,
            longest,
        })
    }
}

impl Heads {
    /// True where the kernels know such heads and such a cache.
    pub(super) fn suit_flash(&self, storage: &Storage) -> bool {
        let known = self.head_dim.is_multiple_of(HEAD_STEP) && self.head_dim <= MOST_HEAD_DIM;
        known && storage.is_on_cuda() && matches!(storage.dtype(), DType::F16 | DType::BF16)
    }

    /// Attention of a group's scaled queries, `[rows, heads * head_dim]`; of the same shape.
    pub(super) fn attend_flash(
        &self,
        queries: &Tensor,
        layer: usize,
        (group, sight): (&Group, &Sight),
        storage: &Storage,
    ) -> Result<Tensor> {
        let packed = &sight.packed;
        let (keys, values) = storage.gather_tokens(layer, &packed.slots)?;
        let queries =
            queries
                .to_dtype(storage.dtype())?
                .reshape(((), self.heads, self.head_dim))?;
        let out = flash_attn_varlen_windowed(
            &queries,
            &keys,
            &values,
            &packed.rows,
            &packed.tokens,
            group.rows,
            packed.longest,
            1.0,
            self.window.map(|window| window - 1),
            Some(0),
        )?;
        out.reshape(((), self.heads * self.head_dim))?
            .to_dtype(DType::F32)
    }
}
