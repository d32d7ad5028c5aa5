//! What goes wrong with a tool.

use std::fmt::Display;

/// Why a call has no result. It costs one call and never the run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ToolError {
    /// What failed.
    pub kind: ToolErrorKind,
    /// What was expected, what was found, and where. Control characters are replaced.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
}

/// What failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ToolErrorKind {
    /// The configuration cannot be used.
    Configuration,
    /// There is no tool of this name.
    UnknownTool,
    /// The arguments do not match the tool's schema.
    InvalidArguments,
    /// The tool cannot be reached: its server does not start or does not answer, or this machine has no sandbox.
    Unavailable,
    /// The call took longer than it may.
    Timeout,
    /// The server sent more than it may.
    TooLarge,
    /// The connection ended while the call was under way.
    Died,
    /// The server sent something that the protocol or its own schema does not allow.
    Protocol,
    /// The tool ran and says that it failed. The message is what it says.
    Failed,
}

/// Whether a failed call took effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallEffect {
    /// The tool was never asked.
    None,
    /// The tool was asked, and it is not known what it did. Only an idempotent call may be made again.
    Unknown,
    /// The tool ran.
    Done,
}

impl ToolErrorKind {
    /// Its name in events and JSON.
    pub fn name(self) -> &'static str {
        match self {
            ToolErrorKind::Configuration => "configuration",
            ToolErrorKind::UnknownTool => "unknown_tool",
            ToolErrorKind::InvalidArguments => "invalid_arguments",
            ToolErrorKind::Unavailable => "unavailable",
            ToolErrorKind::Timeout => "timeout",
            ToolErrorKind::TooLarge => "too_large",
            ToolErrorKind::Died => "died",
            ToolErrorKind::Protocol => "protocol",
            ToolErrorKind::Failed => "failed",
        }
    }

    /// Whether a call that failed so took effect.
    pub fn effect(self) -> CallEffect {
        use ToolErrorKind::*;
        match self {
            Configuration | UnknownTool | InvalidArguments | Unavailable => CallEffect::None,
            Timeout | TooLarge | Died | Protocol => CallEffect::Unknown,
            Failed => CallEffect::Done,
        }
    }
}

impl ToolError {
    /// An error without a hint. Text of others must have gone through [`clean`](crate::clean()) before.
    pub fn new(kind: ToolErrorKind, message: impl Display) -> Self {
        ToolError { kind, message: message.to_string(), hint: None }
    }

    /// Adds a hint.
    #[must_use]
    pub fn hint(self, hint: impl Display) -> Self {
        ToolError { hint: Some(hint.to_string()), ..self }
    }
}
