//! From a name to a model that runs.

use crate::{
    Checkpoint, LoadError, Model, Synthetic, Vocabulary, cpu::Cpu, decoder::Decoder,
    synthetic::Description,
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
#[derive(Debug, Clone, Copy)]
pub struct LoadOptions {
    /// Keeps every row's logits independent of what else is in its batch, to the bit.
    pub batch_invariant: bool,
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

fn load_files(path: &Path, options: LoadOptions) -> Result<Loaded, LoadError> {
    let start = Instant::now();
    let checkpoint = Checkpoint::open(path)?;
    let config = checkpoint.config()?;
    let vocabulary = checkpoint.vocabulary()?;
    let backend = Cpu::new(options.batch_invariant);
    let decoder = Decoder::load(backend, &checkpoint, config.clone())?;
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
        batch_invariant = options.batch_invariant,
        seconds = start.elapsed().as_secs_f64(),
        "model loaded"
    );
    Ok(Loaded {
        model: Box::new(decoder),
        vocabulary,
    })
}
