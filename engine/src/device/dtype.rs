//! What a device holds matrices in.

use candle_core::DType;
use std::fmt;
use std::str::FromStr;

/// What a device holds the matrices of a model in. Norms and biases are always of 32 bits, and so
/// is what flows between the products.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WeightType {
    /// As they are stored, quantised ones included.
    #[default]
    Stored,
    /// 32 bits.
    F32,
    /// 16 bits, of which 5 are the exponent.
    F16,
    /// 16 bits, of which 8 are the exponent.
    Bf16,
}

impl WeightType {
    const ALL: [(Self, &'static str); 4] = [
        (Self::Stored, "auto"),
        (Self::F32, "f32"),
        (Self::F16, "f16"),
        (Self::Bf16, "bf16"),
    ];

    /// What matrices are converted to; `None` where they stay what they are.
    pub(crate) fn dtype(self) -> Option<DType> {
        match self {
            Self::Stored => None,
            Self::F32 => Some(DType::F32),
            Self::F16 => Some(DType::F16),
            Self::Bf16 => Some(DType::BF16),
        }
    }
}

impl FromStr for WeightType {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.iter().find(|(_, name)| *name == text);
        known
            .map(|(dtype, _)| *dtype)
            .ok_or_else(|| "expected auto, f32, f16 or bf16".to_owned())
    }
}

impl fmt::Display for WeightType {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = Self::ALL.iter().find(|(dtype, _)| dtype == self);
        out.write_str(known.map_or("", |(_, name)| name))
    }
}
