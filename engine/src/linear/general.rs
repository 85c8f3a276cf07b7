//! Products in encodings that `kernels` has none for.
//!
//! The kernels are candle's. This module sees to it that all rows of a product go through the same
//! one, where that is asked for.

use super::Rows;
use candle_core::quantized::{QStorage, QTensor};
use candle_core::{CpuStorage, CustomOp1, Device, Layout, Result};
use std::borrow::Cow;
use std::sync::Arc;

/// The most rows multiplied at once; a multiple of the four that the kernels take together.
const MAX_ROWS: usize = 28;

/// A matrix in an encoding that candle multiplies with.
#[derive(Clone)]
pub(super) struct General {
    weight: Arc<QTensor>,
    batch_invariant: bool,
}

impl General {
    /// The matrix is laid out for its kernel now rather than in the first product.
    pub(super) fn new(weight: Arc<QTensor>, batch_invariant: bool) -> Result<Self> {
        let inputs = weight.shape().dims()[1];
        let general = Self {
            weight,
            batch_invariant,
        };
        general.product(&Rows::new(vec![0.0; 2 * inputs], inputs))?;
        Ok(general)
    }

    /// The product with each row.
    pub(super) fn product(&self, input: &Rows) -> Result<Vec<f32>> {
        let count = input.count();
        if count <= MAX_ROWS {
            return self.piece(input, 0, count);
        }
        let mut values = Vec::with_capacity(count * self.weight.shape().dims()[0]);
        for start in (0..count).step_by(MAX_ROWS) {
            values.extend(self.piece(input, start, MAX_ROWS.min(count - start))?);
        }
        Ok(values)
    }

    /// A row of the matrix.
    pub(super) fn row(&self, index: usize, out: &mut [f32]) -> Result<()> {
        let (outputs, inputs) = self.weight.shape().dims2()?;
        let bytes = self.weight.data()?;
        let len = bytes.len() / outputs;
        let bytes = Cow::Borrowed(&bytes[index * len..][..len]);
        let storage = QStorage::from_data(bytes, &Device::Cpu, self.weight.dtype())?;
        let row = QTensor::new(storage, (1, inputs))?.dequantize(&Device::Cpu)?;
        out.copy_from_slice(&row.flatten_all()?.to_vec1()?);
        Ok(())
    }

    fn piece(&self, input: &Rows, start: usize, count: usize) -> Result<Vec<f32>> {
        let (outputs, inputs) = self.weight.shape().dims2()?;
        let rows = self.rows_for(count);
        let product = if rows == count {
            let layout = Layout::contiguous_with_offset((count, inputs), start * inputs);
            self.weight.cpu_fwd(&input.values, &layout)?
        } else {
            let mut padded = input.range(start..start + count).to_vec();
            padded.resize(rows * inputs, 0.0);
            let layout = Layout::contiguous((rows, inputs));
            self.weight.cpu_fwd(&CpuStorage::F32(padded), &layout)?
        };
        let mut product = Rows {
            values: product.0,
            width: outputs,
        }
        .into_values();
        product.truncate(count * outputs);
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
        count
    }
}
