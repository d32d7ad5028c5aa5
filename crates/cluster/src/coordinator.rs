//! The coordinator: sends runs out as jobs, answers what workers ask about them, and takes the first result of each.

use crate::asks::{self, Kept};
use crate::error::{ClusterError, jetstream};
use crate::exact;
use crate::lending::Lenders;
use crate::link::{ALIVE, Link, again};
use crate::objects::{Blobs, object_of};
use crate::wire::{Answer, DoneHead, Drafted, JOB_HEADER, Job, Letter, RunSettings, VERSION, VERSION_HEADER, written};
use async_nats::HeaderMap;
use async_nats::header::NATS_MESSAGE_ID;
use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use lemon_exec::orchestrator::WriteContext;
use lemon_exec::{Runner, SharedBudget, fresh_id, unix_ms};
use lemon_rollout::{RemoteRun, RemoteRuns, RemoteTrace, RolloutError};
use lemon_trace::{Event, Trace};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio_util::sync::{CancellationToken, DropGuard};

/// How long the results of jobs that were cancelled while they ran are waited for.
const DRAIN: Duration = Duration::from_secs(10);

/// Workers that are idle are woken so long after a job is queued.
const WAKE_AFTER: Duration = Duration::from_millis(2);

/// Which jobs go first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Priority {
    /// Training.
    High,
    /// Evaluation and everything else.
    #[default]
    Low,
}

/// How runs are handed out.
#[derive(Clone, Default)]
pub struct CoordinatorOptions {
    /// Which jobs go first.
    pub priority: Priority,
    /// What all runs may spend together.
    pub budget: Option<Arc<SharedBudget>>,
}

/// A job that no worker could make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadJob {
    pub task_id: String,
    /// How often it was tried.
    pub tries: u32,
    /// Why the last try failed.
    pub error: String,
}

/// Hands out runs to the workers of a project. Clones share everything, and it ends with the last of them.
#[derive(Clone)]
pub struct Coordinator {
    shared: Arc<Shared>,
    _end: Arc<DropGuard>,
}

/// The runs of one environment on the workers of a coordinator.
pub struct ClusterRuns {
    coordinator: Coordinator,
    /// The object that says how the environment is made.
    env: String,
}

/// What the tasks of a coordinator share.
pub(crate) struct Shared {
    pub link: Link,
    pub session: String,
    pub blobs: Blobs,
    pub lenders: Lenders,
    priority: &'static str,
    pending: Mutex<HashMap<String, Pending>>,
    dead: Mutex<Vec<DeadJob>>,
    jobs: AtomicU64,
    waking: AtomicBool,
    draining: AtomicBool,
    end: CancellationToken,
}

/// A job that has no result yet.
struct Pending {
    kept: Arc<Kept>,
    message: Bytes,
    cancel: CancellationToken,
    result: oneshot::Sender<End>,
}

/// How a job ended.
enum End {
    /// With this result.
    Done(Bytes),
    /// No worker could make it.
    Dead,
    /// It was cancelled before it began.
    Forgotten,
}

impl Coordinator {
    /// A coordinator that is alive, and has no runs yet.
    ///
    /// # Errors
    /// The server cannot be used.
    pub async fn begin(link: &Link, options: CoordinatorOptions) -> Result<Self, ClusterError> {
        let session = format!("{}{}", fresh_id(), fresh_id());
        let shared = Arc::new(Shared {
            link: link.clone(),
            lenders: Lenders::new(options.budget, link.ack_wait() * 2),
            session,
            blobs: Blobs::new(link),
            priority: match options.priority {
                Priority::High => "high",
                Priority::Low => "low",
            },
            pending: Mutex::default(),
            dead: Mutex::default(),
            jobs: AtomicU64::new(0),
            waking: AtomicBool::new(false),
            draining: AtomicBool::new(false),
            end: CancellationToken::new(),
        });
        again(|| shared.say_alive()).await?;
        for (subject, listen) in [("done", Listen::Done), ("ask", Listen::Ask), ("dead", Listen::Dead)] {
            let subject = shared.subject(subject);
            let messages = link.client.subscribe(subject).await.map_err(jetstream)?;
            tokio::spawn(shared.clone().listen(messages, listen));
        }
        link.client.flush().await.map_err(jetstream)?;
        tokio::spawn(shared.clone().keep_alive());
        let end = Arc::new(shared.end.clone().drop_guard());
        Ok(Coordinator { shared, _end: end })
    }

