//! From a model's name to an engine that runs.

use crate::memory::{CPU_CACHE, MIB, MemoryPlan, Sizes};
use crate::processors::processors;
use crate::structured::Structured;
use crate::{Fault, ModelOptions, Opening};
use anyhow::Context as _;
use engine::{
    BLOCK_TOKENS, Device, Engine, EngineOptions, Lean, LoadOptions, Loaded, Sequence, Source,
    Vocabulary,
};
use models::{Resolved, Role};
use proto::v1;
use speculation::{Prefix, TokenId};
use std::sync::Arc;
use std::time::Instant;

/// A model that is being served.
#[derive(Debug, Clone)]
pub struct Served {
    /// Runs it.
    pub engine: Engine,
    /// Its tokens.
    pub vocabulary: Arc<Vocabulary>,
    /// What it is, for coordinators.
    pub description: Arc<v1::ModelDescription>,
    /// What requests are checked against.
    pub limits: Limits,
    structured: Structured,
}

/// What a coordinator's messages are checked against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Ids that the tokenizer knows: 0 to this number, less one.
    pub tokenizer_size: usize,
    /// The longest sequence, in tokens.
    pub context_length: usize,
    /// Sequences at once.
    pub max_sequences: usize,
    /// The most tokens that one proposal may hold.
    pub max_draft_tokens: usize,
}

impl Served {
    /// A model that `engine` runs.
    pub fn new(
        engine: Engine,
        vocabulary: Arc<Vocabulary>,
        description: v1::ModelDescription,
        limits: Limits,
    ) -> Self {
        Self {
            engine,
            structured: Structured::new(Arc::clone(&vocabulary)),
            vocabulary,
            description: Arc::new(description),
            limits,
        }
    }

    /// Opens a sequence of the engine for `opening`. Ends at once where no grammar is to be compiled.
    ///
    /// # Errors
    /// Where the engine has no room, and what is wrong with the grammar.
    pub async fn open(&self, opening: &Opening) -> Result<Sequence, Fault> {
        let constraint = match &opening.structured {
            Some(form) => Some(self.structured.compile(form.clone()).await?),
            None => None,
        };
        let prefix = Prefix::new(Arc::clone(&opening.adjustments), constraint);
        Ok(self.engine.open(prefix)?)
    }

    /// The worker's load.
    pub fn load(&self) -> v1::Load {
        let active = self.engine.active_sequences();
        let blocks = self.engine.cache().blocks;
        let tokens = |blocks: usize| (blocks * BLOCK_TOKENS) as u64;
        v1::Load {
            active_sequences: u32::try_from(active).unwrap_or(u32::MAX),
            max_sequences: self.description.max_sequences,
            cache_tokens: tokens(blocks.used),
            max_cache_tokens: tokens(blocks.used + blocks.cached + blocks.free),
        }
    }

    /// The worker's load, where it is another than what was `told`: other sequences, or a cache that is
    /// by a hundredth fuller or emptier. `told` becomes it.
    pub fn new_load(&self, told: &mut v1::Load) -> Option<v1::Load> {
        let load = self.load();
        let moved = load.cache_tokens.abs_diff(told.cache_tokens);
        let same = load.active_sequences == told.active_sequences;
        if same && moved * 100 < load.max_cache_tokens.max(1) {
            return None;
        }
        *told = load;
        Some(load)
    }
}

impl Limits {
    /// True where `id` is a token and not padding or beyond.
    pub fn is_token(&self, id: TokenId) -> bool {
        usize::try_from(id).is_ok_and(|id| id < self.tokenizer_size)
    }

    /// Checks that all of `ids` are tokens.
    ///
    /// # Errors
    /// Names `field` and the first id that is none.
    pub fn check_ids(&self, field: &str, ids: &[TokenId]) -> Result<(), Fault> {
        match ids.iter().position(|&id| !self.is_token(id)) {
            None => Ok(()),
            Some(index) => Err(Fault::invalid(format!(
                "{field}[{index}] is {}, not below the tokenizer's size of {}",
                ids[index], self.tokenizer_size
            ))),
        }
    }
}

/// Finds the model that `options` names for `role`, fetching it where it is known and absent,
/// loads it, as `lean` as a draft may be, and starts its engine.
///
/// # Errors
/// Names the model or its file.
pub async fn load_engine(options: &ModelOptions, lean: Lean, role: Role) -> anyhow::Result<Served> {
    let options = options.clone();
    tokio::task::spawn_blocking(move || load_blocking(&options, lean, role))
        .await
        .context("the loading task failed")?
}

