//! What can go wrong.

use lemon_rollout::RolloutError;
use std::path::PathBuf;

/// Why a baseline could not learn, design or be kept.
#[derive(Debug, thiserror::Error)]
pub enum BaselineError {
    /// A run failed, as the store or the sandbox did.
    #[error(transparent)]
    Rollout(#[from] RolloutError),
    /// A tensor operation failed.
    #[error("a tensor operation failed: {0}")]
    Tensor(#[from] candle_core::Error),
    /// A text has no embedding.
    #[error("a text cannot be encoded: {0}")]
    Encoder(String),
    /// A file cannot be used.
    #[error("{}: {}", .0.display(), .1)]
    File(PathBuf, String),
    /// There is nothing to learn from, or what was learned does not fit what it is used for.
    #[error("{0}")]
    Unfit(String),
}