    /// Runs in an environment that workers make by this recipe.
    ///
    /// # Errors
    /// The server cannot be used.
    pub async fn runs(&self, recipe: &[u8]) -> Result<ClusterRuns, ClusterError> {
        let env = again(|| self.shared.blobs.put(recipe)).await?;
        Ok(ClusterRuns { coordinator: self.clone(), env })
    }

    /// The objects that this coordinator answers for: what environments are made of goes here.
    pub fn blobs(&self) -> &Blobs {
        &self.shared.blobs
    }

    /// The jobs that no worker could make, so far.
    pub fn dead(&self) -> Vec<DeadJob> {
        self.shared.dead.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    #[cfg(test)]
    pub(crate) fn session(&self) -> &str {
        &self.shared.session
    }

    #[cfg(test)]
    pub(crate) async fn put_back(&self, object: &str) -> Result<bool, ClusterError> {
        self.shared.put_back(object).await
    }

    /// Forgets the jobs that are queued, and says that this coordinator is gone.
    ///
    /// # Errors
    /// The server cannot be reached; the jobs are forgotten when a worker finds that the coordinator is gone.
    pub async fn close(&self) -> Result<(), ClusterError> {
        self.shared.end.cancel();
        let session = format!("session.{}", self.shared.session);
        again(async || {
            self.shared.link.alive().await?.delete(&session).await.map_err(jetstream)?;
            self.shared.forget_queued().await.map(drop)
        })
        .await
    }
}

#[async_trait]
impl RemoteRuns for ClusterRuns {
    async fn run(&self, run: RemoteRun<'_>) -> Result<Option<RemoteTrace>, RolloutError> {
        if run.runner.orchestrator.amends() {
            return here(run).await.map(Some);
        }
        let shared = &self.coordinator.shared;
        let (job, message) = shared.job(&run, &self.env).await;
        let (result, ended) = oneshot::channel();
        let pending =
            Pending { kept: Arc::new(Kept::of(&run)), message: message.clone(), cancel: run.cancel.clone(), result };
        shared.pending().insert(job.clone(), pending);
        let _entry = Entry { shared, job: &job };
        let end = tokio::select! {
            biased;
            end = async {
                shared.publish(&job, message, run.cancel).await;
                ended.await
            } => end,
            () = shared.drained(run.cancel) => return Ok(None),
        };
        match end {
            Ok(End::Done(body)) => match read_trace(&body) {
                Ok(trace) => Ok(Some(trace)),
                Err(reason) => Err(RolloutError::Remote(format!("a result cannot be read: {reason}"))),
            },
            Ok(End::Dead | End::Forgotten) => Ok(None),
            // The sender is dropped only with the entry.
            Err(_) => Err(RolloutError::BrokeOff("its entry is gone".to_owned())),
        }
    }
}

/// Removes the entry of a job whose caller has gone.
struct Entry<'a> {
    shared: &'a Arc<Shared>,
    job: &'a str,
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        self.shared.pending().remove(self.job);
    }
}

#[derive(Clone, Copy)]
enum Listen {
    Done,
    Ask,
    Dead,
}

impl Shared {
    fn subject(&self, rest: &str) -> String {
        self.link.subject(&format!("session.{}.{rest}", self.session))
    }

    fn pending(&self) -> MutexGuard<'_, HashMap<String, Pending>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is kept here of a job that has no result yet.
    pub fn kept(&self, job: &str) -> Option<Arc<Kept>> {
        self.pending().get(job).map(|pending| pending.kept.clone())
    }

