//! From a name to a model that runs.

use crate::{
    CacheType, Checkpoint, Device, Footprint, Lean, LoadError, Model, Synthetic, Vocabulary,
    WeightType, cpu::Cpu, decoder::Decoder, device::Tensors, synthetic::Description,
};
use std::path::{Path, PathBuf};
use std::time::Instant;
use tracing::info;

/// Where a model comes from.
#[derive(Debug, Clone, PartialEq)]
pub enum Source {
    /// A GGUF file, or a folder of safetensors.
    Files(PathBuf),
    /// The built-in toy model, by its description: `key=value` pairs, comma-separated; see
    /// [`crate::synthetic::Description`].
    Synthetic(String),
}

/// How a model is run.
#[derive(Debug, Clone)]
pub struct LoadOptions {
    /// Keeps every row's logits independent of what else is in its batch, to the bit. Only the
    /// processor can.
    pub batch_invariant: bool,
    /// Where it computes.
    pub device: Device,
    /// What a device other than the processor holds matrices in.
    pub weights: WeightType,
    /// What is made cheaper than the files have it. For drafts.
    pub lean: Lean,
}

impl Default for LoadOptions {
    /// On the processor, batch-invariant.
    fn default() -> Self {
        Self {
            batch_invariant: true,
            device: Device::cpu(),
            weights: WeightType::Stored,
            lean: Lean::default(),
        }
    }
}

/// A model with its vocabulary.
pub struct Loaded {
    /// The model.
    pub model: Box<dyn Model>,
    /// Its tokens.
    pub vocabulary: Vocabulary,
}

/// Loads a model.
///
/// # Errors
/// Any [`LoadError`].
pub fn load(source: &Source, options: LoadOptions) -> Result<Loaded, LoadError> {
    match source {
        Source::Files(path) => load_files(path, options),
        Source::Synthetic(description) => {
            let model = Synthetic::new(description.parse::<Description>()?);
            info!(description, "synthetic model ready");
            Ok(Loaded {
                vocabulary: model.vocabulary(),
                model: Box::new(model),
            })
        }
    }
}

/// What a model of files takes of memory with a cache of `kind`, before it is loaded.
///
/// # Errors
/// Any [`LoadError`] that files give before their tensors are read.
pub fn footprint(
    path: &Path,
    options: &LoadOptions,
    kind: CacheType,
) -> Result<Footprint, LoadError> {
    let checkpoint = Checkpoint::open(path)?;
    let config = checkpoint.config()?;
    Ok(Footprint::new(
        &config,
        checkpoint.size_bytes(),
        options,
        kind,
    ))
}

fn load_files(path: &Path, options: LoadOptions) -> Result<Loaded, LoadError> {
    let start = Instant::now();
    let checkpoint = Checkpoint::open(path)?;
    let config = checkpoint.config()?;
    let vocabulary = checkpoint.vocabulary()?;
    let LoadOptions {
        batch_invariant,
        device,
        weights,
        lean,
    } = options;
    let diet = lean.plan(&vocabulary, config.vocabulary_rows)?;
    let model: Box<dyn Model> = if device.is_cpu() {
        let backend = Cpu::new(batch_invariant);
        Box::new(Decoder::load(backend, &checkpoint, config.clone(), diet)?)
    } else {
        let backend = Tensors::new(&device, weights);
        Box::new(Decoder::load(backend, &checkpoint, config.clone(), diet)?)
    };
    info!(
        path = %path.display(),
        family = ?config.family,
        layers = config.layers.len(),
        hidden = config.hidden,
        heads = config.heads,
        kv_heads = config.kv_heads,
        vocabulary_rows = config.vocabulary_rows,
        context_length = config.context_length,
        weights = checkpoint.weight_type(),
        batch_invariant,
        device = %device,
        seconds = start.elapsed().as_secs_f64(),
        "model loaded"
    );
    Ok(Loaded { model, vocabulary })
}
