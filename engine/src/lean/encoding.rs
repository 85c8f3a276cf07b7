//! Encodings that weights can be given anew.

use candle_core::quantized::{GgmlDType, QStorage, QTensor};
use candle_core::{Device, Result};
use rayon::prelude::*;
use std::fmt;
use std::str::FromStr;

/// An encoding of weights, by the name that GGUF files give it in small letters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Encoding(GgmlDType);

const NAMES: [(&str, GgmlDType); 10] = [
    ("q8_0", GgmlDType::Q8_0),
    ("q5_1", GgmlDType::Q5_1),
    ("q5_0", GgmlDType::Q5_0),
    ("q4_1", GgmlDType::Q4_1),
    ("q4_0", GgmlDType::Q4_0),
    ("q6_k", GgmlDType::Q6K),
    ("q5_k", GgmlDType::Q5K),
    ("q4_k", GgmlDType::Q4K),
    ("q3_k", GgmlDType::Q3K),
    ("q2_k", GgmlDType::Q2K),
];

/// Numbers that are encoded at once: their full form is what takes memory.
const PIECE: usize = 1 << 20;

impl FromStr for Encoding {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let known = NAMES.iter().find(|(name, _)| *name == text);
        known.map(|(_, dtype)| Self(*dtype)).ok_or_else(|| {
            let names = NAMES.map(|(name, _)| name).join(", ");
            format!("an encoding is one of {names}")
        })
    }
}

impl fmt::Display for Encoding {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = NAMES.iter().find(|(_, dtype)| *dtype == self.0);
        out.write_str(known.map_or("", |(name, _)| name))
    }
}

impl Encoding {
    /// `weight` in this encoding, or in the nearest one that its rows fill; as it is where they fill
    /// none. Uses all threads.
    pub(super) fn encode(self, weight: QTensor) -> Result<QTensor> {
        let (rows, width) = weight.shape().dims2()?;
        let dtype = match self.fitting(width) {
            Some(dtype) if dtype != weight.dtype() => dtype,
            _ => return Ok(weight),
        };
        let (from, bytes) = (weight.dtype(), weight.data()?);
        let rows_at_once = (PIECE / width).max(1);
        let pieces: Vec<Vec<u8>> = bytes
            .par_chunks(rows_at_once * bytes.len() / rows)
            .map(|piece| encoded(piece, width, from, dtype))
            .collect::<Result<_>>()?;
        let storage = QStorage::from_data(pieces.concat().into(), &Device::Cpu, dtype)?;
        QTensor::new(storage, (rows, width))
    }

    /// Blocks of 256 numbers do not fill every row; blocks of 32 fill nearly all.
    fn fitting(self, width: usize) -> Option<GgmlDType> {
        let small = match self.0 {
            GgmlDType::Q2K | GgmlDType::Q3K | GgmlDType::Q4K => GgmlDType::Q4_0,
            GgmlDType::Q5K => GgmlDType::Q5_0,
            GgmlDType::Q6K => GgmlDType::Q8_0,
            other => other,
        };
        [self.0, small]
            .into_iter()
            .find(|dtype| width.is_multiple_of(dtype.block_size()))
    }
}

/// Whole rows of `width` numbers.
fn encoded(bytes: &[u8], width: usize, from: GgmlDType, to: GgmlDType) -> Result<Vec<u8>> {
    let rows = bytes.len() / (width / from.block_size() * from.type_size());
    let storage = QStorage::from_data(bytes.into(), &Device::Cpu, from)?;
    let values = QTensor::new(storage, (rows, width))?.dequantize(&Device::Cpu)?;
    Ok(QTensor::quantize(&values, to)?.data()?.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::Tensor;

    fn values(weight: &QTensor) -> Vec<f32> {
        let values = weight.dequantize(&Device::Cpu).unwrap();
        values.flatten_all().unwrap().to_vec1().unwrap()
    }

    #[test]
    fn a_matrix_is_encoded_as_a_whole_would_be_and_stays_near() {
        // Over several pieces, the last of them smaller.
        let (rows, width) = (PIECE / 256 * 2 + 7, 256);
        let full = Tensor::randn(0f32, 1.0, (rows, width), &Device::Cpu).unwrap();
        for (from, to) in [
            (GgmlDType::F32, "q4_k"),
            (GgmlDType::F16, "q8_0"),
            (GgmlDType::Q8_0, "q4_0"),
        ] {
            let before = QTensor::quantize(&full, from).unwrap();
            let plain = before.dequantize(&Device::Cpu).unwrap();
            let old = values(&before);
            let encoding: Encoding = to.parse().unwrap();
            let encoded = encoding.encode(before).unwrap();
            let whole = QTensor::quantize(&plain, encoding.0).unwrap();
            assert_eq!(encoded.data().unwrap(), whole.data().unwrap(), "{to}");
            let squares = values(&encoded)
                .iter()
                .zip(&old)
                .map(|(a, b)| (a - b).powi(2))
                .sum::<f32>();
            let error = (squares / old.len() as f32).sqrt();
            assert!(error < 0.11, "{to}: off by {error}");
        }
    }

    #[test]
    fn rows_that_no_block_of_256_fills_get_blocks_of_32() {
        let encoded = |width: usize, name: &str| {
            let full = Tensor::randn(0f32, 1.0, (3, width), &Device::Cpu).unwrap();
            let full = QTensor::quantize(&full, GgmlDType::F32).unwrap();
            name.parse::<Encoding>()
                .unwrap()
                .encode(full)
                .unwrap()
                .dtype()
        };
        assert_eq!(encoded(896, "q4_k"), GgmlDType::Q4_0);
        assert_eq!(encoded(896, "q6_k"), GgmlDType::Q8_0);
        assert_eq!(encoded(1024, "q6_k"), GgmlDType::Q6K);
        assert_eq!(encoded(40, "q4_0"), GgmlDType::F32, "filled by no block");
    }

    #[test]
    fn names_are_told_apart_and_refused_with_a_list() {
        for (name, _) in NAMES {
            assert_eq!(name.parse::<Encoding>().unwrap().to_string(), name);
        }
        let refusal = "q9".parse::<Encoding>().unwrap_err();
        assert!(refusal.contains("q4_k"), "{refusal}");
    }
}
