//! What a model's metadata says of its tokens: the tokenizer, the ids that end a text, the chat
//! template.

use crate::{LoadError, gguf::GgufFile};
use speculation::TokenId;

/// A model's tokenizer and what belongs to it.
#[derive(Debug, Clone)]
pub struct Vocabulary {
    /// The tokenizer as a `tokenizer.json` document, padding left out.
    pub tokenizer_json: Vec<u8>,
    /// Ids that the tokenizer knows: 0 to this number, less one. Rows beyond are padding.
    pub size: usize,
    /// sha256 over (id, string, special or not) of all of them, in hex.
    pub fingerprint: String,
    /// Ids that end a text.
    pub eos_ids: Vec<TokenId>,
    /// The id put before every prompt, where the model wants one.
    pub bos_id: Option<TokenId>,
    /// The chat template (Jinja); empty where there is none.
    pub chat_template: String,
}

impl Vocabulary {
    /// Reads the tokenizer that `file` carries.
    ///
    /// # Errors
    /// [`LoadError`] naming the key that is absent, wrong or not supported.
    pub fn from_gguf(file: &GgufFile) -> Result<Self, LoadError> {
        let _ = file;
        todo!("helper: loader")
    }
}
