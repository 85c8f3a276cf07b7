//! Matrix products.
//!
//! Weights in the formats that `kernels` has go through it; any other through candle. This module
//! chooses, spreads the work over the threads, and sees to it that matrices which share their
//! input are multiplied in one go. It knows nothing of what the matrices are for.

mod general;
mod packed;
mod stacked;

use candle_core::quantized::QTensor;
use candle_core::{CpuStorage, Result};
use general::General;
use packed::{Packed, Rounded};
use std::ops::Range;
use std::sync::Arc;

pub(crate) use stacked::{Stacked, StackedRows};

/// Rows of numbers, as many in each.
pub(crate) struct Rows {
    values: CpuStorage,
    width: usize,
}

/// A matrix whose rows are multiplied with rows of activations: `y = x·Wᵀ`. Clones share it.
#[derive(Clone)]
pub(crate) struct Linear {
    weight: Weight,
    outputs: usize,
    inputs: usize,
}

#[derive(Clone)]
enum Weight {
    Packed(Packed),
    General(General),
}

impl Rows {
    /// Cuts `values` into rows of `width`.
    pub(crate) fn new(values: Vec<f32>, width: usize) -> Self {
        debug_assert!(values.len().is_multiple_of(width), "whole rows");
        let values = CpuStorage::F32(values);
        Self { values, width }
    }

    pub(crate) fn count(&self) -> usize {
        self.values().len() / self.width
    }

    pub(crate) fn values(&self) -> &[f32] {
        match &self.values {
            CpuStorage::F32(values) => values,
            _ => unreachable!("rows are made of f32"),
        }
    }

    pub(crate) fn values_mut(&mut self) -> &mut [f32] {
        match &mut self.values {
            CpuStorage::F32(values) => values,
            _ => unreachable!("rows are made of f32"),
        }
    }

    /// The numbers of some rows.
    pub(crate) fn range(&self, rows: Range<usize>) -> &[f32] {
        &self.values()[rows.start * self.width..rows.end * self.width]
    }

    pub(crate) fn into_values(self) -> Vec<f32> {
        match self.values {
            CpuStorage::F32(values) => values,
            _ => unreachable!("rows are made of f32"),
        }
    }
}

impl Linear {
    /// Makes a matrix ready for products. The tensor's memory is given back where nobody else has
    /// it, unless the products are candle's.
    ///
    /// With `batch_invariant`, what a row of a product gives is the same to the bit whatever the
    /// other rows.
    pub(crate) fn new(weight: Arc<QTensor>, batch_invariant: bool) -> Result<Self> {
        let (outputs, inputs) = weight.shape().dims2()?;
        let weight = match packed::format(weight.dtype(), inputs) {
            // Invariant in any case.
            Some(format) => Weight::Packed(Packed::new(format, outputs, inputs, &weight.data()?)?),
            None => Weight::General(General::new(weight, batch_invariant)?),
        };
        Ok(Self {
            weight,
            outputs,
            inputs,
        })
    }

    /// Numbers that a row of activations has.
    pub(crate) fn inputs(&self) -> usize {
        self.inputs
    }

    /// The product with each row.
    pub(crate) fn forward(&self, input: &Rows) -> Result<Rows> {
        self.product(&Rounded::new(input))
    }

    /// A row of the matrix, of as many numbers as it has inputs.
    pub(crate) fn row(&self, index: usize, out: &mut [f32]) -> Result<()> {
        match &self.weight {
            Weight::Packed(weight) => weight.row(index, out),
            Weight::General(weight) => weight.row(index, out)?,
        }
        Ok(())
    }

