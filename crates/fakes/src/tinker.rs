//! A fake of a server of the Tinker API, as SkyRL 0.3.0 behaves: futures, adapters in places, and its troubles on demand. Behind it
//! is no language model but one number for each model, which its log-probabilities and gradients follow ([`learner`]).

mod learner;
mod recorded;

use crate::server::Server;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::{get, post};
use flate2::Compression;
use flate2::write::GzEncoder;
use futures::stream;
use learner::{Learner, Outcome};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use recorded::{RecordedExchange, RecordedTinker};

/// What goes wrong once with an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TinkerFault {
    /// A reply with this status; nothing is done.
    Status(u16),
    /// The connection breaks before anything is done.
    LostBefore,
    /// The connection breaks after it was done.
    LostAfter,
    /// Its result is asked for so often in vain: status 408.
    Slow(u32),
    /// The same with the reply that asks to try again.
    TryAgain(u32),
    /// It is begun and fails for this reason: status 400.
    Fails(String),
    /// It fails for no reason: status 500, whenever its result is asked for.
    Crashes,
    /// Its result has this JSON text.
    Says(String),
}

/// How the fake behaves.
#[derive(Debug, Clone)]
pub struct TinkerWorld {
    /// The model that it serves.
    pub base_model: String,
    /// The tokens that it knows are numbers below.
    pub vocabulary: u32,
    /// What it samples: the text with the number of the seed, counted round.
    pub texts: Vec<Vec<u32>>,
    /// Whether a loss is averaged over weights and texts, and not summed.
    pub averages: bool,
    /// Adapters that it has places for.
    pub places: usize,
    /// A gradient that another client left in each place.
    pub left_gradient: f64,
    /// The key that clients have to show.
    pub key: Option<String>,
}

impl Default for TinkerWorld {
    fn default() -> Self {
        TinkerWorld {
            base_model: "tiny".to_owned(),
            vocabulary: 100,
            texts: vec![vec![1, 2, 3]],
            averages: true,
            places: 3,
            left_gradient: 0.0,
            key: None,
        }
    }
}

/// A fake server of the Tinker API on loopback; dropping it ends it.
pub struct FakeTinker {
    shared: Arc<Shared>,
    server: Server,
}

struct Shared {
    key: Option<String>,
    // A std mutex and not Tokio's, because no lock is held across an await.
    state: Mutex<Changing>,
}

struct Changing {
    learner: Learner,
    /// What goes wrong with the next operations of a name.
    faults: Vec<(String, VecDeque<TinkerFault>)>,
    /// Requests so far.
    calls: Vec<(String, Value)>,
    /// The results of operations, by their number from 1.
    futures: Vec<Future>,
}

/// The result of an operation.
struct Future {
    outcome: Outcome,
    /// How often it is asked for in vain, and what the reply is then.
    slow: u32,
    again: bool,
}

impl FakeTinker {
    /// Starts one.
    ///
    /// # Errors
    /// The port cannot be bound, or there are no threads to be had.
    pub fn start(world: TinkerWorld) -> io::Result<Self> {
        let key = world.key.clone();
        let state =
            Changing { learner: Learner::new(world), faults: Vec::new(), calls: Vec::new(), futures: Vec::new() };
        let shared = Arc::new(Shared { key, state: Mutex::new(state) });
        let router = Router::new()
            .route("/api/v1/{call}", get(tell))
            .route("/api/v1/{call}", post(take))
            .route("/api/v1/training_runs/{model}/checkpoints/{name}/download", get(download))
            .layer(axum::extract::DefaultBodyLimit::disable())
            .with_state(shared.clone());
        Ok(FakeTinker { shared, server: Server::start(0, router)? })
    }

    /// Its address.
    pub fn url(&self) -> String {
        format!("http://{}", self.server.address())
    }

    /// The next operation of this name goes wrong, after those that were named before.
    pub fn fault(&self, call: &str, fault: TinkerFault) {
        let mut state = self.shared.state();
        match state.faults.iter_mut().find(|(name, _)| name == call) {
            Some((_, faults)) => faults.push_back(fault),
            None => state.faults.push((call.to_owned(), VecDeque::from([fault]))),
        }
    }

    /// Forgets all sessions and models, as a server that restarts does. What was saved stays.
    pub fn restart(&self) {
        self.shared.state().learner.forget();
    }

    /// The requests so far of one operation, in the order they came in.
    pub fn calls(&self, call: &str) -> Vec<Value> {
        let of_call = |(name, body): &(String, Value)| (name == call).then(|| body.clone());
        self.shared.state().calls.iter().filter_map(of_call).collect()
    }

    /// The names of the operations so far, without signs of life and questions for results.
    pub fn operations(&self) -> Vec<String> {
        let plain = |name: &&String| !matches!(name.as_str(), "session_heartbeat" | "retrieve_future");
        self.shared.state().calls.iter().map(|(name, _)| name).filter(plain).cloned().collect()
    }

    /// The number of the model in each place, where there is one.
    pub fn weights(&self) -> Vec<Option<f64>> {
        self.shared.state().learner.weights()
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, Changing> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn admits(&self, headers: &HeaderMap) -> bool {
        let shown = headers.get("x-api-key").and_then(|key| key.to_str().ok());
        self.key.is_none() || shown == self.key.as_deref()
    }
}

impl Changing {
    /// What goes wrong with the operation of this name that begins now.
    fn trouble(&mut self, call: &str) -> Option<TinkerFault> {
        self.faults.iter_mut().find(|(name, _)| name == call)?.1.pop_front()
    }

