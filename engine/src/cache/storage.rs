//! Keys and values in the host's memory.
//!
//! A block's memory is allocated, zeroed, when it is first written to, and kept until the storage
//! is dropped: an idle server takes no memory for its cache, a busy one what it has used at most.

use super::encoding::{decode_keys, decode_values, encode, widen};
use super::{BLOCK_TOKENS, BlockId, CacheType, KvLayout};
use half::f16;
use std::ops::Range;

/// The keys and values of all blocks, in every layer.
#[derive(Debug)]
pub(crate) struct Storage {
    layout: KvLayout,
    blocks: Vec<Block>,
}

/// A block: `[layer][keys, values][kv_head]` and then, so that attention runs along rows in both,
/// keys as `[head_dim][slot]` and values as `[slot][head_dim]`.
#[derive(Debug, Clone, Default)]
enum Block {
    /// Not yet written to.
    #[default]
    Empty,
    F32(Box<[f32]>),
    F16(Box<[f16]>),
    Q8 {
        codes: Box<[i8]>,
        /// Of each head's keys or values, `[group][slot]`.
        scales: Box<[f32]>,
    },
}

/// Room for a head's keys and values where they are stored in fewer bits.
#[derive(Debug, Default)]
pub(crate) struct Decoded {
    keys: Vec<f32>,
    values: Vec<f32>,
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
        let head_dim = layout.head_dim;
        let block = self.block_mut(block);
        let heads = keys
            .chunks_exact(head_dim)
            .zip(values.chunks_exact(head_dim));
        for (kv_head, (keys, values)) in heads.enumerate() {
            let [key_side, value_side] = Side::both(&layout, layer, kv_head);
            let key_places = (slot..).step_by(BLOCK_TOKENS);
            key_side.write(block, slot, key_places, keys);
            value_side.write(block, slot, slot * head_dim.., values);
        }
    }

    /// Makes `to` hold what `from` holds.
    pub(crate) fn copy(&mut self, from: BlockId, to: BlockId) {
        let content = self.block_mut(from).clone();
        *self.block_mut(to) = content;
    }

    /// One head's keys as `[head_dim][slot]` and values as `[slot][head_dim]` in one layer of a block
    /// that was written to, in `decoded` where they are not stored so. Slots that were not written
    /// to hold nothing of meaning.
    pub(crate) fn head<'a>(
        &'a self,
        layer: usize,
        block: BlockId,
        kv_head: usize,
        decoded: &'a mut Decoded,
    ) -> (&'a [f32], &'a [f32]) {
        let [keys, values] = Side::both(&self.layout, layer, kv_head);
        let block = &self.blocks[block.index()];
        if let Block::F32(numbers) = block {
            return (&numbers[keys.numbers], &numbers[values.numbers]);
        }
        let head_len = self.layout.head_len();
        decoded.keys.resize(head_len, 0.0);
        decoded.values.resize(head_len, 0.0);
        match block {
            Block::F16(numbers) => {
                widen(&numbers[keys.numbers], &mut decoded.keys);
                widen(&numbers[values.numbers], &mut decoded.values);
            }
            Block::Q8 { codes, scales } => {
                let (key_scales, value_scales) = (&scales[keys.scales], &scales[values.scales]);
                decode_keys(&codes[keys.numbers], key_scales, &mut decoded.keys);
                decode_values(&codes[values.numbers], value_scales, &mut decoded.values);
            }
            Block::Empty | Block::F32(_) => {}
        }
        (&decoded.keys, &decoded.values)
    }

    fn block_mut(&mut self, id: BlockId) -> &mut Block {
        let index = id.index();
        if index >= self.blocks.len() {
            self.blocks.resize_with(index + 1, Block::default);
        }
        let block = &mut self.blocks[index];
        if let Block::Empty = block {
            *block = Block::new(&self.layout);
        }
        block
    }
}

impl Block {
    fn new(layout: &KvLayout) -> Self {
        let len = layout.block_len();
        match layout.kind {
            CacheType::F32 => Self::F32(vec![0.0; len].into_boxed_slice()),
            CacheType::F16 => Self::F16(vec![f16::ZERO; len].into_boxed_slice()),
            CacheType::Q8 => Self::Q8 {
                codes: vec![0; len].into_boxed_slice(),
                scales: vec![0.0; layout.scales_len()].into_boxed_slice(),
            },
        }
    }
}

/// One head's keys, or its values, in a block.
struct Side {
    /// Where the numbers lie.
    numbers: Range<usize>,
    /// Where the scales lie, if there are any.
    scales: Range<usize>,
}

impl Side {
    fn both(layout: &KvLayout, layer: usize, kv_head: usize) -> [Self; 2] {
        let scales_len = layout.groups() * BLOCK_TOKENS;
        [0, 1].map(|side| {
            let index = (layer * 2 + side) * layout.kv_heads + kv_head;
            let within = |len: usize| index * len..(index + 1) * len;
            Self {
                numbers: within(layout.head_len()),
                scales: within(scales_len),
            }
        })
    }

