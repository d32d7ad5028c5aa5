//! One job, from the message to its acknowledgement.

use super::calls::Caller;
use super::{Node, Slot};
use crate::error::ClusterError;
use crate::exact;
use crate::objects::Blobs;
use crate::refusals::Refusals;
use crate::remote::{RemoteOrchestrator, RemoteRecord, RemoteReplies};
use crate::wire::{DoneHead, JOB_HEADER, Job, Letter, VERSION, VERSION_HEADER, written};
use async_nats::HeaderMap;
use async_nats::jetstream::{AckKind, Message};
use bytes::Bytes;
use lemon_exec::store::RunMeta;
use lemon_exec::{ReplyCache, ReplyRecord, Runner, unix_ms};
use lemon_rollout::Graded;
use lemon_trace::Trace;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The pause before a job is delivered again, twice as long each time.
const SHORTEST: Duration = Duration::from_millis(100);
/// How long the slot of a job that was refused waits, twice as long each time, and at most.
const REFUSAL: Duration = Duration::from_millis(250);
const LONGEST: Duration = Duration::from_secs(10);

/// Why a job has no result.
#[derive(Debug, Clone)]
pub(crate) enum Failure {
    /// It was tried and came to nothing; another try may.
    Failed(String),
    /// This worker cannot make it, however often; another may.
    Refused(String),
    /// Its result is not wanted any more.
    Unwanted,
}

impl Node {
    /// Makes a job and acknowledges it, or leaves it to another worker.
    pub(super) async fn handle(self: &Arc<Self>, message: Message, slot: Slot) {
        let job = match self.read(&message).await {
            Ok(job) => Arc::new(job),
            Err(Failure::Refused(why)) => return self.refuse(&message, None, why, slot).await,
            Err(Failure::Failed(error)) => return self.failed(&message, None, error).await,
            Err(Failure::Unwanted) => return self.acknowledge(&message, AckKind::Term).await,
        };
        if self.sessions.is_gone(&job.session).await {
            self.acknowledge(&message, AckKind::Term).await;
            return;
        }
        let tries = self.tries(&message).await;
        if tries > i64::from(self.options.tries) {
            let error = "workers that began it were not heard of again".to_owned();
            return self.give_up(&message, Some(&job), tries, error).await;
        }
        let making = {
            let (node, job) = (self.clone(), job.clone());
            tokio::spawn(async move { node.make(&job).await })
        };
        tokio::pin!(making);
        let made = loop {
            tokio::select! {
                made = &mut making => break made,
                () = tokio::time::sleep(self.link.ack_wait() / 3) => self.acknowledge(&message, AckKind::Progress).await,
            }
        };
        let made = made.unwrap_or_else(|error| Err(Failure::Failed(format!("this worker has a defect: {error}"))));
        let body = match made {
            Ok(body) => body,
            Err(Failure::Refused(why)) => return self.refuse(&message, Some(&job), why, slot).await,
            Err(Failure::Unwanted) => return self.acknowledge(&message, AckKind::Term).await,
            Err(Failure::Failed(error)) => return self.failed(&message, Some(&job), error).await,
        };
        self.refused.store(0, Ordering::Relaxed);
        // While the result is on its way, another job may be made.
        drop(slot);
        match self.deliver(&message, &job, body).await {
            Ok(()) => {
                self.done.fetch_add(1, Ordering::Relaxed);
                self.acknowledge(&message, AckKind::Ack).await;
            }
            // The coordinator is gone.
            Err(_) => self.acknowledge(&message, AckKind::Term).await,
        }
    }

