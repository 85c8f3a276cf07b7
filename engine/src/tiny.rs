//! Tiny models for tests: seeded random weights, written as real GGUF files.
//!
//! What is written has everything that a published model's file has, tokenizer and chat template
//! included, and goes through the same loader. Its texts are nonsense, and vary with every token
//! of the context; its laws have an entropy of some nats, and rarely end a text.

mod tokens;
mod weights;

use crate::Family;
use candle_core::quantized::gguf_file::{self, Value};
use candle_core::quantized::{GgmlDType, QTensor};
use std::fs::File;
use std::io::{BufWriter, Error, ErrorKind, Write};
use std::path::Path;
use tokens::TokenList;
use weights::Weights;

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
    /// of 256 where `dtype` is one of the K types.
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
        let sizes = self.sizes()?;
        let tokens = TokenList::new(self.padding);
        let metadata = self.metadata(&sizes, &tokens);
        let tensors = Weights::new(self, &sizes, &tokens)
            .tensors()
            .map_err(Error::other)?;
        let mut file = BufWriter::new(File::create(path)?);
        gguf_file::write(
            &mut file,
            &borrowed::<Value>(&metadata),
            &borrowed::<QTensor>(&tensors),
        )
        .map_err(Error::other)?;
        file.flush()
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
        Ok(Sizes {
            hidden,
            intermediate: (2 * hidden).next_multiple_of(INTERMEDIATE_STEP),
            head_dim: hidden / self.heads,
            kv_heads: self.heads / 2,
        })
    }

    fn metadata(&self, sizes: &Sizes, tokens: &TokenList) -> Vec<(String, Value)> {
        let architecture = self.family.architecture();
        let count = |key: &str, value: usize| {
            (
                format!("{architecture}.{key}"),
                Value::U32(u32::try_from(value).expect("a tiny model's sizes are small")),
            )
        };
        let number = |key: &str, value: f32| (format!("{architecture}.{key}"), Value::F32(value));
        let mut metadata = vec![
            text("general.architecture", architecture),
            text(
                "general.name",
                &format!("tiny {architecture} of seed {}", self.seed),
            ),
            count("context_length", self.context_length),
            count("embedding_length", sizes.hidden),
            count("block_count", self.layers),
            count("feed_forward_length", sizes.intermediate),
            count("attention.head_count", self.heads),
            count("attention.head_count_kv", sizes.kv_heads),
            count("rope.dimension_count", sizes.head_dim),
            number("rope.freq_base", ROPE_BASE),
            number("attention.layer_norm_rms_epsilon", NORM_EPSILON),
        ];
        metadata.extend(tokens.metadata(self.family));
        metadata
    }
}

const HEAD_DIM: usize = 32;
/// Fills rows of every type.
const INTERMEDIATE_STEP: usize = 256;
const ROPE_BASE: f32 = 10_000.0;
const NORM_EPSILON: f32 = 1e-5;

/// The sizes that follow from a description.
struct Sizes {
    hidden: usize,
    intermediate: usize,
    head_dim: usize,
    kv_heads: usize,
}

fn text(key: &str, value: &str) -> (String, Value) {
    (key.to_owned(), Value::String(value.to_owned()))
}

fn borrowed<T>(named: &[(String, T)]) -> Vec<(&str, &T)> {
    named
        .iter()
        .map(|(name, value)| (name.as_str(), value))
        .collect()
}
