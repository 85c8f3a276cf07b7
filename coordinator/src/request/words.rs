//! Words that the output must not hold, as token ids.

use super::stop::check_strings;
use crate::model::Model;
use crate::prompt;
use proto::v1::TokenIds;
use service::Error;

/// The most bad words of a request.
const MAX_WORDS: usize = 1024;

/// The longest bad word, in bytes.
const MAX_WORD_BYTES: usize = 1024;

/// The token ids of `words`, as vLLM has them: each word bare, as within a text without a space
/// before it, and with a space, as after another word. The second only where it is as long and
/// begins with another token: else it holds the first, or the space is a token of its own, and the
/// bare word covers it.
///
/// # Errors
/// The field's path.
pub(super) fn tokenize(words: &[String], model: &Model) -> Result<Vec<TokenIds>, Error> {
    check_strings("bad_words", words, MAX_WORDS, MAX_WORD_BYTES)?;
    let mut tokenized = Vec::with_capacity(2 * words.len());
    for (index, word) in words.iter().enumerate() {
        let trimmed = word.trim_start();
        // Of a word that is all space nothing may be cut off.
        let bare = prompt::encode(if trimmed.is_empty() { word } else { trimmed }, model)?;
        if bare.is_empty() {
            let field = format!("bad_words[{index}]");
            return Err(Error::invalid(field, "has no tokens"));
        }
        if !trimmed.is_empty() {
            let spaced = prompt::encode(&format!(" {trimmed}"), model)?;
            if spaced.len() == bare.len() && spaced[0] != bare[0] {
                tokenized.push(TokenIds { ids: spaced });
            }
        }
        tokenized.push(TokenIds { ids: bare });
    }
    Ok(tokenized)
}