    /// The job of a message, if it is of this version and understood.
    async fn read(&self, message: &Message) -> Result<Job, Failure> {
        let header = |name: &str| message.headers.as_ref().and_then(|headers| headers.get(name)).map(|it| it.as_str());
        let version = header(VERSION_HEADER).unwrap_or("unknown");
        if version != VERSION {
            return Err(Failure::Refused(format!("the job is of version {version}, this worker of {VERSION}")));
        }
        let session = session_of(message);
        if self.sessions.is_gone(session).await {
            return Err(Failure::Unwanted);
        }
        let body = Blobs::of(&self.sessions, session).body(message.headers.as_ref(), message.payload.clone()).await;
        let body = body.map_err(|error| Failure::Failed(error.to_string()))?;
        serde_json::from_slice(&body).map_err(|error| Failure::Failed(format!("the job is not understood: {error}")))
    }

    /// Makes the run of a job: the body of its result.
    async fn make(&self, job: &Job) -> Result<Vec<u8>, Failure> {
        let env = self.env(&job.env, &job.session).await.map_err(Failure::Refused)?;
        let caller = Caller::new(&self.sessions, &job.session, &job.id);
        let mut settings = job.settings.within(job.budget);
        settings.shared = job.shared.then(|| self.sessions.budget(&job.session, &self.id));
        let cached = || Arc::new(ReplyCache::in_front_of(Arc::new(RemoteReplies(caller.clone()))));
        let on_record = || -> Arc<dyn ReplyRecord> { Arc::new(RemoteRecord(caller.clone())) };
        let runner = Runner {
            backend: env.env.backend.clone(),
            orchestrator: Arc::new(RemoteOrchestrator::new(caller.clone(), job.first.clone())),
            language: env.env.language.clone(),
            store: None,
            reply_cache: job.cached.then(cached),
            reply_record: job.reuse.then(on_record),
            settings,
            on_delta: None,
        };
        let meta = RunMeta { withhold: job.withhold.clone(), form: job.form, ..RunMeta::default() };
        let run = lemon_exec::Job {
            run_id: job.run_id.clone(),
            task_id: job.task_id.clone(),
            question: job.question.clone(),
            seed: job.seed,
            meta,
        };
        let trace = runner.run(&run, caller.cancel(), None).await;
        caller.settled().await;
        if let Some(why) = caller.given_up() {
            return Err(why);
        }
        let trace = trace.map_err(|error| Failure::Failed(error.to_string()))?;
        let graded = match (env.cases.get(&job.task_id).cloned(), trace.summary().answer) {
            (Some(case), Some(answer)) => {
                // Programs take a moment.
                let graded = tokio::task::spawn_blocking(move || env.env.grader.grade(&case.item, &answer)).await;
                let graded = graded.map_err(|error| Failure::Failed(error.to_string()))?;
                Some(graded.map_err(|error| Failure::Failed(error.to_string()))?)
            }
            _ => None,
        };
        Ok(body(&job.id, trace, graded))
    }

    /// Sends a result until the coordinator has it.
    async fn deliver(&self, message: &Message, job: &Job, body: Vec<u8>) -> Result<(), ClusterError> {
        let mut headers = HeaderMap::new();
        headers.insert(JOB_HEADER, job.id.as_str());
        let send = self.sessions.send(&job.session, "done", headers, body.into());
        tokio::pin!(send);
        loop {
            tokio::select! {
                sent = &mut send => return sent.map(drop),
                () = tokio::time::sleep(self.link.ack_wait() / 3) => self.acknowledge(message, AckKind::Progress).await,
            }
        }
    }

    /// How often a job was tried, this time included. Only where it may be given up for that, it is asked how many of its deliveries
    /// were refused.
    async fn tries(&self, message: &Message) -> i64 {
        let delivered = message.info().map_or(1, |info| info.delivered);
        let most = i64::from(self.options.tries);
        // A job without a name is none of ours, and nothing is noted of it.
        if delivered < most || id_of(message).is_empty() {
            return delivered;
        }
        match Refusals::of(&self.link, id_of(message)).await {
            Ok(refusals) => delivered - refusals.count,
            // Not now: it comes again.
            Err(_) => delivered.min(most - 1),
        }
    }