    fn product(&self, input: &Rounded<'_>) -> Result<Rows> {
        let values = match &self.weight {
            Weight::Packed(weight) => weight.product(input),
            Weight::General(weight) => weight.product(input.rows())?,
        };
        Ok(Rows::new(values, self.outputs))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use candle_core::quantized::GgmlDType;
    use candle_core::{Device, Tensor};

    const DTYPES: [GgmlDType; 13] = [
        GgmlDType::F32,
        GgmlDType::F16,
        GgmlDType::BF16,
        GgmlDType::Q4_0,
        GgmlDType::Q4_1,
        GgmlDType::Q5_0,
        GgmlDType::Q5_1,
        GgmlDType::Q8_0,
        GgmlDType::Q2K,
        GgmlDType::Q3K,
        GgmlDType::Q4K,
        GgmlDType::Q5K,
        GgmlDType::Q6K,
    ];

    /// Outputs and inputs: whole tiles and parts of them, rows of whole blocks and of some.
    fn shapes(dtype: GgmlDType) -> impl Iterator<Item = (usize, usize)> {
        let shapes: [(usize, usize); 5] = [(16, 256), (35, 256), (48, 768), (64, 288), (7, 32)];
        shapes
            .into_iter()
            .filter(move |(_, inputs)| inputs.is_multiple_of(dtype.block_size()))
    }

    pub(super) fn random(rows: usize, width: usize) -> Tensor {
        Tensor::randn(0f32, 1.0, (rows, width), &Device::Cpu).unwrap()
    }

    pub(super) fn random_rows(count: usize, width: usize) -> Rows {
        let values = random(count, width).flatten_all().unwrap();
        Rows::new(values.to_vec1().unwrap(), width)
    }

    #[test]
    fn rows_do_not_depend_on_the_rows_beside_them() {
        for dtype in DTYPES {
            for (outputs, inputs) in shapes(dtype) {
                let weight = QTensor::quantize(&random(outputs, inputs), dtype).unwrap();
                let linear = Linear::new(Arc::new(weight), true).unwrap();
                let input = random_rows(40, inputs);
                let expected = linear.forward(&input).unwrap();
                for count in 1..40 {
                    for start in [0, 40 - count] {
                        let piece = input.range(start..start + count).to_vec();
                        let product = linear.forward(&Rows::new(piece, inputs)).unwrap();
                        let same = product.values() == expected.range(start..start + count);
                        assert!(same, "{dtype:?} {outputs}x{inputs}: {count} rows of 40");
                    }
                }
            }
        }
    }

    #[test]
    fn products_are_those_of_the_dequantised_matrix() {
        for dtype in DTYPES {
            for (outputs, inputs) in shapes(dtype) {
                let weight = QTensor::quantize(&random(outputs, inputs), dtype).unwrap();
                let matrix = weight.dequantize(&Device::Cpu).unwrap();
                let linear = Linear::new(Arc::new(weight), false).unwrap();
                for count in [1, 2, 33] {
                    let input = random_rows(count, inputs);
                    let product = linear.forward(&input).unwrap();
                    let input = Tensor::from_slice(input.values(), (count, inputs), &Device::Cpu);
                    let exact = input.unwrap().matmul(&matrix.t().unwrap()).unwrap();
                    let exact: Vec<f32> = exact.flatten_all().unwrap().to_vec1().unwrap();
                    let errors = product
                        .values()
                        .iter()
                        .zip(&exact)
                        .map(|(a, b)| (a - b).powi(2));
                    // Kernels round the activations to eight bits.
                    let error = (errors.sum::<f32>() / exact.len() as f32 / inputs as f32).sqrt();
                    assert!(error < 0.02, "{dtype:?} {outputs}x{inputs}: off by {error}");
                }
            }
        }
    }

    #[test]
    fn rows_of_the_matrix_are_those_of_the_tensor() {
        for dtype in DTYPES {
            for (outputs, inputs) in shapes(dtype) {
                let weight = QTensor::quantize(&random(outputs, inputs), dtype).unwrap();
                let matrix = weight.dequantize(&Device::Cpu).unwrap();
                let linear = Linear::new(Arc::new(weight), true).unwrap();
                let mut row = vec![0.0; inputs];
                for (index, expected) in matrix.to_vec2::<f32>().unwrap().iter().enumerate() {
                    linear.row(index, &mut row).unwrap();
                    assert_eq!(&row, expected, "{dtype:?} {outputs}x{inputs}: row {index}");
                }
            }
        }
    }

    #[test]
    fn a_packed_matrix_keeps_no_second_copy() {
        let weight = Arc::new(QTensor::quantize(&random(16, 256), GgmlDType::Q4K).unwrap());
        let linear = Linear::new(Arc::clone(&weight), true).unwrap();
        assert_eq!(Arc::strong_count(&weight), 1);
        drop(linear);
    }
}
