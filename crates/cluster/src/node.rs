//! A worker process: takes jobs, makes the runs, sends the results, and acknowledges a job only then.

mod calls;
mod run;

pub(crate) use calls::{Caller, Sessions, Slots, ask_session};
pub(crate) use run::Failure;

use crate::error::{ClusterError, jetstream};
use crate::link::{ALIVE, Link, PRIORITIES};
use crate::objects::Blobs;
use crate::status::NodeReport;
use crate::wire::{VERSION, written};
use async_nats::jetstream::Message;
use async_nats::jetstream::consumer::{Consumer, pull};
use async_trait::async_trait;
use futures::StreamExt;
use lemon_exec::{fresh_id, unix_ms};
use lemon_rollout::{Case, RolloutEnv};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, OnceCell, OwnedSemaphorePermit, Semaphore, TryAcquireError};
use tokio_util::sync::CancellationToken;

/// Environments that a worker keeps.
const MOST_ENVS: usize = 8;
/// An idle worker that is not woken looks for jobs this often.
const IDLE: Duration = Duration::from_millis(500);
/// Jobs that are taken with one request at most.
const MOST_TAKEN: usize = 256;
/// Jobs that one worker has and has not acknowledged at most.
const MOST_UNDER_WAY: u32 = 1_000_000;

/// Makes the environments that jobs are made in.
#[async_trait]
pub trait BuildEnv: Send + Sync {
    /// The environment of this recipe.
    ///
    /// # Errors
    /// It cannot be made here, and why.
    async fn build(&self, recipe: &[u8], blobs: &Blobs) -> Result<NodeEnv, String>;
}

/// An environment on a worker.
pub struct NodeEnv {
    /// The workers, the language and the grader.
    pub env: RolloutEnv,
    /// The tasks whose answers are graded here, by their names: those that are programs.
    pub cases: HashMap<String, Case>,
}

/// How a worker process works.
#[derive(Debug, Clone)]
pub struct NodeOptions {
    pub name: String,
    /// Jobs at a time.
    pub slots: usize,
    /// How often a job is tried before it is given up. That a worker refuses it is no try.
    pub tries: u32,
}

impl Default for NodeOptions {
    fn default() -> Self {
        NodeOptions { name: String::new(), slots: 1, tries: 5 }
    }
}

/// A worker process.
pub struct Node {
    link: Link,
    builder: Arc<dyn BuildEnv>,
    options: NodeOptions,
    id: String,
    since_ms: u64,
    sessions: Arc<Sessions>,
    envs: Mutex<Envs>,
    slots: Arc<Semaphore>,
    slot_free: Arc<Notify>,
    /// A permit for each job that is not acknowledged yet: its result may be on its way while the next is made.
    under_way: Arc<Semaphore>,
    busy: AtomicUsize,
    done: AtomicU64,
    failed: AtomicU64,
    dead: AtomicU64,
    /// Jobs that were refused since the last one that was made.
    refused: AtomicU32,
    pace: Mutex<Pace>,
}

/// Environments by the objects they are made of, the last used last.
type Envs = Vec<(String, Arc<OnceCell<Arc<NodeEnv>>>)>;

/// What was done at some moments of the last minute.
#[derive(Default)]
struct Pace(Vec<(u64, u64)>);

impl Node {
    /// A worker process of this project.
    pub fn new(link: &Link, builder: Arc<dyn BuildEnv>, options: NodeOptions) -> Arc<Self> {
        let slots = options.slots.max(1);
        let (room, freed) = (Arc::new(Semaphore::new(slots)), Arc::new(Notify::new()));
        Arc::new(Node {
            link: link.clone(),
            builder,
            id: fresh_id(),
            since_ms: unix_ms(),
            sessions: Arc::new(Sessions::new(link, Slots { room: room.clone(), freed: freed.clone() })),
            envs: Mutex::default(),
            slots: room,
            slot_free: freed,
            under_way: Arc::new(Semaphore::new(MOST_UNDER_WAY as usize)),
            busy: AtomicUsize::new(0),
            done: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            dead: AtomicU64::new(0),
            refused: AtomicU32::new(0),
            pace: Mutex::default(),
            options: NodeOptions { slots, ..options },
        })
    }

    /// What it says of itself.
    pub fn report(&self) -> NodeReport {
        let (now, done) = (unix_ms(), self.done.load(Ordering::Relaxed));
        NodeReport {
            id: self.id.clone(),
            name: self.options.name.clone(),
            version: VERSION.to_owned(),
            slots: self.options.slots,
            busy: self.busy.load(Ordering::Relaxed),
            done,
            failed: self.failed.load(Ordering::Relaxed),
            dead: self.dead.load(Ordering::Relaxed),
            per_s: self.pace.lock().unwrap_or_else(PoisonError::into_inner).per_s(now, done),
            since_ms: self.since_ms,
            at_ms: now,
        }
    }

