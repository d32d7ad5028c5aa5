use std::{io, path::PathBuf};

/// Why a program could not be run at all. It says nothing about the program.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SandboxError {
    /// This machine cannot do a part of the isolation, so nothing was run.
    #[error("untrusted code cannot be run here: {what} not available ({hint})")]
    Unavailable {
        /// The part that is missing.
        what: String,
        /// What the system said and what may help.
        hint: String,
    },
    /// There is no usable Python interpreter.
    #[error("the Python interpreter {} cannot be used: {reason}", path.display())]
    Python {
        /// The interpreter as it was asked for.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A system call on our own side failed.
    #[error("sandbox: cannot {doing}")]
    Io {
        /// What was being done.
        doing: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

impl SandboxError {
    /// For `map_err`: an [`Io`](Self::Io) with what was being done.
    #[cfg(unix)]
    pub(crate) fn io(doing: &'static str) -> impl Fn(io::Error) -> Self {
        move |source| Self::Io { doing, source }
    }
}
