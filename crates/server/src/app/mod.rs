//! The application: pages, their assets, and what they ask under `/api/`.
//!
//! [`lemon_view::app`] writes the pages; the handlers here look up what stands in them. Every page has the same strict policy
//! (`POLICY`): no style, no script and no form can come from the text of a model, and nothing is loaded from elsewhere.

mod ask;
mod credit;
mod evaluations;
mod fields;
mod folders;
mod live;
mod runs;
mod system;
mod teams;
mod trainings;

use crate::refusal::Refusal;
use crate::state::AppState;
use axum::Router;
use axum::extract::Path;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use lemon_view::app::{Section, asset, note};
use std::sync::Arc;

/// What a page may do: load this server's own files, ask it, send forms to it. Markup is made from text only through the one
/// policy of `base.js`.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; \
                      trusted-types lemon";

/// The routes of the application.
pub fn routes() -> Router<Arc<AppState>> {
    Router::new()
        .route("/", get(|| async { Redirect::temporary("/ask") }))
        .route("/app/{name}", get(file))
        .route("/login", get(login))
        .route("/ask", get(ask::page))
        .route("/api/runs", post(ask::start))
        .route("/api/runs/{id}/events", get(live::events))
        .route("/api/runs/{id}/cancel", post(live::cancel))
        .route("/api/runs/{id}/decide", post(live::decide))
        .route("/api/runs/{id}/graph", get(live::graph))
        .route("/runs", get(runs::list))
        .route("/runs/compare", get(runs::compare))
        .route("/runs/{id}", get(runs::page))
        .route("/runs/{id}/export/{format}", get(runs::export))
        .route("/teams", get(teams::list))
        .route("/teams/edit", get(teams::edit))
        .route("/api/teams/check", post(teams::check))
        .route("/api/teams/credit", post(credit::measure))
        .route("/api/teams/{name}", get(teams::read).put(teams::save))
        .route("/evaluations", get(evaluations::list))
        .route("/evaluations/compare", get(evaluations::compare))
        .route("/evaluations/{name}", get(evaluations::page))
        .route("/trainings", get(trainings::list))
        .route("/trainings/compare", get(trainings::compare))
        .route("/trainings/{name}", get(trainings::page))
        .route("/system", get(system::page))
}

/// A page under the policy of pages.
struct Page(String);

impl IntoResponse for Page {
    fn into_response(self) -> Response {
        let headers = [
            (header::CONTENT_TYPE, "text/html; charset=utf-8"),
            (header::CONTENT_SECURITY_POLICY, POLICY),
            (header::CACHE_CONTROL, "no-store"),
            (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
            (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        ];
        (headers, self.0).into_response()
    }
}

/// What keeps a page from being shown, as a page.
struct NoPage {
    place: Section,
    refusal: Refusal,
}

impl NoPage {
    /// Makes a page of a refusal.
    fn at<E: Into<Refusal>>(place: Section) -> impl Fn(E) -> NoPage {
        move |error| NoPage { place, refusal: error.into() }
    }
}

impl IntoResponse for NoPage {
    fn into_response(self) -> Response {
        let Refusal { status, fact, hint, .. } = self.refusal;
        let title = match status {
            StatusCode::NOT_FOUND => "There is no such page",
            status if status.is_server_error() => "The server failed",
            _ => "This cannot be shown",
        };
        (status, Page(note(self.place, title, &fact, hint.as_deref()))).into_response()
    }
}

/// A file that pages load. A browser keeps it, and asks whether it is still the same.
async fn file(Path(name): Path<String>, request: HeaderMap) -> Response {
    let Some(asset) = asset(&name) else { return Refusal::not_found("there is no such file").into_response() };
    let tag = format!("\"{}\"", &blake3::hash(asset.content.as_bytes()).to_hex()[..20]);
    let known = request.get(header::IF_NONE_MATCH).and_then(|value| value.to_str().ok());
    let is_known = known.is_some_and(|known| known.split(',').any(|one| one.trim().trim_start_matches("W/") == tag));
    let mut response = match is_known {
        true => StatusCode::NOT_MODIFIED.into_response(),
        false => ([(header::CONTENT_TYPE, asset.media_type)], asset.content).into_response(),
    };
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        headers.insert(header::ETAG, tag);
    }
    response
}

/// Where a browser gives its key.
async fn login() -> Page {
    Page(lemon_view::app::login())
}

/// Runs a look-up that may take milliseconds where it holds nothing else up.
async fn look<T: Send + 'static>(work: impl FnOnce() -> Result<T, Refusal> + Send + 'static) -> Result<T, Refusal> {
    match tokio::task::spawn_blocking(work).await {
        Ok(found) => found,
        Err(error) => Err(Refusal::internal(format!("the look-up broke off: {error}"))),
    }
}
