//! The model that is served, as far as a coordinator knows it: names, sizes, text to ids and back.
//! All of it comes from the target worker.

use crate::prompt::SpecialTokens;
use crate::template::ChatTemplate;
use proto::v1::ModelDescription;
use service::{Class, Error};
use speculation::TokenId;
use std::sync::Arc;
use tokenizers::Tokenizer;

/// The served model.
#[derive(Debug)]
pub(crate) struct Model {
    /// Its name in requests.
    pub(crate) name: String,
    /// The longest sequence, prompt and output together, in tokens.
    pub(crate) context_length: usize,
    /// Token ids below this exist.
    pub(crate) tokenizer_size: TokenId,
    /// Equal for tokenizers of equal content.
    pub(crate) tokenizer_fingerprint: String,
    /// Tokens that end a text.
    pub(crate) end_tokens: Arc<[TokenId]>,
    /// The token before every text prompt, where the model wants one.
    pub(crate) bos_token: Option<TokenId>,
    /// Text to ids and back.
    pub(crate) tokenizer: Tokenizer,
    /// How a conversation is written down, or why that cannot be done.
    pub(crate) template: Result<ChatTemplate, String>,
    /// Special tokens, where messages that spell them mean their text.
    pub(crate) special: Option<SpecialTokens>,
}

/// What the operator says about a model.
#[derive(Debug, Clone, Default)]
pub(crate) struct ModelOptions {
    /// Its name in requests; its own where there is none.
    pub(crate) name: Option<String>,
    /// Special tokens that messages spell are control, not text.
    pub(crate) allow_special_tokens: bool,
}

impl Model {
    /// The model of `description`, with the tokenizer that came with it as a `tokenizer.json`
    /// document.
    ///
    /// # Errors
    /// [`Class::Mismatch`] where the tokenizer cannot be read.
    pub(crate) fn new(
        options: &ModelOptions,
        description: &ModelDescription,
        tokenizer: &[u8],
    ) -> Result<Self, Error> {
        let tokenizer = read_tokenizer(tokenizer)?;
        let text_of = |token: Option<TokenId>| {
            token
                .and_then(|token| tokenizer.id_to_token(token))
                .unwrap_or_default()
        };
        let template = ChatTemplate::new(
            &description.chat_template,
            text_of(description.bos_token_id),
            text_of(description.eos_token_ids.first().copied()),
        );
        Ok(Self {
            name: options
                .name
                .as_ref()
                .unwrap_or(&description.model_id)
                .clone(),
            context_length: description.context_length as usize,
            tokenizer_size: description.tokenizer_size,
            tokenizer_fingerprint: description.tokenizer_fingerprint.clone(),
            end_tokens: description.eos_token_ids.as_slice().into(),
            bos_token: description.bos_token_id,
            special: (!options.allow_special_tokens).then(|| SpecialTokens::new(&tokenizer)),
            tokenizer,
            template,
        })
    }
}

/// Reads a `tokenizer.json` document.
///
/// # Errors
/// [`Class::Mismatch`] where it is none.
pub(crate) fn read_tokenizer(json: &[u8]) -> Result<Tokenizer, Error> {
    Tokenizer::from_bytes(json).map_err(|error| {
        Error::new(
            Class::Mismatch,
            format!("the tokenizer cannot be read: {error}"),
        )
    })
}
