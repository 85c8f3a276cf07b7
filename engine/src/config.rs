//! The sizes and constants of a decoder, read from GGUF metadata.

use crate::{LoadError, gguf::GgufFile};
use std::ops::RangeInclusive;

/// Families of decoders, which differ in rotary layout and in biases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// Llama 2 and 3, Mistral, SmolLM2: rotary pairs are interleaved, no biases.
    Llama,
    /// Qwen2 and 2.5: rotary pairs are half a head apart, biases on q, k and v.
    Qwen2,
}

impl Family {
    /// The name in `general.architecture`, which also begins the family's keys.
    pub(crate) fn architecture(self) -> &'static str {
        match self {
            Self::Llama => "llama",
            Self::Qwen2 => "qwen2",
        }
    }
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
    /// Key and value heads; they divide `heads`.
    pub kv_heads: usize,
    /// Numbers per head, even. `heads * head_dim` is not `hidden` in every model.
    pub head_dim: usize,
    /// Rows of the embedding and of the output matrix.
    pub vocabulary_rows: usize,
    /// The epsilon of the RMS norms.
    pub norm_epsilon: f64,
    /// The base of the rotary frequencies.
    pub rope_base: f32,
}

const EMBEDDING: &str = "token_embd.weight";
const DEFAULT_ROPE_BASE: f64 = 10_000.0;

/// Beyond every model in use, and small enough that products of two cannot overflow.
const LENGTHS: RangeInclusive<usize> = 1..=1 << 24;
const LAYERS: RangeInclusive<usize> = 1..=1 << 12;
const HEADS: RangeInclusive<usize> = 1..=1 << 12;
const HEAD_DIMS: RangeInclusive<usize> = 2..=1 << 12;

impl DecoderConfig {
    /// Reads and checks the configuration in `file`'s metadata.
    ///
    /// # Errors
    /// [`LoadError`] naming the key that is absent, absurd or not supported.
    pub fn from_gguf(file: &GgufFile) -> Result<Self, LoadError> {
        let keys = Keys {
            file,
            family: family(file)?,
        };
        keys.refuse_variants()?;
        let hidden = keys.count("embedding_length", LENGTHS)?;
        let heads = keys.count("attention.head_count", HEADS)?;
        let config = Self {
            family: keys.family,
            context_length: keys.count("context_length", LENGTHS)?,
            hidden,
            intermediate: keys.count("feed_forward_length", LENGTHS)?,
            layers: keys.count("block_count", LAYERS)?,
            heads,
            kv_heads: keys.kv_heads(heads)?,
            head_dim: keys.head_dim(hidden, heads)?,
            vocabulary_rows: vocabulary_rows(file, hidden)?,
            norm_epsilon: keys.norm_epsilon()?,
            rope_base: keys.rope_base()?,
        };
        keys.refuse_rope_variants(config.head_dim)?;
        keys.refuse_sliding_window(config.context_length)?;
        Ok(config)
    }
}

fn family(file: &GgufFile) -> Result<Family, LoadError> {
    let name = file.string("general.architecture")?;
    [Family::Llama, Family::Qwen2]
        .into_iter()
        .find(|family| family.architecture() == name)
        .ok_or_else(|| {
            file.unsupported(format!(
                "general.architecture is \"{name:.40}\"; supported are \"llama\" and \"qwen2\""
            ))
        })
}

fn vocabulary_rows(file: &GgufFile, hidden: usize) -> Result<usize, LoadError> {
    match file.tensor_shape(EMBEDDING) {
        None => Err(file.invalid(format!("tensor {EMBEDDING} is absent"))),
        Some(&[rows, columns]) if columns == hidden && LENGTHS.contains(&rows) => Ok(rows),
        Some(shape) => Err(file.invalid(format!(
            "tensor {EMBEDDING} has shape {shape:?}, expected rows of {hidden}"
        ))),
    }
}

/// The keys of one architecture.
struct Keys<'a> {
    file: &'a GgufFile,
    family: Family,
}

