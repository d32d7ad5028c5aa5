//! What every request passes first: is it meant for this server, is it from where it may be, whose is it?

use crate::keys::{PREFIX, ServerKey};
use crate::refusal::Refusal;
use crate::state::AppState;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

/// The cookie that a browser shows its key in.
pub const COOKIE: &str = "lemon_key";
/// Paths that need no key: they hold nothing of anybody.
const OPEN: [&str; 5] = ["/healthz", "/readyz", "/openapi.json", "/login", "/favicon.ico"];
/// What the paths of assets begin with, which need no key either.
const ASSETS: &str = "/app/";

/// How long a body may take to come.
const BODY_TIMEOUT: Duration = Duration::from_secs(60);

/// Who asks.
#[derive(Debug, Clone, Default)]
pub struct Caller(Option<Arc<ServerKey>>);

impl Caller {
    /// A client without a key.
    pub fn anonymous() -> Self {
        Caller(None)
    }

    pub(crate) fn with_key(key: ServerKey) -> Self {
        Caller(Some(Arc::new(key)))
    }

    /// The key, if there is one.
    pub fn key(&self) -> Option<&ServerKey> {
        self.0.as_deref()
    }

    /// The name of the key on record.
    pub fn key_id(&self) -> Option<&str> {
        self.0.as_deref().map(|key| key.id.as_str())
    }
}

/// Checks a request, notes who asks, and adds the headers that every response has.
pub async fn check(State(app): State<Arc<AppState>>, mut request: Request, next: Next) -> Response {
    let origin = match admit(&app, &mut request) {
        Ok(origin) => origin,
        Err(refusal) => return secured(refusal.into_response(), None),
    };
    if origin.is_some() && request.method() == Method::OPTIONS {
        return secured(preflight(), origin);
    }
    let request = match whole(request, app.config.most_body).await {
        Ok(request) => request,
        Err(refusal) => return secured(refusal.into_response(), origin),
    };
    secured(next.run(request).await, origin)
}

/// The request once its body is here: not too long, and not too late.
async fn whole(request: Request, most: usize) -> Result<Request, Refusal> {
    let (parts, body) = request.into_parts();
    let refusal = |status, fact: String| Refusal::new(status, "invalid_request_error", fact);
    let too_long = || refusal(StatusCode::PAYLOAD_TOO_LARGE, format!("expected a body of at most {most} bytes"));
    let announced =
        parts.headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    if announced.is_some_and(|length| length > most) {
        return Err(too_long());
    }
    match tokio::time::timeout(BODY_TIMEOUT, to_bytes(body, most)).await {
        Ok(Ok(bytes)) => Ok(Request::from_parts(parts, Body::from(bytes))),
        Ok(Err(error)) if error.to_string().contains("length limit") => Err(too_long()),
        Ok(Err(error)) => Err(Refusal::bad(format!("the body broke off: {error}"))),
        Err(_) => {
            let fact = format!("expected the body within {} seconds", BODY_TIMEOUT.as_secs());
            Err(refusal(StatusCode::REQUEST_TIMEOUT, fact))
        }
    }
}

/// The foreign site that may ask, if the request comes from one.
fn admit(app: &AppState, request: &mut Request) -> Result<Option<HeaderValue>, Refusal> {
    let headers = request.headers();
    let host = host(headers, request.uri())?;
    if !is_ours(&host, &app.config.hosts) {
        let fact = format!("this server is not called `{host}`");
        let refusal = Refusal::new(StatusCode::MISDIRECTED_REQUEST, "invalid_request_error", fact);
        return Err(refusal.hint("start it with --host NAME to let it be called so"));
    }
    let origin = foreign_origin(headers, &host, &app.config.origins, request.method())?;
    let path = request.uri().path();
    let is_open = OPEN.contains(&path) || path.starts_with(ASSETS) || request.method() == Method::OPTIONS;
    let caller = match caller(app, headers) {
        Ok(caller) => caller,
        // A cookie that has gone stale keeps no one from the page where a new one is given.
        Err(_) if is_open => Caller::anonymous(),
        Err(refusal) => return Err(refusal),
    };
    if app.config.require_key && !is_open && caller.key().is_none() {
        let fact = "a key is needed: `Authorization: Bearer lemon-sk-…`";
        let refusal = Refusal::new(StatusCode::UNAUTHORIZED, "invalid_request_error", fact).code("invalid_api_key");
        return Err(refusal.hint("`lemon keys add NAME` makes one"));
    }
    request.extensions_mut().insert(caller);
    Ok(origin)
}

