//! Configurations in the `config.json` of folders of safetensors.

use super::reader::{DEFAULT_ROPE_BASE, HEADS, LAYERS, LENGTHS, LOCAL_ROPE_BASE, Stated};
use super::{Activation, DecoderConfig, Family, LayerAttention, Rope, RopePairs, RopeScaling};
use crate::LoadError;
use crate::folder::{Folder, Json};

const FULL: &str = "full_attention";
const SLIDING: &str = "sliding_attention";
/// Where a model of Gemma 3 does not say it.
const GEMMA_PERIOD: usize = 6;
const DEFAULT_CONTEXT: usize = 2048;

impl Stated for Json {
    fn stated_count(&self, key: &str) -> Result<Option<usize>, LoadError> {
        self.count(key)
    }

    fn stated_number(&self, key: &str) -> Result<Option<f64>, LoadError> {
        self.number(key)
    }

    fn invalid(&self, detail: String) -> LoadError {
        Self::invalid(self, detail)
    }
}

/// The family of a `config.json`. Mistral and SmolLM2 are Llama but for their numbers.
pub(crate) fn family(config: &Json) -> Result<Family, LoadError> {
    match config.required_text("model_type")? {
        "llama" | "mistral" => Ok(Family::Llama),
        "qwen2" => Ok(Family::Qwen2),
        "qwen3" => Ok(Family::Qwen3),
        "gemma3_text" => Ok(Family::Gemma3),
        other => Err(config.unsupported(format!(
            "model_type is \"{other:.40}\"; supported are \"llama\", \"mistral\", \"qwen2\", \
             \"qwen3\" and \"gemma3_text\""
        ))),
    }
}

pub(super) fn configuration(folder: &Folder) -> Result<DecoderConfig, LoadError> {
    let config = folder.config();
    let family = folder.family();
    let gemma = family == Family::Gemma3;
    refuse_variants(config, gemma)?;
    let hidden = config.required_count("hidden_size", LENGTHS)?;
    let heads = config.required_count("num_attention_heads", HEADS)?;
    let head_dim = config.head_dim(
        "head_dim",
        ("hidden_size", hidden),
        ("num_attention_heads", heads),
    )?;
    let layers = config.required_count("num_hidden_layers", LAYERS)?;
    let rotations = Rotations::read(config, gemma)?;
    let context = config.optional_count("max_position_embeddings", LENGTHS)?;
    let context_length = rotations.context(context.unwrap_or(DEFAULT_CONTEXT));
    let attention_width = config.optional_number("query_pre_attn_scalar", 1.0..=1e6)?;
    Ok(DecoderConfig {
        family,
        context_length,
        hidden,
        intermediate: config.required_count("intermediate_size", LENGTHS)?,
        heads,
        kv_heads: config.kv_heads("num_key_value_heads", heads)?,
        head_dim,
        vocabulary_rows: config.required_count("vocab_size", LENGTHS)?,
        tied: config.flag("tie_word_embeddings")?.unwrap_or(gemma),
        norm_epsilon: config.epsilon("rms_norm_eps")?,
        embedding_scale: if gemma { (hidden as f32).sqrt() } else { 1.0 },
        attention_scale: match attention_width {
            Some(width) if gemma => 1.0 / (width as f32).sqrt(),
            _ => 1.0 / (head_dim as f32).sqrt(),
        },
        activation: activation(config, gemma)?,
        qkv_bias: family == Family::Qwen2,
        qk_norm: matches!(family, Family::Qwen3 | Family::Gemma3),
        post_norms: gemma,
        rope_pairs: RopePairs::Halves,
        ropes: rotations.ropes(head_dim),
        layers: attention_of_layers(config, family, layers, context_length)?,
    })
}

/// Models of these families that need more than this decoder computes.
fn refuse_variants(config: &Json, gemma: bool) -> Result<(), LoadError> {
    if config.get("quantization_config").is_some() {
        return Err(config.unsupported(
            "quantization_config is there; supported are weights of f32, f16 and bf16, and \
             quantised ones in GGUF files",
        ));
    }
    for key in ["attention_bias", "mlp_bias", "use_bidirectional_attention"] {
        if config.flag(key)? == Some(true) {
            return Err(config.unsupported(format!("{key} is true; supported is false")));
        }
    }
    for key in ["attn_logit_softcapping", "final_logit_softcapping"] {
        if gemma && config.get(key).is_some() {
            return Err(config.unsupported(format!("{key} is set; supported is null")));
        }
    }
    refuse_parts_of_heads(config)
}

