//! What goes wrong before or beside a run: a fact, a hint and an exit code, printed in one place.

use lemon_eval::folder::FolderError;
use lemon_rollout::RolloutError;
use lemon_sandbox::SandboxError;
use lemon_spec::diagnostic;
use lemon_trace::visible;
use lemon_workers::{WorkersError, WorkersErrorKind};
use serde_json::json;
use std::fmt::Display;
use std::path::Path;

/// Bad usage or unreadable input.
pub const USAGE: u8 = 2;

/// Something that keeps a command from doing its work.
#[derive(Debug)]
pub struct Fault {
    /// What is so.
    pub fact: String,
    /// What to do about it.
    pub hint: Option<String>,
    /// The exit code.
    pub code: u8,
}

impl Fault {
    /// A fact, for exit code 2.
    pub fn new(fact: impl Display) -> Self {
        Fault { fact: fact.to_string(), hint: None, code: USAGE }
    }

    /// Adds a hint.
    pub fn hint(self, hint: impl Display) -> Self {
        Fault { hint: Some(hint.to_string()), ..self }
    }

    /// Sets the exit code.
    pub fn code(self, code: u8) -> Self {
        Fault { code, ..self }
    }

    /// An error of the library. What is wrong with a specification is shown at once, as `lemon validate` shows it.
    pub fn of_spec(error: lemon::Error) -> Self {
        let lemon::Error::Spec(rejection) = error else { return error.into() };
        let color = console::colors_enabled_stderr();
        let shown = diagnostic::explain(&rejection.diagnostics, &rejection.source, "the specification", color);
        eprintln!("{}", shown.trim_end());
        Fault::new("the specification is not valid").hint("correct it; `lemon validate FILE` checks it")
    }

    /// It as JSON on one line, for scripts that asked for JSON.
    pub fn json(&self) -> String {
        json!({ "error": { "message": self.fact, "hint": self.hint } }).to_string()
    }

    /// Prints it to standard error.
    pub fn print(&self) {
        let style = console::Style::new().for_stderr();
        eprintln!("{}: {}", style.clone().red().bold().apply_to("error"), visible(&self.fact));
        if let Some(hint) = &self.hint {
            eprintln!("{}: {}", style.cyan().bold().apply_to("hint"), visible(hint));
        }
    }
}

impl From<lemon_exec::store::StoreError> for Fault {
    fn from(error: lemon_exec::store::StoreError) -> Self {
        use lemon_exec::store::StoreError as E;
        let hint = match &error {
            E::Missing(_) => Some("run a task first, or name the store with --store"),
            E::NoSuchRun(_) => Some("`lemon trace list` shows the runs; `last` is the newest"),
            E::Ambiguous { .. } => Some("give more of its name"),
            E::Busy { .. } => Some("wait for that process, or end it, and try again"),
            E::WentOn(_) => Some("see it with `lemon trace show`, and resume it again if it has not ended"),
            E::Foreign(_) | E::NoStore { .. } => Some("name another store with --store"),
            E::Newer { .. } => Some("use the newer program, or another store with --store"),
            E::Database(_) => None,
        };
        Fault { hint: hint.map(str::to_owned), ..Fault::new(&error) }
    }
}

impl From<lemon_exec::RunError> for Fault {
    fn from(error: lemon_exec::RunError) -> Self {
        match error {
            lemon_exec::RunError::Store(error) => error.into(),
            lemon_exec::RunError::NoJudge => Fault::new(error),
        }
    }
}

impl From<SandboxError> for Fault {
    /// Code that cannot be contained is not run.
    fn from(error: SandboxError) -> Self {
        let hint = match &error {
            SandboxError::Unavailable { .. } => {
                "--unsafe-no-sandbox runs the code all the same, on your own responsibility"
            }
            SandboxError::Python { .. } => "grading code needs Python 3",
            _ => return Fault::new(error),
        };
        Fault::new(error).hint(hint)
    }
}

impl From<RolloutError> for Fault {
    fn from(error: RolloutError) -> Self {
        match error {
            RolloutError::Sandbox(error) => error.into(),
            RolloutError::Store(error) => error.into(),
            RolloutError::Run(error) => error.into(),
            error @ RolloutError::OtherTask { .. } => {
                Fault::new(error).hint("go on with the tasks it began with, or begin a new evaluation")
            }
            RolloutError::NoTeam(_) | RolloutError::NoPlan | RolloutError::Remote(_) | RolloutError::BrokeOff(_) => {
                Fault::new(error)
            }
        }
    }
}

impl From<FolderError> for Fault {
    fn from(error: FolderError) -> Self {
        Fault { hint: error.hint().map(str::to_owned), ..Fault::new(error) }
    }
}

impl From<lemon::Error> for Fault {
    fn from(error: lemon::Error) -> Self {
        match error {
            lemon::Error::Workers(error) => error.into(),
            lemon::Error::Store(error) => error.into(),
            lemon::Error::Run(error) => error.into(),
            lemon::Error::Rollout(error) => error.into(),
            lemon::Error::Sandbox(error) => error.into(),
            error => Fault { hint: error.hint().map(str::to_owned), ..Fault::new(error) },
        }
    }
}

impl From<WorkersError> for Fault {
    fn from(error: WorkersError) -> Self {
        let WorkersError { fact, hint, kind } = error;
        let code = match kind {
            WorkersErrorKind::Input | WorkersErrorKind::Model => USAGE,
            WorkersErrorKind::Download | WorkersErrorKind::Budget => 1,
        };
        Fault { fact, hint, code }
    }
}

/// Reads a file of the user's.
///
/// # Errors
/// It is no plain file, cannot be read, or is not UTF-8.
pub fn read_file(path: &Path) -> Result<String, Fault> {
    Ok(lemon_workers::read_file(path)?)
}
