//! How a worker talks to coordinators, and finds out that one is gone.

use crate::borrowing::borrow;
use crate::error::ClusterError;
use crate::link::Link;
use crate::node::Failure;
use crate::objects::Blobs;
use crate::wire::{Answer, Ask, written};
use async_nats::HeaderMap;
use async_nats::client::RequestErrorKind;
use async_nats::jetstream::consumer::{Consumer, pull};
use async_nats::jetstream::kv::Operation;
use bytes::Bytes;
use lemon_exec::SharedBudget;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// A coordinator whose sign of life is missing for so long is gone: the server may have been away.
const GRACE: Duration = Duration::from_secs(15);
/// How often it is looked whether a coordinator is alive.
const LOOK: Duration = Duration::from_secs(3);

/// Room for the jobs of this worker.
#[derive(Clone)]
pub(crate) struct Slots {
    pub room: Arc<Semaphore>,
    pub freed: Arc<Notify>,
}

/// The slot of a job that waits for a call of another. It is lent to the queue: if the worker of the other job has died, that job
/// is there, and would wait for ever if all slots waited for it.
pub(crate) struct LentSlot(Arc<Semaphore>);

impl Slots {
    fn lend(&self) -> LentSlot {
        self.room.add_permits(1);
        self.freed.notify_one();
        LentSlot(self.room.clone())
    }
}

impl Drop for LentSlot {
    fn drop(&mut self) {
        let room = self.0.clone();
        // Without a runtime the process ends, and needs no slots.
        if let Ok(runtime) = Handle::try_current() {
            // The job goes on meanwhile: until a slot is free, one job more is made than there are slots.
            runtime.spawn(async move { room.acquire_owned().await.map(OwnedSemaphorePermit::forget) });
        }
    }
}

/// The coordinators that this worker has jobs of.
pub(crate) struct Sessions {
    link: Link,
    blobs: Blobs,
    slots: Slots,
    known: Mutex<HashMap<String, Arc<Session>>>,
    consumers: Mutex<HashMap<&'static str, Consumer<pull::Config>>>,
}

struct Session {
    cancel: Mutex<CancellationToken>,
    budget: Mutex<Option<Arc<SharedBudget>>>,
    looked: Mutex<Looked>,
}

/// What the last look at a coordinator's sign of life showed.
#[derive(Default)]
struct Looked {
    at: Option<Instant>,
    missing_since: Option<Instant>,
    gone: bool,
}

impl Sessions {
    pub fn new(link: &Link, slots: Slots) -> Self {
        let (link, blobs) = (link.clone(), Blobs::new(link));
        Sessions { link, blobs, slots, known: Mutex::default(), consumers: Mutex::default() }
    }

    pub fn link(&self) -> &Link {
        &self.link
    }

    pub fn consumer(&self, priority: &str) -> Option<Consumer<pull::Config>> {
        lock(&self.consumers).get(priority).cloned()
    }

    pub fn keep_consumer(&self, priority: &'static str, consumer: Consumer<pull::Config>) {
        lock(&self.consumers).insert(priority, consumer);
    }

    fn session(&self, name: &str) -> Arc<Session> {
        let new = || Arc::new(Session { cancel: Mutex::default(), budget: Mutex::default(), looked: Mutex::default() });
        lock(&self.known).entry(name.to_owned()).or_insert_with(new).clone()
    }

    /// Ends the runs of a coordinator.
    pub fn cancel(&self, name: &str) {
        let session = self.session(name);
        // Jobs that come later are wanted again.
        std::mem::take(&mut *lock(&session.cancel)).cancel();
        *lock(&session.budget) = None;
    }

    /// Ends the runs of a coordinator when it says so.
    pub fn token(&self, name: &str) -> CancellationToken {
        lock(&self.session(name).cancel).clone()
    }

    /// The part of a coordinator's budget that this process holds.
    pub fn budget(self: &Arc<Self>, name: &str, node: &str) -> Arc<SharedBudget> {
        let session = self.session(name);
        let mut budget = lock(&session.budget);
        // Its wishes are numbered from 1: a name of its own.
        let holder = || format!("{node}-{}", lemon_exec::fresh_id());
        let new = || borrow(self.clone(), name.to_owned(), holder(), self.token(name));
        budget.get_or_insert_with(new).clone()
    }

    /// Whether a coordinator is gone for good.
    pub async fn is_gone(&self, name: &str) -> bool {
        let session = self.session(name);
        {
            let looked = lock(&session.looked);
            if looked.gone || looked.at.is_some_and(|at| at.elapsed() < LOOK) {
                return looked.gone;
            }
        }
        let Ok(alive) = self.link.alive().await else { return false };
        let entry = alive.entry(format!("session.{name}")).await;
        let mut looked = lock(&session.looked);
        looked.at = Some(Instant::now());
        match entry {
            Ok(Some(entry)) if entry.operation == Operation::Put => looked.missing_since = None,
            // It said so.
            Ok(Some(_)) => looked.gone = true,
            Ok(None) => {
                let since = *looked.missing_since.get_or_insert_with(Instant::now);
                looked.gone = since.elapsed() >= GRACE;
            }
            // The server is away, which says nothing of the coordinator.
            Err(_) => {}
        }
        looked.gone
    }

