//! Requests and their results: sent again where that is harmless, waited for where they take long.
//!
//! Every request has a connection of its own: one that is used again may be reset by a server that failed at the request before,
//! and then it is not known whether a step was taken.

use crate::wire::{Pending, Retrieve};
use crate::{ServerName, TinkerError};
use lemon_exec::worker::{Secrets, http_client_with, http_error};
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use reqwest::{Response, Url};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout_at};

/// The variable that holds the key of a server.
const KEY_VARIABLE: &str = "TINKER_API_KEY";
/// Longer replies are not read.
const MOST_BYTES: usize = 1 << 30;
/// How much of a refusal is shown.
const SHOWN: usize = 300;
/// How often a request is sent at which a server fails without a reason.
const TRIES: u32 = 3;

/// A key of a server. It has no `Debug`, so that no log can show it.
#[derive(Clone, Default)]
pub struct TinkerKey(Option<String>);

impl TinkerKey {
    /// A key.
    pub fn new(secret: impl Into<String>) -> Self {
        TinkerKey(Some(secret.into()).filter(|secret| !secret.trim().is_empty()))
    }

    /// That in `TINKER_API_KEY`, or none.
    pub fn from_environment() -> Self {
        std::env::var(KEY_VARIABLE).map_or_else(|_| TinkerKey::default(), TinkerKey::new)
    }
}

/// How long is waited for what.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// For a server that is away or busy.
    pub away: Duration,
    /// Before a request is sent for the second time; later pauses are longer.
    pub pause: Duration,
    /// For one reply; a server holds a question for a result up to 300 s.
    pub reply: Duration,
    /// Between two signs of life.
    pub heartbeat: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Patience {
            away: Duration::from_secs(600),
            pause: Duration::from_millis(500),
            reply: Duration::from_secs(330),
            heartbeat: Duration::from_secs(10),
        }
    }
}

/// The longest pause before a request is sent again.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// What it does to send a request twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Twice {
    /// Nothing that matters.
    Harmless,
    /// It counts twice.
    Harmful,
}

/// A client of one server: cheap to clone.
#[derive(Clone)]
pub(crate) struct Client {
    inner: Arc<Inner>,
}

struct Inner {
    server: ServerName,
    http: reqwest::Client,
    address: Url,
    headers: HeaderMap,
    secrets: Secrets,
    patience: Patience,
    /// How long one operation may take.
    longest: Duration,
}

/// A request without a result.
enum Trouble {
    /// It was not sent.
    NotSent(String),
    /// It was sent, and no reply came.
    Unclear(String),
    /// The reply is a refusal.
    Status { status: u16, detail: String, after: Option<Duration> },
}

