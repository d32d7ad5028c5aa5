//! Runs one question with one team.

use crate::builder::Lemon;
use crate::error::Error;
use futures::Stream;
use lemon_exec::store::RunMeta;
use lemon_exec::{Job, Observer, RunError, Runner, fresh_id};
use lemon_rollout::RolloutError;
use lemon_spec::Plan;
use lemon_trace::{Event, Header, Trace};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// A run that is under way: a stream of its events. Dropping it cancels the run.
pub struct Run {
    id: String,
    events: mpsc::UnboundedReceiver<Event>,
    task: JoinHandle<Result<Trace, RunError>>,
    cancel: CancellationToken,
}

impl Lemon {
    /// Runs a team on a question to its end, whatever that end is: see [`Trace::summary`].
    ///
    /// # Errors
    /// The orchestrator cannot be made, or the store failed.
    pub async fn run(&self, team: &Plan, question: &str) -> Result<Trace, Error> {
        self.start(team, question)?.finish().await
    }

    /// Lets the orchestrator write a team for a question, and runs it to its end.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub async fn ask(&self, question: &str) -> Result<Trace, Error> {
        self.start_without_team(question)?.finish().await
    }

    /// Starts a team on a question.
    ///
    /// # Errors
    /// The orchestrator of later rounds cannot be made.
    ///
    /// # Panics
    /// Outside a Tokio runtime.
    pub fn start(&self, team: &Plan, question: &str) -> Result<Run, Error> {
        self.spawn(Some(team.source()), question)
    }

    /// Starts a run whose team the orchestrator writes.
    ///
    /// # Errors
    /// The orchestrator cannot be made.
    ///
    /// # Panics
    /// Outside a Tokio runtime.
    pub fn start_without_team(&self, question: &str) -> Result<Run, Error> {
        self.spawn(None, question)
    }

    fn spawn(&self, spec: Option<&str>, question: &str) -> Result<Run, Error> {
        let runner = Runner {
            backend: self.workers.backend.clone(),
            orchestrator: self.workers.resolved.orchestrator(spec)?,
            language: self.workers.resolved.language.clone(),
            store: self.store.clone(),
            reply_cache: None,
            reply_record: None,
            settings: self.workers.settings.clone(),
            on_delta: None,
        };
        let id = format!("r-{}", fresh_id());
        let job = Job {
            run_id: id.clone(),
            task_id: id.clone(),
            question: question.to_owned(),
            seed: self.seed,
            meta: RunMeta { spec: spec.map(str::to_owned), budget: self.workers.settings.budget, ..RunMeta::default() },
        };
        let (sender, events) = mpsc::unbounded_channel();
        // The receiver may be gone: the trace has the event all the same.
        let observer: Observer = Arc::new(move |_: &Header, event: &Event| drop(sender.send(event.clone())));
        let cancel = CancellationToken::new();
        let token = cancel.clone();
        let task = tokio::spawn(async move { runner.run(&job, &token, Some(observer)).await });
        Ok(Run { id, events, task, cancel })
    }
}

impl Run {
    /// The name of the run, in its trace and in the store.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The next event. `None`: the run has ended.
    pub async fn next_event(&mut self) -> Option<Event> {
        self.events.recv().await
    }

    /// Ends the run early. What is finished stays in the trace.
    pub fn cancel(&self) {
        self.cancel.cancel();
    }

    /// Waits for the end of the run, and returns all of its events.
    ///
    /// # Errors
    /// The store failed.
    pub async fn finish(mut self) -> Result<Trace, Error> {
        match (&mut self.task).await {
            Ok(trace) => Ok(trace?),
            Err(error) => Err(RolloutError::BrokeOff(error.to_string()).into()),
        }
    }
}

impl Stream for Run {
    type Item = Event;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Event>> {
        self.events.poll_recv(context)
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}
