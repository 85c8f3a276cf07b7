//! The service as clients of OpenAI know it: HTTP, JSON and server-sent events.

use crate::api::Api;
use axum::extract::State;
use axum::routing::get;
use axum::{Json, Router};
use std::sync::Arc;

/// The routes.
pub(crate) fn router(api: Arc<Api>) -> Router {
    Router::new()
        .route("/v1/models", get(models))
        .with_state(api)
}

async fn models(State(api): State<Arc<Api>>) -> Json<serde_json::Value> {
    let ids: Vec<_> = api.models().into_iter().map(|model| model.id).collect();
    Json(serde_json::json!({ "object": "list", "data": ids }))
}
