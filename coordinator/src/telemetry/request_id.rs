//! `x-request-id`: the name of a call, in its answer, in logs and in traces.

use axum::extract::{MatchedPath, Request};
use axum::http::{HeaderMap, HeaderValue};
use axum::middleware::Next;
use axum::response::Response;
use std::fmt;
use std::sync::Arc;

const HEADER: &str = "x-request-id";

/// What a client may name its call with, at most.
const MAX_BYTES: usize = 128;

/// The name of a call.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct RequestId(Arc<str>);

impl RequestId {
    /// The client's own name for the call, where that is fit for logs; else a new one.
    fn of(headers: &HeaderMap) -> Self {
        let given = headers.get(HEADER).and_then(|value| value.to_str().ok());
        match given.filter(|id| is_valid(id)) {
            Some(id) => Self(id.into()),
            None => Self(format!("{:032x}", rand::random::<u128>()).into()),
        }
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

fn is_valid(id: &str) -> bool {
    let fit = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:/+=".contains(&byte);
    !id.is_empty() && id.len() <= MAX_BYTES && id.bytes().all(fit)
}

/// Names a call, for what serves it and in its answer, and logs it where it was refused.
pub(crate) async fn with_request_id(mut request: Request, next: Next) -> Response {
    let id = RequestId::of(request.headers());
    let path = request.extensions().get::<MatchedPath>().cloned();
    request.extensions_mut().insert(id.clone());
    let mut response = next.run(request).await;
    if let Some(code) = refusal(&response) {
        let call = path.as_ref().map_or("unknown", MatchedPath::as_str);
        tracing::info!(request_id = %id, call, code, "call refused");
    }
    // Checked, or made of hexadecimal digits.
    if let Ok(value) = HeaderValue::from_str(&id.0) {
        response.headers_mut().insert(HEADER, value);
    }
    response
}

/// The code of a call that was refused at once: HTTP's status, or gRPC's.
fn refusal(response: &Response) -> Option<u16> {
    let status = response.status();
    if status.is_client_error() || status.is_server_error() {
        return Some(status.as_u16());
    }
    let grpc = response.headers().get("grpc-status")?;
    let code = grpc.to_str().ok()?.parse().ok()?;
    (code != 0).then_some(code)
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;
    use axum::routing::get;
    use axum::{Extension, Router, middleware};
    use tower::ServiceExt as _;

    async fn named(id: &[u8]) -> String {
        let serve = |Extension(id): Extension<RequestId>| async move { id.to_string() };
        let router = Router::new()
            .route("/", get(serve))
            .layer(middleware::from_fn(with_request_id));
        let request = axum::http::Request::get("/").header(HEADER, id);
        let request = request.body(Body::empty()).unwrap();
        let response = router.oneshot(request).await.unwrap();
        response.headers()[HEADER].to_str().unwrap().to_owned()
    }

    #[tokio::test]
    async fn a_client_may_name_its_call_and_what_is_unfit_for_logs_is_replaced() {
        assert_eq!(named(b"my-call.7").await, "my-call.7");
        let long = [b'x'; MAX_BYTES + 1];
        for unfit in [&b""[..], b"a b", b"\xff", b"x\"}{", &long] {
            let made = named(unfit).await;
            assert_eq!(made.len(), 32, "{made}");
        }
    }
}
