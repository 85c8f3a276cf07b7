//! What a call's headers say, and its body does not.

use crate::access::Identity;
use axum::http::{Extensions, HeaderMap};
use tokio::time::Instant;

/// Who asks, and on what terms.
#[derive(Debug, Clone, Default)]
pub(crate) struct Caller {
    /// Whose key came with the call.
    pub(crate) identity: Identity,
    /// When the client stops waiting.
    pub(crate) deadline: Option<Instant>,
    /// The W3C trace context that the call belongs to; empty where it is not traced.
    pub(crate) traceparent: String,
}

impl Caller {
    /// The caller of a call that came with these, over HTTP or gRPC.
    pub(crate) fn new(_headers: &HeaderMap, extensions: &Extensions) -> Self {
        Self {
            identity: extensions.get().cloned().unwrap_or_default(),
            deadline: None,
            traceparent: String::new(),
        }
    }
}