fn load_blocking(options: &ModelOptions, lean: Lean, role: Role) -> anyhow::Result<Served> {
    let begun = Instant::now();
    let resolved = models::resolve(&options.model, role, &models::store_dir())?;
    let (source, model_id) = match resolved {
        Resolved::File { path, id } => (Source::Files(path), id),
        Resolved::Synthetic(description) => {
            (Source::Synthetic(description), "synthetic".to_owned())
        }
    };
    let load = load_options(options, lean, &source)?;
    let cache_bytes = plan_memory(options, &source, &load)?;
    // The toy model sleeps as a GPU computes.
    let on_cpu = load.device.is_cpu() && matches!(source, Source::Files(_));
    let step_tokens = options.step_tokens(on_cpu);
    let served_by = ServedBy {
        device: load.device.to_string(),
        batch_invariant: load.batch_invariant,
        processors: if on_cpu {
            processors(engine::threads())
        } else {
            None
        },
    };
    let Loaded { model, vocabulary } = engine::load(&source, load)?;
    let vocabulary = Arc::new(vocabulary);
    let shape = model.shape().clone();
    let limits = Limits {
        tokenizer_size: vocabulary.size.min(shape.vocabulary_rows),
        context_length: shape.context_length,
        max_sequences: options.max_sequences as usize,
        max_draft_tokens: options.max_draft_tokens as usize,
    };
    let engine = Engine::start(
        model,
        engine_options(options, &limits, cache_bytes, step_tokens),
    )
    .context("cannot start the engine")?;
    let blocks = engine.cache().blocks;
    tracing::info!(
        model = model_id,
        context_length = shape.context_length,
        vocabulary = limits.tokenizer_size,
        cache_tokens = blocks.free * BLOCK_TOKENS,
        cache_type = %options.cache_type,
        seconds = begun.elapsed().as_secs_f32(),
        "model ready"
    );
    let rows = shape.vocabulary_rows;
    let description = describe(options, served_by, model_id, rows, &limits, &vocabulary)?;
    Ok(Served::new(engine, vocabulary, description, limits))
}

/// Opens the device, and settles what is to be computed there.
fn load_options(
    options: &ModelOptions,
    lean: Lean,
    source: &Source,
) -> anyhow::Result<LoadOptions> {
    let device = match source {
        Source::Synthetic(_) => Device::cpu(),
        Source::Files(_) => options.device.open()?,
    };
    Ok(LoadOptions {
        batch_invariant: options.batch_invariant_on(&device)?,
        weights: options.dtype,
        device,
        lean,
    })
}

/// The bytes of the cache, once it is sure that all fits.
fn plan_memory(options: &ModelOptions, source: &Source, load: &LoadOptions) -> anyhow::Result<u64> {
    let Source::Files(path) = source else {
        // Nothing but a few numbers per sequence is kept.
        return Ok(options
            .cache_mib
            .map_or(CPU_CACHE, |mib| u64::from(mib) * MIB));
    };
    let footprint = engine::footprint(path, load, options.cache_type)?;
    let sizes = Sizes {
        cache_mib: options.cache_mib,
        max_step_tokens: options.step_tokens(load.device.is_cpu()),
        max_sequences: options.max_sequences as usize,
    };
    let plan = MemoryPlan::new(&footprint, sizes, &load.device)?;
    tracing::info!(device = %load.device, "memory plan: {plan}");
    Ok(plan.cache)
}

fn engine_options(
    options: &ModelOptions,
    limits: &Limits,
    cache_bytes: u64,
    step_tokens: usize,
) -> EngineOptions {
    EngineOptions {
        max_sequences: limits.max_sequences,
        cache_bytes: usize::try_from(cache_bytes).unwrap_or(usize::MAX),
        cache_type: options.cache_type,
        prefix_sharing: options.prefix_sharing,
        max_step_tokens: step_tokens,
        tokenizer_size: limits.tokenizer_size,
    }
}

/// What computes.
struct ServedBy {
    device: String,
    batch_invariant: bool,
    processors: Option<v1::Processors>,
}

fn describe(
    options: &ModelOptions,
    by: ServedBy,
    model_id: String,
    vocabulary_rows: usize,
    limits: &Limits,
    vocabulary: &Vocabulary,
) -> anyhow::Result<v1::ModelDescription> {
    Ok(v1::ModelDescription {
        model_id,
        context_length: u32::try_from(limits.context_length).context("context length")?,
        vocabulary_rows: u32::try_from(vocabulary_rows).context("vocabulary rows")?,
        tokenizer_size: u32::try_from(limits.tokenizer_size).context("tokenizer size")?,
        tokenizer_fingerprint: vocabulary.fingerprint.clone(),
        eos_token_ids: vocabulary.eos_ids.clone(),
        chat_template: vocabulary.chat_template.clone(),
        max_sequences: options.max_sequences,
        max_draft_tokens: options.max_draft_tokens,
        device: by.device,
        batch_invariant: by.batch_invariant,
        bos_token_id: vocabulary.bos_id,
        processors: by.processors,
    })
}
