//! A model on its engine, and the times of its steps.

use super::memory::resident_bytes;
use super::{ModelFigures, Step, Times};
use anyhow::{Context as _, Result, anyhow};
use engine::gguf::GgufFile;
use engine::lean::{FrequentIds, Lean};
use engine::{
    CacheType, Engine, EngineError, EngineOptions, LoadOptions, Reader, Row, Sequence, Source,
};
use speculation::{Adjustments, Prefix, TokenId};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokenizers::Tokenizer;

/// For keys and values.
pub(crate) const CACHE_BYTES: usize = 512 << 20;
/// Rows of the steps that are timed.
const ROWS: [usize; 5] = [1, 2, 4, 8, 16];
/// Tokens decoded one by one.
const DECODED: usize = 16;
const PREFILL: usize = 512;

/// A model that is measured.
pub(crate) struct Subject {
    engine: Engine,
    /// Real text, long enough for everything here.
    text: Vec<TokenId>,
    figures: ModelFigures,
}

/// Takes the likeliest token of each row.
#[derive(Debug, Default)]
pub(crate) struct Greedy(pub(crate) Vec<TokenId>);

impl Reader for Greedy {
    fn read(&mut self, row: Row<'_>) -> Result<Option<TokenId>, EngineError> {
        let logits = row.logits();
        let best = (0..logits.len()).max_by(|&a, &b| logits[a].total_cmp(&logits[b]));
        let best = best.and_then(|id| TokenId::try_from(id).ok());
        self.0.extend(best);
        Ok(best)
    }
}

impl Subject {
    /// Loads a model; with `output` it computes logits of so many frequent ids alone.
    pub(crate) fn load(path: &Path, output: Option<usize>) -> Result<Self> {
        let before = resident_bytes()?;
        let begun = Instant::now();
        let frequent = output.map(|count| FrequentIds { count, file: None });
        let options = LoadOptions {
            lean: Lean {
                output: frequent,
                ..Lean::default()
            },
            ..LoadOptions::default()
        };
        let loaded = engine::load(&Source::Files(path.to_owned()), options)?;
        let load_seconds = begun.elapsed().as_secs_f64();
        let rows = loaded.model.shape().vocabulary_rows;
        let options = EngineOptions {
            max_sequences: 8,
            cache_bytes: CACHE_BYTES,
            cache_type: CacheType::F32,
            prefix_sharing: true,
            max_step_tokens: 512,
            tokenizer_size: loaded.vocabulary.size,
        };
        let tokenizer = Tokenizer::from_bytes(&loaded.vocabulary.tokenizer_json);
        let engine = Engine::start(loaded.model, options)?;
        let resident = resident_bytes()?.saturating_sub(before);
        Ok(Self {
            engine,
            text: text(&tokenizer.map_err(|error| anyhow!("{error}"))?)?,
            figures: ModelFigures {
                file_bytes: fs::metadata(path)?.len(),
                bytes_per_token: bytes_per_token(path, output.map(|ids| (ids, rows)))?,
                resident_bytes: resident,
                load_seconds,
                decode: Times::default(),
                steps: ROWS.map(Step::new).into(),
                prefill_512: Times::default(),
            },
        })
    }

    pub(crate) fn into_figures(self) -> ModelFigures {
        self.figures
    }

    /// A prompt of `len` tokens that differs from every other number's in its first token, so that
    /// nothing of it is cached.
    pub(crate) fn prompt(&self, number: usize, len: usize) -> Vec<TokenId> {
        let mut prompt = self.text[..len].to_vec();
        prompt[0] = 1000 + number as TokenId;
        prompt
    }

    /// An empty sequence.
    pub(crate) fn open(&self) -> Result<Sequence> {
        let prefix = Prefix::new(Arc::new(Adjustments::default()), None);
        Ok(self.engine.open(prefix)?)
    }

    /// Takes every time once.
    pub(crate) async fn time(&mut self, context: usize, number: usize) -> Result<()> {
        let mut sequence = self.open()?;
        let begun = Instant::now();
        let prompt = self.prompt(2 * number, PREFILL);
        sequence.read(0, prompt, 1, Greedy::default()).await?;
        self.figures.prefill_512.add(begun.elapsed());

        let prompt = self.prompt(2 * number + 1, context);
        sequence.read(0, prompt, 1, Greedy::default()).await?;
        // The first step after a prefill finds cold caches.
        self.step(&mut sequence, context, 1).await?;
        for index in 0..ROWS.len() {
            for _ in 0..3 {
                let time = self.step(&mut sequence, context, ROWS[index]).await?;
                self.figures.steps[index].times.add(time);
            }
        }
        let begun = Instant::now();
        let first = vec![self.text[context]];
        let decoded = sequence
            .decode(context, first, DECODED, Greedy::default())
            .await?;
        let time = begun.elapsed() / u32::try_from(decoded.0.len()).context("tokens")?;
        self.figures.decode.add(time);
        Ok(())
    }

    async fn step(&self, sequence: &mut Sequence, context: usize, rows: usize) -> Result<Duration> {
        let tokens = self.text[context..context + rows].to_vec();
        let begun = Instant::now();
        sequence
            .read(context, tokens, rows, Greedy::default())
            .await?;
        Ok(begun.elapsed())
    }
}

/// Some thousands of tokens of plain English that does not repeat itself.
fn text(tokenizer: &Tokenizer) -> Result<Vec<TokenId>> {
    let numbered = |n: usize| {
        format!(
            "Note {n}: the {}th lamp on pier {} was lit at {} o'clock, and {} boats came in. ",
            n * 7 % 101,
            n * 13 % 37,
            n % 12 + 1,
            n * n % 53
        )
    };
    let text: String = (0..200).map(numbered).collect();
    let encoding = tokenizer
        .encode(text, false)
        .map_err(|error| anyhow!("{error}"))?;
    Ok(encoding.get_ids().to_vec())
}

/// The weights that a step reads: all but the embedding, of which it reads one row, unless that is
/// the output matrix as well; of that so many rows of all where it is restricted.
fn bytes_per_token(path: &Path, kept: Option<(usize, usize)>) -> Result<u64> {
    const EMBEDDING: &str = "token_embd.weight";
    const OUTPUT: &str = "output.weight";
    let file = GgufFile::open(path)?;
    let output = if file.has_tensor(OUTPUT) {
        OUTPUT
    } else {
        EMBEDDING
    };
    let (ids, rows) = kept.unwrap_or((1, 1));
    let bytes = file.tensors().map(|(name, bytes)| match name {
        _ if name == output => bytes * ids / rows,
        EMBEDDING => 0,
        _ => bytes,
    });
    Ok(bytes.sum::<usize>() as u64)
}
