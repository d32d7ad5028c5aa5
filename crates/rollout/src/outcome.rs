//! What a run came to, and which failures leave that unknown.

use crate::reward::{Channels, Grades};
use lemon_trace::{Failure, FailureKind, StopReason, Summary};
use std::fmt;

/// What a run came to.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// Its answer was graded and its reward measured.
    Scored(Score),
    /// The run says nothing about the team: missing data, not a wrong answer.
    Unknown(UnknownReason),
}

/// A graded run.
#[derive(Debug, Clone, PartialEq)]
pub struct Score {
    /// Whether the answer is right.
    pub right: bool,
    /// The total reward; `None` where a term it needs could not be measured.
    pub reward: Option<f64>,
    /// The reward, term by term.
    pub channels: Channels,
    /// The grades it was measured from.
    pub grades: Grades,
    /// Tokens of all agents' replies, reused or not: what the team costs, not what this run spent.
    pub tokens: u64,
    /// The same in tokens of the weakest capacity.
    pub cost: f64,
}

/// Why nothing is known of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UnknownReason {
    /// It was cancelled, or never begun.
    Cancelled,
    /// The orchestrator failed before there was a team.
    OrchestratorFailed,
    /// A worker did not reply, which says nothing about the team.
    WorkerFailed(Failure),
    /// Its answer is a program, and there is no sandbox to run it in.
    NotGradable,
    /// The reward is not a finite number.
    NotMeasured,
}

/// What the failure of a call says about the team.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureMeaning {
    /// Nothing: the outcome of the run is unknown.
    MissingData,
    /// The team failed: the run is graded by the answer it has, or as wrong.
    Wrong,
}

/// The one classification of failures.
///
/// What an endpoint or the recording did not deliver is missing data. What a model said, what the request asked for and what
/// the budget allowed belongs to the team.
pub fn meaning_of(kind: FailureKind) -> FailureMeaning {
    match kind {
        FailureKind::Unreachable
        | FailureKind::Timeout
        | FailureKind::RateLimited
        | FailureKind::ServerError
        | FailureKind::Loading
        | FailureKind::Unauthorized
        | FailureKind::CutShort
        | FailureKind::NotRecorded
        | FailureKind::Cancelled
        | FailureKind::Orchestrator => FailureMeaning::MissingData,
        FailureKind::Refused
        | FailureKind::SchemaRefused
        | FailureKind::Malformed
        | FailureKind::Empty
        | FailureKind::Truncated
        | FailureKind::ParentFailed
        | FailureKind::Program
        | FailureKind::Budget => FailureMeaning::Wrong,
    }
}

impl UnknownReason {
    /// Why the outcome of a run is unknown whatever its answer is. `None`: it can be graded.
    pub fn of(summary: &Summary) -> Option<UnknownReason> {
        if summary.stop_reason.is_none_or(|reason| reason == StopReason::Cancelled) {
            return Some(UnknownReason::Cancelled);
        }
        if summary.stop_reason == Some(StopReason::OrchestratorFailed) {
            return Some(UnknownReason::OrchestratorFailed);
        }
        let failures = summary.agents.iter().filter_map(|agent| agent.failure.as_ref());
        let missing = |failure: &&Failure| meaning_of(failure.kind) == FailureMeaning::MissingData;
        failures.into_iter().find(missing).cloned().map(UnknownReason::WorkerFailed)
    }
}

impl Outcome {
    /// The score, if it is known.
    pub fn score(&self) -> Option<&Score> {
        match self {
            Outcome::Scored(score) => Some(score),
            Outcome::Unknown(_) => None,
        }
    }

    /// Why it is unknown, if it is.
    pub fn unknown(&self) -> Option<&UnknownReason> {
        match self {
            Outcome::Scored(_) => None,
            Outcome::Unknown(reason) => Some(reason),
        }
    }
}

impl Score {
    /// 1 if the answer is right, else 0.
    pub fn success(&self) -> f64 {
        f64::from(u8::from(self.right))
    }
}

impl fmt::Display for UnknownReason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UnknownReason::Cancelled => formatter.write_str("the run was cancelled"),
            UnknownReason::OrchestratorFailed => formatter.write_str("the orchestrator failed"),
            UnknownReason::WorkerFailed(failure) => write!(formatter, "a worker failed: {}", failure.message),
            UnknownReason::NotGradable => formatter.write_str("the answer is a program and there is no sandbox"),
            UnknownReason::NotMeasured => formatter.write_str("the reward is not a finite number"),
        }
    }
}
