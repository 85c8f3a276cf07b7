//! Matrices that share their input.

use super::packed::Rounded;
use super::{Linear, Rows};
use candle_core::quantized::{QStorage, QTensor};
use candle_core::{Device, Result};
use std::sync::Arc;

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

    /// The product of every matrix with each row.
    pub(crate) fn forward(&self, input: &Rows) -> Result<StackedRows<'_>> {
        let input = Rounded::new(input);
        let products = self.products.iter().map(|product| product.product(&input));
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
    use super::super::tests::{random, random_rows};
    use super::*;
    use candle_core::quantized::GgmlDType;

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
