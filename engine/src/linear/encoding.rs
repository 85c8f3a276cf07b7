//! Encodings of the same weights: for some there are good kernels, for others there are none.

use candle_core::quantized::{GgmlDType, QStorage, QTensor};
use candle_core::{Device, Result};
use std::sync::Arc;

/// Numbers per block of Q5_0 and of Q8_0.
const BLOCK: usize = 32;
/// Bytes per block: a scale of two bytes, then the numbers.
const Q5_0_BYTES: usize = 2 + 4 + BLOCK / 2;
const Q8_0_BYTES: usize = 2 + BLOCK;
/// candle has kernels with wide integer products for matrices of multiples of these.
const WIDE_ROWS: usize = 16;
const WIDE_COLUMNS: usize = 256;

/// The same matrix in the encoding that products are fast in. Every change is exact:
///
/// - F16 and BF16 become F32, because their kernels round the activations.
/// - Q5_0 becomes Q8_0, because it has no kernel of its own.
/// - Rows of Q8_0 are padded with zeros to a width that the wide kernel takes, where the processor
///   has the instructions for it. The result then has more columns than the matrix had.
pub(super) fn for_products(weight: Arc<QTensor>) -> Result<Arc<QTensor>> {
    match weight.dtype() {
        GgmlDType::F16 | GgmlDType::BF16 => {
            let values = weight.dequantize(&Device::Cpu)?;
            Ok(Arc::new(QTensor::quantize(&values, GgmlDType::F32)?))
        }
        GgmlDType::Q5_0 => widened(&q5_0_to_q8_0(&weight.data()?), weight.shape().dims2()?),
        GgmlDType::Q8_0 => widened(&weight.data()?, weight.shape().dims2()?),
        _ => Ok(weight),
    }
}

fn padded_width(rows: usize, width: usize) -> usize {
    if rows.is_multiple_of(WIDE_ROWS) && has_wide_kernel() {
        width.next_multiple_of(WIDE_COLUMNS)
    } else {
        width
    }
}

fn has_wide_kernel() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::is_x86_feature_detected;
        is_x86_feature_detected!("avx512vnni") || is_x86_feature_detected!("avxvnni")
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        false
    }
}

/// Q8_0 blocks as a matrix with padded rows.
fn widened(blocks: &[u8], (rows, width): (usize, usize)) -> Result<Arc<QTensor>> {
    let padded = padded_width(rows, width);
    let [row_bytes, padded_bytes] = [width, padded].map(|width| width / BLOCK * Q8_0_BYTES);
    let mut bytes = Vec::with_capacity(rows * padded_bytes);
    for row in blocks.chunks_exact(row_bytes) {
        bytes.extend_from_slice(row);
        bytes.resize(bytes.len() + padded_bytes - row_bytes, 0);
    }
    let storage = QStorage::from_data(bytes.into(), &Device::Cpu, GgmlDType::Q8_0)?;
    Ok(Arc::new(QTensor::new(storage, (rows, padded))?))
}

/// Both encodings are a scale times whole numbers; Q5_0 has them without their sign, as 16 more.
fn q5_0_to_q8_0(blocks: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(blocks.len() / Q5_0_BYTES * Q8_0_BYTES);
    for block in blocks.chunks_exact(Q5_0_BYTES) {
        let (scale, numbers) = block.split_at(2);
        let (fifth_bits, low_bits) = numbers.split_at(4);
        let bit = |i: usize| fifth_bits[i / 8] >> (i % 8) & 1;
        let signed = |unsigned: u8| unsigned.wrapping_sub(16);
        out.extend_from_slice(scale);
        out.extend((0..BLOCK / 2).map(|i| signed(low_bits[i] & 15 | bit(i) << 4)));
        out.extend((0..BLOCK / 2).map(|i| signed(low_bits[i] >> 4 | bit(i + BLOCK / 2) << 4)));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::Tensor;

    #[test]
    fn re_encoded_weights_are_the_same_numbers() {
        for dtype in [
            GgmlDType::Q5_0,
            GgmlDType::Q8_0,
            GgmlDType::F16,
            GgmlDType::BF16,
        ] {
            for (rows, width) in [(3, 32), (16, 96), (32, 256), (16, 320)] {
                let values = Tensor::randn(0f32, 1.0, (rows, width), &Device::Cpu).unwrap();
                let weight = Arc::new(QTensor::quantize(&values, dtype).unwrap());
                let before = weight.dequantize(&Device::Cpu).unwrap();
                let after = for_products(weight).unwrap();
                let after = after.dequantize(&Device::Cpu).unwrap();
                let same = after.narrow(1, 0, width).unwrap();
                assert_eq!(
                    before.to_vec2::<f32>().unwrap(),
                    same.to_vec2::<f32>().unwrap(),
                    "{dtype:?} {rows}x{width}"
                );
            }
        }
    }
}
