//! What stops a caller. A run that fails is not among it: that is data.

use lemon_exec::RunError;
use lemon_exec::store::StoreError;
use lemon_sandbox::SandboxError;

/// A rollout that could not be made or graded.
#[derive(Debug, thiserror::Error)]
pub enum RolloutError {
    /// The runner stopped: nothing may go on that cannot be recorded.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A program could not be graded.
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    /// The tasks are not those that the batch began with.
    #[error("run {run_id} is on record with another question than task `{task}` has now: the tasks have changed")]
    OtherTask { run_id: String, task: String },
    /// Nothing writes a team for this task.
    #[error("`{0}` writes no team: it has no rule, and no orchestrator was given for it")]
    NoTeam(String),
    /// A counterfactual needs the plan of its base.
    #[error("a counterfactual needs a base that was run from a plan")]
    NoPlan,
    /// The machines that make the runs cannot be used.
    #[error("the cluster failed: {0}")]
    Remote(String),
    /// A run panicked: a defect of this program.
    #[error("a run broke off: {0}")]
    BrokeOff(String),
}
