//! Listening: connections with limits and timeouts, and an end in good order.

use crate::cluster::ClusterWatch;
use crate::guard;
use crate::keys::{KeyError, Keys};
use crate::metrics::ServerCounters;
use crate::otlp::{Collector, CollectorError, Exporter};
use crate::refusal::Refusal;
use crate::runs::LiveRuns;
use crate::state::{AppState, ServerConfig};
use crate::workers::Workers;
use crate::{api, app};
use axum::extract::DefaultBodyLimit;
use axum::{Router, middleware};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use lemon_exec::store::{Store, StoreError};
use lemon_workers::{ReadyRun, Tell};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

/// Seconds that a request's headers may take to come.
const HEADER_TIMEOUT: Duration = Duration::from_secs(20);
/// Bytes of a request's headers.
const MOST_HEADER_BYTES: usize = 32 * 1024;
/// Headers of a request.
const MOST_HEADERS: usize = 64;
/// Connections that wait to be accepted.
const BACKLOG: u32 = 4096;
/// How long connections may take to end once no run is under way.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// A server that listens.
pub struct HttpServer {
    app: Arc<AppState>,
    listener: TcpListener,
    tell: Tell,
}

/// A server that cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The address cannot be listened at.
    #[error("{address}: {reason}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        reason: std::io::Error,
    },
    /// Strangers could ask.
    #[error("{0} is no address of this machine alone, and there are no keys")]
    NoKeys(SocketAddr),
    /// Another server spends the budgets.
    #[error("another server spends the budgets of the keys in {0}")]
    KeysInUse(PathBuf),
    /// The keys cannot be used.
    #[error(transparent)]
    Keys(#[from] KeyError),
    /// The store cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The collector cannot be sent to.
    #[error(transparent)]
    Collector(#[from] CollectorError),
}

impl ServerError {
    /// What to do about it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            ServerError::NoKeys(_) => Some("`lemon keys add NAME` makes one; 127.0.0.1 needs none"),
            ServerError::Listen { .. } => Some("choose another address with --addr"),
            ServerError::KeysInUse(_) => Some("end it, or give this one another store with --store"),
            ServerError::Keys(_) | ServerError::Store(_) | ServerError::Collector(_) => None,
        }
    }
}

impl HttpServer {
    /// Listens at the address, and answers no request yet.
    ///
    /// # Errors
    /// The address or the keys cannot be used, or strangers could ask without a key.
    pub fn bind(mut config: ServerConfig, ready: ReadyRun, store: Arc<Store>, tell: Tell) -> Result<Self, ServerError> {
        let path = Keys::path_beside(store.path());
        let keys = Keys::open_to_spend(&path)?;
        let is_remote = !config.address.ip().is_loopback();
        config.require_key |= is_remote;
        if is_remote && !keys.exist()? {
            return Err(ServerError::NoKeys(config.address));
        }
        if config.require_key && !keys.are_ours() {
            return Err(ServerError::KeysInUse(path));
        }
        let address = config.address;
        allow_files();
        let listener = listen(address).map_err(|reason| ServerError::Listen { address, reason })?;
        config.address = listener.local_addr().map_err(|reason| ServerError::Listen { address, reason })?;
        let exporter = match &config.otlp {
            Some(url) => Some(Exporter::start(Collector::new(url)?, tell)),
            None => None,
        };
        let workers = Workers::new(ready, config.teams.clone(), config.policies.clone());
        let app = AppState {
            cluster: config.cluster.clone().map(ClusterWatch::new),
            config,
            workers,
            store,
            runs: LiveRuns::default(),
            keys,
            metrics: ServerCounters::default(),
            exporter,
            closing: CancellationToken::new(),
        };
        Ok(HttpServer { app: Arc::new(app), listener, tell })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.app.config.address
    }

    /// What its handlers have at hand.
    pub fn app(&self) -> &Arc<AppState> {
        &self.app
    }

    /// Answers until `end` comes; then lets runs end for a while, cancels those that do not, and waits until that is on
    /// record.
    pub async fn serve(self, end: impl Future<Output = ()>) {
        let HttpServer { app, listener, tell } = self;
        match app.take_up().await {
            Ok((taken, left)) => {
                left.iter().for_each(|line| tell(&format!("warning: {line}")));
                if taken > 0 {
                    tell(&format!("{taken} interrupted runs are taken up"));
                }
            }
            Err(refusal) => tell(&format!("warning: interrupted runs are not taken up: {}", refusal.fact)),
        }
        let service = TowerToHyperService::new(router(app.clone()));
        let graceful = GracefulShutdown::new();
        let room = Arc::new(Semaphore::new(app.config.most_connections));
        tokio::pin!(end);
        loop {
            let accepted = tokio::select! {
                () = &mut end => break,
                accepted = accept(&listener, &room) => accepted,
            };
            let (stream, permit) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    // Out of files, say: connections that end make room.
                    tell(&format!("warning: a connection cannot be accepted: {error}"));
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEADER_TIMEOUT)
                .max_buf_size(MOST_HEADER_BYTES)
                .max_headers(MOST_HEADERS)
                .serve_connection(TokioIo::new(stream), service.clone());
            let connection = graceful.watch(connection);
            tokio::spawn(async move {
                // A connection that breaks off concerns its client only.
                let _ = connection.await;
                drop(permit);
            });
        }
        drop(listener);
        close(&app, tell).await;
        // What was answered leaves; a client that does not read it is left.
        let _ = tokio::time::timeout(LAST_WORDS, graceful.shutdown()).await;
        if let Some(exporter) = &app.exporter {
            exporter.flush(LAST_WORDS).await;
        }
    }
}

async fn accept(listener: &TcpListener, room: &Arc<Semaphore>) -> std::io::Result<(TcpStream, OwnedSemaphorePermit)> {
    let permit = room.clone().acquire_owned().await.map_err(std::io::Error::other)?;
    let (stream, _) = listener.accept().await?;
    // Pieces of a stream leave at once.
    stream.set_nodelay(true)?;
    Ok((stream, permit))
}

async fn close(app: &AppState, tell: Tell) {
    app.closing.cancel();
    let under_way = app.runs.count();
    if under_way > 0 {
        tell(&format!("ending: {under_way} runs have {} s to end", app.config.grace.as_secs()));
    }
    if tokio::time::timeout(app.config.grace, app.runs.none_left()).await.is_err() {
        app.runs.all().iter().for_each(|run| run.cancel());
        app.runs.none_left().await;
    }
}

/// Lets this process have as many connections as the system lets it: the usual limit is a quarter of what one server needs.
fn allow_files() {
    #[cfg(unix)]
    {
        use rustix::process::{Resource, getrlimit, setrlimit};
        let limit = getrlimit(Resource::Nofile);
        // Where it is refused, connections wait until others end.
        let _ = setrlimit(Resource::Nofile, rustix::process::Rlimit { current: limit.maximum, ..limit });
    }
}

fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // So that a server that is started again gets its port while old connections are still closing.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// All routes, behind the guard.
pub(crate) fn router(state: Arc<AppState>) -> Router {
    Router::new()
        .merge(api::routes())
        .merge(app::routes())
        .fallback(|| async { Refusal::not_found("there is no such page").code("not_found") })
        .method_not_allowed_fallback(|| async {
            let status = axum::http::StatusCode::METHOD_NOT_ALLOWED;
            Refusal::new(status, "invalid_request_error", "this address does not take this method")
        })
        // The guard bounds bodies, and the time they take.
        .layer(DefaultBodyLimit::disable())
        .layer(middleware::from_fn_with_state(state.clone(), guard::check))
        .with_state(state)
}
