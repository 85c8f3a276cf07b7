//! The JSON of a call.

use super::{Reading, Syntax};
use proto::v1::ToolCall;
use rand::Rng as _;
use rand::distr::Alphanumeric;
use serde::Deserialize;
use serde_json::value::RawValue;

/// A call as models write it.
#[derive(Deserialize)]
struct Written<'a> {
    name: String,
    #[serde(borrow, alias = "parameters")]
    arguments: Option<&'a RawValue>,
}

/// The calls in `json`; `None` where that is something else.
pub(super) fn parse(json: &str, reading: &Reading) -> Option<Vec<ToolCall>> {
    let written: Vec<Written<'_>> = match reading.syntax {
        Syntax::Mistral => serde_json::from_str(json).ok()?,
        Syntax::Hermes | Syntax::Llama => vec![serde_json::from_str(json).ok()?],
    };
    if written.is_empty() {
        return None;
    }
    let calls = written.into_iter().map(|written| {
        let arguments = match written.arguments {
            Some(arguments) => object(arguments)?,
            // Without the tags around it, it is a call by its form alone.
            None if reading.syntax == Syntax::Llama => return None,
            None => "{}".to_owned(),
        };
        let known = reading.names.contains(&written.name);
        (known || reading.syntax != Syntax::Llama && !written.name.is_empty()).then(|| ToolCall {
            id: id(reading.syntax),
            name: written.name,
            arguments,
        })
    });
    calls.collect()
}

/// A JSON object as it is written, also where it is written into a string.
fn object(json: &RawValue) -> Option<String> {
    let json = json.get();
    if json.starts_with('{') {
        return Some(json.to_owned());
    }
    let inner: String = serde_json::from_str(json).ok()?;
    let inner: &RawValue = serde_json::from_str(&inner).ok()?;
    inner.get().starts_with('{').then(|| inner.get().to_owned())
}

/// Tells calls apart; as Mistral's templates demand it, or as everybody's clients know it.
fn id(syntax: Syntax) -> String {
    let random = |letters| {
        let letters = rand::rng().sample_iter(Alphanumeric).take(letters);
        letters.map(char::from).collect::<String>()
    };
    match syntax {
        Syntax::Mistral => random(9),
        Syntax::Hermes | Syntax::Llama => format!("call_{}", random(24)),
    }
}