    /// Makes jobs until `stop`; those under way are finished then.
    ///
    /// # Errors
    /// The server cannot be used at the beginning. Later it is waited for.
    pub async fn serve(self: &Arc<Self>, stop: &CancellationToken) -> Result<(), ClusterError> {
        let woken = Arc::new(Notify::new());
        let mut wake = self.link.client.subscribe(self.link.subject("wake")).await.map_err(jetstream)?;
        let mut cancels = self.link.client.subscribe(self.link.subject("session.*.cancel")).await.map_err(jetstream)?;
        self.say_alive().await?;
        let end = CancellationToken::new();
        let _ending = end.clone().drop_guard();
        let notify = woken.clone();
        let (node, over) = (self.clone(), end.clone());
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    () = over.cancelled() => return,
                    message = wake.next() => match message {
                        Some(_) => notify.notify_one(),
                        None => return,
                    },
                    message = cancels.next() => match message {
                        Some(message) => node.sessions.cancel(message.subject.split('.').nth(3).unwrap_or_default()),
                        None => return,
                    },
                }
            }
        });
        let (node, over) = (self.clone(), end.clone());
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    () = over.cancelled() => return,
                    () = tokio::time::sleep(ALIVE / 10) => {}
                }
                // The server may be away: the next turn comes soon.
                let _ = node.say_alive().await;
            }
        });
        while !stop.is_cancelled() {
            let round = tokio::select! {
                () = stop.cancelled() => break,
                taken = self.take() => taken,
            };
            match round {
                Ok(messages) if messages.is_empty() => {
                    tokio::select! {
                        () = stop.cancelled() => break,
                        () = woken.notified() => {}
                        () = tokio::time::sleep(IDLE) => {}
                    }
                }
                Ok(messages) => messages.into_iter().for_each(|message| self.start(message)),
                Err(_) => {
                    // The server is away, or came back without its streams.
                    tokio::time::sleep(IDLE).await;
                    // What fails now is tried again in the next turn.
                    let _ = self.link.prepare().await;
                }
            }
        }
        // All permits are there when all jobs are finished and acknowledged.
        let _ = self.under_way.acquire_many(MOST_UNDER_WAY).await;
        if let Ok(alive) = self.link.alive().await {
            // It vanishes by its age anyway.
            let _ = alive.delete(format!("node.{}", self.id)).await;
        }
        Ok(())
    }

    /// As many jobs as there are free slots, those of the highest priority first.
    async fn take(&self) -> Result<Vec<Message>, ClusterError> {
        while self.slots.available_permits() == 0 {
            self.slot_free.notified().await;
        }
        let free = self.slots.available_permits().min(MOST_TAKEN);
        let mut taken = Vec::new();
        for priority in PRIORITIES {
            let wanted = free - taken.len();
            if wanted > 0 {
                let consumer = self.consumer(priority).await?;
                taken.extend(fetch(&consumer, wanted).await?);
            }
        }
        Ok(taken)
    }

    async fn consumer(&self, priority: &'static str) -> Result<Consumer<pull::Config>, ClusterError> {
        if let Some(known) = self.sessions.consumer(priority) {
            return Ok(known);
        }
        let consumer = self.link.consumer(priority).await?;
        self.sessions.keep_consumer(priority, consumer.clone());
        Ok(consumer)
    }

    /// Makes a job beside the others.
    fn start(self: &Arc<Self>, message: Message) {
        self.busy.fetch_add(1, Ordering::Relaxed);
        // There is one for each message that was taken: only this task takes permits.
        let slot = Slot { _permit: self.slots.clone().try_acquire_owned(), _freed: Freed(self.clone()) };
        let (node, under_way) = (self.clone(), self.under_way.clone());
        tokio::spawn(async move {
            // As above, and there are more than a server lets be unacknowledged.
            let _under_way = under_way.try_acquire_owned();
            node.handle(message, slot).await;
        });
    }

    async fn say_alive(&self) -> Result<(), ClusterError> {
        let report = written(&self.report());
        let alive = self.link.alive().await?;
        alive.put(format!("node.{}", self.id), report.into()).await.map_err(jetstream)?;
        Ok(())
    }

    /// The environment of this recipe of a coordinator, made once.
    async fn env(&self, name: &str, session: &str) -> Result<Arc<NodeEnv>, String> {
        let cell = {
            let mut envs = self.envs.lock().unwrap_or_else(PoisonError::into_inner);
            let known = envs.iter().position(|(known, _)| known == name).map(|at| envs.remove(at));
            let entry = known.unwrap_or_else(|| (name.to_owned(), Arc::default()));
            let cell = entry.1.clone();
            envs.push(entry);
            if envs.len() > MOST_ENVS {
                envs.remove(0);
            }
            cell
        };
        let make = || async {
            let blobs = Blobs::of(&self.sessions, session);
            let recipe = blobs.get(name).await.map_err(|error| error.to_string())?;
            self.builder.build(&recipe, &blobs).await.map(Arc::new)
        };
        cell.get_or_try_init(make).await.cloned()
    }
}

/// A slot that a job has: free again when this is dropped.
pub(crate) struct Slot {
    _permit: Result<OwnedSemaphorePermit, TryAcquireError>,
    /// After the permit: who waits for a slot finds one.
    _freed: Freed,
}

struct Freed(Arc<Node>);

impl Drop for Freed {
    fn drop(&mut self) {
        self.0.busy.fetch_sub(1, Ordering::Relaxed);
        self.0.slot_free.notify_one();
    }
}

impl Pace {
    fn per_s(&mut self, now: u64, done: u64) -> f64 {
        self.0.retain(|(at, _)| now.saturating_sub(*at) <= 60_000);
        self.0.push((now, done));
        match self.0.first() {
            Some((at, before)) if now > *at => (done - before) as f64 * 1000.0 / (now - at) as f64,
            _ => 0.0,
        }
    }
}

/// The messages that are there, at most so many.
async fn fetch(consumer: &Consumer<pull::Config>, most: usize) -> Result<Vec<Message>, ClusterError> {
    let mut batch = consumer.fetch().max_messages(most).messages().await.map_err(jetstream)?;
    let mut messages = Vec::new();
    loop {
        match tokio::time::timeout(Duration::from_secs(2), batch.next()).await {
            Ok(Some(Ok(message))) => messages.push(message),
            Ok(None) => return Ok(messages),
            // What came is made; the rest comes again.
            Ok(Some(Err(_))) | Err(_) if !messages.is_empty() => return Ok(messages),
            Ok(Some(Err(error))) => return Err(jetstream(error)),
            Err(_) => return Err(jetstream("the server does not answer")),
        }
    }
}
