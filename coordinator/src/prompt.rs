//! A prompt to token ids, once, with the target's tokenizer: whoever works on the request gets the
//! same ids.

mod chat;
mod special;
#[cfg(test)]
mod tests;
mod trie;

pub(crate) use special::SpecialTokens;

use crate::model::Model;
use proto::v1::{Prompt, TokenIds, prompt};
use service::{Class, Error};
use speculation::TokenId;

/// A prompt's token ids, and the text that they were made of.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Tokenized {
    /// The ids, at least one.
    pub(crate) token_ids: Vec<TokenId>,
    /// The text; empty where the client sent ids.
    pub(crate) text: String,
}

/// Tokenizes `prompt`. Takes time for a long one.
///
/// # Errors
/// [`Class::Invalid`] with the field's path.
pub(crate) fn tokenize(prompt: Option<Prompt>, model: &Model) -> Result<Tokenized, Error> {
    let prompt = prompt.and_then(|prompt| prompt.prompt);
    let tokenized = match prompt {
        None => return Err(Error::invalid("prompt", "is missing")),
        Some(prompt::Prompt::Text(text)) => plain(text, model)?,
        Some(prompt::Prompt::TokenIds(TokenIds { ids })) => {
            check_known("prompt.token_ids.ids", &ids, model)?;
            Tokenized {
                token_ids: ids,
                text: String::new(),
            }
        }
        Some(prompt::Prompt::Chat(chat)) => chat::tokenize(&chat, model)?,
    };
    if tokenized.token_ids.is_empty() {
        return Err(Error::invalid("prompt", "has no tokens"));
    }
    Ok(tokenized)
}

fn plain(text: String, model: &Model) -> Result<Tokenized, Error> {
    let mut token_ids = encode(&text, model)?;
    // An empty prompt stays one: a lone first token is nothing to continue.
    if let Some(bos) = model.bos_token.filter(|_| !token_ids.is_empty())
        && token_ids[0] != bos
    {
        token_ids.insert(0, bos);
    }
    Ok(Tokenized { token_ids, text })
}

/// The token ids of `text`. Special tokens in it are recognised; the tokenizer adds none.
///
/// # Errors
/// [`Class::Internal`] where the tokenizer fails.
pub(crate) fn encode(text: &str, model: &Model) -> Result<Vec<TokenId>, Error> {
    let encoding = model
        .tokenizer
        .encode_fast(text, false)
        .map_err(|error| Error::new(Class::Internal, format!("the tokenizer failed: {error}")))?;
    Ok(encoding.get_ids().to_vec())
}

/// The text of `ids`, special tokens included.
///
/// # Errors
/// [`Class::Invalid`] with the field's path.
pub(crate) fn detokenize(ids: Vec<TokenId>, model: &Model) -> Result<String, Error> {
    check_known("token_ids", &ids, model)?;
    model
        .tokenizer
        .decode(&ids, false)
        .map_err(|error| Error::new(Class::Internal, format!("the tokenizer failed: {error}")))
}

/// Checks that the vocabulary has all `ids`, which `field` holds.
fn check_known(field: &str, ids: &[TokenId], model: &Model) -> Result<(), Error> {
    let size = model.tokenizer_size;
    match ids.iter().position(|id| *id >= size) {
        None => Ok(()),
        Some(index) => {
            let field = format!("{field}[{index}]");
            let message = format!(
                "token id {} is not below {size}, the size of the vocabulary",
                ids[index]
            );
            Err(Error::invalid(field, message))
        }
    }
}
