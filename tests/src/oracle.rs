//! The target's model in the process of the test: what it says and what its tokens mean, with none
//! of our services between.

use anyhow::{Result, anyhow};
use engine::{Input, KvPool, LoadOptions, Model, Source, Vocabulary};
use tokenizers::Tokenizer;

/// A model that a test asks itself.
pub struct Oracle {
    model: Box<dyn Model>,
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
        };
        let loaded = engine::load(&Source::Files(path.into()), options)?;
        let tokenizer = Tokenizer::from_bytes(&loaded.vocabulary.tokenizer_json);
        Ok(Self {
            model: loaded.model,
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
        let mut cache = KvPool::new(self.model.shape().kv, usize::MAX).lease();
        cache.reserve(tokens.len())?;
        let mut batch = [Input {
            cache: &mut cache,
            tokens,
            wanted: tokens.len(),
        }];
        let logits = self.model.forward(&mut batch)?;
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

impl std::fmt::Debug for Oracle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Oracle").finish_non_exhaustive()
    }
}
