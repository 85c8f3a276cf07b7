//! How much room a token's keys and values take.

use super::BLOCK_TOKENS;
use std::{fmt, str::FromStr};

/// What one token's keys and values take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KvLayout {
    /// Decoder layers.
    pub layers: usize,
    /// Key and value heads per layer.
    pub kv_heads: usize,
    /// Numbers per head.
    pub head_dim: usize,
    /// How a number is stored.
    pub kind: CacheType,
}

/// How keys and values are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum CacheType {
    /// As they are computed: 4 bytes.
    #[default]
    F32,
    /// In half precision: 2 bytes. Off by 1/2048 at most, but for numbers past ±65504.
    F16,
    /// As whole numbers from −127 to 127 with a scale per token and 32 numbers of a head: 1⅛ bytes.
    /// Off by 1/254 of the largest of the 32 at most.
    Q8,
}

impl CacheType {
    const ALL: [(Self, &'static str); 3] =
        [(Self::F32, "f32"), (Self::F16, "f16"), (Self::Q8, "q8")];
}

impl FromStr for CacheType {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.iter().find(|(_, name)| *name == text);
        known
            .map(|(kind, _)| *kind)
            .ok_or_else(|| format!("{text} is not one of f32, f16 and q8"))
    }
}

impl fmt::Display for CacheType {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = Self::ALL.iter().find(|(kind, _)| kind == self);
        out.write_str(known.map_or("", |(_, name)| name))
    }
}

impl KvLayout {
    /// Numbers that share a scale in [`CacheType::Q8`], or all of a head where it has fewer.
    pub(crate) const GROUP: usize = 32;

    /// Bytes of a block of 32 tokens, the unit in which sequences grow.
    pub fn block_bytes(&self) -> usize {
        let numbers = self.block_len();
        match self.kind {
            CacheType::F32 => numbers.saturating_mul(size_of::<f32>()),
            CacheType::F16 => numbers.saturating_mul(size_of::<u16>()),
            CacheType::Q8 => {
                let scales = self.scales_len().saturating_mul(size_of::<f32>());
                numbers.saturating_add(scales)
            }
        }
    }

    /// How many tokens fit into `bytes`, in whole blocks.
    pub fn tokens_in(&self, bytes: usize) -> usize {
        let blocks = bytes.checked_div(self.block_bytes());
        blocks.unwrap_or(usize::MAX).saturating_mul(BLOCK_TOKENS)
    }

    /// The bytes of as many blocks as `tokens` of one sequence take.
    pub fn bytes_for(&self, tokens: usize) -> usize {
        let blocks = tokens.div_ceil(BLOCK_TOKENS);
        blocks.saturating_mul(self.block_bytes())
    }

    /// Numbers of a block.
    pub(super) fn block_len(&self) -> usize {
        self.sides().saturating_mul(self.head_len())
    }

    /// Scales of a block.
    pub(super) fn scales_len(&self) -> usize {
        self.sides()
            .saturating_mul(self.groups().saturating_mul(BLOCK_TOKENS))
    }

    /// Numbers of one head's keys, or of its values, in a block.
    pub(super) fn head_len(&self) -> usize {
        BLOCK_TOKENS.saturating_mul(self.head_dim)
    }

    /// Scales per token of a head's keys, or of its values.
    pub(super) fn groups(&self) -> usize {
        self.head_dim.div_ceil(Self::GROUP)
    }

    /// Keys and values of all heads of all layers.
    fn sides(&self) -> usize {
        self.layers.saturating_mul(2).saturating_mul(self.kv_heads)
    }
}