    /// The job of a run, by name and as a message.
    async fn job(&self, run: &RemoteRun<'_>, env: &str) -> (String, Bytes) {
        let RemoteRun { runner, job, .. } = run;
        let id = format!("{}-{}", self.session, self.jobs.fetch_add(1, Ordering::Relaxed));
        let mut context = WriteContext::first(&job.question, &runner.language, runner.settings.budget.tokens, job.seed);
        context.form = job.meta.form.unwrap_or(context.form);
        let draft = runner.orchestrator.draft(&context).await;
        let first = Drafted::of(draft, runner.orchestrator.fallback(&context));
        let message = Job {
            id: id.clone(),
            session: self.session.clone(),
            env: env.to_owned(),
            run_id: job.run_id.clone(),
            task_id: job.task_id.clone(),
            question: job.question.clone(),
            seed: job.seed,
            budget: runner.settings.budget,
            withhold: job.meta.withhold.clone(),
            form: job.meta.form,
            settings: RunSettings::from(&runner.settings),
            first,
            cached: runner.reply_cache.is_some(),
            reuse: runner.settings.reuse && runner.store.is_some(),
            shared: self.lenders.is_limited(),
        };
        // Our own plain types always serialise; were one not to, every worker would refuse the empty message.
        (id, written(&message).into())
    }