    /// The reply to a question for a result.
    fn result(&mut self, body: &Value) -> Response {
        let Some(id) = body["request_id"].as_str() else {
            return refusal(422, "Input should be a valid string");
        };
        // Numbers alone are looked up, and everything else is a crash: so the real one does.
        let Ok(number) = id.parse::<usize>() else { return crash() };
        let Some(future) = number.checked_sub(1).and_then(|at| self.futures.get_mut(at)) else {
            return refusal(404, "Future not found");
        };
        if future.slow > 0 {
            future.slow -= 1;
            return match future.again {
                true => Json(json!({"type": "try_again", "request_id": id, "queue_state": "active"})).into_response(),
                false => refusal(408, "Timeout waiting for result"),
            };
        }
        match &future.outcome {
            Outcome::Done(value) => Json(value.clone()).into_response(),
            Outcome::Text(text) => ([("content-type", "application/json")], text.clone()).into_response(),
            Outcome::Failed(detail) => refusal(400, detail),
            Outcome::Crashed => crash(),
            // The real one holds the question for 300 s; a test would wait in vain.
            Outcome::Never => refusal(408, "Timeout waiting for result"),
        }
    }
}

/// What the server says of itself.
async fn tell(State(shared): State<Arc<Shared>>, Path(call): Path<String>, headers: HeaderMap) -> Response {
    let mut state = shared.state();
    state.calls.push((call.clone(), Value::Null));
    match call.as_str() {
        _ if !shared.admits(&headers) => refusal(401, "the key is missing or wrong"),
        "healthz" => Json(json!({"status": "ok"})).into_response(),
        "get_server_capabilities" => {
            let model = state.learner.world.base_model.clone();
            Json(json!({"supported_models": [{"model_name": model}]})).into_response()
        }
        _ => refusal(404, "Not Found"),
    }
}

/// The archive of an adapter: its weights are the number of the model, as text.
async fn download(
    State(shared): State<Arc<Shared>>,
    Path((model, name)): Path<(String, String)>,
    headers: HeaderMap,
) -> Response {
    let mut state = shared.state();
    state.calls.push(("download".to_owned(), json!({"model": model, "name": name})));
    if !shared.admits(&headers) {
        return refusal(401, "the key is missing or wrong");
    }
    let trouble = state.trouble("download");
    if let Some(TinkerFault::Status(status)) = trouble {
        return refusal(status, "a fault of the fake");
    }
    match state.learner.adapter(&model, &name) {
        Some(theta) if trouble == Some(TinkerFault::Says(String::new())) => whole_model(theta),
        Some(theta) => archive(&[("adapter_config.json", "{}"), ("adapter_model.safetensors", &theta.to_string())]),
        None => refusal(404, &format!("Checkpoint not found: {model}/{name}")),
    }
}

/// What backends save that know no adapters.
fn whole_model(theta: f64) -> Response {
    archive(&[("config.json", "{}"), ("model.safetensors", &theta.to_string())])
}

fn archive(files: &[(&str, &str)]) -> Response {
    let mut archive = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    for (name, content) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        if archive.append_data(&mut header, format!("./{name}"), content.as_bytes()).is_err() {
            return crash();
        }
    }
    match archive.into_inner().and_then(GzEncoder::finish) {
        Ok(bytes) => bytes.into_response(),
        Err(_) => crash(),
    }
}

/// A request for something to be done.
async fn take(
    State(shared): State<Arc<Shared>>,
    Path(call): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    if !shared.admits(&headers) {
        return refusal(401, "the key is missing or wrong");
    }
    let Ok(body) = serde_json::from_slice::<Value>(&body) else { return refusal(422, "the body is not JSON") };
    let mut state = shared.state();
    state.calls.push((call.clone(), body.clone()));
    let trouble = state.trouble(&call);
    match trouble {
        Some(TinkerFault::Status(status)) => return refusal(status, "a fault of the fake"),
        Some(TinkerFault::LostBefore) => return lost(),
        _ => {}
    }
    if call == "retrieve_future" {
        let result = state.result(&body);
        return if trouble == Some(TinkerFault::LostAfter) { lost() } else { result };
    }
    let (mut reply, outcome) = match state.learner.take(&call, &body) {
        Ok(taken) => taken,
        Err((status, detail)) => return refusal(status, &detail),
    };
    if let Some(outcome) = outcome {
        let (slow, again) = match &trouble {
            Some(TinkerFault::Slow(times)) => (*times, false),
            Some(TinkerFault::TryAgain(times)) => (*times, true),
            _ => (0, false),
        };
        let outcome = match &trouble {
            Some(TinkerFault::Fails(detail)) => Outcome::Failed(detail.clone()),
            Some(TinkerFault::Crashes) => Outcome::Crashed,
            Some(TinkerFault::Says(text)) => Outcome::Text(text.clone()),
            _ => outcome,
        };
        state.futures.push(Future { outcome, slow, again });
        reply["request_id"] = json!(state.futures.len().to_string());
    }
    match trouble {
        Some(TinkerFault::LostAfter) => lost(),
        _ => Json(reply).into_response(),
    }
}

/// A connection that breaks before the reply is whole.
fn lost() -> Response {
    Response::new(Body::from_stream(stream::iter([Err::<Bytes, _>(io::Error::other("the fake drops the connection"))])))
}

fn refusal(status: u16, detail: &str) -> Response {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    (status, Json(json!({"detail": detail}))).into_response()
}

fn crash() -> Response {
    (StatusCode::INTERNAL_SERVER_ERROR, "Internal Server Error").into_response()
}
