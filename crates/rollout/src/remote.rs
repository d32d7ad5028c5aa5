//! Runs that other machines make.

use crate::error::RolloutError;
use crate::grader::Graded;
use async_trait::async_trait;
use lemon_exec::{Job, Runner};
use lemon_trace::Trace;
use tokio_util::sync::CancellationToken;

/// Machines that make runs. What a run comes to must not depend on which of them makes it.
#[async_trait]
pub trait RemoteRuns: Send + Sync {
    /// Makes a run. `None`: it was cancelled before it began.
    ///
    /// # Errors
    /// The machines cannot be used, or none of them can make this run.
    async fn run(&self, run: RemoteRun<'_>) -> Result<Option<RemoteTrace>, RolloutError>;
}

/// A run to be made elsewhere.
pub struct RemoteRun<'a> {
    /// How this process would make it. Its workers, its language and its store stay here; its orchestrator may be asked for
    /// each round, and its reply cache for each call.
    pub runner: &'a Runner,
    /// The task.
    pub job: &'a Job,
    /// Ends it early.
    pub cancel: &'a CancellationToken,
}

/// A run that was made elsewhere.
pub struct RemoteTrace {
    /// What happened.
    pub trace: Trace,
    /// The events of the trace as JSON, as they came.
    pub events: Vec<String>,
    /// How its answer was graded there, if it is a program.
    pub graded: Option<Graded>,
}