/// What the request calls this server.
fn host(headers: &HeaderMap, uri: &Uri) -> Result<String, Refusal> {
    let mut named = headers.get_all(header::HOST).iter();
    let host = match (named.next(), named.next(), uri.authority()) {
        (Some(host), None, _) => host.to_str().ok(),
        (None, _, Some(authority)) => Some(authority.as_str()),
        _ => None,
    };
    let host = host.filter(|host| !host.is_empty() && host.len() < 300);
    host.map(str::to_ascii_lowercase).ok_or_else(|| Refusal::bad("expected one header `Host`"))
}

/// An address is ours: a page of another site reaches this server only by a name of that site, which it points here.
fn is_ours(host: &str, names: &[String]) -> bool {
    let name = without_port(host);
    let is_v6 =
        name.strip_prefix('[').and_then(|it| it.strip_suffix(']')).is_some_and(|it| it.parse::<Ipv6Addr>().is_ok());
    is_v6
        || name.parse::<IpAddr>().is_ok()
        || name == "localhost"
        || name.ends_with(".localhost")
        || names.iter().any(|known| known.eq_ignore_ascii_case(name))
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

/// The site of the page that asks, where it is another one and may.
fn foreign_origin(
    headers: &HeaderMap,
    host: &str,
    allowed: &[String],
    method: &Method,
) -> Result<Option<HeaderValue>, Refusal> {
    let forbidden = |what: &str| {
        let refusal = Refusal::new(
            StatusCode::FORBIDDEN,
            "invalid_request_error",
            format!("pages of {what} may not ask this server"),
        );
        Err(refusal.hint("start it with --origin URL to let the pages of that site ask"))
    };
    let Some(origin) = headers.get(header::ORIGIN) else {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let is_link = text("sec-fetch-mode") == Some("navigate") && method == Method::GET;
        return match text("sec-fetch-site") {
            Some("cross-site") if !is_link => forbidden("another site"),
            _ => Ok(None),
        };
    };
    let text = origin.to_str().unwrap_or("an unreadable origin");
    let own = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
    if own.is_some_and(|own| own.eq_ignore_ascii_case(host)) {
        return Ok(None);
    }
    if allowed.iter().any(|known| known.trim_end_matches('/').eq_ignore_ascii_case(text)) {
        return Ok(Some(origin.clone()));
    }
    forbidden(text)
}

fn caller(app: &AppState, headers: &HeaderMap) -> Result<Caller, Refusal> {
    let Some(secret) = presented(headers) else { return Ok(Caller::anonymous()) };
    if let Some(key) = app.keys.find(secret)? {
        return Ok(Caller::with_key(key));
    }
    // Clients that must send some key send any where none is needed. One that was ours is no longer.
    if app.config.require_key || secret.starts_with(PREFIX) {
        let fact = "the key is not known";
        let refusal = Refusal::new(StatusCode::UNAUTHORIZED, "invalid_request_error", fact).code("invalid_api_key");
        return Err(refusal.hint("`lemon keys list` shows the names of those that are"));
    }
    Ok(Caller::anonymous())
}

/// The key of a request: of its header, or of a browser's cookie.
fn presented(headers: &HeaderMap) -> Option<&str> {
    let bearer = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let bearer =
        bearer.and_then(|text| text.split_once(' ')).filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
    let cookie = || {
        let all = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
        let mut pairs = all.flat_map(|text| text.split(';')).filter_map(|pair| pair.trim().split_once('='));
        pairs.find(|(name, _)| *name == COOKIE).map(|(_, value)| value)
    };
    bearer.map(|(_, key)| key.trim()).or_else(cookie).filter(|key| !key.is_empty())
}

fn preflight() -> Response {
    let mut response = StatusCode::NO_CONTENT.into_response();
    let headers = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, POST"));
    headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static("authorization, content-type"));
    headers.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
    response
}

