//! One of the two processes of a run, isolated or not.

use std::os::fd::{BorrowedFd, RawFd};

use crate::{SandboxError, SandboxLimits, sandbox::Backend};

/// What to start.
pub(crate) struct Launch<'a> {
    /// Names and contents of the files it finds in its box; the first is the script to run.
    pub files: &'a [(&'a str, &'a str)],
    /// Its descriptors, numbered from 0. It has no others.
    pub fds: &'a [BorrowedFd<'a>],
    /// Shown as the last argument on its command line, so that an administrator can tell whose it is.
    pub label: &'a str,
    pub limits: &'a SandboxLimits,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Exited(i32),
    Signalled(i32),
}

/// A started process. Dropping it kills it with all its descendants, and waits until they are gone.
pub(crate) enum Process {
    #[cfg(target_os = "linux")]
    Isolated(crate::linux::Jail),
    Bare(crate::bare::Bare),
}

impl Process {
    pub fn start(backend: &Backend, launch: &Launch<'_>) -> Result<Self, SandboxError> {
        match backend {
            #[cfg(target_os = "linux")]
            Backend::Isolated(isolation) => isolation.start(launch).map(Self::Isolated),
            Backend::Bare(interpreter) => crate::bare::Bare::start(interpreter, launch).map(Self::Bare),
        }
    }

    /// How it ended, once it has. An error says that it never got as far as running the interpreter.
    pub fn ended(&mut self) -> Result<Option<End>, SandboxError> {
        match self {
            #[cfg(target_os = "linux")]
            Self::Isolated(jail) => jail.ended(),
            Self::Bare(bare) => bare.ended(),
        }
    }

    /// Readable when it ended, if there is such a thing; otherwise ask now and then.
    pub fn end_fd(&self) -> Option<RawFd> {
        match self {
            #[cfg(target_os = "linux")]
            Self::Isolated(jail) => jail.end_fd(),
            Self::Bare(_) => None,
        }
    }
}
