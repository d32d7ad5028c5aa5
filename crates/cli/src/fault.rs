//! What goes wrong before or beside a run: a fact, a hint and an exit code, printed in one place.

use lemon_trace::visible;
use std::fmt::Display;

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
            E::Missing(_) => Some("run a task first, or say where the store is with --store"),
            E::NoSuchRun(_) => Some("`lemon trace list` shows the runs; `last` is the newest"),
            E::Ambiguous { .. } => Some("give more of its name"),
            E::Busy { .. } => Some("wait for that process, or end it, and try again"),
            E::WentOn(_) => Some("look at it with `lemon trace show`, and resume it again if it has not ended"),
            E::Foreign(_) | E::NoStore { .. } => Some("say where the store should be with --store"),
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

/// Refuses what is there but is no plain file: a folder cannot be read, a device may never end, and a pipe may never begin.
///
/// # Errors
/// It is not there, or is no plain file.
pub fn need_plain_file(path: &std::path::Path) -> Result<(), Fault> {
    let found = std::fs::metadata(path).map_err(|error| Fault::new(format!("{}: {error}", path.display())))?;
    let kind = match found.file_type() {
        kind if kind.is_file() => return Ok(()),
        kind if kind.is_dir() => "a folder",
        _ => "a device or a pipe",
    };
    let hint = "name a file; what a program writes can be put into one first";
    Err(Fault::new(format!("{} is {kind}; a plain file was expected", path.display())).hint(hint))
}

/// Reads a file of the user's. A byte order mark at its beginning, as some editors write it, is no part of the text.
///
/// # Errors
/// It is no plain file, cannot be read, or is not UTF-8.
pub fn read_file(path: &std::path::Path) -> Result<String, Fault> {
    need_plain_file(path)?;
    let bytes = std::fs::read(path).map_err(|error| Fault::new(format!("{}: {error}", path.display())))?;
    let text = String::from_utf8(bytes).map_err(|error| {
        Fault::new(format!("{} is not UTF-8: byte {} is wrong", path.display(), error.utf8_error().valid_up_to()))
    })?;
    Ok(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text))
}
