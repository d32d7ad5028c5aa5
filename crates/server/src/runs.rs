//! The runs that are under way: each has a log that any number of readers follow, from its beginning.

use crate::refusal::Refusal;
use futures::Stream;
use lemon_exec::store::Durable;
use lemon_exec::{Budget, Job};
use lemon_trace::{Event, Trace};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// What a reader of a run hears.
#[derive(Debug, Clone)]
pub enum LiveEvent {
    /// Something that is on record.
    Event(Arc<Event>),
    /// A piece of a reply that is being written. A retry of the agent makes its pieces so far void.
    Delta {
        agent: Arc<str>,
        /// The piece.
        text: Arc<str>,
    },
}

/// A run that this server has started or taken up.
pub struct LiveRun {
    id: String,
    question: String,
    model: String,
    budget: Budget,
    // Std mutexes: they are held for a push and never across an await.
    log: Mutex<Vec<LiveEvent>>,
    /// Counts the changes of log and end.
    changes: watch::Sender<u64>,
    end: OnceLock<Result<Arc<Trace>, Arc<str>>>,
    /// Whether there is an end, for those who wait for nothing else.
    ended: watch::Sender<bool>,
    /// Until it was waited for: that the run is on record.
    entered: Mutex<Option<Durable>>,
    cancel: CancellationToken,
    /// Set before the end, where the budget of a key ended it.
    quota: OnceLock<Refusal>,
}

impl LiveRun {
    pub(crate) fn new(job: &Job, model: String, budget: Budget, cancel: CancellationToken) -> Self {
        let (id, question) = (job.run_id.clone(), job.question.clone());
        let changes = watch::Sender::new(0);
        LiveRun {
            id,
            question,
            model,
            budget,
            log: Mutex::default(),
            changes,
            end: OnceLock::new(),
            ended: watch::Sender::new(false),
            entered: Mutex::default(),
            cancel,
            quota: OnceLock::new(),
        }
    }

    /// The name of the run, as in the store.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The task.
    pub fn question(&self) -> &str {
        &self.question
    }

    /// The model it was asked of: `lemon`, `lemon/NAME`.
    pub fn model(&self) -> &str {
        &self.model
    }

    /// What it may spend.
    pub fn budget(&self) -> Budget {
        self.budget
    }

    /// Ends the run early. What is finished stays on record.
    pub fn cancel(&self) {
        self.cancel.cancel();
    }

    /// Follows the run from its first event on.
    pub fn subscribe(self: &Arc<Self>) -> Subscription {
        Subscription { run: self.clone(), next: 0, changes: self.changes.subscribe() }
    }

    /// The events so far.
    pub fn events(&self) -> Vec<Event> {
        let log = self.log();
        let events = log.iter().filter_map(|entry| match entry {
            LiveEvent::Event(event) => Some((**event).clone()),
            LiveEvent::Delta { .. } => None,
        });
        events.collect()
    }

    /// How the run ended, if it has. The error is that of the store: whatever else goes wrong is part of the trace.
    pub fn end(&self) -> Option<&Result<Arc<Trace>, Arc<str>>> {
        self.end.get()
    }

    /// Waits for the end of the run.
    ///
    /// # Errors
    /// The store failed, or the run broke off.
    pub async fn finished(&self) -> Result<Arc<Trace>, Arc<str>> {
        // The sender lives as long as this.
        let _ = self.ended.subscribe().wait_for(|ended| *ended).await;
        self.end.get().cloned().unwrap_or_else(|| Err("the run broke off".into()))
    }

    /// Waits until the run is on record. Who is told of it can rely on it from then on, whatever becomes of this process.
    ///
    /// # Errors
    /// The store failed.
    pub async fn on_record(&self) -> Result<(), Refusal> {
        let entered = self.entered.lock().unwrap_or_else(PoisonError::into_inner).take();
        match entered {
            Some(entered) => Ok(entered.wait().await?),
            None => Ok(()),
        }
    }

    pub(crate) fn set_entered(&self, entered: Durable) {
        *self.entered.lock().unwrap_or_else(PoisonError::into_inner) = Some(entered);
    }

    /// That the budget of a key ended it, if it did.
    pub(crate) fn quota(&self) -> Option<&Refusal> {
        self.quota.get()
    }

    pub(crate) fn set_quota(&self, refusal: Refusal) {
        // It is met once.
        drop(self.quota.set(refusal));
    }

    pub(crate) fn push(&self, event: LiveEvent) {
        self.log().push(event);
        self.changes.send_modify(|count| *count += 1);
    }

    pub(crate) fn set_end(&self, end: Result<Arc<Trace>, Arc<str>>) {
        // A run ends once.
        if self.end.set(end).is_ok() {
            self.changes.send_modify(|count| *count += 1);
            self.ended.send_replace(true);
        }
    }

    fn log(&self) -> MutexGuard<'_, Vec<LiveEvent>> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A reader of one run.
pub struct Subscription {
    run: Arc<LiveRun>,
    next: usize,
    changes: watch::Receiver<u64>,
}

impl Subscription {
    /// What happens next. `None`: the run has ended, see [`LiveRun::end`].
    pub async fn next(&mut self) -> Option<LiveEvent> {
        loop {
            self.changes.borrow_and_update();
            // Before the log: what is pushed is pushed before the end.
            let ended = self.run.end.get().is_some();
            if let Some(event) = self.run.log().get(self.next).cloned() {
                self.next += 1;
                return Some(event);
            }
            if ended || self.changes.changed().await.is_err() {
                return None;
            }
        }
    }

    pub fn run(&self) -> &Arc<LiveRun> {
        &self.run
    }

    /// The same as a stream.
    pub fn into_stream(self) -> impl Stream<Item = LiveEvent> + Send {
        futures::stream::unfold(self, |mut reader| async move { Some((reader.next().await?, reader)) })
    }
}

/// The runs under way, by name.
#[derive(Default)]
pub struct LiveRuns {
    live: Mutex<HashMap<String, Arc<LiveRun>>>,
    /// How many there are, for those who wait until there are none.
    count: watch::Sender<usize>,
}

impl LiveRuns {
    /// The run of this name, if it is under way.
    pub fn get(&self, id: &str) -> Option<Arc<LiveRun>> {
        self.live().get(id).cloned()
    }

    /// All that are under way.
    pub fn all(&self) -> Vec<Arc<LiveRun>> {
        self.live().values().cloned().collect()
    }

    /// How many are under way.
    pub fn count(&self) -> usize {
        *self.count.borrow()
    }

    /// Waits until none is.
    pub async fn none_left(&self) {
        // The sender lives as long as this.
        let _ = self.count.subscribe().wait_for(|count| *count == 0).await;
    }

    /// Enters a run. `false`: so many are under way already, or it is.
    pub(crate) fn enter(&self, run: &Arc<LiveRun>, most: usize) -> bool {
        let mut live = self.live();
        if live.len() >= most || live.contains_key(&run.id) {
            return false;
        }
        live.insert(run.id.clone(), run.clone());
        self.count.send_replace(live.len());
        true
    }

    pub(crate) fn leave(&self, id: &str) {
        let mut live = self.live();
        live.remove(id);
        self.count.send_replace(live.len());
    }

    fn live(&self) -> MutexGuard<'_, HashMap<String, Arc<LiveRun>>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
