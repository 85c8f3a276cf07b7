//! One row of logits, made safe to compare and quick to search.
//!
//! A vocabulary has some 150,000 ids and a choice depends on few of them. One pass notes the
//! largest logit of every block of 64 ids; all later searches look only into the blocks that can
//! matter. Must not know of temperature or noise.

use crate::TokenId;
use crate::wide::wide;

/// A row of logits. NaN counts as minus infinity, and plus infinity as the largest finite number.
#[derive(Debug)]
pub(crate) struct Logits<'a> {
    values: &'a [f32],
    /// The largest logit of each block.
    peaks: Vec<f32>,
    peak: f32,
}

/// Ids in a block.
pub(crate) const BLOCK: usize = 64;

impl<'a> Logits<'a> {
    pub(crate) fn new(values: &'a [f32]) -> Self {
        let peaks = block_peaks(values);
        let peak = peaks.iter().copied().fold(f32::NEG_INFINITY, larger);
        Self {
            values,
            peaks,
            peak,
        }
    }

    /// The logits as they came.
    pub(crate) fn values(&self) -> &'a [f32] {
        self.values
    }

    /// The largest logit; minus infinity where no id is possible.
    pub(crate) fn peak(&self) -> f32 {
        self.peak
    }

    /// The id of the largest logit, the lowest on a tie; none where no id is possible.
    pub(crate) fn argmax(&self) -> Option<TokenId> {
        self.at_least(self.peak).next()
    }

    /// The largest logit of the other ids; minus infinity where there is none.
    pub(crate) fn largest_besides(&self, token: TokenId) -> f32 {
        let home = token as usize / BLOCK;
        let neighbours = self.values.chunks(BLOCK).nth(home).unwrap_or_default();
        let (before, after) = neighbours.split_at(token as usize % BLOCK);
        let others = self.peaks.iter().enumerate().filter(|(b, _)| *b != home);
        others
            .map(|(_, &peak)| peak)
            .chain([block_peak(before), block_peak(&after[1..])])
            .fold(f32::NEG_INFINITY, larger)
    }

    /// The ids whose logit is finite and at least `cutoff`, ascending.
    pub(crate) fn at_least(&self, cutoff: f32) -> impl Iterator<Item = TokenId> {
        let cutoff = cutoff.max(f32::MIN);
        self.blocks()
            .filter(move |(_, peak, _)| *peak >= cutoff)
            .flat_map(move |(first, _, block)| {
                (first..)
                    .zip(block)
                    .filter(move |(_, value)| **value >= cutoff)
                    .map(|(id, _)| id)
            })
    }

    /// The blocks: first id, largest logit, logits.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = (TokenId, f32, &'a [f32])> {
        self.values
            .chunks(BLOCK)
            .zip(&self.peaks)
            .enumerate()
            .map(|(index, (block, &peak))| ((index * BLOCK) as TokenId, peak, block))
    }

    /// A logit that at least `count` ids reach, though rarely many more; minus infinity where
    /// nothing better is known.
    pub(crate) fn reached_by(&self, count: usize) -> f32 {
        if count == 0 || count > self.peaks.len() {
            return f32::NEG_INFINITY;
        }
        let mut peaks = self.peaks.clone();
        *peaks
            .select_nth_unstable_by(count - 1, |a, b| b.total_cmp(a))
            .1
    }

    /// The `count` ids of the largest logits, the largest first and on a tie the lowest id first.
    /// Fewer where fewer are possible.
    pub(crate) fn largest(&self, count: usize) -> Vec<TokenId> {
        let candidates = self.at_least(self.reached_by(count));
        let mut ranks: Vec<_> = candidates.map(|id| self.rank(id)).collect();
        if count < ranks.len() {
            ranks.select_nth_unstable(count);
            ranks.truncate(count);
        }
        ranks.sort_unstable();
        ranks.into_iter().map(|rank| rank as TokenId).collect()
    }

    /// A number that orders ids as [`largest`](Self::largest) does, and ends in the id.
    fn rank(&self, id: TokenId) -> u64 {
        // Adding zero makes one of the two zeros.
        let bits = (cap(self.values[id as usize]) + 0.0).to_bits();
        let descending = if bits >> 31 == 0 {
            !bits ^ (1 << 31)
        } else {
            bits
        };
        u64::from(descending) << 32 | u64::from(id)
    }
}

/// A logit, with plus infinity made finite.
#[inline(always)]
pub(crate) fn cap(logit: f32) -> f32 {
    if logit > f32::MAX { f32::MAX } else { logit }
}

wide! {
    /// The largest of each block of `values`.
    fn block_peaks(values: &[f32]) -> Vec<f32> {
        values.chunks(BLOCK).map(block_peak).collect()
    }
}

wide! {
    /// How many of `values` are at least `from` and below `below`.
    pub(crate) fn count_within(values: &[f32], from: f32, below: f32) -> u32 {
        let within = |value: &f32| u32::from((*value >= from) & (*value < below));
        let (rows, rest) = values.as_chunks::<8>();
        let mut lanes = [0; 8];
        for row in rows {
            for (lane, value) in lanes.iter_mut().zip(row) {
                *lane += within(value);
            }
        }
        lanes.into_iter().chain(rest.iter().map(within)).sum()
    }
}

/// The largest of `values`, capped; NaN never is.
#[inline(always)]
fn block_peak(values: &[f32]) -> f32 {
    let (rows, rest) = values.as_chunks::<8>();
    let mut lanes = [f32::NEG_INFINITY; 8];
    for row in rows {
        for (lane, &value) in lanes.iter_mut().zip(row) {
            *lane = larger(*lane, value);
        }
    }
    cap(lanes
        .iter()
        .chain(rest)
        .copied()
        .fold(f32::NEG_INFINITY, larger))
}

/// The larger of two; `best`, which is a number, where `value` is not.
#[inline(always)]
fn larger(best: f32, value: f32) -> f32 {
    if value > best { value } else { best }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::cmp::Ordering;

    /// Rows over several blocks, with ties and with every kind of bad number.
    fn rows() -> impl Strategy<Value = Vec<f32>> {
        let value = prop_oneof![
            8 => (-3_i8..3).prop_map(f32::from),
            8 => -50.0_f32..50.0,
            1 => Just(-0.0),
            1 => prop_oneof![
                Just(f32::NAN),
                Just(f32::INFINITY),
                Just(f32::NEG_INFINITY),
                Just(f32::MAX),
                Just(f32::MIN),
            ],
        ];
        prop::collection::vec(value, 0..400)
    }

    fn sorted(values: &[f32]) -> Vec<TokenId> {
        let mut ids: Vec<_> = (0..values.len() as TokenId)
            .filter(|id| values[*id as usize] > f32::NEG_INFINITY)
            .collect();
        let value = |id: TokenId| values[id as usize].min(f32::MAX);
        ids.sort_by(|a, b| value(*b).partial_cmp(&value(*a)).unwrap_or(Ordering::Equal));
        ids
    }

    proptest! {
        #[test]
        fn searches_agree_with_sorting(values in rows(), count in prop_oneof![0_usize..8, 0_usize..450]) {
            let logits = Logits::new(&values);
            let sorted = sorted(&values);
            prop_assert_eq!(logits.argmax(), sorted.first().copied());
            let head = &sorted[..count.min(sorted.len())];
            prop_assert_eq!(logits.largest(count), head);
            if let [first, rest @ ..] = &sorted[..] {
                let second = rest.first().map_or(f32::NEG_INFINITY, |id| cap(values[*id as usize]));
                prop_assert_eq!(logits.largest_besides(*first), second);
            }
        }
    }
}
