//! What the protocols share: reading requests, following a run until its client goes, server-sent events.

use super::follow::{Answered, Follow, Piece, outcome};
use super::wish::Wish;
use crate::guard::Caller;
use crate::refusal::Refusal;
use crate::runs::LiveRun;
use crate::state::AppState;
use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::rejection::BytesRejection;
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use lemon_exec::unix_ms;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// How often a stream says that it lives, where there is nothing else to say.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// Events that wait for a slow client.
const MOST_WAITING: usize = 32;

/// What a response says of its request.
#[derive(Debug, Clone)]
pub struct Asked {
    /// The address of the server, as the client calls it.
    pub base: String,
    /// When it came, in seconds of Unix time.
    pub created: u64,
    /// The model, as the request names it.
    pub model: String,
}

/// A body, unless it is too long or breaks off.
pub type Received = Result<Bytes, BytesRejection>;

/// A request for an answer, in one of the protocols.
pub trait AnswerRequest: DeserializeOwned + Send {
    /// Its address.
    const ROUTE: &'static str;
    /// What words its response.
    type Words: Words;

    /// The model, as the request names it.
    fn model(&self) -> &str;

    /// Whether the answer is to come in pieces.
    fn is_stream(&self) -> bool;

    /// What it wants.
    ///
    /// # Errors
    /// It wants something that is not done.
    fn wish(&self) -> Result<Wish, Refusal>;

    /// What words its response.
    fn words(self, asked: Asked) -> Self::Words;
}

/// Words what is told of a run, as a protocol has it.
pub trait Words: Send + 'static {
    /// The response that comes whole.
    fn whole(&self, run_id: &str, outcome: &Answered) -> impl Serialize;

    /// The events for a piece.
    fn of(&mut self, run_id: &str, piece: &Piece) -> String;

    /// The events before the first piece.
    fn first(&mut self, _run_id: &str) -> String {
        String::new()
    }
}

impl Asked {
    fn new(headers: &HeaderMap, model: &str) -> Self {
        Asked { base: base(headers), created: unix_ms() / 1000, model: model.to_owned() }
    }
}

/// Answers a request with a run, and counts it.
pub async fn answer<R: AnswerRequest>(
    app: &Arc<AppState>,
    caller: Caller,
    headers: &HeaderMap,
    body: Received,
) -> Response {
    let answered = answer_or_refuse::<R>(app, caller, headers, body).await;
    app.metrics.counted(R::ROUTE, answered)
}

async fn answer_or_refuse<R: AnswerRequest>(
    app: &Arc<AppState>,
    caller: Caller,
    headers: &HeaderMap,
    body: Received,
) -> Result<Response, Refusal> {
    let request: R = read(body)?;
    let wish = Arc::new(request.wish()?);
    let run = app.start(wish.order(app, caller)?).await?;
    let asked = Asked::new(headers, request.model());
    let client = Client(Some(&run));
    if request.is_stream() {
        // The head of the response names the run.
        run.on_record().await?;
        client.stays();
        return Ok(stream(Follow::new(app.clone(), &run, wish), asked.clone(), request.words(asked)));
    }
    // How it ended is read below.
    drop(run.finished().await);
    client.stays();
    let outcome = outcome(app, &run, &wish)?;
    let mut response = Json(request.words(asked.clone()).whole(run.id(), &outcome)).into_response();
    add(response.headers_mut(), outcome.headers(&asked.base));
    Ok(response)
}

/// Reads a request.
///
/// # Errors
/// It is no JSON, or none that the protocol knows.
fn read<T: DeserializeOwned>(body: Received) -> Result<T, Refusal> {
    let body = body.map_err(|error| Refusal::new(error.status(), "invalid_request_error", error.body_text()))?;
    let value: Value =
        serde_json::from_slice(&body).map_err(|error| Refusal::bad(format!("the body is no JSON: {error}")))?;
    serde_json::from_value(whole_numbers(value))
        .map_err(|error| Refusal::bad(format!("the request cannot be understood: {error}")))
}

/// Writes numbers like `7.0` as `7`: to some languages they are the same, and they send either.
fn whole_numbers(value: Value) -> Value {
    match value {
        Value::Number(number) => match number.as_f64() {
            // Up to here every whole number has a form of its own.
            Some(float) if number.is_f64() && float.fract() == 0.0 && float.abs() <= 9_007_199_254_740_992.0 => {
                Value::from(float as i64)
            }
            _ => Value::Number(number),
        },
        Value::Object(map) => Value::Object(map.into_iter().map(|(key, value)| (key, whole_numbers(value))).collect()),
        Value::Array(list) => Value::Array(list.into_iter().map(whole_numbers).collect()),
        other => other,
    }
}

/// A client that waits for a run. If it goes first, this is dropped, and the run is cancelled.
struct Client<'a>(Option<&'a LiveRun>);

impl Client<'_> {
    /// The client has what it waited for.
    fn stays(mut self) {
        self.0 = None;
    }
}

impl Drop for Client<'_> {
    fn drop(&mut self) {
        if let Some(run) = self.0 {
            run.cancel();
        }
    }
}

/// Streams what is told of a run. If the client goes first, the run is cancelled.
fn stream(mut follow: Follow, asked: Asked, mut words: impl Words) -> Response {
    let (sender, receiver) = mpsc::channel::<Bytes>(MOST_WAITING);
    let run = follow.run().clone();
    let run_id = run.id().to_owned();
    let told = run_id.clone();
    tokio::spawn(async move {
        let first = words.first(&run_id);
        let mut text = if first.is_empty() { ": started\n\n".to_owned() } else { first };
        loop {
            if sender.send(text.into()).await.is_err() {
                break;
            }
            text = tokio::select! {
                () = sender.closed() => break,
                piece = tokio::time::timeout(HEARTBEAT, follow.next()) => match piece {
                    Ok(Some(piece)) => words.of(&run_id, &piece),
                    Ok(None) => return,
                    Err(_) => ": still working\n\n".to_owned(),
                },
            };
        }
        run.cancel();
    });
    let pieces = futures::stream::unfold(receiver, |mut receiver| async move {
        Some((Ok::<_, Infallible>(receiver.recv().await?), receiver))
    });
    let mut response = Response::new(Body::from_stream(pieces));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    // A proxy that collects would undo it.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    let url = format!("{}/runs/{told}", asked.base);
    add(headers, [("x-lemon-run-id", told), ("x-lemon-url", url)]);
    response
}

fn add(headers: &mut HeaderMap, pairs: impl IntoIterator<Item = (&'static str, String)>) {
    for (name, value) in pairs {
        // Names of runs and numbers fit in headers; what does not is in the body as well.
        if let Ok(value) = HeaderValue::try_from(value) {
            headers.insert(HeaderName::from_static(name), value);
        }
    }
}

/// An event without a name.
pub fn data(value: &Value) -> String {
    format!("data: {value}\n\n")
}

/// The address of the server, as the client calls it. A proxy before it may say that it was called securely.
fn base(headers: &HeaderMap) -> String {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let scheme = if text("x-forwarded-proto") == Some("https") { "https" } else { "http" };
    text("host").map(|host| format!("{scheme}://{host}")).unwrap_or_default()
}
