//! How training ended.

use crate::metrics::{BeforeAfter, Means};
use lemon_model::PolicyError;
use lemon_policy::KeepError;
use lemon_rollout::RolloutError;
use serde::Serialize;

/// What training came to.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Trained {
    /// Steps taken.
    pub steps: u64,
    /// Why it ended.
    pub end: End,
    /// Held-out tasks before the first step.
    pub before: Means,
    /// Held-out tasks after the last.
    pub after: Means,
    /// Worker tokens spent on rollouts.
    pub rollout_tokens: u64,
    /// Worker tokens spent on counterfactuals.
    pub credit_tokens: u64,
    /// Tokens that the policy wrote, scored and learned from.
    pub policy_tokens: u64,
    /// Steps whose update was skipped because a number was not finite.
    pub skipped: u64,
    /// Some of the held-out tasks with their teams before and after.
    pub teams: Vec<BeforeAfter>,
}

/// Why training ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// All steps were taken.
    Steps,
    /// The worker tokens were spent.
    WorkerTokens,
    /// It was cancelled; it can be resumed.
    Stopped,
}

/// What can go wrong. The last checkpoint stays valid in every case.
#[derive(Debug, thiserror::Error)]
pub enum TrainError {
    /// The policy failed.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// The folder cannot be used.
    #[error(transparent)]
    Keep(#[from] KeepError),
    /// A run failed.
    #[error(transparent)]
    Eval(#[from] RolloutError),
    /// One of the two sets of tasks is empty.
    #[error("expected tasks to train on and tasks to evaluate on, got {train} and {held_out}")]
    Tasks {
        /// Tasks to train on.
        train: usize,
        /// Tasks to evaluate on.
        held_out: usize,
    },
    /// Workers that cost something are not asked for runs that are not counted.
    #[error("`credit.oracle` makes runs that are not counted: expected simulated workers, got `{workers}`")]
    Oracle {
        /// What they are called.
        workers: String,
    },
    /// Most runs of a step failed because their workers could not be reached.
    #[error("step {step}: workers could not be reached in {lost} of {runs} runs: {fact}")]
    WorkersGone {
        /// The step, which was not taken; 0: the first evaluation.
        step: u64,
        /// Runs without an outcome.
        lost: usize,
        /// Runs in all.
        runs: usize,
        /// The failure of one of the workers.
        fact: String,
    },
}
