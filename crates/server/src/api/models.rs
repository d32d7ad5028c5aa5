//! `GET /v1/models` and `GET /v1/models/NAME`.

use super::types::{ErrorBody, ModelList, ModelObject};
use crate::refusal::Refusal;
use crate::state::AppState;
use crate::workers::ServedModel;
use axum::Json;
use axum::extract::{Path, State};
use std::sync::Arc;

/// Lists the models.
#[utoipa::path(get, path = "/v1/models", tag = "openai", responses(
    (status = 200, description = "The models, the default one first", body = ModelList),
    (status = 401, description = "A key is needed, or not known", body = ErrorBody),
))]
pub async fn list(State(app): State<Arc<AppState>>) -> Json<ModelList> {
    let data = app.workers.models().into_iter().map(object).collect();
    Json(ModelList { object: "list".to_owned(), data })
}

/// One model.
#[utoipa::path(get, path = "/v1/models/{name}", tag = "openai", params(("name" = String, Path, description = "Its name")),
    responses(
        (status = 200, description = "The model", body = ModelObject),
        (status = 400, description = "The file of the model is not valid", body = ErrorBody),
        (status = 401, description = "A key is needed, or not known", body = ErrorBody),
        (status = 404, description = "There is no such model", body = ErrorBody),
))]
pub async fn one(State(app): State<Arc<AppState>>, Path(name): Path<String>) -> Result<Json<ModelObject>, Refusal> {
    app.workers.choice(&name)?;
    let listed = app.workers.models().into_iter().find(|model| model.name == name);
    Ok(Json(object(listed.unwrap_or(ServedModel { name, created: 0 }))))
}

fn object(model: ServedModel) -> ModelObject {
    let ServedModel { name, created } = model;
    ModelObject { id: name, object: "model".to_owned(), created, owned_by: "lemon".to_owned() }
}