/// Adds what every response says. A page brings a policy for its content; whatever else is looked at may load nothing.
fn secured(mut response: Response, origin: Option<HeaderValue>) -> Response {
    const ALWAYS: [(HeaderName, &str); 3] = [
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_FRAME_OPTIONS, "DENY"),
    ];
    let headers = response.headers_mut();
    for (name, value) in ALWAYS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    if !headers.contains_key(header::CONTENT_SECURITY_POLICY) {
        let nothing = HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'");
        headers.insert(header::CONTENT_SECURITY_POLICY, nothing);
    }
    if let Some(origin) = origin {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.append(header::VARY, HeaderValue::from_static("origin"));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_other_sites_are_not_ours() {
        let names = ["lemon.example.org".to_owned()];
        for (host, expected) in [
            ("localhost", true),
            ("localhost:8137", true),
            ("app.localhost:8137", true),
            ("127.0.0.1:8137", true),
            ("10.1.2.3", true),
            ("[::1]:8137", true),
            ("[::1]", true),
            ("lemon.example.org:443", true),
            ("evil.example", false),
            ("127.0.0.1.evil.example", false),
            ("localhost.evil.example", false),
            ("[::1].evil.example", false),
            ("notlocalhost", false),
            ("sub.lemon.example.org", false),
            (":8137", false),
        ] {
            assert_eq!(is_ours(host, &names), expected, "{host}");
        }
    }

    #[test]
    fn pages_of_other_sites_may_not_ask() {
        let check = |pairs: &[(&'static str, &str)], method: Method, expected: Result<bool, ()>| {
            let mut headers = HeaderMap::new();
            for (name, value) in pairs {
                headers.insert(*name, value.parse().unwrap());
            }
            let allowed = ["https://chat.example".to_owned()];
            let found = foreign_origin(&headers, "localhost:8137", &allowed, &method);
            assert_eq!(found.map(|origin| origin.is_some()).map_err(|_| ()), expected, "{pairs:?} {method}");
        };
        check(&[], Method::POST, Ok(false));
        check(&[("origin", "http://localhost:8137")], Method::POST, Ok(false));
        check(&[("origin", "http://localhost:9999")], Method::POST, Err(()));
        check(&[("origin", "https://evil.example")], Method::GET, Err(()));
        check(&[("origin", "null")], Method::POST, Err(()));
        check(&[("origin", "https://chat.example")], Method::POST, Ok(true));
        check(&[("sec-fetch-site", "cross-site")], Method::POST, Err(()));
        check(&[("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "no-cors")], Method::GET, Err(()));
        check(&[("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate")], Method::GET, Ok(false));
        check(&[("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate")], Method::POST, Err(()));
        check(&[("sec-fetch-site", "same-origin")], Method::POST, Ok(false));
    }

    #[test]
    fn a_key_is_in_the_header_or_in_the_cookie() {
        let check = |pairs: &[(&'static str, &str)], expected: Option<&str>| {
            let mut headers = HeaderMap::new();
            for (name, value) in pairs {
                headers.append(*name, value.parse().unwrap());
            }
            assert_eq!(presented(&headers), expected, "{pairs:?}");
        };
        check(&[], None);
        check(&[("authorization", "Bearer abc")], Some("abc"));
        check(&[("authorization", "bearer abc")], Some("abc"));
        check(&[("authorization", "Basic abc")], None);
        check(&[("authorization", "Bearer ")], None);
        check(&[("cookie", "a=b; lemon_key=abc; c=d")], Some("abc"));
        check(&[("cookie", "xlemon_key=abc")], None);
        check(&[("authorization", "Bearer abc"), ("cookie", "lemon_key=other")], Some("abc"));
    }
}
