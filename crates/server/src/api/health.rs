//! Is the server alive, is it ready, what has it counted?

use super::types::ErrorBody;
use crate::metrics::cluster_text;
use crate::refusal::Refusal;
use crate::state::AppState;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use std::sync::Arc;

/// The process answers.
#[utoipa::path(get, path = "/healthz", tag = "operation", responses((status = 200, description = "`ok`", body = String, content_type = "text/plain")))]
pub async fn alive() -> &'static str {
    "ok\n"
}

/// The store can be read, and runs are taken.
#[utoipa::path(get, path = "/readyz", tag = "operation", responses(
    (status = 200, description = "`ready`", body = String, content_type = "text/plain"),
    (status = 500, description = "The store cannot be read", body = ErrorBody),
    (status = 503, description = "The server is closing", body = ErrorBody),
))]
pub async fn ready(State(app): State<Arc<AppState>>) -> Result<&'static str, Refusal> {
    if app.closing.is_cancelled() {
        return Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "server_error", "the server is closing"));
    }
    app.store.runs(1)?;
    Ok("ready\n")
}

/// Counters in Prometheus' text format; of the cluster too, where the server watches one.
#[utoipa::path(get, path = "/metrics", tag = "operation", responses(
    (status = 200, description = "Counters", body = String, content_type = "text/plain"),
    (status = 401, description = "A key is needed, or not known", body = ErrorBody),
))]
pub async fn metrics(State(app): State<Arc<AppState>>) -> impl IntoResponse {
    let kind = [(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
    let mut text = app.metrics.text(app.runs.count());
    if let Some(cluster) = &app.cluster {
        text += &cluster_text(&cluster.status().await);
    }
    (kind, text)
}
