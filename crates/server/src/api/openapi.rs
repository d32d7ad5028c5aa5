//! `/openapi.json`: the API for programs that read it.

use super::{chat, health, models, responses};
use axum::http::header;
use axum::response::IntoResponse;
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
use utoipa::{Modify, OpenApi};

#[derive(OpenApi)]
#[openapi(
    info(title = "LEMON", description = "Teams of language-model agents as an OpenAI-compatible model."),
    paths(chat::complete, responses::respond, models::list, models::one, health::alive, health::ready, health::metrics),
    modifiers(&Bearer),
    security((), ("key" = []))
)]
struct Api;

/// A key in the header `Authorization`.
struct Bearer;

impl Modify for Bearer {
    fn modify(&self, api: &mut utoipa::openapi::OpenApi) {
        let scheme = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
        api.components.get_or_insert_with(Default::default).add_security_scheme("key", scheme);
    }
}

/// The description.
pub async fn description() -> impl IntoResponse {
    // Our own plain types always serialise.
    let text = serde_json::to_string(&Api::openapi()).unwrap_or_default();
    ([(header::CONTENT_TYPE, "application/json")], text)
}
