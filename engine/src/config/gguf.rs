//! Configurations in the metadata of GGUF files.

use super::reader::{DEFAULT_ROPE_BASE, HEADS, LAYERS, LENGTHS, LOCAL_ROPE_BASE, Stated};
use super::{
    Activation, DecoderConfig, Family, LayerAttention, Rope, RopePairs, RopeScaling, alike,
};
use crate::checkpoint::{Part, Role, gguf_name};
use crate::{LoadError, gguf::GgufFile};
use std::ops::RangeInclusive;

/// Files of Gemma 3 do not say that every sixth layer sees the whole context.
const GEMMA_PERIOD: usize = 6;
/// The largest Gemma 3, 27B, whose products are scaled by the hidden numbers per head. Its files
/// do not say so either.
const LARGEST_GEMMA_LAYERS: usize = 62;
/// No sign of damage, and still nothing that a window may be.
const ANY: RangeInclusive<usize> = 0..=usize::MAX;

/// The keys of one architecture.
struct Keys<'a> {
    file: &'a GgufFile,
    family: Family,
}

impl Stated for GgufFile {
    fn stated_count(&self, key: &str) -> Result<Option<usize>, LoadError> {
        self.metadata(key).map(|_| self.count(key)).transpose()
    }

    fn stated_number(&self, key: &str) -> Result<Option<f64>, LoadError> {
        self.metadata(key).map(|_| self.number(key)).transpose()
    }

    fn invalid(&self, detail: String) -> LoadError {
        Self::invalid(self, detail)
    }
}

pub(super) fn configuration(file: &GgufFile) -> Result<DecoderConfig, LoadError> {
    let keys = Keys {
        file,
        family: family(file)?,
    };
    keys.refuse_variants()?;
    let key = |key| keys.name(key);
    let context_length = file.required_count(&key("context_length"), LENGTHS)?;
    let (hidden_key, heads_key) = (key("embedding_length"), key("attention.head_count"));
    let hidden = file.required_count(&hidden_key, LENGTHS)?;
    let layers = file.required_count(&key("block_count"), LAYERS)?;
    let heads = file.required_count(&heads_key, HEADS)?;
    let head_dim = file.head_dim(
        &key("attention.key_length"),
        (&hidden_key, hidden),
        (&heads_key, heads),
    )?;
    keys.refuse_parts_of_heads(head_dim)?;
    let gemma = keys.family == Family::Gemma3;
    let attention_width = if gemma && layers == LARGEST_GEMMA_LAYERS {
        hidden / heads
    } else {
        head_dim
    };
    Ok(DecoderConfig {
        family: keys.family,
        context_length,
        hidden,
        intermediate: file.required_count(&key("feed_forward_length"), LENGTHS)?,
        heads,
        kv_heads: file.kv_heads(&key("attention.head_count_kv"), heads)?,
        head_dim,
        vocabulary_rows: vocabulary_rows(file, hidden)?,
        tied: !file.has_tensor(&gguf_name(Role::Output)),
        norm_epsilon: file.epsilon(&key("attention.layer_norm_rms_epsilon"))?,
        embedding_scale: if gemma { (hidden as f32).sqrt() } else { 1.0 },
        attention_scale: 1.0 / (attention_width as f32).sqrt(),
        activation: if gemma {
            Activation::GeluTanh
        } else {
            Activation::Silu
        },
        qkv_bias: keys.family == Family::Qwen2 || keys.has_bias(Part::Query),
        qk_norm: matches!(keys.family, Family::Qwen3 | Family::Gemma3),
        post_norms: gemma,
        rope_pairs: match keys.family {
            Family::Llama => RopePairs::Interleaved,
            Family::Qwen2 | Family::Qwen3 | Family::Gemma3 => RopePairs::Halves,
        },
        ropes: keys.ropes(head_dim)?,
        layers: keys.layers(layers, context_length)?,
    })
}

fn family(file: &GgufFile) -> Result<Family, LoadError> {
    let name = file.string("general.architecture")?;
    let found = Family::ALL
        .into_iter()
        .find(|family| family.architecture() == name);
    found.ok_or_else(|| {
        let known = Family::ALL.map(|family| format!("\"{}\"", family.architecture()));
        file.unsupported(format!(
            "general.architecture is \"{name:.40}\"; supported are {}",
            known.join(", ")
        ))
    })
}

fn vocabulary_rows(file: &GgufFile, hidden: usize) -> Result<usize, LoadError> {
    let name = gguf_name(Role::Embedding);
    match file.tensor_shape(&name) {
        None => Err(file.invalid(format!("tensor {name} is absent"))),
        Some(&[rows, columns]) if columns == hidden && LENGTHS.contains(&rows) => Ok(rows),
        Some(shape) => Err(file.invalid(format!(
            "tensor {name} has shape {shape:?}, expected rows of {hidden}"
        ))),
    }
}

