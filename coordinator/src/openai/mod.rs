//! The service as clients of OpenAI know it: HTTP, JSON and server-sent events.
//!
//! A body is read into types ([`bodies`]), translated into a request of
//! `specdec.v1`, and answered by [`crate::api`]; [`answer`] writes what comes. Every check of values is
//! the service's own; here lies only what the bodies alone can get wrong.

mod answer;
mod bodies;
mod body;
mod chat;
mod chat_answer;
mod completion_answer;
mod completions;
mod error;
mod events;
mod fields;
mod finish;
mod logprobs;
mod messages;
mod models;
mod openapi;
mod parameters;
mod speculative;
mod stats;
mod stream;
mod structured;
#[cfg(test)]
mod tests;
mod tokenize;
mod tokens;
mod tools;
mod values;

use crate::api::{Api, Caller};
use axum::Router;
use axum::extract::{DefaultBodyLimit, FromRequestParts, Request};
use axum::http::request::Parts;
use axum::http::{Method, StatusCode, Uri, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{any, get, post};
use error::Failure;
use service::server::MAX_MESSAGE_BYTES;
use std::convert::Infallible;
use std::sync::Arc;
use tonic::Status;

/// What the handlers share.
#[derive(Debug, Clone)]
struct Front {
    api: Arc<Api>,
    /// When the service was started, in seconds since 1970.
    started: u64,
}

/// The routes. They take every path that nobody else does.
pub(crate) fn router(api: Arc<Api>) -> Router {
    let front = Front {
        api,
        started: answer::now(),
    };
    Router::new()
        .route("/v1/chat/completions", post(chat::chat))
        .route("/v1/completions", post(completions::completions))
        .route("/v1/models", get(models::models))
        .route("/v1/models/{*id}", get(models::model))
        .route("/tokenize", post(tokenize::tokenize))
        .route("/detokenize", post(tokenize::detokenize))
        .route("/version", get(models::version))
        .route("/openapi.json", get(openapi::document))
        .method_not_allowed_fallback(wrong_method)
        // No fallback: gRPC has one, and there can be only one.
        .route("/", any(unknown_path))
        .route("/{*path}", any(unknown_path))
        .layer(DefaultBodyLimit::max(MAX_MESSAGE_BYTES))
        .with_state(front)
}

impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self::new(&parts.headers, &parts.extensions))
    }
}

/// Answers for a path that there is not; to a client of gRPC in its own way.
async fn unknown_path(request: Request) -> Response {
    let kind = request.headers().get(header::CONTENT_TYPE);
    if kind.is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc")) {
        return Status::unimplemented("there is no such method").into_http();
    }
    let message = format!("there is no path {}", request.uri().path());
    Failure::request(StatusCode::NOT_FOUND, message).into_response()
}

/// Answers for a path that does not take the method.
async fn wrong_method(method: Method, uri: Uri) -> Failure {
    let message = format!("{} does not take {method}", uri.path());
    Failure::request(StatusCode::METHOD_NOT_ALLOWED, message)
}