    /// Sends something to a coordinator until it answers.
    ///
    /// # Errors
    /// The coordinator is gone.
    pub async fn send(
        &self,
        name: &str,
        to: &str,
        mut headers: HeaderMap,
        message: Bytes,
    ) -> Result<Bytes, ClusterError> {
        let subject = self.link.subject(&format!("session.{name}.{to}"));
        loop {
            match self.sent(&subject, &mut headers, &message).await {
                Ok(answer) => return Ok(answer),
                Err(paused) => {
                    if self.is_gone(name).await {
                        return Err(ClusterError::NoCoordinator);
                    }
                    if !paused {
                        tokio::time::sleep(Duration::from_millis(200)).await;
                    }
                }
            }
        }
    }

    /// Sends something to a coordinator once. `Err`: there is no answer, and whether that took a while.
    async fn sent(&self, subject: &str, headers: &mut HeaderMap, message: &Bytes) -> Result<Bytes, bool> {
        let message = self.blobs.fitted(headers, message.clone()).await.map_err(|_| false)?;
        let sent = self.link.client.request_with_headers(subject.to_owned(), headers.clone(), message).await;
        let answer = sent.map_err(|error| error.kind() == RequestErrorKind::TimedOut)?;
        self.blobs.body(answer.headers.as_ref(), answer.payload).await.map_err(|_| false)
    }
}

/// Asks a coordinator, however often it takes.
///
/// # Errors
/// It is gone, or does not understand the question.
pub(crate) async fn ask_session(sessions: &Sessions, session: &str, ask: &Ask) -> Result<Answer, ClusterError> {
    let message = written(ask);
    let answer = sessions.send(session, "ask", HeaderMap::new(), message.into()).await?;
    serde_json::from_slice(&answer).map_err(|error| ClusterError::JetStream(format!("an answer: {error}")))
}

/// Asks the coordinator about one job.
pub(crate) struct Caller {
    pub job: String,
    session: String,
    sessions: Arc<Sessions>,
    given_up: Mutex<Option<Failure>>,
    cancel: CancellationToken,
    /// What is being told.
    telling: Mutex<Vec<JoinHandle<()>>>,
}

impl Caller {
    pub fn new(sessions: &Arc<Sessions>, session: &str, job: &str) -> Arc<Self> {
        Arc::new(Caller {
            job: job.to_owned(),
            session: session.to_owned(),
            sessions: sessions.clone(),
            given_up: Mutex::default(),
            cancel: sessions.token(session).child_token(),
            telling: Mutex::default(),
        })
    }

    pub async fn ask(&self, ask: &Ask) -> Result<Answer, ClusterError> {
        ask_session(&self.sessions, &self.session, ask).await
    }

    /// Lends the slot of the job to others, until what is returned is dropped.
    pub fn lend_slot(&self) -> LentSlot {
        self.sessions.slots.lend()
    }

    /// Tells the coordinator something that is not waited for.
    pub fn tell(&self, ask: Ask) {
        let (sessions, session) = (self.sessions.clone(), self.session.clone());
        let telling = tokio::spawn(async move {
            // A coordinator that is gone need not know.
            let _ = ask_session(&sessions, &session, &ask).await;
        });
        lock(&self.telling).push(telling);
    }

    /// Waits until the coordinator knows all that it was told: with the result of the job, it forgets what the job held.
    pub async fn settled(&self) {
        let telling = std::mem::take(&mut *lock(&self.telling));
        for told in telling {
            // One that broke off has told nothing; others make its call again.
            let _ = told.await;
        }
    }

    /// Ends the run after something else than the answer that it needs.
    pub fn give_up(&self, answer: Result<Answer, ClusterError>) {
        let why = match answer {
            // The job ended, or its coordinator has: its result is not wanted any more.
            Ok(Answer::Unknown) | Err(ClusterError::NoCoordinator) => Failure::Unwanted,
            Ok(Answer::Refused(why)) => Failure::Failed(format!("the coordinator refuses a question: {why}")),
            Ok(other) => Failure::Failed(format!("the coordinator answers something else: {}", written(&other))),
            Err(error) => Failure::Failed(error.to_string()),
        };
        lock(&self.given_up).get_or_insert(why);
        self.cancel.cancel();
    }

    /// Why the run was ended, if it was.
    pub fn given_up(&self) -> Option<Failure> {
        lock(&self.given_up).clone()
    }

    /// Ends the run early.
    pub fn cancel(&self) -> &CancellationToken {
        &self.cancel
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
