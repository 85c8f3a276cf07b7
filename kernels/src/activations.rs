//! Rows of activations, rounded to eight bits.

use crate::Format;
use crate::format::{GROUP, SUPER};

/// Columns that the finer sums are over.
const FINE: usize = GROUP / 2;

/// What a matrix is multiplied with: rows of as many numbers as it has columns.
#[derive(Debug, Clone, Copy)]
pub enum Input<'a> {
    /// For floats: the rows, one after the other.
    Exact(&'a [f32]),
    /// For quants: rows of the format's [`Grain`].
    Rounded(&'a Activations),
}

/// How many columns share a scale.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grain {
    /// 32, for formats with such blocks.
    Small,
    /// 256, for formats with such blocks.
    Large,
}

/// Rows of activations as whole numbers from −127 to 127, times a scale for each block.
#[derive(Debug)]
pub struct Activations {
    grain: Grain,
    width: usize,
    quants: Vec<i8>,
    /// One per block.
    scales: Vec<f32>,
    /// The sum of the quants of each 32 columns, and of each 16.
    sums: Vec<i16>,
    fine_sums: Vec<i16>,
}

/// One row, to be set.
#[derive(Debug)]
pub struct RowMut<'a> {
    columns: usize,
    quants: &'a mut [i8],
    scales: &'a mut [f32],
    sums: &'a mut [i16],
    fine_sums: &'a mut [i16],
}

/// One row.
#[derive(Clone, Copy)]
pub(crate) struct Row<'a> {
    pub(crate) quants: &'a [i8],
    pub(crate) scales: &'a [f32],
    pub(crate) sums: &'a [i16],
    pub(crate) fine_sums: &'a [i16],
}

impl Grain {
    /// The grain that products with a format take; those with floats round nothing.
    pub const fn of(format: Format) -> Option<Self> {
        match format.block_columns() {
            GROUP => Some(Self::Small),
            SUPER => Some(Self::Large),
            _ => None,
        }
    }

    const fn columns(self) -> usize {
        match self {
            Self::Small => GROUP,
            Self::Large => SUPER,
        }
    }
}

impl Activations {
    /// Room for rows of `width` numbers, all of them zero.
    ///
    /// # Panics
    /// If `width` is no multiple of the grain.
    pub fn zeros(rows: usize, width: usize, grain: Grain) -> Self {
        assert!(width.is_multiple_of(grain.columns()), "whole blocks");
        let len = rows * width;
        Self {
            grain,
            width,
            quants: vec![0; len],
            scales: vec![0.0; len / grain.columns()],
            sums: vec![0; len / GROUP],
            fine_sums: vec![0; len / FINE],
        }
    }

    /// Rounds rows of `width` numbers, which lie one after the other.
    ///
    /// # Panics
    /// If `width` is no multiple of the grain, or `values` are not whole rows.
    pub fn new(values: &[f32], width: usize, grain: Grain) -> Self {
        assert!(values.len().is_multiple_of(width), "whole rows");
        let mut activations = Self::zeros(values.len() / width, width, grain);
        for (mut row, values) in activations.rows_mut().zip(values.chunks_exact(width)) {
            row.set(values);
        }
        activations
    }

    /// The rows, to be set.
    pub fn rows_mut(&mut self) -> impl Iterator<Item = RowMut<'_>> {
        let columns = self.grain.columns();
        let scales = self.scales.chunks_exact_mut(self.width / columns);
        let sums = self.sums.chunks_exact_mut(self.width / GROUP);
        let fine_sums = self.fine_sums.chunks_exact_mut(self.width / FINE);
        let rows = self.quants.chunks_exact_mut(self.width);
        let rows = rows.zip(scales).zip(sums).zip(fine_sums);
        rows.map(move |(((quants, scales), sums), fine_sums)| RowMut {
            columns,
            quants,
            scales,
            sums,
            fine_sums,
        })
    }

    /// How many rows there are.
    pub fn rows(&self) -> usize {
        self.quants.len() / self.width
    }

    /// Numbers in a row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// How many columns share a scale.
    pub fn grain(&self) -> Grain {
        self.grain
    }

    pub(crate) fn row(&self, row: usize) -> Row<'_> {
        let start = row * self.width;
        let part = |columns| start / columns..(start + self.width) / columns;
        Row {
            quants: &self.quants[part(1)],
            scales: &self.scales[part(self.grain.columns())],
            sums: &self.sums[part(GROUP)],
            fine_sums: &self.fine_sums[part(FINE)],
        }
    }
}

