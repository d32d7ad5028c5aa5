//! What a fake endpoint saw: requests on record, and counts that are kept even without a record.

use serde_json::Value;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// A request as it came in.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct SeenRequest {
    /// The how-many-th request it is, from 1.
    pub number: u64,
    /// [`ChatRequest::key`](crate::ChatRequest::key), or `None` where the body is no chat request.
    pub key: Option<u64>,
    /// The body; `Null` where it is not JSON.
    pub body: Value,
    /// The `Authorization` header.
    pub authorization: Option<String>,
    /// When it came in.
    pub at: Instant,
}

/// Everything one endpoint saw.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    // A std mutex and not Tokio's, because no lock is held across an await.
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    calls: u64,
    calls_by_key: HashMap<u64, u64>,
    in_flight: usize,
    peak_in_flight: usize,
    requests: Vec<SeenRequest>,
}

/// A call in flight, until it is dropped: with the last byte of the reply, or with the connection.
#[derive(Debug)]
pub(crate) struct InFlight(Arc<Seen>);

impl Seen {
    /// Counts a call; gives its number and how often its key had been seen before.
    pub(crate) fn call(self: &Arc<Self>, key: Option<u64>) -> (u64, u64, InFlight) {
        let mut state = self.state();
        state.calls += 1;
        state.in_flight += 1;
        state.peak_in_flight = state.peak_in_flight.max(state.in_flight);
        let asked_before = key.map_or(0, |key| {
            let calls = state.calls_by_key.entry(key).or_default();
            *calls += 1;
            *calls - 1
        });
        (state.calls, asked_before, InFlight(Arc::clone(self)))
    }

    pub(crate) fn record(&self, request: SeenRequest) {
        self.state().requests.push(request);
    }

    pub(crate) fn requests(&self) -> Vec<SeenRequest> {
        self.state().requests.clone()
    }

    pub(crate) fn calls(&self) -> u64 {
        self.state().calls
    }

    pub(crate) fn calls_by_key(&self) -> HashMap<u64, u64> {
        self.state().calls_by_key.clone()
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.state().in_flight
    }

    pub(crate) fn peak_in_flight(&self) -> usize {
        self.state().peak_in_flight
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Counts stay true even if a thread panicked while it held them.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.state().in_flight -= 1;
    }
}
