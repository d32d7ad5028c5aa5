//! The connection to NATS, and what lies there: every name begins with the project, so that projects share a server.

use crate::error::{ClusterError, jetstream};
use async_nats::jetstream::consumer::{AckPolicy, Consumer, pull};
use async_nats::jetstream::stream::{DiscardPolicy, RetentionPolicy, Stream};
use async_nats::jetstream::{self, Context, kv, object_store, stream};
use async_nats::{Client, ConnectOptions};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A worker that is silent for so long is gone, by default: its jobs are delivered again.
const ACK_WAIT: Duration = Duration::from_secs(10);
/// How long a message of a job is remembered by its id, so that it is not queued twice.
const DUPLICATE_WINDOW: Duration = Duration::from_secs(120);
/// How long a coordinator or a worker that says nothing is taken for alive.
pub(crate) const ALIVE: Duration = Duration::from_secs(30);
/// How long objects, dead letters and refusals are kept.
const KEPT: Duration = Duration::from_secs(7 * 24 * 3600);
/// Replies of the server are waited for so long, then asked for again.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// How often what a project needs is asked for, and how long after a failure it is asked for again: a server that has just started
/// has no JetStream for a moment.
const ATTEMPTS: usize = 5;
const PAUSE: Duration = Duration::from_millis(500);

/// How a NATS server lets this process in. Secrets come from the environment and are never printed.
#[derive(Clone, Default)]
pub struct Access {
    /// The addresses: `nats://HOST:PORT`, or `tls://HOST:PORT`, several separated by commas.
    pub address: String,
    /// The project: a part of every name on the server. Empty: `default`.
    pub project: String,
    /// A file of credentials (a JWT and a seed), as `nsc` writes it.
    pub credentials: Option<PathBuf>,
    /// The seed of an NKey.
    pub nkey: Option<String>,
    /// A user and a password.
    pub user: Option<(String, String)>,
    /// A token.
    pub token: Option<String>,
    /// Certificates of authorities to trust, besides those of the system.
    pub authority: Option<PathBuf>,
    /// The certificate and the key of this client.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// How long a worker may be silent before its jobs go to others; `None`: 10 seconds. What the first process of a project says
    /// counts for all.
    pub silence: Option<Duration>,
}

/// Without secrets.
impl fmt::Debug for Access {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Access").field("address", &self.shown()).finish_non_exhaustive()
    }
}

impl Access {
    /// Access by what the environment says: `LEMON_NATS_CREDS` (file), `LEMON_NATS_NKEY` (seed), `LEMON_NATS_USER` and
    /// `LEMON_NATS_PASSWORD`, `LEMON_NATS_TOKEN`, `LEMON_NATS_CA`, `LEMON_NATS_CERT` and `LEMON_NATS_KEY` (files),
    /// `LEMON_WORKER_SILENCE` (seconds).
    ///
    /// # Errors
    /// A value is no number of seconds.
    pub fn from_environment(address: &str, project: &str) -> Result<Self, ClusterError> {
        let text = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let path = |name: &str| text(name).map(PathBuf::from);
        let silence = match text("LEMON_WORKER_SILENCE") {
            None => None,
            Some(found) => match found.parse::<u64>() {
                Ok(seconds @ 1..=3600) => Some(Duration::from_secs(seconds)),
                _ => return Err(ClusterError::Silence(found)),
            },
        };
        Ok(Access {
            address: address.to_owned(),
            project: project.to_owned(),
            credentials: path("LEMON_NATS_CREDS"),
            nkey: text("LEMON_NATS_NKEY"),
            user: text("LEMON_NATS_USER").zip(text("LEMON_NATS_PASSWORD")),
            token: text("LEMON_NATS_TOKEN"),
            authority: path("LEMON_NATS_CA"),
            certificate: path("LEMON_NATS_CERT").zip(path("LEMON_NATS_KEY")),
            silence,
        })
    }

    /// The addresses without what may be secret in them.
    pub fn shown(&self) -> String {
        let shown = |address: &str| match address.rsplit_once('@') {
            Some((before, host)) => format!("{}{host}", before.split_once("://").map_or("", |_| "…@")),
            None => address.to_owned(),
        };
        self.address.split(',').map(shown).collect::<Vec<_>>().join(",")
    }

