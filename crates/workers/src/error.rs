//! What goes wrong while workers are configured, found, fetched or loaded.

use std::fmt::Display;

/// A fact, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{fact}")]
pub struct WorkersError {
    /// What was expected, what was found, and where.
    pub fact: String,
    /// What to do about it.
    pub hint: Option<String>,
    /// What failed.
    pub kind: WorkersErrorKind,
}

/// What failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkersErrorKind {
    /// A flag, a file or the configuration cannot be used.
    Input,
    /// A model cannot be loaded.
    Model,
    /// A server could not be reached, refused, or sent something else than was asked for.
    Download,
    /// A budget is used up.
    Budget,
}

impl WorkersError {
    /// An error in a flag, a file or the configuration.
    pub fn new(fact: impl Display) -> Self {
        WorkersError { fact: fact.to_string(), hint: None, kind: WorkersErrorKind::Input }
    }

    /// Adds a hint.
    #[must_use]
    pub fn hint(self, hint: impl Display) -> Self {
        WorkersError { hint: Some(hint.to_string()), ..self }
    }

    /// Sets what failed.
    #[must_use]
    pub fn kind(self, kind: WorkersErrorKind) -> Self {
        WorkersError { kind, ..self }
    }

    /// Says which capacity it is about.
    #[must_use]
    pub(crate) fn of_capacity(self, capacity: &str) -> Self {
        WorkersError { fact: format!("capacity `{capacity}`: {}", self.fact), ..self }
    }
}
