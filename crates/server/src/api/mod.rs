//! OpenAI's protocol, and what operators ask.

mod chat;
mod described;
mod follow;
mod health;
mod login;
mod models;
mod openapi;
pub mod question;
mod responses;
mod serve;
mod types;
mod wish;

use crate::state::AppState;
use axum::Router;
use axum::routing::{get, post};
use std::sync::Arc;

/// The routes of the API.
pub fn routes() -> Router<Arc<AppState>> {
    Router::new()
        .route("/v1/chat/completions", post(chat::complete))
        .route("/v1/responses", post(responses::respond))
        .route("/v1/models", get(models::list))
        .route("/v1/models/{*name}", get(models::one))
        .route("/login", post(login::log_in))
        .route("/healthz", get(health::alive))
        .route("/readyz", get(health::ready))
        .route("/metrics", get(health::metrics))
        .route("/openapi.json", get(openapi::description))
}
