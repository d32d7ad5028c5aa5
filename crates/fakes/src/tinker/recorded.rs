//! A server that only knows an exchange that was recorded with a real one: every request has to be one of those, to the letter.

use crate::server::Server;
use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Json, Response};
use axum::routing::any;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A request and the reply to it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RecordedExchange {
    pub call: String,
    pub request: Value,
    pub status: u16,
    pub reply: Value,
}

/// A server of recorded replies; dropping it ends it.
pub struct RecordedTinker {
    shared: Arc<Mutex<Record>>,
    server: Server,
}

struct Record {
    left: Vec<RecordedExchange>,
    /// Requests that were not recorded.
    unknown: Vec<String>,
}

impl RecordedTinker {
    /// Starts one with the lines of a record. Signs of life are not among them: they come whenever they come.
    ///
    /// # Errors
    /// A line is no call, or the port cannot be bound.
    pub fn start(record: &str) -> io::Result<Self> {
        let left = record.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
        let shared = Arc::new(Mutex::new(Record { left, unknown: Vec::new() }));
        let router = Router::new().route("/api/v1/{call}", any(reply)).with_state(shared.clone());
        Ok(RecordedTinker { shared, server: Server::start(0, router)? })
    }

    /// Its address.
    pub fn url(&self) -> String {
        format!("http://{}", self.server.address())
    }

    /// The calls that nothing asked for, and the requests that were not recorded.
    pub fn differences(&self) -> (Vec<RecordedExchange>, Vec<String>) {
        let state = locked(&self.shared);
        (state.left.clone(), state.unknown.clone())
    }
}

fn locked(shared: &Mutex<Record>) -> MutexGuard<'_, Record> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn reply(State(shared): State<Arc<Mutex<Record>>>, Path(call): Path<String>, body: String) -> Response {
    if call == "session_heartbeat" {
        return Json(json!({"type": "session_heartbeat"})).into_response();
    }
    let request: Value = serde_json::from_str(&body).unwrap_or(Value::Null);
    let mut state = locked(&shared);
    let Some(at) = state.left.iter().position(|known| known.call == call && known.request == request) else {
        state.unknown.push(format!("{call} {request}"));
        return (StatusCode::NOT_IMPLEMENTED, "not on record").into_response();
    };
    let RecordedExchange { status, reply, .. } = state.left.remove(at);
    (StatusCode::from_u16(status).unwrap_or(StatusCode::NOT_IMPLEMENTED), Json(reply)).into_response()
}