    /// Leaves a job to another worker, or gives it up.
    async fn failed(&self, message: &Message, job: Option<&Job>, error: String) {
        self.failed.fetch_add(1, Ordering::Relaxed);
        let tries = self.tries(message).await;
        if tries >= i64::from(self.options.tries) {
            return self.give_up(message, job, tries, error).await;
        }
        self.acknowledge(message, AckKind::Nak(Some(pause(tries, SHORTEST)))).await;
    }

    /// Leaves a job to workers that can make it. It is given up if there are none.
    async fn refuse(&self, message: &Message, job: Option<&Job>, why: String, slot: Slot) {
        if id_of(message).is_empty() {
            return self.failed(message, job, why).await;
        }
        self.failed.fetch_add(1, Ordering::Relaxed);
        // Without a note the job comes again, when it is noted.
        if let Ok(refusals) = Refusals::add(&self.link, id_of(message), &self.id).await {
            let often = refusals.count >= i64::from(self.options.tries);
            if often && refusals.are_of_all(&self.link).await.unwrap_or(false) {
                return self.give_up(message, job, refusals.count, why).await;
            }
            self.acknowledge(message, AckKind::Nak(Some(pause(refusals.count, SHORTEST)))).await;
        }
        // A worker that only refuses is always idle, and would be the first to have the job again: its slot waits.
        let refused = self.refused.fetch_add(1, Ordering::Relaxed);
        tokio::spawn(async move {
            tokio::time::sleep(pause(i64::from(refused), REFUSAL).min(LONGEST)).await;
            drop(slot);
        });
    }

    /// Puts a job into the list of dead letters.
    async fn give_up(&self, message: &Message, job: Option<&Job>, tries: i64, error: String) {
        let session = session_of(message).to_owned();
        let letter = Letter {
            job: id_of(message).to_owned(),
            session: session.clone(),
            task_id: job.map(|job| job.task_id.clone()).unwrap_or_default(),
            run_id: job.map(|job| job.run_id.clone()).unwrap_or_default(),
            tries,
            error,
            node: self.options.name.clone(),
            at_ms: unix_ms(),
        };
        let body = Bytes::from(written(&letter));
        let kept = self.link.jetstream.publish(self.link.subject(&format!("dead.{session}")), body.clone()).await;
        if let Ok(kept) = kept
            && kept.await.is_ok()
            && (self.sessions.send(&session, "dead", HeaderMap::new(), body).await.is_ok()
                || self.sessions.is_gone(&session).await)
        {
            self.dead.fetch_add(1, Ordering::Relaxed);
            self.acknowledge(message, AckKind::Term).await;
        }
        // Else it comes again, and is given up then.
    }

    async fn acknowledge(&self, message: &Message, kind: AckKind) {
        // An acknowledgement that is lost brings the job again: it is made again, and its result is dropped.
        let _ = message.ack_with(kind).await;
    }
}

/// The coordinator of a job: its subject names it, whatever the job itself says.
fn session_of(message: &Message) -> &str {
    message.subject.rsplit('.').next().unwrap_or_default()
}

/// The name of a job, whatever its body says.
fn id_of(message: &Message) -> &str {
    let id = message.headers.as_ref().and_then(|headers| headers.get(async_nats::header::NATS_MESSAGE_ID));
    id.map(|id| id.as_str()).unwrap_or_default()
}

/// A pause that doubles each time, up to 64 times the first.
fn pause(times: i64, first: Duration) -> Duration {
    first * (1 << times.clamp(0, 6))
}

/// A result: a line that says what it is, and a line for each event.
fn body(job: &str, trace: Trace, graded: Option<Graded>) -> Vec<u8> {
    let Trace { header, mut events } = trace;
    // Our own plain types always serialise; were one not to, the coordinator would refuse the result.
    let lines: Vec<String> = events.iter().map(written).collect();
    let bits = exact::bits(&mut events, &lines);
    let head = DoneHead { job: job.to_owned(), header, events: lines.len(), graded, bits };
    let mut body = written(&head).into_bytes();
    for line in lines {
        body.push(b'\n');
        body.extend_from_slice(line.as_bytes());
    }
    body
}
