//! `/v1/models` and `/version`: what is served, and by what.

use super::Front;
use super::error::{ErrorBody, Failure};
use axum::Json;
use axum::extract::{Path, State};
use proto::v1::{self, ModelRole};
use serde::Serialize;
use service::{Class, Error};
use utoipa::ToSchema;

/// The models that can be asked for.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Models {
    /// Always list.
    object: &'static str,
    /// The models: the target first, then drafts that answer alone.
    data: Vec<Model>,
}

/// A model.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Model {
    /// Its name in requests.
    id: String,
    /// Always model.
    object: &'static str,
    /// When the service was started, in seconds since 1970.
    created: u64,
    /// Always specdec.
    owned_by: &'static str,
    /// The longest sequence, prompt and output together, in tokens.
    max_model_len: u32,
    /// What it is here: target or draft.
    role: &'static str,
}

impl Model {
    fn new(model: v1::Model, created: u64) -> Self {
        let role = match model.role() {
            ModelRole::Draft => "draft",
            ModelRole::Target | ModelRole::Unspecified => "target",
        };
        Self {
            id: model.id,
            object: "model",
            created,
            owned_by: "specdec",
            max_model_len: model.context_length,
            role,
        }
    }
}

/// Lists the models.
#[utoipa::path(get, path = "/v1/models", tag = "models",
    responses((status = 200, description = "The models", body = Models)))]
pub(super) async fn models(State(front): State<Front>) -> Json<Models> {
    let models = front.api.models().into_iter();
    let data = models.map(|model| Model::new(model, front.started));
    Json(Models {
        object: "list",
        data: data.collect(),
    })
}

/// Finds a model.
///
/// # Errors
/// Where there is none of that name.
#[utoipa::path(get, path = "/v1/models/{id}", tag = "models",
    params(("id" = String, Path, description = "The model's name")),
    responses(
        (status = 200, description = "The model", body = Model),
        (status = 404, description = "There is none of that name", body = ErrorBody),
    ))]
pub(super) async fn model(
    State(front): State<Front>,
    Path(id): Path<String>,
) -> Result<Json<Model>, Failure> {
    let mut models = front.api.models().into_iter();
    let Some(model) = models.find(|model| model.id == id) else {
        let message = format!("there is no model `{id}`");
        return Err(Error::new(Class::NotFound, message).into());
    };
    Ok(Json(Model::new(model, front.started)))
}

/// The version.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Version {
    /// Of the coordinator.
    version: &'static str,
}

/// Tells the version.
#[utoipa::path(get, path = "/version", tag = "models",
    responses((status = 200, description = "The version", body = Version)))]
pub(super) async fn version() -> Json<Version> {
    Json(Version {
        version: env!("CARGO_PKG_VERSION"),
    })
}
