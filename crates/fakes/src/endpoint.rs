//! The endpoint: routes, keys, and the steps of an answer carried out.

use crate::clock;
use crate::seen::{InFlight, Seen};
use crate::server::Server;
use crate::wire::{self, Answer, Http, Step};
use crate::{Behaviour, ChatRequest, SeenRequest};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use axum::routing::{get, post};
use futures::stream;
use serde_json::Value;
use std::collections::HashMap;
use std::future::pending;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The longest request that is read.
const REQUEST_BYTES: usize = 64 * 1024 * 1024;

/// A fake endpoint that is running; dropping it ends it.
///
/// It lives on a thread and a runtime of its own, so that it serves blocking and async tests alike, a paused clock of
/// the test's runtime does not stop it, and its end closes every connection, those that hang included.
#[derive(Debug)]
pub struct FakeEndpoint {
    seen: Arc<Seen>,
    server: Server,
}

impl FakeEndpoint {
    /// Starts an endpoint on a free port of the loopback interface. It accepts connections when this returns.
    ///
    /// # Errors
    /// The port cannot be bound, or there are no threads to be had.
    pub fn start(behaviour: Behaviour) -> io::Result<Self> {
        FakeEndpoint::start_at(0, behaviour)
    }

    /// Starts an endpoint on this port: one that comes back after it was stopped.
    ///
    /// # Errors
    /// The port cannot be bound, or there are no threads to be had.
    pub fn start_at(port: u16, behaviour: Behaviour) -> io::Result<Self> {
        let seen = Arc::new(Seen::default());
        let router = Router::new()
            .route("/v1/models", get(models))
            .route("/v1/chat/completions", post(complete))
            .layer(DefaultBodyLimit::max(REQUEST_BYTES))
            .with_state(Arc::new(Shared { behaviour, seen: Arc::clone(&seen) }));
        Ok(FakeEndpoint { seen, server: Server::start(port, router)? })
    }

    /// What a client is configured with: `http://127.0.0.1:PORT/v1`.
    pub fn base_url(&self) -> String {
        format!("http://{}/v1", self.server.address())
    }

    /// The port, for [`FakeEndpoint::start_at`].
    pub fn port(&self) -> u16 {
        self.server.address().port()
    }

    /// Closes every connection and the port. What was seen can still be read.
    pub fn stop(&mut self) {
        self.server.stop();
    }

    /// The requests for completions, in the order they came in. Empty where [`Behaviour::record`] is off.
    pub fn requests(&self) -> Vec<SeenRequest> {
        self.seen.requests()
    }

    /// How many requests for completions came in, refused ones included.
    pub fn calls(&self) -> u64 {
        self.seen.calls()
    }

    /// How often each conversation was asked, by [`ChatRequest::key`].
    pub fn calls_by_key(&self) -> HashMap<u64, u64> {
        self.seen.calls_by_key()
    }

    /// How often the conversation asked most often was asked: 1 where nothing was asked again.
    pub fn most_calls_of_a_key(&self) -> u64 {
        self.seen.calls_by_key().into_values().max().unwrap_or(0)
    }

    /// How many requests are being answered now.
    pub fn in_flight(&self) -> usize {
        self.seen.in_flight()
    }

    /// The most requests that were being answered at the same time.
    pub fn peak_in_flight(&self) -> usize {
        self.seen.peak_in_flight()
    }
}

/// Runs an endpoint in this process until it is killed. The first line on stdout is its base URL.
///
/// # Errors
/// The port cannot be bound, or stdout is closed.
pub fn run_forever(port: u16, behaviour: Behaviour) -> io::Result<()> {
    let mut endpoint = FakeEndpoint::start_at(port, behaviour)?;
    let mut stdout = io::stdout();
    writeln!(stdout, "{}", endpoint.base_url())?;
    stdout.flush()?;
    endpoint.server.wait();
    Ok(())
}

/// What every request has at hand.
struct Shared {
    behaviour: Behaviour,
    seen: Arc<Seen>,
}

