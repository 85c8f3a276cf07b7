//! Matrix products with quantised weights.
//!
//! The kernels are candle's. This module sees to it that they are the fast ones, that all rows of
//! a product go through the same one where that is asked for, and that matrices which share their
//! input are multiplied in one go. It knows nothing of what the matrices are for.

mod encoding;

use candle_core::quantized::{GgmlDType, QStorage, QTensor};
use candle_core::{CpuStorage, CustomOp1, Device, Layout, Result};
use std::ops::Range;
use std::sync::Arc;

/// The most rows multiplied at once. From 32 rows on, candle has a kernel for Q4_K that differs in
/// the last bits, is hardly faster, and keeps one more copy of the weights, the largest of all.
/// A multiple of the four rows that the kernels take together.
const MAX_ROWS: usize = 28;

/// Rows of numbers, as many in each.
pub(crate) struct Rows {
    values: CpuStorage,
    width: usize,
}

/// A matrix whose rows are multiplied with rows of activations: `y = x·Wᵀ`.
pub(crate) struct Linear {
    weight: Arc<QTensor>,
    /// Columns before padding: the width of the activations.
    inputs: usize,
    outputs: usize,
    batch_invariant: bool,
}

/// Matrices that share their input, stacked where their types allow it.
pub(crate) struct Stacked {
    products: Vec<Linear>,
    /// For each matrix the product that it is part of, and its first column there.
    places: Vec<(usize, usize)>,
}

/// What [`Stacked::forward`] gives: the rows of each of its matrices.
pub(crate) struct StackedRows<'a> {
    products: Vec<Rows>,
    places: &'a [(usize, usize)],
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

    /// The rows `start..start + count`, with zeros up to `rows` rows of `width`.
    fn padded(&self, start: usize, count: usize, rows: usize, width: usize) -> Self {
        let mut values = vec![0.0; rows * width];
        let source = self.values()[start * self.width..].chunks_exact(self.width);
        for (row, source) in values.chunks_exact_mut(width).zip(source.take(count)) {
            row[..self.width].copy_from_slice(source);
        }
        Self::new(values, width)
    }
}

impl Linear {
    /// Makes a matrix ready for products: in the encoding whose kernel is fast here, and laid
    /// out for that kernel now rather than in the first product.
    ///
    /// With `batch_invariant`, what a row of a product gives is the same to the bit whatever the
    /// other rows.
    pub(crate) fn new(weight: Arc<QTensor>, batch_invariant: bool) -> Result<Self> {
        let (outputs, inputs) = weight.shape().dims2()?;
        let linear = Self {
            weight: encoding::for_products(weight)?,
            inputs,
            outputs,
            batch_invariant,
        };
        linear.forward(&Rows::new(vec![0.0; 2 * inputs], inputs))?;
        Ok(linear)
    }

    /// The product with each row.
    pub(crate) fn forward(&self, input: &Rows) -> Result<Rows> {
        debug_assert_eq!(input.width, self.inputs, "rows fit the matrix");
        let count = input.count();
        if count <= MAX_ROWS {
            return Ok(Rows::new(self.piece(input, 0, count)?, self.outputs));
        }
        let mut values = Vec::with_capacity(count * self.outputs);
        for start in (0..count).step_by(MAX_ROWS) {
            values.extend(self.piece(input, start, MAX_ROWS.min(count - start))?);
        }
        Ok(Rows::new(values, self.outputs))
    }

    fn piece(&self, input: &Rows, start: usize, count: usize) -> Result<Vec<f32>> {
        let width = self.weight.shape().dims()[1];
        let rows = self.rows_for(count);
        let product = if (rows, width) == (count, input.width) {
            let layout = Layout::contiguous_with_offset((count, width), start * width);
            self.weight.cpu_fwd(&input.values, &layout)?
        } else {
            let padded = input.padded(start, count, rows, width);
            let layout = Layout::contiguous((rows, width));
            self.weight.cpu_fwd(&padded.values, &layout)?
        };
        let mut product = Rows {
            values: product.0,
            width: self.outputs,
        }
        .into_values();
        product.truncate(count * self.outputs);
        Ok(product)
    }

    /// How many rows to multiply so that `count` of them go through the kernel that any other
    /// number goes through.
    fn rows_for(&self, count: usize) -> usize {
        if !self.batch_invariant {
            return count;
        }
        if cfg!(target_arch = "aarch64") {
            // Four rows at a time are one kernel, what is left over is another.
            return count.next_multiple_of(4);
        }
        match self.weight.dtype() {
            // A single row is another kernel than several.
            GgmlDType::Q6K => count.max(2),
            _ => count,
        }
    }
}