    /// Queues a job, however often it takes. The server drops what it has already.
    async fn publish(self: &Arc<Self>, job: &str, message: Bytes, cancel: &CancellationToken) {
        let mut headers = HeaderMap::new();
        headers.insert(NATS_MESSAGE_ID, job);
        headers.insert(VERSION_HEADER, VERSION);
        let message = loop {
            match self.blobs.fitted(&mut headers, message.clone()).await {
                Ok(message) => break message,
                Err(_) if cancel.is_cancelled() => return,
                // The server is away, as below.
                Err(_) => tokio::time::sleep(Duration::from_millis(500)).await,
            }
        };
        let subject = self.link.subject(&format!("jobs.{}.{}", self.priority, self.session));
        loop {
            let sent =
                self.link.jetstream.publish_with_headers(subject.clone(), headers.clone(), message.clone()).await;
            let queued = match sent {
                Ok(queued) => queued.await.is_ok(),
                Err(_) => false,
            };
            if queued || cancel.is_cancelled() {
                break;
            }
            // The server is away: it comes back, or the caller cancels.
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        self.wake();
    }

    /// Wakes idle workers soon: once for all jobs that are queued meanwhile.
    fn wake(self: &Arc<Self>) {
        if self.waking.swap(true, Ordering::SeqCst) {
            return;
        }
        let shared = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(WAKE_AFTER).await;
            shared.waking.store(false, Ordering::SeqCst);
            // A worker that misses it looks for jobs by itself a little later.
            let _ = shared.link.client.publish(shared.link.subject("wake"), Bytes::new()).await;
        });
    }

    async fn listen(self: Arc<Self>, mut messages: async_nats::Subscriber, what: Listen) {
        loop {
            let message = tokio::select! {
                () = self.end.cancelled() => return,
                message = messages.next() => message,
            };
            let Some(message) = message else { return };
            match what {
                Listen::Done if object_of(message.headers.as_ref()).is_some() => {
                    let shared = self.clone();
                    // Its object takes a while.
                    tokio::spawn(async move { shared.done(message).await });
                }
                Listen::Done => self.done(message).await,
                Listen::Dead => self.bury(message).await,
                Listen::Ask => {
                    let shared = self.clone();
                    // Some wait for another job.
                    tokio::spawn(async move { shared.answer(message).await });
                }
            }
        }
    }

    /// Answers a question. A worker that hears nothing asks again.
    async fn answer(&self, message: async_nats::Message) {
        let Some(to) = message.reply else { return };
        let answer = match self.blobs.body(message.headers.as_ref(), message.payload).await {
            Ok(body) => asks::answer(self, &body).await,
            Err(error) => Answer::Refused(error.to_string()),
        };
        let mut headers = HeaderMap::new();
        if let Ok(answer) = self.blobs.fitted(&mut headers, written(&answer).into()).await {
            let _ = self.link.client.publish_with_headers(to, headers, answer).await;
        }
    }

    /// Takes a result. One that is not waited for came before, or its caller has gone.
    async fn done(&self, message: async_nats::Message) {
        let headers = message.headers.as_ref();
        let job = headers.and_then(|headers| headers.get(JOB_HEADER)).map(|job| job.as_str().to_owned());
        let object = object_of(headers).map(str::to_owned);
        let mut result = None;
        if let Some(job) = job.filter(|job| self.pending().contains_key(job)) {
            match self.blobs.body(headers, message.payload).await {
                Ok(body) => result = self.pending().remove(&job).map(|pending| (pending, body)),
                // A worker that hears nothing sends it again, and its object with it.
                Err(_) => return,
            }
        }
        if let Some(reply) = message.reply {
            // As above.
            let _ = self.link.client.publish(reply, Bytes::from_static(b"+")).await;
        }
        if let Some((pending, body)) = result {
            // The caller has gone: nothing is lost, since it wants nothing.
            let _ = pending.result.send(End::Done(body));
            if let Some(object) = object {
                self.blobs.remove(&object).await;
            }
        }
    }

    /// Notes a job that no worker could make.
    async fn bury(&self, message: async_nats::Message) {
        if let Ok(letter) = serde_json::from_slice::<Letter>(&message.payload)
            && let Some(pending) = self.pending().remove(&letter.job)
        {
            let Letter { task_id, tries, error, .. } = letter;
            let dead = DeadJob { task_id, tries: u32::try_from(tries).unwrap_or(0), error };
            self.dead.lock().unwrap_or_else(PoisonError::into_inner).push(dead);
            // A run that is not waited for any more needs no end.
            let _ = pending.result.send(End::Dead);
        }
        if let Some(reply) = message.reply {
            // A worker that hears nothing says it again.
            let _ = self.link.client.publish(reply, Bytes::from_static(b"+")).await;
        }
    }

    /// Ends when the run is cancelled and its result is not to be expected.
    async fn drained(self: &Arc<Self>, cancel: &CancellationToken) {
        cancel.cancelled().await;
        if !self.draining.swap(true, Ordering::SeqCst) {
            tokio::spawn(self.clone().drain());
        }
        tokio::time::sleep(DRAIN).await;
    }

    /// Forgets the jobs that are queued, and ends those that run: their results come as far as they got.
    async fn drain(self: Arc<Self>) {
        let all = self.pending().values().all(|pending| pending.cancel.is_cancelled());
        if all && let Ok(queued) = self.forget_queued().await {
            // A worker that does not hear it finishes its run; the result is not waited for longer than `DRAIN`.
            let _ = self.link.client.publish(self.subject("cancel"), Bytes::new()).await;
            let deadline = tokio::time::Instant::now() + DRAIN;
            while self.pending().len() as u64 > queued && tokio::time::Instant::now() < deadline {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            for (_, pending) in self.pending().drain() {
                // As above: nothing waits for it any more.
                let _ = pending.result.send(End::Forgotten);
            }
        }
        self.draining.store(false, Ordering::SeqCst);
    }

    /// Removes the jobs of this coordinator that no worker has yet. Returns how many there were.
    async fn forget_queued(&self) -> Result<u64, ClusterError> {
        let filter = self.link.subject(&format!("jobs.*.{}", self.session));
        let purged = self.link.jobs().await?.purge().filter(filter).await.map_err(jetstream)?;
        Ok(purged.purged)
    }

    async fn say_alive(&self) -> Result<(), ClusterError> {
        let alive = self.link.alive().await?;
        let told = serde_json::json!({"at_ms": unix_ms(), "priority": self.priority, "waiting": self.pending().len()});
        alive.put(format!("session.{}", self.session), told.to_string().into()).await.map_err(jetstream)?;
        Ok(())
    }

    /// Puts back what the server has lost of this coordinator: what environments are made of, and jobs that are objects. `false`: it
    /// is of another process.
    pub async fn put_back(&self, object: &str) -> Result<bool, ClusterError> {
        if self.blobs.put_back(object).await? {
            return Ok(true);
        }
        let is_it = |message: &Bytes| blake3::hash(message).to_hex().as_str() == object;
        let Some((_, message, _)) = self.waiting().into_iter().find(|(_, message, _)| is_it(message)) else {
            return Ok(false);
        };
        self.blobs.fitted(&mut HeaderMap::new(), message).await.map(|_| true)
    }

    /// The jobs that have no result yet, as messages.
    fn waiting(&self) -> Vec<(String, Bytes, CancellationToken)> {
        let job = |(job, pending): (&String, &Pending)| (job.clone(), pending.message.clone(), pending.cancel.clone());
        self.pending().iter().map(job).collect()
    }

    /// Says that this coordinator is alive, and queues its jobs again where the server has lost them.
    async fn keep_alive(self: Arc<Self>) {
        let created = |info: &async_nats::jetstream::stream::Info| info.created;
        let mut made = self.link.jobs().await.ok().map(|jobs| created(jobs.cached_info()));
        loop {
            tokio::select! {
                () = self.end.cancelled() => return,
                () = tokio::time::sleep(ALIVE / 10) => {}
            }
            self.lenders.forfeit_silent();
            // The server may be away: the next turn comes soon enough.
            if self.say_alive().await.is_err() {
                let _ = self.link.prepare().await;
                continue;
            }
            let Ok(jobs) = self.link.jobs().await else { continue };
            let now = created(jobs.cached_info());
            if made.is_some_and(|before| before != now) && self.link.prepare().await.is_ok() {
                for (job, message, cancel) in self.waiting() {
                    self.publish(&job, message, &cancel).await;
                }
            }
            made = Some(now);
        }
    }
}

