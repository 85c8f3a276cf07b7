//! The target's model in the process of the test: what it says and what its tokens mean, with none
//! of our services between.

use anyhow::{Result, anyhow};
use engine::{BLOCK_TOKENS, BlockId, CacheType, Input, LoadOptions, Model, Source, Vocabulary};
use tokenizers::Tokenizer;

/// A model that a test asks itself.
pub struct Oracle {
    model: Box<dyn Model>,
    /// Room for one text of any length.
    blocks: Vec<BlockId>,
    vocabulary: Vocabulary,
    tokenizer: Tokenizer,
}

impl Oracle {
    /// Loads the model of the GGUF file at `path`.
    ///
    /// # Errors
    /// Where it cannot be loaded.
    pub fn load(path: &str) -> Result<Self> {
        let options = LoadOptions {
            batch_invariant: true,
            ..LoadOptions::default()
        };
        let mut loaded = engine::load(&Source::Files(path.into()), options)?;
        let blocks = whole_context(&mut *loaded.model)?;
        let tokenizer = Tokenizer::from_bytes(&loaded.vocabulary.tokenizer_json);
        Ok(Self {
            model: loaded.model,
            blocks,
            vocabulary: loaded.vocabulary,
            tokenizer: tokenizer.map_err(|error| anyhow!("{error}"))?,
        })
    }

    /// Its tokens.
    pub fn vocabulary(&self) -> &Vocabulary {
        &self.vocabulary
    }

    /// The token that it prefers to end a text with.
    pub fn end_token(&self) -> u32 {
        self.vocabulary.eos_ids[0]
    }

    /// Its logits after each of `tokens`, from the first.
    ///
    /// # Errors
    /// Where the model fails.
    pub fn logits(&mut self, tokens: &[u32]) -> Result<Vec<Vec<f32>>> {
        let input = Input {
            blocks: &self.blocks,
            start: 0,
            tokens,
            wanted: tokens.len(),
        };
        let logits = self.model.forward(&[input])?;
        Ok(logits.rows().map(<[f32]>::to_vec).collect())
    }

    /// The text of `ids`, as far as it is text: control tokens have none.
    ///
    /// # Errors
    /// Where the tokenizer fails.
    pub fn decode(&self, ids: &[u32]) -> Result<String> {
        let text = self.tokenizer.decode(ids, true);
        text.map_err(|error| anyhow!("{error}"))
    }
}

/// Has `model` provide for one text of any length, and returns the blocks for it.
pub(crate) fn whole_context(model: &mut dyn Model) -> Result<Vec<BlockId>> {
    let blocks = model.shape().context_length.div_ceil(BLOCK_TOKENS);
    model.allocate(blocks, CacheType::F32)?;
    Ok((0..u32::try_from(blocks)?).map(BlockId::new).collect())
}

impl std::fmt::Debug for Oracle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Oracle").finish_non_exhaustive()
    }
}