    /// Writes the numbers of the token `slot` to their `places`.
    fn write(
        &self,
        block: &mut Block,
        slot: usize,
        places: impl Iterator<Item = usize>,
        numbers: &[f32],
    ) {
        match block {
            Block::Empty => {}
            Block::F32(all) => {
                let all = &mut all[self.numbers.clone()];
                for (place, &number) in places.zip(numbers) {
                    all[place] = number;
                }
            }
            Block::F16(all) => {
                let all = &mut all[self.numbers.clone()];
                for (place, &number) in places.zip(numbers) {
                    all[place] = f16::from_f32(number);
                }
            }
            Block::Q8 { codes, scales } => {
                let scales = scales[self.scales.clone()].iter_mut();
                let mut own = vec![0; numbers.len()];
                let groups = numbers
                    .chunks(KvLayout::GROUP)
                    .zip(own.chunks_mut(KvLayout::GROUP));
                for ((numbers, codes), scale) in groups.zip(scales.skip(slot).step_by(BLOCK_TOKENS))
                {
                    *scale = encode(numbers, codes);
                }
                let codes = &mut codes[self.numbers.clone()];
                for (place, code) in places.zip(own) {
                    codes[place] = code;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYOUT: KvLayout = KvLayout {
        layers: 2,
        kv_heads: 3,
        head_dim: 40,
        kind: CacheType::F32,
    };
    const WIDTH: usize = LAYOUT.kv_heads * LAYOUT.head_dim;

    /// Numbers that differ by all of their place, of sizes from 0.001 to 100.
    fn numbers(place: usize, layer: usize, side: usize) -> Vec<f32> {
        let number = |i: usize| {
            let mixed = ((place * 2 + layer) * 2 + side) * WIDTH + i;
            let size = 10f32.powi((i / KvLayout::GROUP) as i32 % 6 - 3);
            ((mixed * 7919) % 2003) as f32 / 1001.5 * size - size
        };
        (0..WIDTH).map(number).collect()
    }

    /// Checks that the block at `place` holds its own numbers in all slots, each within `bound`
    /// times the largest of its group.
    fn assert_content(storage: &Storage, id: BlockId, place: usize, bound: f32) {
        let mut decoded = Decoded::default();
        let dim = LAYOUT.head_dim;
        for layer in 0..LAYOUT.layers {
            for head in 0..LAYOUT.kv_heads {
                let (keys, values) = storage.head(layer, id, head, &mut decoded);
                for slot in 0..BLOCK_TOKENS {
                    let read = [
                        keys.chunks(BLOCK_TOKENS)
                            .map(|column| column[slot])
                            .collect(),
                        values[slot * dim..][..dim].to_vec(),
                    ];
                    for (side, read) in read.iter().enumerate() {
                        let written = &numbers(place + slot, layer, side)[head * dim..][..dim];
                        let groups = read
                            .chunks(KvLayout::GROUP)
                            .zip(written.chunks(KvLayout::GROUP));
                        for (read, written) in groups {
                            let largest = written.iter().fold(0f32, |a, b| a.max(b.abs()));
                            for (read, written) in read.iter().zip(written) {
                                let error = (read - written).abs() / largest;
                                assert!(error <= bound, "{read} for {written}");
                            }
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn what_is_written_is_read_as_exactly_as_its_type_allows() {
        let bounds = [
            (CacheType::F32, 0.0),
            (CacheType::F16, 0.5 / 1024.0),
            (CacheType::Q8, 0.501 / 127.0),
        ];
        for (kind, bound) in bounds {
            let mut storage = Storage::new(KvLayout { kind, ..LAYOUT });
            let [first, second, copy] = [5, 0, 3].map(BlockId::new);
            // Slots in any order, and again over what was there before.
            for (id, place) in [(first, 900), (second, 0), (first, 300)] {
                for slot in (0..BLOCK_TOKENS).rev() {
                    for layer in 0..LAYOUT.layers {
                        let [keys, values] = [0, 1].map(|side| numbers(place + slot, layer, side));
                        storage.write(layer, id, slot, &keys, &values);
                    }
                }
            }
            storage.copy(first, copy);
            assert_content(&storage, first, 300, bound);
            assert_content(&storage, second, 0, bound);
            assert_content(&storage, copy, 300, bound);
        }
    }

    #[test]
    fn eight_bits_keep_zeros_and_do_not_hide_what_is_no_number() {
        let mut storage = Storage::new(KvLayout {
            kind: CacheType::Q8,
            ..LAYOUT
        });
        let id = BlockId::new(0);
        let mut values = vec![1.0; WIDTH];
        values[1] = f32::NAN;
        storage.write(0, id, 0, &[0.0; WIDTH], &values);
        let mut decoded = Decoded::default();
        let (keys, values) = storage.head(0, id, 0, &mut decoded);
        assert!(keys.iter().all(|&key| key == 0.0));
        assert!(values[0].is_nan() && values[1].is_nan());
        assert_eq!(values[32..40], [1.0; 8], "another group");
    }

    #[test]
    fn a_block_takes_the_bytes_that_its_layout_says() {
        for kind in [CacheType::F32, CacheType::F16, CacheType::Q8] {
            let layout = KvLayout { kind, ..LAYOUT };
            let bytes = match Block::new(&layout) {
                Block::Empty => 0,
                Block::F32(numbers) => size_of_val(&*numbers),
                Block::F16(numbers) => size_of_val(&*numbers),
                Block::Q8 { codes, scales } => size_of_val(&*codes) + size_of_val(&*scales),
            };
            assert_eq!(bytes, layout.block_bytes());
        }
    }
}