impl Client {
    /// A client of the server at this address, to which a key is shown in a header.
    pub fn new(
        (server, address): (ServerName, Url),
        key: &TinkerKey,
        patience: Patience,
        longest: Duration,
    ) -> Result<Self, TinkerError> {
        let unusable =
            |fact: String| TinkerError::Address { server, url: address.origin().ascii_serialization(), fact };
        let http = http_client_with(|builder| builder.pool_max_idle_per_host(0)).map_err(unusable)?;
        let mut headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
        let mut secrets = Secrets::default();
        secrets.add_url(address.as_str());
        if let Some(secret) = &key.0 {
            secrets.add(secret);
            let (name, shown) = match server {
                ServerName::Tinker => (HeaderName::from_static("x-api-key"), secret.trim().to_owned()),
                ServerName::Sampler => (AUTHORIZATION, format!("Bearer {}", secret.trim())),
            };
            let mut value = HeaderValue::from_str(&shown)
                .map_err(|_| unusable("the variable of its key holds what cannot stand in a header".to_owned()))?;
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        Ok(Client { inner: Arc::new(Inner { server, http, address, headers, secrets, patience, longest }) })
    }

    pub fn patience(&self) -> &Patience {
        &self.inner.patience
    }

    /// What a server says of itself; it is asked once.
    pub async fn ask<T: DeserializeOwned>(&self, call: &'static str) -> Result<T, TinkerError> {
        let text = self.exchange(call, None).await.map_err(|trouble| self.error(call, trouble))?;
        self.read(call, &text)
    }

    /// What lies at a path, asked for again where that may help.
    pub async fn fetch(&self, call: &'static str, path: &str) -> Result<Vec<u8>, TinkerError> {
        self.again(call, path, None, Twice::Harmless).await
    }

    /// Sends a request once.
    pub async fn once<T: DeserializeOwned>(&self, call: &'static str, body: &impl Serialize) -> Result<T, TinkerError> {
        let body = written(call, body)?;
        let text = self.exchange(call, Some(body)).await.map_err(|trouble| self.error(call, trouble))?;
        self.read(call, &text)
    }

    /// Sends a request, again where nothing came of it and that is harmless.
    pub async fn call<T: DeserializeOwned>(
        &self,
        call: &'static str,
        body: &impl Serialize,
        twice: Twice,
    ) -> Result<T, TinkerError> {
        let text = self.tell(call, body, twice).await?;
        self.read(call, &text)
    }

    /// The same where the reply may be any text.
    pub async fn tell(&self, call: &'static str, body: &impl Serialize, twice: Twice) -> Result<Vec<u8>, TinkerError> {
        let body = written(call, body)?;
        self.again(call, call, Some(body), twice).await
    }

    async fn again(
        &self,
        call: &'static str,
        path: &str,
        body: Option<Vec<u8>>,
        twice: Twice,
    ) -> Result<Vec<u8>, TinkerError> {
        let Patience { away, pause, .. } = self.inner.patience;
        let (began, mut pause, mut failures) = (Instant::now(), pause, 0);
        loop {
            let trouble = match self.exchange(path, body.clone()).await {
                Ok(text) => return Ok(text),
                Err(trouble) => trouble,
            };
            failures += u32::from(matches!(trouble, Trouble::Status { status: 500, .. }));
            if !trouble.may_be_sent_again(twice) || failures >= TRIES || began.elapsed() >= away {
                return Err(self.error(call, trouble));
            }
            let asked = if let Trouble::Status { after, .. } = &trouble { *after } else { None };
            sleep(asked.unwrap_or(pause).min(away)).await;
            pause = (2 * pause).min(LONGEST_PAUSE);
        }
    }

    /// Begins an operation and waits for its result.
    pub async fn operate<T: DeserializeOwned>(
        &self,
        call: &'static str,
        body: &impl Serialize,
        twice: Twice,
    ) -> Result<T, TinkerError> {
        let Pending { request_id } = self.call(call, body, twice).await?;
        self.result(call, &request_id).await
    }

    /// Waits for the result of an operation. A result can be asked for as often as needed.
    pub async fn result<T: DeserializeOwned>(&self, call: &'static str, request_id: &str) -> Result<T, TinkerError> {
        let longest = self.inner.longest;
        let late = || TinkerError::Late { call, seconds: longest.as_secs() };
        let (until, body) = (Instant::now() + longest, Retrieve { request_id });
        loop {
            let asked = self.call::<Value>("retrieve_future", &body, Twice::Harmless);
            let value = match timeout_at(until, asked).await.map_err(|_| late())? {
                // It is still under way, as far as is known: a proxy may cut long replies off. A server waits long before it says so;
                // one that does not is not asked in a loop.
                Err(TinkerError::Refused { status: 408 | 502 | 504, .. } | TinkerError::Unclear { .. }) => {
                    sleep(self.inner.patience.pause).await;
                    continue;
                }
                Err(TinkerError::Refused { status: 400, detail, .. }) => {
                    return Err(TinkerError::Failed { call, detail });
                }
                other => other?,
            };
            if value.get("type").and_then(Value::as_str) == Some("try_again") {
                sleep(self.inner.patience.pause).await;
                continue;
            }
            if let Some(error) = value.get("error").filter(|error| !error.is_null()) {
                return Err(TinkerError::Failed { call, detail: self.shown(&plain(error)) });
            }
            return serde_json::from_value(value).map_err(|error| self.malformed(call, error.to_string()));
        }
    }

    /// Sends a request and reads the reply.
    async fn exchange(&self, path: &str, body: Option<Vec<u8>>) -> Result<Vec<u8>, Trouble> {
        let Inner { http, address, headers, patience, .. } = &*self.inner;
        // The address ends with a slash, and the names of operations are plain words.
        let url = address.join(path).map_err(|error| Trouble::NotSent(error.to_string()))?;
        let request = match body {
            Some(body) => http.post(url).body(body),
            None => http.get(url),
        };
        let sent = request.headers(headers.clone()).timeout(patience.reply).send().await;
        let mut response = sent.map_err(|error| match error.is_connect() {
            true => Trouble::NotSent(self.shown(&http_error(&error))),
            false => Trouble::Unclear(self.shown(&http_error(&error))),
        })?;
        let status = response.status();
        let after = retry_after(&response);
        let mut text = Vec::new();
        loop {
            let piece = response.chunk().await.map_err(|error| Trouble::Unclear(self.shown(&http_error(&error))))?;
            let Some(piece) = piece else { break };
            if text.len() + piece.len() > MOST_BYTES {
                return Err(Trouble::Unclear(format!("the reply has more than {MOST_BYTES} bytes")));
            }
            text.extend_from_slice(&piece);
        }
        if status.is_success() {
            return Ok(text);
        }
        Err(Trouble::Status { status: status.as_u16(), detail: self.shown(&detail(&text)), after })
    }

    /// What a server said, as far as it may be shown.
    fn shown(&self, text: &str) -> String {
        let text: String = text.chars().take(SHOWN).collect();
        self.inner.secrets.hide_in_error(&text)
    }

    fn error(&self, call: &'static str, trouble: Trouble) -> TinkerError {
        match trouble {
            Trouble::NotSent(fact) => {
                let origin = self.inner.address.origin().ascii_serialization();
                TinkerError::Unreachable { server: self.inner.server, origin, fact }
            }
            Trouble::Unclear(fact) => TinkerError::Unclear { call, fact },
            Trouble::Status { status, detail, .. } => {
                TinkerError::Refused { server: self.inner.server, call, status, detail }
            }
        }
    }

    fn read<T: DeserializeOwned>(&self, call: &'static str, text: &[u8]) -> Result<T, TinkerError> {
        serde_json::from_slice(text).map_err(|error| self.malformed(call, error.to_string()))
    }

    pub fn malformed(&self, call: &'static str, fact: String) -> TinkerError {
        TinkerError::Malformed { server: self.inner.server, call, fact }
    }
}

impl Trouble {
    /// Whether the request may be sent again.
    fn may_be_sent_again(&self, twice: Twice) -> bool {
        match self {
            Trouble::NotSent(_) => true,
            // The server says that it has not done it.
            Trouble::Status { status: 425 | 429 | 503, .. } => true,
            Trouble::Unclear(_) | Trouble::Status { status: 500 | 502 | 504, .. } => twice == Twice::Harmless,
            Trouble::Status { .. } => false,
        }
    }
}

fn written(call: &'static str, body: &impl Serialize) -> Result<Vec<u8>, TinkerError> {
    serde_json::to_vec(body).map_err(|error| TinkerError::Data(format!("`{call}` cannot be written as JSON: {error}")))
}

fn retry_after(response: &Response) -> Option<Duration> {
    let seconds = response.headers().get(RETRY_AFTER)?.to_str().ok()?.trim().parse::<f64>().ok()?;
    Duration::try_from_secs_f64(seconds).ok()
}

/// The reason in the body of a refusal.
fn detail(text: &[u8]) -> String {
    let value = serde_json::from_slice::<Value>(text).ok();
    let found = value.as_ref().and_then(|value| value.get("detail").or_else(|| value.pointer("/error/message")));
    match found {
        Some(detail) => plain(detail),
        None => String::from_utf8_lossy(text).trim().to_owned(),
    }
}

/// A JSON value as it is read: texts without their quotation marks.
fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_cannot_count_twice_is_sent_again() {
        let status = |status| Trouble::Status { status, detail: String::new(), after: None };
        let again = |trouble: &Trouble| [Twice::Harmless, Twice::Harmful].map(|twice| trouble.may_be_sent_again(twice));
        assert_eq!(again(&Trouble::NotSent(String::new())), [true, true]);
        assert_eq!(again(&Trouble::Unclear(String::new())), [true, false]);
        for known in [425, 429, 503] {
            assert_eq!(again(&status(known)), [true, true], "{known}");
        }
        for unclear in [500, 502, 504] {
            assert_eq!(again(&status(unclear)), [true, false], "{unclear}");
        }
        for refused in [400, 401, 404, 408, 409, 422] {
            assert_eq!(again(&status(refused)), [false, false], "{refused}");
        }
    }

    #[test]
    fn the_reason_of_a_refusal_is_found() {
        assert_eq!(detail(br#"{"detail":"Model not found"}"#), "Model not found");
        assert_eq!(detail(br#"{"detail":[{"loc":["body"]}]}"#), r#"[{"loc":["body"]}]"#);
        assert_eq!(detail(b" Internal Server Error\n"), "Internal Server Error");
        assert_eq!(detail(b""), "");
    }
}