fn refuse_parts_of_heads(stated: &Json) -> Result<(), LoadError> {
    match stated.number("partial_rotary_factor")? {
        None | Some(1.0) => Ok(()),
        Some(part) => Err(stated.unsupported(format!(
            "partial_rotary_factor is {part}; supported are rotations of whole heads, 1"
        ))),
    }
}

fn activation(config: &Json, gemma: bool) -> Result<Activation, LoadError> {
    let (key, supported) = match gemma {
        true => ("hidden_activation", "gelu_pytorch_tanh"),
        false => ("hidden_act", "silu"),
    };
    match config.text(key)? {
        Some(name) if name != supported => Err(config.unsupported(format!(
            "{key} is \"{name:.40}\"; supported is \"{supported}\""
        ))),
        _ if gemma => Ok(Activation::GeluTanh),
        _ => Ok(Activation::Silu),
    }
}

/// Which layers see a window only: as a list says, or else by the family's own rule.
fn attention_of_layers(
    config: &Json,
    family: Family,
    layers: usize,
    context_length: usize,
) -> Result<Vec<LayerAttention>, LoadError> {
    let window = config
        .optional_count("sliding_window", 0..=usize::MAX)?
        .filter(|&window| window > 0 && window < context_length);
    let listed = listed_windows(config, layers)?;
    let local_rope = usize::from(family == Family::Gemma3);
    let rule = own_rule(config, family)?;
    let attention = |layer: usize| {
        let sliding = listed
            .as_ref()
            .map_or_else(|| rule(layer), |listed| listed[layer]);
        match sliding {
            true => LayerAttention {
                rope: local_rope,
                window,
            },
            false => LayerAttention {
                rope: 0,
                window: None,
            },
        }
    };
    Ok((0..layers).map(attention).collect())
}

fn own_rule(config: &Json, family: Family) -> Result<Box<dyn Fn(usize) -> bool>, LoadError> {
    Ok(match family {
        Family::Llama => Box::new(|_| true),
        Family::Qwen2 | Family::Qwen3 => {
            let used = config.flag("use_sliding_window")?.unwrap_or(false);
            let first = config.count("max_window_layers")?.unwrap_or(0);
            Box::new(move |layer| used && layer >= first)
        }
        Family::Gemma3 => {
            let stated = match config.optional_count("sliding_window_pattern", LAYERS)? {
                Some(period) => Some(period),
                None => config.optional_count("_sliding_window_pattern", LAYERS)?,
            };
            let period = stated.unwrap_or(GEMMA_PERIOD);
            Box::new(move |layer| layer % period + 1 != period)
        }
    })
}

fn listed_windows(config: &Json, layers: usize) -> Result<Option<Vec<bool>>, LoadError> {
    let Some(kinds) = config.list("layer_types")? else {
        return Ok(None);
    };
    if kinds.len() != layers {
        return Err(config.invalid(format!(
            "layer_types has {} entries, num_hidden_layers is {layers}",
            kinds.len()
        )));
    }
    let window = |(layer, kind): (usize, &serde_json::Value)| match kind.as_str() {
        Some(SLIDING) => Ok(true),
        Some(FULL) => Ok(false),
        _ => Err(config.unsupported(format!(
            "layer_types: entry {layer} is neither \"{FULL}\" nor \"{SLIDING}\""
        ))),
    };
    kinds
        .iter()
        .enumerate()
        .map(window)
        .collect::<Result<_, _>>()
        .map(Some)
}

/// What `config.json` says of rotations: of all layers, and of Gemma's that see a window only.
struct Rotations {
    base: f32,
    scaling: RopeScaling,
    local: Option<(f32, RopeScaling)>,
}

