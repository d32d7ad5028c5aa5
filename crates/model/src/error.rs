//! The error type of this crate.

use std::path::PathBuf;

/// What failed, and where.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// A file could not be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A file is not what it should be.
    #[error("{}: {fact}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        fact: String,
    },
    /// The grammar cannot be used.
    #[error("the grammar cannot be used: {0}")]
    Grammar(String),
    /// A text cannot be written under its grammar.
    #[error("token {at} of the text is not allowed by the grammar")]
    NotInGrammar {
        /// The position of the first token that is not allowed.
        at: usize,
    },
    /// A request, example or setting is invalid.
    #[error("{0}")]
    Request(String),
    /// The requested device is not available.
    #[error("{0}")]
    Device(String),
    /// A service that learns in place of this process failed.
    #[error("{fact}")]
    Service {
        /// What failed.
        fact: String,
        /// What to do about it.
        hint: Option<&'static str>,
    },
    /// The tensor library failed.
    #[error("the model failed: {0}")]
    Tensor(#[from] candle_core::Error),
}

impl PolicyError {
    /// What to do about it, where that is known.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            PolicyError::Service { hint, .. } => *hint,
            _ => None,
        }
    }
}
