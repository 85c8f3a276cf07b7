//! Requests whose text must match something. Whether a grammar can be made of it, the target says.

use proto::v1::{GenerateRequest, StructuredOutput, structured_output::Form};
use serde::de::IgnoredAny;
use service::Error;

/// The longest schema, expression or grammar.
const MAX_SOURCE_BYTES: usize = 1024 * 1024;

/// Checks the constraint of `request`, where it has one, and what cannot go with it.
///
/// # Errors
/// The field's path.
pub(super) fn check(request: &GenerateRequest) -> Result<(), Error> {
    let Some(structured) = &request.structured else {
        return Ok(());
    };
    check_form(structured)?;
    let stop = request.stop.as_ref();
    let sampling = request.sampling.as_ref();
    let conflicts = [
        ("stop.ignore_eos", stop.is_some_and(|stop| stop.ignore_eos)),
        (
            "stop.min_tokens",
            stop.is_some_and(|stop| stop.min_tokens() > 0),
        ),
        (
            "stop.strings",
            stop.is_some_and(|stop| !stop.strings.is_empty()),
        ),
        (
            "sampling.allowed_token_ids",
            sampling.is_some_and(|sampling| !sampling.allowed_token_ids.is_empty()),
        ),
        ("bad_words", !request.bad_words.is_empty()),
    ];
    match conflicts.iter().find(|(_, given)| *given) {
        None => Ok(()),
        Some((field, _)) => {
            let message = "cannot go with structured: what the text must match decides what comes and where it ends";
            Err(Error::invalid(*field, message))
        }
    }
}

fn check_form(structured: &StructuredOutput) -> Result<(), Error> {
    let (field, source) = match &structured.form {
        None => return Err(Error::invalid("structured", "must have a form")),
        Some(Form::JsonObject(true)) => return Ok(()),
        Some(Form::JsonObject(false)) => {
            return Err(Error::invalid("structured.json_object", "must be true"));
        }
        Some(Form::JsonSchema(source)) => ("structured.json_schema", source),
        Some(Form::Regex(source)) => ("structured.regex", source),
        Some(Form::Lark(source)) => ("structured.lark", source),
    };
    let len = source.len();
    if len == 0 || len > MAX_SOURCE_BYTES {
        let message = format!("must have 1 to {MAX_SOURCE_BYTES} bytes, not {len}");
        return Err(Error::invalid(field, message));
    }
    if matches!(structured.form, Some(Form::JsonSchema(_))) {
        serde_json::from_str::<IgnoredAny>(source)
            .map_err(|error| Error::invalid(field, format!("is not JSON: {error}")))?;
    }
    Ok(())
}
