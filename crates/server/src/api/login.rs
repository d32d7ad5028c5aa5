//! `POST /login`: a browser gives a key, and shows it from then on in a cookie that no script can read.

use crate::guard::COOKIE;
use crate::refusal::Refusal;
use crate::state::AppState;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use std::sync::Arc;

/// How long a browser keeps the key.
const SECONDS: u64 = 30 * 24 * 3600;
/// The field of the form.
const FIELD: &str = "key=";

/// Takes a key from the form of the page, and sends the browser to the application.
pub async fn log_in(State(app): State<Arc<AppState>>, headers: HeaderMap, form: String) -> Result<Response, Refusal> {
    // Our keys are letters, digits and `-`, which forms do not encode.
    let key = form.split('&').find_map(|pair| pair.strip_prefix(FIELD)).unwrap_or_default().trim();
    let (place, cookie) = match app.keys.find(key)? {
        Some(_) => {
            // Behind a proxy that encrypts, the cookie is for encrypted requests only.
            let secure = headers.get("x-forwarded-proto").is_some_and(|proto| proto == "https");
            let secure = if secure { "; Secure" } else { "" };
            let cookie = format!("{COOKIE}={key}; Path=/; HttpOnly; SameSite=Strict; Max-Age={SECONDS}{secure}");
            ("/", Some(cookie))
        }
        None => ("/login?refused", None),
    };
    let mut response = StatusCode::SEE_OTHER.into_response();
    response.headers_mut().insert(header::LOCATION, HeaderValue::from_static(place));
    if let Some(cookie) = cookie {
        let cookie = HeaderValue::try_from(cookie).map_err(Refusal::internal)?;
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    Ok(response)
}