impl RowMut<'_> {
    /// Rounds `values`. One that is not finite leaves no finite number in the row's products.
    ///
    /// # Panics
    /// If the row has more or fewer numbers.
    pub fn set(&mut self, values: &[f32]) {
        assert_eq!(values.len(), self.quants.len(), "numbers in a row");
        let blocks = values.chunks_exact(self.columns);
        let quants = self.quants.chunks_exact_mut(self.columns);
        for ((block, quants), scale) in blocks.zip(quants).zip(&mut *self.scales) {
            *scale = quantise(block, quants);
        }
        let pieces = self.quants.as_chunks::<FINE>().0;
        for (sum, piece) in self.fine_sums.iter_mut().zip(pieces) {
            *sum = piece.iter().map(|&quant| i16::from(quant)).sum();
        }
        for (sum, [a, b]) in self.sums.iter_mut().zip(self.fine_sums.as_chunks::<2>().0) {
            *sum = a + b;
        }
    }
}

/// Rounds a block to the nearest multiples of a 127th of its largest magnitude, which it returns.
#[inline(always)]
fn quantise(block: &[f32], quants: &mut [i8]) -> f32 {
    /// Below it the reciprocal overflows; so small a block counts as zero.
    const TINY: f32 = 1e-30;
    /// Adding it leaves the nearest whole number in the low bits of the significand.
    const ROUND: f32 = 12_582_912.0;
    // As whole numbers, magnitudes are in order and what is no number is the largest of all.
    let largest = block.iter().fold(0, |largest: u32, value| {
        largest.max(value.to_bits() & 0x7fff_ffff)
    });
    let largest = f32::from_bits(largest);
    if largest < TINY {
        quants.fill(0);
        return 0.0;
    }
    let inverse = 127.0 / largest;
    for (quant, &value) in quants.iter_mut().zip(block) {
        *quant = (value * inverse + ROUND).to_bits() as i8;
    }
    if largest.is_finite() {
        largest / 127.0
    } else {
        f32::NAN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_rounded_to_the_nearest_of_255_steps() {
        let values: Vec<f32> = (0..512)
            .map(|i| ((i * 37 % 512) as f32 - 200.0) / 7.0)
            .collect();
        for grain in [Grain::Small, Grain::Large] {
            let activations = Activations::new(&values, 256, grain);
            assert_eq!(activations.rows(), 2);
            for (row, values) in values.chunks(256).enumerate() {
                let row = activations.row(row);
                let blocks = values.chunks(grain.columns()).zip(row.scales);
                let quants = row.quants.chunks(grain.columns());
                for ((block, &scale), quants) in blocks.zip(quants) {
                    let largest = block.iter().fold(0f32, |a, b| a.max(b.abs()));
                    assert!((scale * 127.0 / largest - 1.0).abs() < 1e-6);
                    for (value, &quant) in block.iter().zip(quants) {
                        let error = (value - scale * f32::from(quant)).abs();
                        assert!(error <= scale * 0.501, "{value} as {quant}·{scale}");
                    }
                }
                let sum = |quants: &[i8]| quants.iter().map(|&q| i16::from(q)).sum::<i16>();
                assert!(row.quants.chunks(32).map(sum).eq(row.sums.iter().copied()));
                assert!(
                    row.quants
                        .chunks(16)
                        .map(sum)
                        .eq(row.fine_sums.iter().copied())
                );
            }
        }
    }

    #[test]
    fn extremes_stay_in_range_and_what_is_no_number_stays_so() {
        for (value, expected) in [
            (f32::MAX, [127, -127]),
            (1e-20, [127, -127]),
            (1e-40, [0, 0]),
            (0.0, [0, 0]),
        ] {
            let mut block = [0.0; 32];
            block[..2].copy_from_slice(&[value, -value]);
            let activations = Activations::new(&block, 32, Grain::Small);
            assert_eq!(activations.row(0).quants[..2], expected, "{value:e}");
            assert!(activations.row(0).scales[0].is_finite());
        }
        for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut block = [1.0; 32];
            block[7] = value;
            let activations = Activations::new(&block, 32, Grain::Small);
            assert!(activations.row(0).scales[0].is_nan(), "{value}");
        }
    }
}
