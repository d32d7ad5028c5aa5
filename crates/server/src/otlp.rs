//! Sends finished runs to an OpenTelemetry collector.

use lemon_exec::worker::{http_client, http_error};
use lemon_trace::Trace;
use lemon_trace::export::otlp::otlp_protobuf;
use lemon_workers::Tell;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};

/// Runs that wait to be sent. More are dropped, and told: a collector that is down must not fill the memory.
const MOST_WAITING: usize = 1_000;
/// How long one may take.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Headers for a collector, as every OpenTelemetry exporter reads them: keys of hosted collectors belong there.
const HEADERS: &str = "OTEL_EXPORTER_OTLP_HEADERS";

/// Sends runs one after the other, beside everything else.
pub struct Exporter {
    queue: mpsc::Sender<Arc<Trace>>,
    /// How many were dealt with.
    sent: watch::Receiver<u64>,
    entered: std::sync::atomic::AtomicU64,
    tell: Tell,
}

impl Exporter {
    /// Starts to send to this collector.
    ///
    /// # Errors
    /// The variable with headers cannot be used, or there is no client to be had.
    pub fn start(url: &str, tell: Tell) -> Result<Self, String> {
        let url = match url.trim_end_matches('/') {
            whole if whole.ends_with("/v1/traces") => whole.to_owned(),
            base => format!("{base}/v1/traces"),
        };
        let headers = headers()?;
        let client = http_client().map_err(|error| error.to_string())?;
        let (queue, mut waiting) = mpsc::channel::<Arc<Trace>>(MOST_WAITING);
        let (count, sent) = watch::channel(0);
        tokio::spawn(async move {
            while let Some(trace) = waiting.recv().await {
                let mut request = client.post(&url).header("content-type", "application/x-protobuf").timeout(TIMEOUT);
                for (name, value) in &headers {
                    request = request.header(name, value);
                }
                let run = &trace.header.run_id;
                match request.body(otlp_protobuf(&trace)).send().await {
                    Ok(response) if response.status().is_success() => {}
                    Ok(response) => tell(&format!("warning: {url} answered {} to the run {run}", response.status())),
                    Err(error) => tell(&format!("warning: the run {run} was not sent: {url}: {}", http_error(&error))),
                }
                count.send_modify(|count| *count += 1);
            }
        });
        Ok(Exporter { queue, sent, entered: Default::default(), tell })
    }

    /// Enters a run to be sent.
    pub fn send(&self, trace: Arc<Trace>) {
        match self.queue.try_send(trace) {
            Ok(()) => {
                self.entered.fetch_add(1, std::sync::atomic::Ordering::AcqRel);
            }
            Err(_) => (self.tell)("warning: a run was not sent to the collector: too many wait"),
        }
    }

    /// Waits until all are sent, but no longer than this.
    pub async fn flush(&self, most: Duration) {
        let entered = self.entered.load(std::sync::atomic::Ordering::Acquire);
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
