//! What the rows of a group attend to.

use super::step::Place;
use crate::cache::BLOCK_TOKENS;
use candle_core::{Device, Result, Tensor};

/// Which cached tokens a group's inputs attend to, each input's padded to the same number.
pub(super) struct Sight {
    /// The blocks of all inputs, one after the other.
    pub(super) table: Tensor,
    /// Keys per input, padding included.
    pub(super) keys: usize,
    /// Which keys each row attends to, 1 or 0: `[inputs, 1, rows, keys]`.
    pub(super) attended: Tensor,
    /// Which slots hold tokens of the input, 1 or 0: `[inputs, keys, 1]`. Those behind its end hold
    /// whatever their block held before.
    pub(super) held: Tensor,
    /// The same without padding.
    #[cfg(feature = "flash-attn")]
    pub(super) packed: super::flash::Packed,
}

impl Sight {
    /// What `places`, of as many rows each, attend to: tokens up to a row's own, and with a window
    /// only so many last ones.
    pub(super) fn new(places: &[&Place], window: Option<usize>, device: &Device) -> Result<Self> {
        let spans: Vec<Span<'_>> = places
            .iter()
            .map(|place| Span::new(place, window))
            .collect();
        let blocks = spans
            .iter()
            .map(|span| span.blocks.len())
            .max()
            .unwrap_or(0);
        let keys = blocks * BLOCK_TOKENS;
        let rows = places.first().map_or(0, |place| place.rows);
        let mut table = Vec::with_capacity(blocks * spans.len());
        let mut attended = vec![0_u8; spans.len() * rows * keys];
        let mut held = vec![0_u8; spans.len() * keys];
        let masks = attended
            .chunks_exact_mut(rows * keys)
            .zip(held.chunks_exact_mut(keys));
        for (span, (attended, held)) in spans.iter().zip(masks) {
            // Any block will do where nothing is attended.
            let padding = std::iter::repeat_n(span.blocks[0], blocks - span.blocks.len());
            table.extend(span.blocks.iter().copied().chain(padding));
            held[..span.place.end() - span.first].fill(1);
            for (row, attended) in attended.chunks_exact_mut(keys).enumerate() {
                let end = span.place.start + row + 1;
                let begin = window.map_or(0, |window| end.saturating_sub(window));
                attended[begin.max(span.first) - span.first..end - span.first].fill(1);
            }
        }
        Ok(Self {
            #[cfg(feature = "flash-attn")]
            packed: {
                let inputs = spans
                    .iter()
                    .map(|span| (span.blocks, span.place.end() - span.first));
                super::flash::Packed::new(inputs, rows, device)?
            },
            table: Tensor::new(table, device)?,
            keys,
            attended: Tensor::from_vec(attended, (spans.len(), 1, rows, keys), device)?,
            held: Tensor::from_vec(held, (spans.len(), keys, 1), device)?,
        })
    }
}

/// The blocks that an input's rows see.
struct Span<'a> {
    place: &'a Place,
    /// The position of the first token in them.
    first: usize,
    blocks: &'a [u32],
}

impl<'a> Span<'a> {
    fn new(place: &'a Place, window: Option<usize>) -> Self {
        let seen = window.map_or(0, |window| (place.start + 1).saturating_sub(window));
        let unseen = seen / BLOCK_TOKENS;
        Self {
            place,
            first: unseen * BLOCK_TOKENS,
            blocks: &place.blocks[unseen..place.used_blocks()],
        }
    }
}
