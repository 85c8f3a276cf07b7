//! The sizes and constants of a decoder, read from GGUF metadata.

use crate::{LoadError, gguf::GgufFile};

/// Families of decoders, which differ in rotary layout and in biases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// Llama 2 and 3, Mistral, SmolLM2: rotary pairs are interleaved, no biases.
    Llama,
    /// Qwen2 and 2.5: rotary pairs are half a head apart, biases on q, k and v.
    Qwen2,
}

/// The sizes and constants of a decoder.
#[derive(Debug, Clone, PartialEq)]
pub struct DecoderConfig {
    /// The family.
    pub family: Family,
    /// The longest sequence in tokens.
    pub context_length: usize,
    /// Numbers per token between layers.
    pub hidden: usize,
    /// Numbers inside the feed-forward part.
    pub intermediate: usize,
    /// Layers.
    pub layers: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Numbers per head.
    pub head_dim: usize,
    /// Rows of the embedding and of the output matrix.
    pub vocabulary_rows: usize,
    /// The epsilon of the RMS norms.
    pub norm_epsilon: f64,
    /// The base of the rotary frequencies.
    pub rope_base: f32,
}

impl DecoderConfig {
    /// Reads and checks the configuration in `file`'s metadata.
    ///
    /// # Errors
    /// [`LoadError`] naming the key that is absent, absurd or not supported.
    pub fn from_gguf(file: &GgufFile) -> Result<Self, LoadError> {
        let _ = file;
        todo!("helper: loader")
    }
}
