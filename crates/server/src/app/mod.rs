//! The application: pages, their assets, and what they ask under `/api/`.

use crate::state::AppState;
use axum::Router;
use std::sync::Arc;

/// The routes of the application.
pub fn routes() -> Router<Arc<AppState>> {
    Router::new()
}
