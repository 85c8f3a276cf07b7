//! What a decoder is like: its sizes, and what differs from one model to the next.
//!
//! A family says which keys and tensors its files hold. What is computed is spelled out in
//! [`DecoderConfig`], so that the decoder asks for a norm or a window and never for a family.

mod folder;
mod gguf;
mod reader;
mod rope;

pub(crate) use folder::family as folder_family;
pub use rope::{Rope, RopePairs, RopeScaling};

use crate::{LoadError, folder::Folder, gguf::GgufFile};

/// Families of decoders, by the names and conventions of their files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// Llama 2 and 3, Mistral, SmolLM2.
    Llama,
    /// Qwen2 and 2.5: biases on q, k and v.
    Qwen2,
    /// Qwen3: norms on the heads of q and k.
    Qwen3,
    /// Gemma 3, its text part: four norms a layer, most layers see a window only.
    Gemma3,
}

impl Family {
    pub(crate) const ALL: [Self; 4] = [Self::Llama, Self::Qwen2, Self::Qwen3, Self::Gemma3];

    /// The name in a GGUF file's `general.architecture`, which also begins the family's keys.
    pub(crate) fn architecture(self) -> &'static str {
        match self {
            Self::Llama => "llama",
            Self::Qwen2 => "qwen2",
            Self::Qwen3 => "qwen3",
            Self::Gemma3 => "gemma3",
        }
    }
}

/// What the gate of the feed-forward part passes through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activation {
    /// `x / (1 + e^−x)`.
    Silu,
    /// GELU in its approximation by tanh.
    GeluTanh,
}

/// What attention is like in one layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LayerAttention {
    /// Which of [`DecoderConfig::ropes`] turns queries and keys.
    pub rope: usize,
    /// A token attends to this many last tokens, itself included; to all where there is none.
    pub window: Option<usize>,
}

/// The sizes and constants of a decoder.
#[derive(Debug, Clone, PartialEq)]
pub struct DecoderConfig {
    /// The family. What follows from it is in the other fields.
    pub family: Family,
    /// The longest sequence in tokens.
    pub context_length: usize,
    /// Numbers per token between layers.
    pub hidden: usize,
    /// Numbers inside the feed-forward part.
    pub intermediate: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads; they divide `heads`.
    pub kv_heads: usize,
    /// Numbers per head, even. `heads * head_dim` is not `hidden` in every model.
    pub head_dim: usize,
    /// Rows of the embedding and of the output matrix.
    pub vocabulary_rows: usize,
    /// True where the embedding is the output matrix too.
    pub tied: bool,
    /// The epsilon of all RMS norms.
    pub norm_epsilon: f64,
    /// What embeddings are multiplied by; 1 in most models.
    pub embedding_scale: f32,
    /// What products of queries and keys are multiplied by.
    pub attention_scale: f32,
    /// Of the feed-forward part.
    pub activation: Activation,
    /// True where vectors are added to queries, keys and values.
    pub qkv_bias: bool,
    /// True where each head of queries and keys is normed before it is turned.
    pub qk_norm: bool,
    /// True where what attention and the feed-forward part add is normed as well.
    pub post_norms: bool,
    /// Which numbers of a head turn together.
    pub rope_pairs: RopePairs,
    /// The rotations in use.
    pub ropes: Vec<Rope>,
    /// One per layer.
    pub layers: Vec<LayerAttention>,
}

impl DecoderConfig {
    /// Reads and checks the configuration in `file`'s metadata.
    ///
    /// # Errors
    /// [`LoadError`] naming the key that is absent, absurd or not supported.
    pub fn from_gguf(file: &GgufFile) -> Result<Self, LoadError> {
        gguf::configuration(file)
    }

    /// Reads and checks the configuration in `folder`'s `config.json`.
    ///
    /// # Errors
    /// [`LoadError`] naming the key that is absent, absurd or not supported.
    pub fn from_folder(folder: &Folder) -> Result<Self, LoadError> {
        folder::configuration(folder)
    }

    /// Numbers in a row of queries.
    pub fn query_width(&self) -> usize {
        self.heads * self.head_dim
    }

    /// Numbers in a row of keys or of values.
    pub fn key_width(&self) -> usize {
        self.kv_heads * self.head_dim
    }
}

/// Layers that all see as far and turn by the first rotation. A window of the whole context is
/// none.
fn alike(layers: usize, window: Option<usize>, context_length: usize) -> Vec<LayerAttention> {
    let window = window.filter(|&window| window < context_length);
    vec![LayerAttention { rope: 0, window }; layers]
}
