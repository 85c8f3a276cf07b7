//! Formats of weights, as model files hold them.
//!
//! Layouts: <https://github.com/ggml-org/ggml/blob/master/src/ggml-common.h>, `block_*`.

/// How weights are stored: as floats, or in blocks of small whole numbers that share scales.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(
    non_camel_case_types,
    reason = "the names that the field knows them by"
)]
pub enum Format {
    /// Single precision.
    F32,
    /// Half precision.
    F16,
    /// The upper half of single precision.
    BF16,
    /// 32 numbers of 4 bits with a scale.
    Q4_0,
    /// 32 numbers of 4 bits with a scale and a minimum.
    Q4_1,
    /// 32 numbers of 5 bits with a scale.
    Q5_0,
    /// 32 numbers of 5 bits with a scale and a minimum.
    Q5_1,
    /// 32 numbers of 8 bits with a scale.
    Q8_0,
    /// 256 numbers of 4 bits, with a scale and a minimum of 6 bits for each 32.
    Q4_K,
    /// 256 numbers of 5 bits, with a scale and a minimum of 6 bits for each 32.
    Q5_K,
    /// 256 numbers of 6 bits, with a scale of 8 bits for each 16.
    Q6_K,
}

/// Columns of floats that make whole cache lines of a tile.
pub(crate) const FLOATS: usize = 2;
/// Columns whose quants lie together, whatever the format.
pub(crate) const GROUP: usize = 32;
/// Columns in the large blocks.
pub(crate) const SUPER: usize = 256;

impl Format {
    /// All formats.
    pub const ALL: [Self; 11] = [
        Self::F32,
        Self::F16,
        Self::BF16,
        Self::Q4_0,
        Self::Q4_1,
        Self::Q5_0,
        Self::Q5_1,
        Self::Q8_0,
        Self::Q4_K,
        Self::Q5_K,
        Self::Q6_K,
    ];

    /// Columns in a block; a matrix has a multiple of them.
    pub const fn block_columns(self) -> usize {
        match self {
            Self::F32 | Self::F16 | Self::BF16 => FLOATS,
            Self::Q4_0 | Self::Q4_1 | Self::Q5_0 | Self::Q5_1 | Self::Q8_0 => GROUP,
            Self::Q4_K | Self::Q5_K | Self::Q6_K => SUPER,
        }
    }

    /// Bytes of a block.
    pub const fn block_bytes(self) -> usize {
        self.halves() * 2 + self.scale_bytes() + self.block_columns() * self.bits() / 8
    }

    /// Whether weights are floats, which are multiplied with activations as they are.
    pub const fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F16 | Self::BF16)
    }

    /// Bits of a quant or of a float.
    pub(crate) const fn bits(self) -> usize {
        match self {
            Self::F32 => 32,
            Self::F16 | Self::BF16 => 16,
            Self::Q4_0 | Self::Q4_1 | Self::Q4_K => 4,
            Self::Q5_0 | Self::Q5_1 | Self::Q5_K => 5,
            Self::Q6_K => 6,
            Self::Q8_0 => 8,
        }
    }

    /// Half-precision numbers of a block: the scale, and the minimum where there is one.
    pub(crate) const fn halves(self) -> usize {
        match self {
            Self::F32 | Self::F16 | Self::BF16 => 0,
            Self::Q4_0 | Self::Q5_0 | Self::Q8_0 | Self::Q6_K => 1,
            Self::Q4_1 | Self::Q5_1 | Self::Q4_K | Self::Q5_K => 2,
        }
    }

    /// Bytes of a block's small scales.
    pub(crate) const fn scale_bytes(self) -> usize {
        match self {
            Self::Q4_K | Self::Q5_K => 12,
            Self::Q6_K => 16,
            _ => 0,
        }
    }

    /// What quants are stored with on top, so that they are not negative. Those of 8 bits have
    /// their sign.
    pub(crate) const fn offset(self) -> u8 {
        match self {
            Self::Q4_0 => 8,
            Self::Q5_0 => 16,
            Self::Q6_K => 32,
            _ => 0,
        }
    }
}
