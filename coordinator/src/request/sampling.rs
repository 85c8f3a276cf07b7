//! How tokens are chosen, as far as the coordinator can tell that it makes sense.

use crate::model::Model;
use proto::v1::Decoding;
use service::Error;
use speculation::{AdjustmentOptions, Adjustments, InvalidSampling, Sampling, TokenId};
use std::collections::HashSet;

/// Checks the numbers and the token ids of `decoding`.
///
/// # Errors
/// The field's path in a request.
pub(super) fn check(decoding: &Decoding, model: &Model) -> Result<(), Error> {
    let params = decoding.sampling.as_ref();
    params
        .map_or(Ok(()), |params| Sampling::try_from(params).map(drop))
        .map_err(|error| named(&error))?;
    let adjustments = Adjustments::try_from(decoding).map_err(|error| named(&error))?;
    let options = adjustments.options();
    let size = model.tokenizer_size;
    if let Some(id) = options.logit_bias.keys().find(|id| **id >= size) {
        return Err(Error::invalid("sampling.logit_bias", unknown_id(*id, size)));
    }
    for (field, ids) in [
        ("sampling.allowed_token_ids", &options.allowed_tokens),
        ("sampling.banned_token_ids", &options.banned_tokens),
    ] {
        check_ids(field, ids, size as usize, model)?;
    }
    check_choice_left(options, size)
}

/// Checks that `ids` are at most `most`, all of the vocabulary.
///
/// # Errors
/// Names `field`, or the entry in it.
pub(super) fn check_ids(
    field: &str,
    ids: &[TokenId],
    most: usize,
    model: &Model,
) -> Result<(), Error> {
    let (count, size) = (ids.len(), model.tokenizer_size);
    if count > most {
        let message = format!("must be at most {most} token ids, not {count}");
        return Err(Error::invalid(field, message));
    }
    match ids.iter().position(|id| *id >= size) {
        None => Ok(()),
        Some(index) => {
            let field = format!("{field}[{index}]");
            Err(Error::invalid(field, unknown_id(ids[index], size)))
        }
    }
}

fn unknown_id(id: TokenId, size: TokenId) -> String {
    format!("token id {id} is not below {size}, the size of the vocabulary")
}

fn named(error: &InvalidSampling) -> Error {
    Error::invalid(format!("sampling.{}", error.field), error.to_string())
}

/// Checks that some token can be first: the target could only fail otherwise.
fn check_choice_left(options: &AdjustmentOptions, size: TokenId) -> Result<(), Error> {
    let mut forbidden: HashSet<TokenId> = options.banned_tokens.iter().copied().collect();
    forbidden.extend(
        options
            .bad_words
            .iter()
            .filter(|word| word.len() == 1)
            .flatten(),
    );
    if options.min_tokens > 0 {
        forbidden.extend(&options.end_tokens);
    }
    let allowed = &options.allowed_tokens;
    if allowed.is_empty() && forbidden.len() >= size as usize {
        let message = "with what else is forbidden, leave no token that can be chosen";
        return Err(Error::invalid("sampling.banned_token_ids", message));
    }
    if !allowed.is_empty() && allowed.iter().all(|id| forbidden.contains(id)) {
        let message = "hold no token that can be chosen: each is banned, a bad word, or would end the text before min_tokens";
        return Err(Error::invalid("sampling.allowed_token_ids", message));
    }
    Ok(())
}
