//! Sends finished runs to an OpenTelemetry collector, as OTLP over HTTP with protobuf.

use lemon_exec::worker::{http_client, http_error};
use lemon_trace::Trace;
use lemon_trace::export::otlp::otlp_protobuf;
use lemon_workers::Tell;
use reqwest::Client;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{mpsc, watch};

/// Runs that wait to be sent. More are dropped, and told: a collector that is down must not fill the memory.
const MOST_WAITING: usize = 1_000;
/// How long one may take.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Headers for a collector, as every OpenTelemetry exporter reads them: keys of hosted collectors belong there.
const HEADERS: &str = "OTEL_EXPORTER_OTLP_HEADERS";

/// A collector that runs are sent to.
pub struct Collector {
    url: String,
    headers: Vec<(String, String)>,
    client: Client,
}

/// A run that did not reach the collector.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CollectorError {
    /// Its settings cannot be used.
    #[error("{0}")]
    Settings(String),
    /// It does not answer.
    #[error("{url} cannot be reached: {reason}")]
    Unreachable {
        /// Where it should be.
        url: String,
        /// Why not.
        reason: String,
    },
    /// It refuses.
    #[error("{url} answered {status}: {said}")]
    Refused {
        /// Where it is.
        url: String,
        /// The HTTP status.
        status: String,
        /// The beginning of what it said.
        said: String,
    },
}

impl Collector {
    /// A collector at this address, with the headers of the environment.
    ///
    /// # Errors
    /// The variable with headers cannot be used, or there is no client to be had.
    pub fn new(url: &str) -> Result<Self, CollectorError> {
        let url = match url.trim_end_matches('/') {
            whole if whole.ends_with("/v1/traces") => whole.to_owned(),
            base => format!("{base}/v1/traces"),
        };
        let headers = headers().map_err(CollectorError::Settings)?;
        Ok(Collector { url, headers, client: http_client().map_err(CollectorError::Settings)? })
    }

    /// Where runs are sent.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Sends a run.
    ///
    /// # Errors
    /// The collector does not answer, or refuses.
    pub async fn send(&self, trace: &Trace) -> Result<(), CollectorError> {
        let url = self.url.clone();
        let mut request = self.client.post(&url).header("content-type", "application/x-protobuf").timeout(TIMEOUT);
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        let sent = request.body(otlp_protobuf(trace)).send().await;
        let response = match sent {
            Ok(response) => response,
            Err(error) => return Err(CollectorError::Unreachable { url, reason: http_error(&error) }),
        };
        if response.status().is_success() {
            return Ok(());
        }
        let status = response.status().to_string();
        let said = response.text().await.unwrap_or_else(|error| format!("(unreadable: {})", http_error(&error)));
        Err(CollectorError::Refused { url, status, said: said.chars().take(300).collect() })
    }
}

/// Sends runs one after the other, beside everything else.
pub(crate) struct Exporter {
    queue: mpsc::Sender<Arc<Trace>>,
    entered: AtomicU64,
    /// How many were dealt with.
    sent: watch::Receiver<u64>,
    tell: Tell,
}

impl Exporter {
    /// Starts to send to this collector.
    pub fn start(collector: Collector, tell: Tell) -> Self {
        let (queue, mut waiting) = mpsc::channel::<Arc<Trace>>(MOST_WAITING);
        let (count, sent) = watch::channel(0);
        tokio::spawn(async move {
            while let Some(trace) = waiting.recv().await {
                if let Err(error) = collector.send(&trace).await {
                    tell(&format!("warning: the run {} was not sent: {error}", trace.header.run_id));
                }
                count.send_modify(|count| *count += 1);
            }
        });
        Exporter { queue, entered: AtomicU64::new(0), sent, tell }
    }

    /// Enters a run to be sent.
    pub fn send(&self, trace: Arc<Trace>) {
        match self.queue.try_send(trace) {
            Ok(()) => {
                self.entered.fetch_add(1, Ordering::AcqRel);
            }
            Err(_) => (self.tell)("warning: a run was not sent to the collector: too many wait"),
        }
    }

    /// Waits until all are sent, but no longer than this.
    pub async fn flush(&self, most: Duration) {
        let entered = self.entered.load(Ordering::Acquire);
        let mut sent = self.sent.clone();
        if tokio::time::timeout(most, sent.wait_for(|sent| *sent >= entered)).await.is_err() {
            (self.tell)("warning: runs were not sent to the collector in time");
        }
    }
}

fn headers() -> Result<Vec<(String, String)>, String> {
    let text = match std::env::var(HEADERS) {
        Ok(text) => text,
        Err(std::env::VarError::NotPresent) => return Ok(Vec::new()),
        Err(error) => return Err(format!("{HEADERS}: {error}")),
    };
    let pair = |pair: &str| {
        // The value may be a key: it is not told.
        let (name, value) = pair
            .split_once('=')
            .ok_or_else(|| format!("{HEADERS}: expected NAME=VALUE, found an entry without `=`"))?;
        Ok((name.trim().to_owned(), value.trim().to_owned()))
    };
    text.split(',').filter(|entry| !entry.trim().is_empty()).map(pair).collect()
}