impl Stacked {
    /// Joins neighbours of the same type into one matrix each.
    pub(crate) fn new(weights: Vec<QTensor>, batch_invariant: bool) -> Result<Self> {
        let mut groups: Vec<Vec<QTensor>> = Vec::new();
        let mut places = Vec::with_capacity(weights.len());
        for weight in weights {
            match groups.last_mut() {
                Some(group) if group[0].dtype() == weight.dtype() => {
                    let column = group.iter().map(|part| part.shape().dims()[0]).sum();
                    group.push(weight);
                    places.push((groups.len() - 1, column));
                }
                _ => {
                    groups.push(vec![weight]);
                    places.push((groups.len() - 1, 0));
                }
            }
        }
        let products = groups
            .into_iter()
            .map(|group| Linear::new(Arc::new(stack(group)?), batch_invariant))
            .collect::<Result<_>>()?;
        Ok(Self { products, places })
    }

    /// The encoding of the first of them.
    pub(crate) fn dtype(&self) -> GgmlDType {
        self.products[0].weight.dtype()
    }

    /// The product of every matrix with each row.
    pub(crate) fn forward(&self, input: &Rows) -> Result<StackedRows<'_>> {
        let products = self.products.iter().map(|product| product.forward(input));
        Ok(StackedRows {
            products: products.collect::<Result<_>>()?,
            places: &self.places,
        })
    }
}

impl StackedRows<'_> {
    pub(crate) fn count(&self) -> usize {
        self.products[0].count()
    }

    /// A row's product with the given matrix, followed by whatever was stacked under it.
    pub(crate) fn row(&self, matrix: usize, row: usize) -> &[f32] {
        let (product, column) = self.places[matrix];
        let product = &self.products[product];
        &product.values()[row * product.width..(row + 1) * product.width][column..]
    }

    /// As [`row`](Self::row), to be changed.
    pub(crate) fn row_mut(&mut self, matrix: usize, row: usize) -> &mut [f32] {
        let (product, column) = self.places[matrix];
        let product = &mut self.products[product];
        let width = product.width;
        &mut product.values_mut()[row * width..(row + 1) * width][column..]
    }
}

/// One matrix of the rows of all `parts`, which are of one type and width.
fn stack(mut parts: Vec<QTensor>) -> Result<QTensor> {
    if parts.len() == 1 {
        return Ok(parts.remove(0));
    }
    let (dtype, width) = (parts[0].dtype(), parts[0].shape().dims2()?.1);
    let mut rows = 0;
    let mut bytes = Vec::with_capacity(parts.iter().map(QTensor::storage_size_in_bytes).sum());
    for part in parts {
        rows += part.shape().dims2()?.0;
        bytes.extend_from_slice(&part.data()?);
    }
    QTensor::new(
        QStorage::from_data(bytes.into(), &Device::Cpu, dtype)?,
        (rows, width),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::Tensor;

    const DTYPES: [GgmlDType; 11] = [
        GgmlDType::F32,
        GgmlDType::F16,
        GgmlDType::BF16,
        GgmlDType::Q4_0,
        GgmlDType::Q4_1,
        GgmlDType::Q5_0,
        GgmlDType::Q5_1,
        GgmlDType::Q8_0,
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

    fn random(rows: usize, width: usize) -> Tensor {
        Tensor::randn(0f32, 1.0, (rows, width), &Device::Cpu).unwrap()
    }

    fn random_rows(count: usize, width: usize) -> Rows {
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
    fn stacked_matrices_give_what_each_gives_alone() {
        let dtypes = [GgmlDType::Q4K, GgmlDType::Q4K, GgmlDType::Q6K];
        let weights: Vec<_> = dtypes
            .iter()
            .zip([32, 16, 48])
            .map(|(dtype, outputs)| QTensor::quantize(&random(outputs, 256), *dtype).unwrap())
            .collect();
        let copies = weights.iter().map(|weight| {
            let data = QStorage::from_data(weight.data().unwrap(), &Device::Cpu, weight.dtype());
            QTensor::new(data.unwrap(), weight.shape()).unwrap()
        });
        let stacked = Stacked::new(copies.collect(), true).unwrap();
        assert_eq!(stacked.products.len(), 2);
        let input = random_rows(3, 256);
        let together = stacked.forward(&input).unwrap();
        for (index, weight) in weights.into_iter().enumerate() {
            let alone = Linear::new(Arc::new(weight), true).unwrap();
            let alone = alone.forward(&input).unwrap();
            for row in 0..3 {
                let expected = alone.range(row..row + 1);
                assert_eq!(&together.row(index, row)[..expected.len()], expected);
            }
        }
    }
}
