//! The one error type of this crate.

use lemon_baselines::BaselineError;
use lemon_cluster::ClusterError;
use lemon_eval::MethodError;
use lemon_eval::folder::FolderError;
use lemon_eval::questions::QuestionError;
use lemon_exec::RunError;
use lemon_exec::store::StoreError;
use lemon_rollout::RolloutError;
use lemon_sandbox::SandboxError;
use lemon_spec::{Rejection, explain};
use lemon_study::run::StudyError;
use lemon_task::{SetName, TaskError};
use lemon_train::TrainError;
use lemon_train::build::BuildError;
use lemon_train::by_recipe::RecipeTrainingError;
use lemon_workers::WorkersError;
use std::fmt::Display;

/// What stops a call of this crate. A team that fails at its task is no error: its trace says how it ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A text is no specification. The message names every fault and its place.
    #[error("the specification is not valid\n{}", explain(&.0.diagnostics, &.0.source, "specification", false).trim_end())]
    Spec(#[from] Rejection),
    /// A request cannot be carried out as it stands.
    #[error("{fact}")]
    Input {
        /// What was expected, what was found, and where.
        fact: String,
        /// What to do about it.
        hint: Option<String>,
    },
    /// Workers cannot be configured, found or loaded.
    #[error(transparent)]
    Workers(#[from] WorkersError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A run could not go on.
    #[error(transparent)]
    Run(#[from] RunError),
    /// A run could not be made or graded.
    #[error(transparent)]
    Rollout(#[from] RolloutError),
    /// A task set cannot be read.
    #[error(transparent)]
    Task(#[from] TaskError),
    /// Records of a task set cannot be read.
    #[error("{set}: {count} records cannot be read; the first is {file}, line {line}: {reason}")]
    Records {
        set: SetName,
        /// How many.
        count: usize,
        /// The file of the first.
        file: String,
        line: usize,
        /// What is wrong with it.
        reason: String,
    },
    /// A question with a check cannot be read or checked.
    #[error(transparent)]
    Question(#[from] QuestionError),
    /// The folder of an evaluation cannot be used.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// A method cannot be used.
    #[error(transparent)]
    Method(#[from] MethodError),
    /// A method could not learn, or what it learned cannot be used.
    #[error(transparent)]
    Baseline(#[from] BaselineError),
    /// Programs cannot be run here.
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    /// What training needs cannot be made.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// Other machines cannot be used.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// Training failed.
    #[error(transparent)]
    Train(#[from] RecipeTrainingError),
    /// A run of a study failed.
    #[error(transparent)]
    Study(Box<StudyError>),
}

impl From<StudyError> for Error {
    fn from(error: StudyError) -> Self {
        Error::Study(Box::new(error))
    }
}

impl Error {
    /// A request that cannot be carried out as it stands.
    pub fn input(fact: impl Display) -> Self {
        Error::Input { fact: fact.to_string(), hint: None }
    }

    /// Adds a hint to such an error.
    #[must_use]
    pub fn with_hint(self, hint: impl Display) -> Self {
        match self {
            Error::Input { fact, .. } => Error::Input { fact, hint: Some(hint.to_string()) },
            other => other,
        }
    }

    /// What to do about it, where that is known.
    pub fn hint(&self) -> Option<&str> {
        match self {
            Error::Input { hint, .. } => hint.as_deref(),
            Error::Workers(error) => error.hint.as_deref(),
            Error::Folder(error) => error.hint(),
            Error::Cluster(error) => error.hint(),
            Error::Question(error) => error.hint(),
            Error::Study(_) => Some("the runs that ended are in the file of runs; the same command makes the rest"),
            Error::Train(RecipeTrainingError::Train(TrainError::Keep(error))) => error.hint(),
            _ => None,
        }
    }
}