impl Keys<'_> {
    fn name(&self, key: &str) -> String {
        format!("{}.{key}", self.family.architecture())
    }

    fn has_bias(&self, part: Part) -> bool {
        let name = gguf_name(Role::Bias(0, part));
        self.file.has_tensor(&name)
    }

    /// Models of these architectures that need more than this decoder computes.
    fn refuse_variants(&self) -> Result<(), LoadError> {
        let key = self.name("expert_count");
        if let Some(experts @ 1..) = self.file.stated_count(&key)? {
            return Err(self.file.unsupported(format!(
                "{key} is {experts}; supported are models without experts"
            )));
        }
        for part in [Part::AttentionOutput, Part::Gate, Part::Up, Part::Down] {
            if self.has_bias(part) {
                return Err(self.file.unsupported(format!(
                    "tensor {} adds a vector; supported are those added to queries, keys and \
                     values",
                    gguf_name(Role::Bias(0, part))
                )));
            }
        }
        for key in ["attn_logit_softcapping", "final_logit_softcapping"] {
            let key = self.name(key);
            if let Some(cap) = self.file.stated_number(&key)?
                && cap != 0.0
            {
                return Err(self
                    .file
                    .unsupported(format!("{key} is {cap}; supported are models without caps")));
            }
        }
        Ok(())
    }

    fn refuse_parts_of_heads(&self, head_dim: usize) -> Result<(), LoadError> {
        for (key, what) in [
            ("attention.value_length", "the length of the keys"),
            ("rope.dimension_count", "rotations of whole heads"),
        ] {
            let key = self.name(key);
            if let Some(length) = self.file.stated_count(&key)?
                && length != head_dim
            {
                return Err(self.file.unsupported(format!(
                    "{key} is {length}; supported are {what}, {head_dim}"
                )));
            }
        }
        Ok(())
    }

    fn layers(
        &self,
        layers: usize,
        context_length: usize,
    ) -> Result<Vec<LayerAttention>, LoadError> {
        let key = self.name("attention.sliding_window");
        let window = self
            .file
            .optional_count(&key, ANY)?
            .filter(|&window| window > 0);
        match self.family {
            Family::Llama => Ok(alike(layers, window, context_length)),
            Family::Gemma3 => {
                let key = self.name("attention.sliding_window_pattern");
                let period = self.file.optional_count(&key, LAYERS)?;
                let period = period.unwrap_or(GEMMA_PERIOD);
                let local = alike(1, window, context_length)[0].window;
                let attention = |layer: usize| match layer % period + 1 == period {
                    true => LayerAttention {
                        rope: 0,
                        window: None,
                    },
                    false => LayerAttention {
                        rope: 1,
                        window: local,
                    },
                };
                Ok((0..layers).map(attention).collect())
            }
            Family::Qwen2 | Family::Qwen3 => match window {
                // Which layers it is for, such files do not say.
                Some(window) if window < context_length => Err(self.file.unsupported(format!(
                    "{key} is {window}; supported are windows of the whole context"
                ))),
                _ => Ok(alike(layers, None, context_length)),
            },
        }
    }

    /// That of all layers, or of those that see everything; Gemma has another for the others.
    fn ropes(&self, head_dim: usize) -> Result<Vec<Rope>, LoadError> {
        let base = self
            .file
            .rope_base(&self.name("rope.freq_base"), DEFAULT_ROPE_BASE)?;
        let mut ropes = vec![Rope::new(head_dim, base, &self.scaling(head_dim)?)];
        if self.family == Family::Gemma3 {
            let key = self.name("rope.freq_base_swa");
            let local = self.file.rope_base(&key, LOCAL_ROPE_BASE)?;
            ropes.push(Rope::new(head_dim, local, &RopeScaling::None));
        }
        Ok(ropes)
    }

    fn scaling(&self, head_dim: usize) -> Result<RopeScaling, LoadError> {
        let divisors = gguf_name(Role::RopeDivisors);
        let key = self.name("rope.scaling.type");
        let kind = match self.file.metadata(&key) {
            Some(_) => Some(self.file.string(&key)?),
            None => None,
        };
        let factor_key = self.name("rope.scaling.factor");
        match kind {
            None | Some("none") if self.file.has_tensor(&divisors) => {
                self.divided(&divisors, head_dim)
            }
            Some("none") => Ok(RopeScaling::None),
            Some("linear") => Ok(RopeScaling::Linear {
                factor: self.file.factor(&factor_key)?,
            }),
            Some("yarn") => self.yarn(&factor_key),
            Some(other) => Err(self.file.unsupported(format!(
                "{key} is \"{other:.40}\"; supported are \"none\", \"linear\" and \"yarn\""
            ))),
            // Without a type, a factor means linear scaling.
            None => {
                let old = self.name("rope.scale_linear");
                for key in [&factor_key, &old] {
                    match self.file.stated_number(key)? {
                        None | Some(0.0 | 1.0) => {}
                        Some(_) => {
                            let factor = self.file.factor(key)?;
                            return Ok(RopeScaling::Linear { factor });
                        }
                    }
                }
                Ok(RopeScaling::None)
            }
        }
    }

    fn yarn(&self, factor_key: &str) -> Result<RopeScaling, LoadError> {
        let factor = self.file.factor(factor_key)?;
        let key = self.name("rope.scaling.original_context_length");
        let original_context = self.file.required_count(&key, LENGTHS)? as f64;
        let number = |key: &str, default| {
            let key = self.name(&format!("rope.scaling.{key}"));
            self.file.optional_factor(&key, default)
        };
        let stated = number("attn_factor", 1.0)?;
        Ok(RopeScaling::Yarn {
            factor,
            original_context,
            beta_fast: number("yarn_beta_fast", 32.0)?,
            beta_slow: number("yarn_beta_slow", 1.0)?,
            magnitude: (stated != 1.0).then(|| stated * (0.1 * factor.ln() + 1.0)),
        })
    }

    fn divided(&self, name: &str, head_dim: usize) -> Result<RopeScaling, LoadError> {
        let divisors = self.file.vector(name, head_dim / 2)?;
        match divisors
            .iter()
            .find(|divisor| !(1e-3..=1e6).contains(*divisor))
        {
            None => Ok(RopeScaling::Divided(divisors)),
            Some(divisor) => Err(self
                .file
                .invalid(format!("tensor {name} divides a frequency by {divisor}"))),
        }
    }
}
