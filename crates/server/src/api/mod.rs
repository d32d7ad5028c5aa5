//! OpenAI's protocol, and what operators ask.

mod health;

use crate::state::AppState;
use axum::Router;
use axum::routing::get;
use std::sync::Arc;

/// The routes of the API.
pub fn routes() -> Router<Arc<AppState>> {
    Router::new()
        .route("/healthz", get(health::alive))
        .route("/readyz", get(health::ready))
        .route("/metrics", get(health::metrics))
}
