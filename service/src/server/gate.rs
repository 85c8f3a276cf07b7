//! Who may call: those who bring a known secret, as `Authorization: Bearer`.

use super::Router;
use crate::keyring::Keyring;
use crate::reload::Reloaded;
use crate::{Class, Error};
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use std::fmt;
use tonic::Status;

/// What anybody may ask, for those who watch over the process.
const OPEN_PATHS: [&str; 3] = ["/health", "/ready", "/version"];
const OPEN_SERVICE: &str = "/grpc.health.v1.Health/";

/// What is said to those without a secret, and to those with a wrong one.
const MISSING: &str = "no key: send one as `Authorization: Bearer KEY`";
const UNKNOWN: &str = "the key is not known";

/// Stands before all routes of a server. A call that passes finds the owner of its secret among its
/// extensions.
pub struct Gate(Box<dyn FnOnce(Router) -> Router + Send>);

impl Gate {
    /// Lets in who has a secret of `keys`, as they are at the time of the call.
    pub fn new<T: Clone + Send + Sync + 'static>(keys: Reloaded<Keyring<T>>) -> Self {
        Self(Box::new(move |router| {
            router.layer(from_fn_with_state(keys, check::<T>))
        }))
    }

    /// `router` behind the gate.
    pub(super) fn before(self, router: Router) -> Router {
        (self.0)(router)
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Gate")
    }
}

async fn check<T: Clone + Send + Sync + 'static>(
    State(keys): State<Reloaded<Keyring<T>>>,
    mut request: Request,
    next: Next,
) -> Response {
    if is_open(request.uri().path()) {
        return next.run(request).await;
    }
    let Some(secret) = bearer(request.headers()) else {
        return refusal(request.headers(), MISSING);
    };
    let owner = keys.borrow().find(secret).cloned();
    match owner {
        None => refusal(request.headers(), UNKNOWN),
        Some(owner) => {
            // Nothing behind the gate needs it, or can tell of it.
            request.headers_mut().remove(AUTHORIZATION);
            request.extensions_mut().insert(owner);
            next.run(request).await
        }
    }
}

fn is_open(path: &str) -> bool {
    OPEN_PATHS.contains(&path) || path.starts_with(OPEN_SERVICE)
}

/// The secret of `Authorization: Bearer`. Of several headers, none counts.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let (value, None) = (values.next()?, values.next()) else {
        return None;
    };
    let (scheme, secret) = value.to_str().ok()?.split_once(' ')?;
    let secret = secret.trim_matches(' ');
    (scheme.eq_ignore_ascii_case("bearer") && !secret.is_empty()).then_some(secret)
}

/// In the words of the protocol that the call came with.
fn refusal(headers: &HeaderMap, message: &'static str) -> Response {
    let kind = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    if kind.is_some_and(|kind| kind.starts_with(b"application/grpc")) {
        let error = Error::new(Class::Unauthenticated, message);
        return Status::from(error).into_http::<Body>();
    }
    // The messages need no escapes.
    let body = format!(
        r#"{{"error":{{"message":"{message}","type":"invalid_request_error","param":null,"code":"invalid_api_key"}}}}"#
    );
    let headers = [
        (CONTENT_TYPE, "application/json"),
        (WWW_AUTHENTICATE, "Bearer"),
    ];
    (StatusCode::UNAUTHORIZED, headers, body).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(values: &[&str]) -> HeaderMap {
        let values = values.iter();
        values
            .map(|value| (AUTHORIZATION, value.parse().expect("a header")))
            .collect()
    }

    #[test]
    fn a_secret_follows_the_word_bearer_once() {
        for value in ["Bearer s", "bearer s", "BEARER  s "] {
            assert_eq!(bearer(&headers(&[value])), Some("s"), "{value}");
        }
        for wrong in ["", "s", "Bearer", "Bearer ", "Basic s", "Bearers s"] {
            assert_eq!(bearer(&headers(&[wrong])), None, "{wrong}");
        }
        assert_eq!(bearer(&headers(&[])), None);
        assert_eq!(bearer(&headers(&["Bearer s", "Bearer t"])), None);
    }

    #[test]
    fn only_what_watchers_ask_is_open() {
        for open in [
            "/health",
            "/ready",
            "/version",
            "/grpc.health.v1.Health/Check",
        ] {
            assert!(is_open(open), "{open}");
        }
        for closed in [
            "/",
            "/health/",
            "/health/x",
            "/healthy",
            "//health",
            "/metrics",
            "/v1/models",
            "/grpc.health.v1.Healthy/Check",
            "/specdec.v1.Generation/Generate",
        ] {
            assert!(!is_open(closed), "{closed}");
        }
    }
}
