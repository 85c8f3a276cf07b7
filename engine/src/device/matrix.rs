//! Matrices on a device, and their products with rows.

use super::WeightType;
use candle_core::quantized::{GgmlDType, QMatMul, QStorage, QTensor};
use candle_core::{DType, Device, Module as _, Result, Tensor};
use std::sync::Arc;

/// A matrix `[outputs][inputs]`.
#[derive(Debug, Clone)]
pub(crate) enum Matrix {
    /// As its file has it, in blocks of whole numbers with scales.
    Quantised(Arc<QTensor>),
    /// In floating point.
    Plain(Tensor),
}

/// Matrices that share their input. Those that follow each other in the same encoding are one
/// product.
#[derive(Debug)]
pub(crate) struct Stack {
    matrices: Vec<Matrix>,
    /// For each part its matrix, its first row there, and its rows.
    places: Vec<(usize, usize, usize)>,
}

impl Matrix {
    /// Takes a matrix of the host's memory to `device`.
    pub(super) fn new(weight: &QTensor, held: WeightType, device: &Device) -> Result<Self> {
        let dtype = match (held.dtype(), weight.dtype()) {
            (Some(dtype), _) => dtype,
            (None, GgmlDType::F32) => DType::F32,
            (None, GgmlDType::F16) => DType::F16,
            (None, GgmlDType::BF16) => DType::BF16,
            (None, _) => {
                let storage = QStorage::from_data(weight.data()?, device, weight.dtype())?;
                let weight = QTensor::new(storage, weight.shape().clone())?;
                return Ok(Self::Quantised(Arc::new(weight)));
            }
        };
        let host = weight.dequantize(&Device::Cpu)?.to_dtype(dtype)?;
        Ok(Self::Plain(host.to_device(device)?))
    }

    /// The products with `rows`, `[rows][inputs]` in 32 bits: `[rows][outputs]` in 32 bits.
    pub(super) fn forward(&self, rows: &Tensor) -> Result<Tensor> {
        match self {
            Self::Quantised(weight) => QMatMul::QTensor(Arc::clone(weight)).forward(rows),
            Self::Plain(weight) => rows
                .to_dtype(weight.dtype())?
                .matmul(&weight.t()?)?
                .to_dtype(DType::F32),
        }
    }

    /// Some of its rows, in 32 bits.
    pub(super) fn rows(&self, indices: &Tensor) -> Result<Tensor> {
        match self {
            Self::Quantised(weight) => weight.embedding(indices),
            Self::Plain(weight) => weight.index_select(indices, 0)?.to_dtype(DType::F32),
        }
    }
}

impl Stack {
    /// Takes matrices of the same inputs to `device`.
    pub(super) fn new(weights: &[QTensor], held: WeightType, device: &Device) -> Result<Self> {
        let mut matrices = Vec::new();
        let mut places = Vec::with_capacity(weights.len());
        for alike in weights.chunk_by(|a, b| a.dtype() == b.dtype()) {
            let mut first = 0;
            for weight in alike {
                let (rows, _) = weight.shape().dims2()?;
                places.push((matrices.len(), first, rows));
                first += rows;
            }
            matrices.push(Matrix::new(&joined(alike)?, held, device)?);
        }
        Ok(Self { matrices, places })
    }

    /// What each matrix makes of `rows`.
    pub(super) fn forward(&self, rows: &Tensor) -> Result<Vec<Tensor>> {
        let products = self
            .matrices
            .iter()
            .map(|matrix| matrix.forward(rows))
            .collect::<Result<Vec<_>>>()?;
        let part = |&(matrix, first, rows): &(usize, usize, usize)| {
            products[matrix].narrow(1, first, rows)?.contiguous()
        };
        self.places.iter().map(part).collect()
    }
}

/// One matrix of the rows of all: rows are encoded each on its own.
fn joined(weights: &[QTensor]) -> Result<QTensor> {
    let (dtype, inputs) = (weights[0].dtype(), weights[0].shape().dims2()?.1);
    let mut bytes = Vec::new();
    let mut outputs = 0;
    for weight in weights {
        bytes.extend_from_slice(&weight.data()?);
        outputs += weight.shape().dims2()?.0;
    }
    let storage = QStorage::from_data(bytes.into(), &Device::Cpu, dtype)?;
    QTensor::new(storage, (outputs, inputs))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{Rng as _, SeedableRng as _, rngs::StdRng};

    const INPUTS: usize = 256;

    fn weight(outputs: usize, dtype: GgmlDType, seed: u64) -> QTensor {
        let mut rng = StdRng::seed_from_u64(seed);
        let values: Vec<f32> = (0..outputs * INPUTS)
            .map(|_| rng.random_range(-1.0..1.0))
            .collect();
        let values = Tensor::from_vec(values, (outputs, INPUTS), &Device::Cpu).unwrap();
        QTensor::quantize(&values, dtype).unwrap()
    }

    fn input(rows: usize) -> Tensor {
        let values: Vec<f32> = (0..rows * INPUTS)
            .map(|i| (i as f32 * 0.37).sin())
            .collect();
        Tensor::from_vec(values, (rows, INPUTS), &Device::Cpu).unwrap()
    }

    /// The largest difference, relative to the largest number.
    fn difference(a: &Tensor, b: &Tensor) -> f32 {
        let largest = |t: Tensor| {
            t.abs()
                .unwrap()
                .flatten_all()
                .unwrap()
                .max(0)
                .unwrap()
                .to_scalar::<f32>()
                .unwrap()
        };
        largest((a - b).unwrap()) / largest(b.clone())
    }

    #[test]
    fn a_stack_gives_what_its_matrices_give() {
        use GgmlDType::{F16, F32, Q4K, Q6K};
        let dtypes = [Q4K, Q4K, Q6K, F16, F32, F32];
        let weights: Vec<QTensor> = dtypes
            .iter()
            .enumerate()
            .map(|(index, &dtype)| weight(3 + index, dtype, index as u64))
            .collect();
        let stack = Stack::new(&weights, WeightType::Stored, &Device::Cpu).unwrap();
        assert_eq!(
            stack.matrices.len(),
            4,
            "runs of one encoding are one product"
        );
        let input = input(5);
        let parts = stack.forward(&input).unwrap();
        for (part, weight) in parts.iter().zip(&weights) {
            let alone = Matrix::new(weight, WeightType::Stored, &Device::Cpu).unwrap();
            let difference = difference(part, &alone.forward(&input).unwrap());
            assert!(difference < 1e-5, "{:?}: {difference}", weight.dtype());
        }
    }

    #[test]
    fn a_matrix_may_be_held_in_fewer_bits() {
        let weight = weight(8, GgmlDType::F32, 1);
        let held = |held| {
            let matrix = Matrix::new(&weight, held, &Device::Cpu).unwrap();
            matrix.forward(&input(2)).unwrap()
        };
        let exact = held(WeightType::Stored);
        assert_eq!(difference(&held(WeightType::F32), &exact), 0.0);
        for (fewer, most) in [(WeightType::F16, 2e-3), (WeightType::Bf16, 2e-2)] {
            let difference = difference(&held(fewer), &exact);
            assert!((1e-6..most).contains(&difference), "{fewer}: {difference}");
        }
    }
}
