//! What runs have in common, and how one begins, is taken up again and ends.

use crate::driver::Run;
use crate::orchestrator::Orchestrator;
use crate::recorder::{Observer, Recorder};
use crate::reply_cache::{ReplyCache, ReplyRecord};
use crate::resume::replay;
use crate::settings::Settings;
use crate::state::RunState;
use crate::store::{Durable, RunMeta, Store, StoreError};
use crate::unix_ms;
use crate::worker::Backend;
use lemon_spec::Language;
use lemon_trace::{Header, StopReason, Trace, VERSION};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Runs teams: everything runs have in common.
pub struct Runner {
    /// The workers.
    pub backend: Backend,
    /// Writes the team.
    pub orchestrator: Arc<dyn Orchestrator>,
    /// What a specification may say.
    pub language: Arc<Language>,
    /// Where everything is kept; without one, nothing is.
    pub store: Option<Arc<Store>>,
    /// Replies that these runs share, whatever the settings say about those on record.
    pub reply_cache: Option<Arc<ReplyCache>>,
    /// Replies on record in another process, in place of those of the store.
    pub reply_record: Option<Arc<dyn ReplyRecord>>,
    /// How runs are carried out.
    pub settings: Settings,
    /// Receives each piece of a reply as it arrives.
    pub on_delta: Option<OnDelta>,
}

/// Receives each piece of a reply as it arrives: the run, the agent that replies (or [`lemon_trace::ORCHESTRATOR`]), the piece.
///
/// It must not block. A [`lemon_trace::EventKind::Retry`] of the agent means that the pieces so far are void. See [`crate::worker::Progress`].
pub type OnDelta = Arc<dyn Fn(&Header, &str, &str) + Send + Sync>;

/// One task to run.
#[derive(Debug, Clone, Default)]
pub struct Job {
    /// The name of the run.
    pub run_id: String,
    /// The name of the task.
    pub task_id: String,
    /// The task.
    pub question: String,
    /// The seed of every random choice.
    pub seed: u64,
    /// What is needed to take the run up again.
    pub meta: RunMeta,
}

/// A run that could not go on. Whatever else goes wrong is part of the trace.
#[derive(Debug, Clone, thiserror::Error)]
pub enum RunError {
    /// Nothing may go on that cannot be recorded.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The role library has no `judge`, which aggregation needs.
    #[error("the role library has no base role `judge`")]
    NoJudge,
}

impl Runner {
    /// Runs a task to its end, whatever that end is.
    ///
    /// # Errors
    /// The store failed.
    pub async fn run(
        &self,
        job: &Job,
        cancel: &CancellationToken,
        observer: Option<Observer>,
    ) -> Result<Trace, RunError> {
        // Not waited for: the first decision is, and it comes after it.
        let (begun, _) = self.enter(job)?;
        self.run_entered(begun, &job.meta, cancel, observer).await
    }

    /// Puts on record that a run begins, for [`Runner::run_entered`]. Who is told of the run before it ends waits for the result:
    /// a run that was told of is on record, whatever becomes of this process.
    ///
    /// # Errors
    /// The store failed.
    pub fn enter(&self, job: &Job) -> Result<(Trace, Durable), RunError> {
        let header = Header {
            version: VERSION,
            run_id: job.run_id.clone(),
            task_id: job.task_id.clone(),
            question: job.question.clone(),
            started_at_ms: unix_ms(),
            seed: job.seed,
            workers: self.backend.name.clone(),
        };
        let entered = match &self.store {
            Some(store) => store.begin_run(&header, &job.meta)?,
            None => Durable::already(),
        };
        Ok((Trace { header, events: Vec::new() }, entered))
    }

    /// Runs a task that was entered, to its end.
    ///
    /// # Errors
    /// The store failed.
    pub async fn run_entered(
        &self,
        begun: Trace,
        meta: &RunMeta,
        cancel: &CancellationToken,
        observer: Option<Observer>,
    ) -> Result<Trace, RunError> {
        self.run_from(begun, false, meta, cancel, observer, None).await
    }

    /// Takes a run up where its events end. A run that has answered is left as it is.
    ///
    /// # Errors
    /// The store failed, or another process has the run or went on with it since the trace was read.
    pub async fn resume(
        &self,
        trace: Trace,
        meta: &RunMeta,
        cancel: &CancellationToken,
        observer: Option<Observer>,
    ) -> Result<Trace, RunError> {
        let summary = trace.summary();
        if summary.stop_reason == Some(StopReason::Answered) {
            // The process may have died between the last event and this entry.
            if let Some(store) = &self.store {
                store.finish_run(&trace.header.run_id, &summary).wait().await?;
            }
            return Ok(trace);
        }
        self.run_from(trace, true, meta, cancel, observer, None).await
    }

    /// Takes a run up where its events end; `going_on` names the agent that goes on, where that is all that is left to do.
    pub(crate) async fn run_from(
        &self,
        trace: Trace,
        resumed: bool,
        meta: &RunMeta,
        cancel: &CancellationToken,
        observer: Option<Observer>,
        going_on: Option<&str>,
    ) -> Result<Trace, RunError> {
        let judge_role = self.language.roles.get("judge").ok_or(RunError::NoJudge)?.clone();
        let mut state = RunState::new(&trace.header.question, self.settings.on_parent_failure, judge_role)
            .with_styles(&self.backend.levels);
        if let Some(form) = meta.form {
            state = state.with_form(form);
        }
        meta.withhold.iter().for_each(|(from, to)| state.withhold(from, to));
        match &self.store {
            // Waited for: another process may take it up at the same time, and only one of them may make calls.
            Some(store) if resumed => store.take_up(&trace, meta)?.wait().await?,
            _ => {}
        }
        let replayed =
            (!trace.events.is_empty()).then(|| replay(&trace, &mut state, &self.language, &self.backend.levels));
        let run =
            Run::new(self, Recorder::new(trace, self.backend.clock, self.store.clone(), observer), &meta.withhold);
        if let Some(replayed) = replayed {
            run.enter(replayed);
        }
        match going_on {
            None => run.drive(&mut state, cancel).await?,
            Some(agent) => run.go_on(&mut state, agent, cancel).await?,
        }
        let unsettled = run.unsettled();
        let trace = run.recorder.finish();
        if let Some(store) = &self.store {
            // Sent before the end of the run is waited for, so that both are one commit.
            let finished = store.finish_run(&trace.header.run_id, &trace.summary());
            for record in unsettled {
                record.wait().await?;
            }
            finished.wait().await?;
        }
        Ok(trace)
    }
}
