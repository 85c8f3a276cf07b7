//! Tiny models for tests: seeded random weights, written as real GGUF files and as folders of
//! safetensors.
//!
//! What is written has everything that a published model's file has, tokenizer and chat template
//! included, and goes through the same loader. Its texts are nonsense, and vary with every token
//! of the context; its laws have an entropy of some nats, and rarely end a text.

mod folder;
mod gguf;
mod tokens;
mod weights;

use crate::{Family, RopeScaling};
use candle_core::quantized::GgmlDType;
use std::io::{Error, ErrorKind};
use std::path::Path;
use tokens::TokenList;
use weights::{Weight, Weights};

/// What a tiny model is like.
#[derive(Debug, Clone, PartialEq)]
pub struct TinyModel {
    /// The family.
    pub family: Family,
    /// Seeds the weights.
    pub seed: u64,
    /// Layers.
    pub layers: usize,
    /// Query heads (two per key head), an even number; a head is 32 numbers, or what fills a row
    /// of 256 where `dtype` is one of the K types; twice that in Qwen3 and Gemma 3, whose heads
    /// are no shares of the hidden numbers.
    pub heads: usize,
    /// The longest sequence.
    pub context_length: usize,
    /// The type of the matrices. Norms and biases are always F32.
    pub dtype: GgmlDType,
    /// Rows of padding after the tokenizer's last id, with `[PAD…]` entries in the token list as
    /// in Qwen's files. They are as likely as any other row, so that it shows where one is not
    /// masked.
    pub padding: usize,
    /// Mixes this share of foreign noise into the output matrix: 0 is the model of the same seed
    /// itself, 1 another model, values between agree more or less often.
    pub disagreement: f32,
    /// How many last tokens attention sees: in every layer of Llama, which is Mistral's way, and in
    /// all but every sixth of Gemma 3, 512 by default. Not for the others.
    pub window: Option<usize>,
    /// How rotations are stretched.
    pub rope: RopeScaling,
    /// Leaves `output.weight` out, as SmolLM2's files do: the embedding serves as the output
    /// matrix too. Goes with a `disagreement` of 0 only.
    pub tied: bool,
}

impl Default for TinyModel {
    fn default() -> Self {
        Self {
            family: Family::Llama,
            seed: 1,
            layers: 2,
            heads: 4,
            context_length: 4096,
            dtype: GgmlDType::F32,
            padding: 0,
            disagreement: 0.0,
            window: None,
            rope: RopeScaling::None,
            tied: false,
        }
    }
}

impl TinyModel {
    /// Writes the model as a GGUF file.
    ///
    /// # Errors
    /// Where the file cannot be written, and of kind `InvalidInput` where the sizes do not go
    /// together.
    pub fn write(&self, path: &Path) -> std::io::Result<()> {
        let (sizes, tokens) = (self.sizes()?, TokenList::new(self.padding));
        gguf::write(self, &sizes, &tokens, path)
    }

    /// Writes the model into a folder: `config.json`, the tokenizer's files, and safetensors in so
    /// many shards, or in one file where it is one. `dtype` is F32, F16 or BF16, and that of all
    /// tensors.
    ///
    /// # Errors
    /// Where a file cannot be written, and of kind `InvalidInput` where the sizes do not go
    /// together or the type is none of safetensors.
    pub fn write_folder(&self, folder: &Path, shards: usize) -> std::io::Result<()> {
        let (sizes, tokens) = (self.sizes()?, TokenList::new(self.padding));
        folder::write(self, &sizes, &tokens, folder, shards)
    }

    fn weights(&self, sizes: &Sizes, tokens: &TokenList) -> Vec<Weight> {
        Weights::new(self, sizes, tokens).tensors()
    }

    fn sizes(&self) -> std::io::Result<Sizes> {
        let invalid = |detail: &str| Err(Error::new(ErrorKind::InvalidInput, detail));
        if self.layers == 0 || self.context_length == 0 {
            return invalid("a tiny model has at least one layer and a context of one token");
        }
        if self.heads == 0 || !self.heads.is_multiple_of(2) {
            return invalid("a tiny model has an even number of heads");
        }
        if self.tied && self.disagreement != 0.0 {
            return invalid("a tied tiny model has no output matrix to mix noise into");
        }
        let hidden = (self.heads * HEAD_DIM).next_multiple_of(self.dtype.block_size());
        if !hidden.is_multiple_of(2 * self.heads) {
            return invalid("a tiny model's heads fill rows of whole blocks");
        }
        if self.window.is_some() && matches!(self.family, Family::Qwen2 | Family::Qwen3) {
            return invalid("a tiny model of Qwen sees the whole context");
        }
        let share = hidden / self.heads;
        Ok(Sizes {
            hidden,
            intermediate: (2 * hidden).next_multiple_of(INTERMEDIATE_STEP),
            head_dim: match self.family {
                Family::Llama | Family::Qwen2 => share,
                Family::Qwen3 | Family::Gemma3 => 2 * share,
            },
            kv_heads: self.heads / 2,
        })
    }
}

const HEAD_DIM: usize = 32;
/// Fills rows of every type.
const INTERMEDIATE_STEP: usize = 256;
const ROPE_BASE: f32 = 10_000.0;
const NORM_EPSILON: f32 = 1e-5;
/// Of Gemma, where a description names none.
const WINDOW: usize = 512;

/// The sizes that follow from a description.
struct Sizes {
    hidden: usize,
    intermediate: usize,
    head_dim: usize,
    kv_heads: usize,
}
