//! What a call's headers say, and its body does not.

use crate::access::Identity;
use crate::telemetry::RequestId;
use axum::extract::MatchedPath;
use axum::http::{Extensions, HeaderMap};
use service::telemetry::traces;
use std::sync::Arc;
use std::time::Instant as Time;
use tokio::time::Instant;

/// Who asks, and on what terms.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    /// Whose key came with the call.
    pub(crate) identity: Identity,
    /// When the client stops waiting.
    pub(crate) deadline: Option<Instant>,
    /// The W3C trace context that the call belongs to; empty where it is not traced.
    pub(crate) traceparent: String,
    /// What the call is named in logs, traces and its answer.
    pub(crate) request_id: RequestId,
    /// What is called: the path of the service or of the resource.
    pub(crate) call: Arc<str>,
    /// When the call arrived.
    pub(crate) arrived: Time,
}

impl Default for Caller {
    fn default() -> Self {
        Self {
            identity: Identity::default(),
            deadline: None,
            traceparent: String::new(),
            request_id: RequestId::default(),
            call: Arc::default(),
            arrived: Time::now(),
        }
    }
}

impl Caller {
    /// The caller of a call that came with these, over HTTP or gRPC.
    pub(crate) fn new(headers: &HeaderMap, extensions: &Extensions) -> Self {
        let path = extensions.get::<MatchedPath>();
        Self {
            identity: extensions.get().cloned().unwrap_or_default(),
            deadline: None,
            traceparent: traceparent(headers).unwrap_or_default(),
            request_id: extensions.get().cloned().unwrap_or_default(),
            call: path.map_or_else(Arc::default, |path| path.as_str().into()),
            arrived: Time::now(),
        }
    }
}

/// The trace context of a call: what is none is as good as absent.
fn traceparent(headers: &HeaderMap) -> Option<String> {
    let value = headers.get("traceparent")?.to_str().ok()?;
    traces::is_traceparent(value).then(|| value.to_owned())
}
