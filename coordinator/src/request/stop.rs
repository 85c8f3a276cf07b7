//! What ends a text.

use super::sampling::check_ids;
use crate::model::Model;
use crate::stop::StopStrings;
use proto::v1::StopParams;
use service::Error;
use speculation::TokenId;

/// The most stop strings of a request.
const MAX_STRINGS: usize = 64;

/// The longest stop string, in bytes.
const MAX_STRING_BYTES: usize = 1024;

/// The most token ids that a request may name to end its text.
const MAX_TOKEN_IDS: usize = 4096;

/// What ends a text, besides its length.
#[derive(Debug, Default)]
pub(crate) struct StopRules {
    /// These tokens: the model's own, where the client does not ignore them, and the client's.
    /// Ascending.
    pub(crate) end_tokens: Vec<TokenId>,
    /// These strings.
    pub(crate) strings: StopStrings,
    /// The string, or the text of the token, is kept in the text.
    pub(crate) include: bool,
    /// So many first tokens neither end the text nor count towards a stop string.
    pub(crate) min_tokens: usize,
}

impl StopRules {
    /// Checks `params`.
    ///
    /// # Errors
    /// The field's path.
    pub(super) fn new(params: StopParams, model: &Model) -> Result<Self, Error> {
        if params.max_tokens == Some(0) {
            return Err(Error::invalid("stop.max_tokens", "must be at least 1"));
        }
        check_ids("stop.token_ids", &params.token_ids, MAX_TOKEN_IDS, model)?;
        check_strings(
            "stop.strings",
            &params.strings,
            MAX_STRINGS,
            MAX_STRING_BYTES,
        )?;
        let mut end_tokens = params.token_ids;
        if !params.ignore_eos {
            end_tokens.extend_from_slice(&model.end_tokens);
        }
        end_tokens.sort_unstable();
        end_tokens.dedup();
        Ok(Self {
            end_tokens,
            strings: StopStrings::new(params.strings),
            include: params.include_stop_string,
            min_tokens: params.min_tokens.unwrap_or_default() as usize,
        })
    }

    /// The most tokens to generate where the client wants `max_tokens` and the context has `room`.
    ///
    /// # Errors
    /// Where `min_tokens` is more.
    pub(super) fn budget(&self, max_tokens: Option<u32>, room: usize) -> Result<usize, Error> {
        let min = self.min_tokens;
        let most = max_tokens.map_or(usize::MAX, |most| most as usize);
        if min > most {
            let message = format!("must be at most max_tokens, which is {most}, not {min}");
            return Err(Error::invalid("stop.min_tokens", message));
        }
        if min > room {
            let message = format!(
                "must be at most {room}, which the context has room for after the prompt, not {min}"
            );
            return Err(Error::invalid("stop.min_tokens", message));
        }
        Ok(most.min(room))
    }
}

/// Checks that `strings` are at most `most`, none of them empty or longer than `bytes`.
///
/// # Errors
/// Names `field`, or the entry in it.
pub(super) fn check_strings(
    field: &str,
    strings: &[String],
    most: usize,
    bytes: usize,
) -> Result<(), Error> {
    let count = strings.len();
    if count > most {
        let message = format!("must be at most {most} strings, not {count}");
        return Err(Error::invalid(field, message));
    }
    for (index, string) in strings.iter().enumerate() {
        let len = string.len();
        if len == 0 || len > bytes {
            let message = format!("must have 1 to {bytes} bytes, not {len}");
            return Err(Error::invalid(format!("{field}[{index}]"), message));
        }
    }
    Ok(())
}