impl Rotations {
    fn read(config: &Json, gemma: bool) -> Result<Self, LoadError> {
        // Later versions of transformers gather all of it under one key.
        if let Some(parameters) = config.object("rope_parameters")? {
            let global = parameters
                .object(FULL)?
                .unwrap_or_else(|| parameters.clone());
            let local = match parameters.object(SLIDING)? {
                Some(local) => Some((
                    local.rope_base("rope_theta", LOCAL_ROPE_BASE)?,
                    scaling(&local, config)?,
                )),
                None => None,
            };
            return Ok(Self {
                base: global.rope_base("rope_theta", DEFAULT_ROPE_BASE)?,
                scaling: scaling(&global, config)?,
                local: gemma.then(|| local.unwrap_or((LOCAL_ROPE_BASE as f32, RopeScaling::None))),
            });
        }
        let default = if gemma { 1e6 } else { DEFAULT_ROPE_BASE };
        let local = config.rope_base("rope_local_base_freq", LOCAL_ROPE_BASE)?;
        Ok(Self {
            base: config.rope_base("rope_theta", default)?,
            scaling: match config.object("rope_scaling")? {
                Some(stated) => scaling(&stated, config)?,
                None => RopeScaling::None,
            },
            local: gemma.then_some((local, RopeScaling::None)),
        })
    }

    /// YaRN's users state the context trained on and mean a multiple of it.
    fn context(&self, stated: usize) -> usize {
        match self.scaling {
            RopeScaling::Yarn {
                factor,
                original_context,
                ..
            } => stated
                .max((factor * original_context) as usize)
                .min(*LENGTHS.end()),
            _ => stated,
        }
    }

    fn ropes(&self, head_dim: usize) -> Vec<Rope> {
        let local = self.local.iter();
        std::iter::once((self.base, &self.scaling))
            .chain(local.map(|(base, scaling)| (*base, scaling)))
            .map(|(base, scaling)| Rope::new(head_dim, base, scaling))
            .collect()
    }
}

/// The scaling that `stated` describes, for the model of `config`.
fn scaling(stated: &Json, config: &Json) -> Result<RopeScaling, LoadError> {
    refuse_parts_of_heads(stated)?;
    let kind = match stated.text("rope_type")? {
        Some(kind) => Some(kind),
        None => stated.text("type")?,
    };
    let original = || -> Result<f64, LoadError> {
        let key = "original_max_position_embeddings";
        let original = match stated.optional_count(key, LENGTHS)? {
            Some(original) => original,
            None => config.required_count("max_position_embeddings", LENGTHS)?,
        };
        Ok(original as f64)
    };
    match kind {
        None | Some("default") => Ok(RopeScaling::None),
        Some("linear") => Ok(RopeScaling::Linear {
            factor: stated.factor("factor")?,
        }),
        Some("llama3") => llama3(stated, original()?),
        Some("yarn") => yarn(stated, original()?),
        Some(other) => Err(stated.unsupported(format!(
            "rope_type is \"{other:.40}\"; supported are \"default\", \"linear\", \"llama3\" and \
             \"yarn\""
        ))),
    }
}

fn llama3(stated: &Json, original_context: f64) -> Result<RopeScaling, LoadError> {
    let low_frequency_factor = stated.factor("low_freq_factor")?;
    let high_frequency_factor = stated.factor("high_freq_factor")?;
    if high_frequency_factor <= low_frequency_factor {
        return Err(stated.invalid(format!(
            "high_freq_factor is {high_frequency_factor}, expected more than low_freq_factor, \
             {low_frequency_factor}"
        )));
    }
    Ok(RopeScaling::Llama3 {
        factor: stated.factor("factor")?,
        low_frequency_factor,
        high_frequency_factor,
        original_context,
    })
}

fn yarn(stated: &Json, original_context: f64) -> Result<RopeScaling, LoadError> {
    for key in ["mscale", "mscale_all_dim"] {
        if stated.get(key).is_some() {
            return Err(stated.unsupported(format!("{key} is set; supported is YaRN without it")));
        }
    }
    if stated.flag("truncate")? == Some(false) {
        return Err(stated.unsupported("truncate is false; supported is true"));
    }
    Ok(RopeScaling::Yarn {
        factor: stated.factor("factor")?,
        original_context,
        beta_fast: stated.optional_factor("beta_fast", 32.0)?,
        beta_slow: stated.optional_factor("beta_slow", 1.0)?,
        magnitude: stated.optional_number("attention_factor", 1e-3..=1e3)?,
    })
}