impl Keys<'_> {
    fn name(&self, key: &str) -> String {
        format!("{}.{key}", self.family.architecture())
    }

    fn count(&self, key: &str, allowed: RangeInclusive<usize>) -> Result<usize, LoadError> {
        let key = self.name(key);
        let count = self.file.count(&key)?;
        if !allowed.contains(&count) {
            return Err(self.file.invalid(format!(
                "{key} is {count}, expected {} to {}",
                allowed.start(),
                allowed.end()
            )));
        }
        Ok(count)
    }

    fn optional_count(
        &self,
        key: &str,
        allowed: RangeInclusive<usize>,
    ) -> Result<Option<usize>, LoadError> {
        match self.file.metadata(&self.name(key)) {
            Some(_) => self.count(key, allowed).map(Some),
            None => Ok(None),
        }
    }

    fn optional_number(&self, key: &str) -> Result<Option<f64>, LoadError> {
        let key = self.name(key);
        match self.file.metadata(&key) {
            Some(_) => self.file.number(&key).map(Some),
            None => Ok(None),
        }
    }

    fn kv_heads(&self, heads: usize) -> Result<usize, LoadError> {
        let key = "attention.head_count_kv";
        let kv_heads = self.optional_count(key, HEADS)?.unwrap_or(heads);
        if !heads.is_multiple_of(kv_heads) {
            return Err(self.file.invalid(format!(
                "{} is {kv_heads}, which does not divide the {heads} heads",
                self.name(key)
            )));
        }
        Ok(kv_heads)
    }

    fn head_dim(&self, hidden: usize, heads: usize) -> Result<usize, LoadError> {
        let (key, head_dim) = match self.optional_count("attention.key_length", HEAD_DIMS)? {
            Some(head_dim) => (self.name("attention.key_length"), head_dim),
            None => (
                self.name("attention.head_count"),
                self.shared_out(hidden, heads)?,
            ),
        };
        if !HEAD_DIMS.contains(&head_dim) || !head_dim.is_multiple_of(2) {
            return Err(self.file.invalid(format!(
                "{key} gives heads of {head_dim}, expected an even number of at most {}",
                HEAD_DIMS.end()
            )));
        }
        if let Some(values) = self.optional_count("attention.value_length", HEAD_DIMS)?
            && values != head_dim
        {
            return Err(self.file.unsupported(format!(
                "{} is {values}; supported is the length of the keys, {head_dim}",
                self.name("attention.value_length")
            )));
        }
        Ok(head_dim)
    }

    fn shared_out(&self, hidden: usize, heads: usize) -> Result<usize, LoadError> {
        if !hidden.is_multiple_of(heads) {
            return Err(self.file.invalid(format!(
                "{} is {heads}, which does not divide {} of {hidden}",
                self.name("attention.head_count"),
                self.name("embedding_length")
            )));
        }
        Ok(hidden / heads)
    }

    fn norm_epsilon(&self) -> Result<f64, LoadError> {
        let key = self.name("attention.layer_norm_rms_epsilon");
        let epsilon = self.file.number(&key)?;
        if !(epsilon > 0.0 && epsilon < 1.0) {
            return Err(self
                .file
                .invalid(format!("{key} is {epsilon}, expected between 0 and 1")));
        }
        Ok(epsilon)
    }

    fn rope_base(&self) -> Result<f32, LoadError> {
        let key = "rope.freq_base";
        let base = self.optional_number(key)?.unwrap_or(DEFAULT_ROPE_BASE);
        if !(base > 1.0 && base <= 1e12) {
            return Err(self.file.invalid(format!(
                "{} is {base}, expected between 1 and 1e12",
                self.name(key)
            )));
        }
        Ok(base as f32)
    }

    /// Models of these architectures that need more than this decoder computes.
    fn refuse_variants(&self) -> Result<(), LoadError> {
        let experts = self.optional_count("expert_count", 0..=usize::MAX)?;
        if let Some(experts @ 1..) = experts {
            return Err(self.file.unsupported(format!(
                "{} is {experts}; supported are models without experts",
                self.name("expert_count")
            )));
        }
        Ok(())
    }

    fn refuse_rope_variants(&self, head_dim: usize) -> Result<(), LoadError> {
        let key = "rope.dimension_count";
        if let Some(rotated) = self.optional_count(key, 0..=usize::MAX)?
            && rotated != head_dim
        {
            return Err(self.file.unsupported(format!(
                "{} is {rotated}; supported are rotations of whole heads, {head_dim}",
                self.name(key)
            )));
        }
        let key = self.name("rope.scaling.type");
        if self.file.metadata(&key).is_some() {
            let kind = self.file.string(&key)?;
            if kind != "none" {
                return Err(self
                    .file
                    .unsupported(format!("{key} is \"{kind:.40}\"; supported is \"none\"")));
            }
        } else {
            // Without a type, a factor means linear scaling.
            self.refuse_factor("rope.scaling.factor")?;
            self.refuse_factor("rope.scale_linear")?;
        }
        if self.file.has_tensor("rope_freqs.weight") {
            return Err(self.file.unsupported(
                "tensor rope_freqs.weight scales the rotary frequencies (Llama 3.1 and later); \
                 supported are models without it",
            ));
        }
        Ok(())
    }

    fn refuse_factor(&self, key: &str) -> Result<(), LoadError> {
        match self.optional_number(key)? {
            Some(factor) if factor != 1.0 && factor != 0.0 => Err(self.file.unsupported(format!(
                "{} is {factor}; supported are models without rotary scaling",
                self.name(key)
            ))),
            _ => Ok(()),
        }
    }

    fn refuse_sliding_window(&self, context_length: usize) -> Result<(), LoadError> {
        let key = "attention.sliding_window";
        match self.optional_count(key, 0..=usize::MAX)? {
            Some(window) if window > 0 && window < context_length => {
                Err(self.file.unsupported(format!(
                    "{} is {window}; supported are windows of the whole context",
                    self.name(key)
                )))
            }
            _ => Ok(()),
        }
    }
}
