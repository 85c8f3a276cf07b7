//! The body of a request: JSON, of which every wrong part is named.

use super::error::Failure;
use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, StatusCode, header};
use serde::de::DeserializeOwned;
use serde_json::error::Category;

/// A body, read as a `T`.
#[derive(Debug)]
pub(super) struct Body<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = Failure;

    async fn from_request(request: Request, state: &S) -> Result<Self, Failure> {
        if !is_json(request.headers()) {
            let message = "the content-type of the body must be application/json";
            return Err(Failure::request(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                message,
            ));
        }
        let bytes = Bytes::from_request(request, state)
            .await
            .map_err(|rejection| Failure::request(rejection.status(), rejection.body_text()))?;
        parse(&bytes).map(Self)
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    let kind = kind.to_ascii_lowercase();
    kind == "application/json" || (kind.starts_with("application/") && kind.ends_with("+json"))
}

/// Reads `bytes` as a `T`, to the end.
///
/// # Errors
/// What is wrong, with its path where it has one.
pub(super) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Failure> {
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let value = serde_path_to_error::deserialize(&mut json)
        .map_err(|error| wrong(&error.path().to_string(), error.inner()))?;
    json.end().map_err(|error| wrong("", &error))?;
    Ok(value)
}

fn wrong(path: &str, error: &serde_json::Error) -> Failure {
    let said = error.to_string();
    // What else it might have been called is a long list.
    let message = match said.split_once(", expected one of") {
        Some((message, _)) if message.starts_with("unknown field") => message,
        _ => &said,
    };
    let path = named(path, message);
    match (path.as_str(), error.classify()) {
        ("", Category::Data) => Failure::request(StatusCode::BAD_REQUEST, message),
        ("", _) => {
            let message = format!("the body is not valid JSON: {message}");
            Failure::request(StatusCode::BAD_REQUEST, message)
        }
        (path, _) => Failure::invalid(path, message),
    }
}

/// The path of what is wrong; of a field that is missing, `path` is what misses it.
fn named(path: &str, message: &str) -> String {
    // A part without a name of its own ends in a question mark; the whole has a dot for a name.
    let path = path.trim_end_matches('?').trim_end_matches('.');
    let missing = message
        .strip_prefix("missing field `")
        .and_then(|rest| Some(rest.split_once('`')?.0));
    match missing {
        None => path.to_owned(),
        Some(field) if path.is_empty() => field.to_owned(),
        Some(field) => format!("{path}.{field}"),
    }
}