async fn models(State(shared): State<Arc<Shared>>, headers: HeaderMap) -> Response {
    let models = || wire::models(&shared.behaviour.models, &shared.behaviour.owned_by);
    respond(wrong_key(&shared.behaviour, &headers).unwrap_or_else(models), None)
}

async fn complete(State(shared): State<Arc<Shared>>, headers: HeaderMap, body: Bytes) -> Response {
    let Shared { behaviour, seen } = &*shared;
    let parsed = serde_json::from_slice::<ChatRequest>(&body);
    let key = parsed.as_ref().ok().map(ChatRequest::key);
    let (number, asked_before, in_flight) = seen.call(key);
    if behaviour.record {
        let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
        seen.record(SeenRequest { number, key, body, authorization: authorization(&headers), at: Instant::now() });
    }
    if let Some(refusal) = wrong_key(behaviour, &headers) {
        return respond(refusal, Some(in_flight));
    }
    let request = match parsed {
        Ok(request) => ChatRequest { number, asked_before, ..request },
        Err(error) => return respond(wire::refusal(400, None, None, &error.to_string()), Some(in_flight)),
    };
    if request.response_format.is_some() && !behaviour.supports_schema {
        let message = "'response_format' is not supported with this model.";
        return respond(wire::refusal(400, None, Some("response_format"), message), Some(in_flight));
    }
    if request.tools.is_some() && !behaviour.supports_tools {
        let message = "'tools' are not supported with this model.";
        return respond(wire::refusal(400, None, Some("tools"), message), Some(in_flight));
    }
    let answer = wire::answer(behaviour.reply(&request), &request, behaviour);
    match answer {
        Answer::Never => pending().await,
        Answer::Http(http) => {
            while seen.peak_in_flight() < behaviour.together {
                clock::sleep(Duration::from_millis(1)).await;
            }
            wait(behaviour.latency.saturating_add(http.delay)).await;
            respond(http, Some(in_flight))
        }
    }
}

fn wrong_key(behaviour: &Behaviour, headers: &HeaderMap) -> Option<Http> {
    let key = behaviour.api_key.as_ref()?;
    let refusal = || wire::refusal(401, Some("invalid_api_key"), None, "Incorrect API key provided.");
    (authorization(headers) != Some(format!("Bearer {key}"))).then(refusal)
}

fn authorization(headers: &HeaderMap) -> Option<String> {
    headers.get(header::AUTHORIZATION).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
}

/// No pause takes no time, but lets what was sent leave.
async fn wait(time: Duration) {
    match time.is_zero() {
        true => tokio::task::yield_now().await,
        false => clock::sleep(time).await,
    }
}

/// Carries an answer out. The call is in flight until the last step.
fn respond(http: Http, in_flight: Option<InFlight>) -> Response {
    let mut response = Response::new(body(http.steps, in_flight));
    *response.status_mut() = StatusCode::from_u16(http.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(header::SERVER, HeaderValue::from_static("lemon-fakes"));
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(http.content_type));
    if let Some(length) = http.content_length {
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    }
    // A value that no header can hold is not sent.
    if let Some(value) = http.retry_after.and_then(|value| HeaderValue::try_from(value).ok()) {
        headers.insert(header::RETRY_AFTER, value);
    }
    response
}

fn body(mut steps: Vec<Step>, in_flight: Option<InFlight>) -> Body {
    // The usual case: all at once, with its `Content-Length`.
    if let [Step::Send(data)] = steps.as_mut_slice() {
        return Body::from(std::mem::take(data));
    }
    Body::from_stream(stream::unfold((steps.into_iter(), in_flight), |(mut steps, in_flight)| async move {
        loop {
            match steps.next()? {
                Step::Send(data) => return Some((Ok(data), (steps, in_flight))),
                Step::Wait(time) => wait(time).await,
                Step::Hang => pending().await,
                // An error makes the server drop the connection as it stands, with what was not flushed yet.
                Step::Close => {
                    return Some((Err(io::Error::other("the fake closes the connection")), (steps, in_flight)));
                }
            }
        }
    }))
}