/// A run that is not sent elsewhere: made in this process, with its workers.
async fn here(run: RemoteRun<'_>) -> Result<RemoteTrace, RolloutError> {
    let RemoteRun { runner, job, cancel } = run;
    let runner = Runner {
        backend: runner.backend.clone(),
        orchestrator: runner.orchestrator.clone(),
        language: runner.language.clone(),
        // The caller keeps the record.
        store: None,
        reply_cache: runner.reply_cache.clone(),
        reply_record: None,
        settings: runner.settings.clone(),
        on_delta: None,
    };
    let trace = runner.run(job, cancel, None).await?;
    let events = trace.events.iter().map(written).collect();
    Ok(RemoteTrace { trace, events, graded: None })
}

/// The trace of a result: its first line says what it is, each further line is an event.
pub(crate) fn read_trace(body: &[u8]) -> Result<RemoteTrace, String> {
    let text = std::str::from_utf8(body).map_err(|error| error.to_string())?;
    let mut lines = text.lines();
    let head: DoneHead =
        serde_json::from_str(lines.next().unwrap_or_default()).map_err(|error| format!("its head: {error}"))?;
    let lines: Vec<String> = lines.map(str::to_owned).collect();
    if lines.len() != head.events {
        return Err(format!("expected {} events, found {}", head.events, lines.len()));
    }
    let events = lines.iter().map(|line| serde_json::from_str(line)).collect::<Result<Vec<Event>, _>>();
    let mut events = events.map_err(|error| format!("an event: {error}"))?;
    if let Some(bits) = &head.bits {
        exact::restore(&mut events, bits);
    }
    Ok(RemoteTrace { trace: Trace { header: head.header, events }, events: lines, graded: head.graded })
}
