//! Rows of activations, rounded to eight bits.

use crate::format::GROUP;
use crate::isa;

/// Columns that the finer sums are over.
const FINE: usize = GROUP / 2;

/// What a matrix is multiplied with: rows of as many numbers as it has columns.
#[derive(Debug, Clone, Copy)]
pub enum Input<'a> {
    /// For floats: the rows, one after the other.
    Exact(&'a [f32]),
    /// For quants.
    Rounded(&'a Activations),
}

/// Rows of activations as whole numbers from −127 to 127, times a scale for each 32.
#[derive(Debug)]
pub struct Activations {
    width: usize,
    quants: Vec<i8>,
    scales: Vec<f32>,
    /// The sum of the quants of each 16 columns, and of each 32.
    fine_sums: Vec<i16>,
    sums: Vec<i16>,
    /// The same times the scale.
    scaled_sums: Vec<f32>,
}

/// One row, to be set.
#[derive(Debug)]
pub struct RowMut<'a> {
    quants: &'a mut [i8],
    scales: &'a mut [f32],
    fine_sums: &'a mut [i16],
    sums: &'a mut [i16],
    scaled_sums: &'a mut [f32],
}

/// One row.
#[derive(Clone, Copy)]
pub(crate) struct Row<'a> {
    pub(crate) quants: &'a [i8],
    pub(crate) scales: &'a [f32],
    pub(crate) fine_sums: &'a [i16],
    pub(crate) sums: &'a [i16],
    pub(crate) scaled_sums: &'a [f32],
}

impl Activations {
    /// Room for rows of `width` numbers, all of them zero.
    ///
    /// # Panics
    /// If `width` is no multiple of 32.
    pub fn zeros(rows: usize, width: usize) -> Self {
        assert!(width.is_multiple_of(GROUP), "whole blocks");
        let len = rows * width;
        Self {
            width,
            quants: vec![0; len],
            scales: vec![0.0; len / GROUP],
            fine_sums: vec![0; len / FINE],
            sums: vec![0; len / GROUP],
            scaled_sums: vec![0.0; len / GROUP],
        }
    }

    /// Rounds rows of `width` numbers, which lie one after the other.
    ///
    /// # Panics
    /// If `width` is no multiple of 32, or `values` are not whole rows.
    pub fn new(values: &[f32], width: usize) -> Self {
        assert!(values.len().is_multiple_of(width), "whole rows");
        let mut activations = Self::zeros(values.len() / width, width);
        for (mut row, values) in activations.rows_mut().zip(values.chunks_exact(width)) {
            row.set(values);
        }
        activations
    }

    /// The rows, to be set.
    pub fn rows_mut(&mut self) -> impl Iterator<Item = RowMut<'_>> {
        let blocks = self.width / GROUP;
        let rows = self.quants.chunks_exact_mut(self.width);
        let scales = self.scales.chunks_exact_mut(blocks);
        let fine_sums = self.fine_sums.chunks_exact_mut(self.width / FINE);
        let sums = self.sums.chunks_exact_mut(blocks);
        let scaled_sums = self.scaled_sums.chunks_exact_mut(blocks);
        let rows = rows.zip(scales).zip(fine_sums).zip(sums).zip(scaled_sums);
        rows.map(
            |((((quants, scales), fine_sums), sums), scaled_sums)| RowMut {
                quants,
                scales,
                fine_sums,
                sums,
                scaled_sums,
            },
        )
    }

    /// How many rows there are.
    pub fn rows(&self) -> usize {
        self.quants.len() / self.width
    }

    /// Numbers in a row.
    pub fn width(&self) -> usize {
        self.width
    }

    #[inline(always)]
    pub(crate) fn row(&self, row: usize) -> Row<'_> {
        let start = row * self.width;
        let part = |columns| start / columns..(start + self.width) / columns;
        Row {
            quants: &self.quants[part(1)],
            scales: &self.scales[part(GROUP)],
            fine_sums: &self.fine_sums[part(FINE)],
            sums: &self.sums[part(GROUP)],
            scaled_sums: &self.scaled_sums[part(GROUP)],
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
        isa::wide(|| self.round(values));
    }

    #[inline(always)]
    fn round(&mut self, values: &[f32]) {
        let blocks = values.as_chunks::<GROUP>().0.iter();
        let quants = self.quants.as_chunks_mut::<GROUP>().0;
        for ((block, quants), scale) in blocks.zip(quants).zip(&mut *self.scales) {
            *scale = quantise(block, quants);
        }
        let pieces = self.quants.as_chunks::<FINE>().0;
        for (sum, piece) in self.fine_sums.iter_mut().zip(pieces) {
            *sum = piece.iter().map(|&quant| i16::from(quant)).sum();
        }
        let pairs = self.fine_sums.as_chunks::<2>().0.iter().zip(&*self.scales);
        let sums = self.sums.iter_mut().zip(&mut *self.scaled_sums);
        for ((sum, scaled), ([a, b], scale)) in sums.zip(pairs) {
            *sum = a + b;
            *scaled = f32::from(*sum) * scale;
        }
    }
}

/// Rounds a block to the nearest multiples of a 127th of its largest magnitude, which it returns.
#[inline(always)]
fn quantise(block: &[f32; GROUP], quants: &mut [i8; GROUP]) -> f32 {
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
        let activations = Activations::new(&values, 256);
        assert_eq!(activations.rows(), 2);
        for (row, values) in values.chunks(256).enumerate() {
            let row = activations.row(row);
            let blocks = values.chunks(GROUP).zip(row.scales);
            let quants = row.quants.chunks(GROUP);
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
            let scaled = row
                .sums
                .iter()
                .zip(row.scales)
                .map(|(&a, b)| f32::from(a) * b);
            assert!(scaled.eq(row.scaled_sums.iter().copied()));
            assert!(
                row.quants
                    .chunks(16)
                    .map(sum)
                    .eq(row.fine_sums.iter().copied())
            );
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
            let activations = Activations::new(&block, 32);
            assert_eq!(activations.row(0).quants[..2], expected, "{value:e}");
            assert!(activations.row(0).scales[0].is_finite());
        }
        for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut block = [1.0; 32];
            block[7] = value;
            let activations = Activations::new(&block, 32);
            assert!(activations.row(0).scales[0].is_nan(), "{value}");
        }
    }
}