    async fn options(&self) -> Result<ConnectOptions, ClusterError> {
        let failed = |reason: String| ClusterError::Connect { address: self.shown(), reason };
        let mut options = ConnectOptions::new()
            .name("lemon")
            .request_timeout(Some(REQUEST_TIMEOUT))
            .subscription_capacity(256 * 1024)
            .client_capacity(16 * 1024)
            .reconnect_delay_callback(|attempts| Duration::from_millis((50 * attempts as u64).min(2_000)));
        if let Some(file) = &self.credentials {
            let shown = |error: std::io::Error| failed(format!("{}: {error}", file.display()));
            options = options.credentials_file(file).await.map_err(shown)?;
        }
        if let Some(seed) = &self.nkey {
            options = options.nkey(seed.clone());
        }
        if let Some((user, password)) = &self.user {
            options = options.user_and_password(user.clone(), password.clone());
        }
        if let Some(token) = &self.token {
            options = options.token(token.clone());
        }
        if let Some(file) = &self.authority {
            options = options.add_root_certificates(file.clone()).require_tls(true);
        }
        if let Some((certificate, key)) = &self.certificate {
            options = options.add_client_certificate(certificate.clone(), key.clone()).require_tls(true);
        }
        Ok(options)
    }
}

/// A connection to a project on a NATS server. Clones share it.
#[derive(Clone)]
pub struct Link {
    pub(crate) client: Client,
    pub(crate) jetstream: Context,
    project: String,
    /// Milliseconds that a worker may be silent: what this process wants, then what the project has.
    ack_wait_ms: Arc<AtomicU64>,
}

/// Tries something a few times where JetStream does not answer: a connection may drop, and a server restart, at any moment.
///
/// # Errors
/// That of the last time, or another one.
pub(crate) async fn again<T, F>(attempt: impl Fn() -> F) -> Result<T, ClusterError>
where
    F: Future<Output = Result<T, ClusterError>>,
{
    for _ in 1..ATTEMPTS {
        match attempt().await {
            Err(ClusterError::JetStream(_) | ClusterError::Object { .. }) => tokio::time::sleep(PAUSE).await,
            ended => return ended,
        }
    }
    attempt().await
}

impl Link {
    /// Connects, and makes what the project needs on the server where it is missing.
    ///
    /// # Errors
    /// The server cannot be reached, refuses the credentials, or has no JetStream.
    pub async fn connect(access: &Access) -> Result<Link, ClusterError> {
        let project = if access.project.is_empty() { "default" } else { &access.project };
        if !project.chars().all(|letter| letter.is_ascii_alphanumeric() || "-_".contains(letter)) {
            return Err(ClusterError::Project(project.to_owned()));
        }
        let failed = |error: async_nats::ConnectError| ClusterError::Connect {
            address: access.shown(),
            reason: error.to_string(),
        };
        let addresses: Vec<&str> = access.address.split(',').map(str::trim).collect();
        let servers = addresses.iter().map(|address| address.parse::<async_nats::ServerAddr>());
        let servers = servers
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| ClusterError::Connect { address: access.shown(), reason: error.to_string() })?;
        let client = access.options().await?.connect(servers).await.map_err(failed)?;
        let jetstream = jetstream::ContextBuilder::new()
            .timeout(REQUEST_TIMEOUT)
            .ack_timeout(REQUEST_TIMEOUT)
            .max_ack_inflight(16 * 1024)
            .build(client.clone());
        let ack_wait = access.silence.unwrap_or(ACK_WAIT).as_millis();
        let ack_wait_ms = Arc::new(AtomicU64::new(u64::try_from(ack_wait).unwrap_or(u64::MAX)));
        let link = Link { client, jetstream, project: project.to_owned(), ack_wait_ms };
        again(|| link.prepare()).await?;
        Ok(link)
    }

    /// Makes the streams and buckets of the project where they are missing.
    pub(crate) async fn prepare(&self) -> Result<(), ClusterError> {
        self.jobs().await?;
        for priority in PRIORITIES {
            let has = self.consumer(priority).await?.cached_info().config.ack_wait;
            self.ack_wait_ms.store(u64::try_from(has.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
        }
        self.letters().await?;
        self.bucket("alive", ALIVE).await?;
        self.refused().await?;
        self.objects().await?;
        Ok(())
    }

    /// A worker that is silent for so long is gone.
    pub(crate) fn ack_wait(&self) -> Duration {
        Duration::from_millis(self.ack_wait_ms.load(Ordering::Relaxed))
    }

    /// Bytes that the body of a message may have, beside so many of its headers.
    pub(crate) fn most_bytes(&self, headers: usize) -> usize {
        self.client.max_payload().saturating_sub(headers)
    }

    /// The name of something of this project: `lemon.PROJECT.REST`.
    pub(crate) fn subject(&self, rest: &str) -> String {
        format!("lemon.{}.{rest}", self.project)
    }

    fn name(&self, rest: &str) -> String {
        format!("LEMON_{}_{rest}", self.project)
    }

    /// The stream of jobs: each is there until a worker is done with it.
    pub(crate) async fn jobs(&self) -> Result<Stream, ClusterError> {
        let config = stream::Config {
            name: self.name("jobs"),
            subjects: vec![self.subject("jobs.>")],
            retention: RetentionPolicy::WorkQueue,
            duplicate_window: DUPLICATE_WINDOW,
            discard: DiscardPolicy::New,
            ..stream::Config::default()
        };
        self.jetstream.get_or_create_stream(config).await.map_err(jetstream)
    }

    /// The consumer that all workers share for jobs of this priority.
    pub(crate) async fn consumer(&self, priority: &str) -> Result<Consumer<pull::Config>, ClusterError> {
        let config = pull::Config {
            durable_name: Some(priority.to_owned()),
            filter_subject: self.subject(&format!("jobs.{priority}.*")),
            ack_policy: AckPolicy::Explicit,
            ack_wait: self.ack_wait(),
            max_ack_pending: 1_000_000,
            ..pull::Config::default()
        };
        let jobs = self.jobs().await?;
        jobs.get_or_create_consumer(priority, config).await.map_err(jetstream)
    }

    /// The stream of dead letters: jobs that no worker could make, with the reason.
    pub(crate) async fn letters(&self) -> Result<Stream, ClusterError> {
        let config = stream::Config {
            name: self.name("dead"),
            subjects: vec![self.subject("dead.*")],
            max_age: KEPT,
            max_messages: 10_000,
            ..stream::Config::default()
        };
        self.jetstream.get_or_create_stream(config).await.map_err(jetstream)
    }

    /// A bucket whose entries vanish unless they are written again.
    pub(crate) async fn bucket(&self, name: &str, max_age: Duration) -> Result<kv::Store, ClusterError> {
        let bucket = self.name(name);
        if let Ok(bucket) = self.jetstream.get_key_value(&bucket).await {
            return Ok(bucket);
        }
        // The client's own way asks the server about the account, and does not understand what servers before 2.10 reply.
        let config = stream::Config {
            name: format!("KV_{bucket}"),
            subjects: vec![format!("$KV.{bucket}.>")],
            max_age,
            max_messages_per_subject: 1,
            duplicate_window: DUPLICATE_WINDOW.min(max_age),
            discard: DiscardPolicy::New,
            allow_rollup: true,
            allow_direct: true,
            deny_delete: true,
            ..stream::Config::default()
        };
        self.jetstream.get_or_create_stream(config).await.map_err(jetstream)?;
        self.jetstream.get_key_value(&bucket).await.map_err(jetstream)
    }

    /// The bucket of coordinators and workers that are alive.
    pub(crate) async fn alive(&self) -> Result<kv::Store, ClusterError> {
        self.bucket("alive", ALIVE).await
    }

    /// The bucket of what workers say of jobs that they cannot make.
    pub(crate) async fn refused(&self) -> Result<kv::Store, ClusterError> {
        self.bucket("refused", KEPT).await
    }

    /// The object store.
    pub(crate) async fn objects(&self) -> Result<object_store::ObjectStore, ClusterError> {
        let bucket = self.name("objects");
        match self.jetstream.get_object_store(&bucket).await {
            Ok(store) => Ok(store),
            Err(_) => {
                let config = object_store::Config { bucket, max_age: KEPT, ..object_store::Config::default() };
                self.jetstream.create_object_store(config).await.map_err(jetstream)
            }
        }
    }
}

/// The priorities, highest first: parts of the subjects of jobs, and names of consumers.
pub(crate) const PRIORITIES: [&str; 2] = ["high", "low"];
