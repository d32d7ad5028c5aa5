//! Finds the interpreter, and what it needs from the file system.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::SandboxError;

/// A Python interpreter that exists.
#[derive(Debug, Clone)]
#[cfg_attr(not(unix), expect(dead_code, reason = "nothing can be run there"))]
pub(crate) struct Interpreter {
    /// The program itself: no shim, no virtual environment, no link.
    pub executable: PathBuf,
}

/// Isolated from the environment, no site-packages, no bytecode written, UTF-8 whatever the locale.
#[cfg(unix)]
pub(crate) const FLAGS: [&str; 5] = ["-I", "-S", "-B", "-X", "utf8"];

impl Interpreter {
    /// Asks `python`, which may be a name to look up or a shim, what it really is.
    pub fn find(python: &Path) -> Result<Self, SandboxError> {
        const WHO: &str = "import os, sys; assert sys.version_info >= (3, 8), 'Python 3.8 or later is needed'; \
                           print(os.path.realpath(getattr(sys, '_base_executable', None) or sys.executable))";
        let told = ask(python, python, &["-I", "-c", WHO], false)?;
        let executable = PathBuf::from(told.trim());
        if !executable.is_absolute() {
            return Err(unusable(python, format!("it does not know where it is: {:?}", told.trim())));
        }
        Ok(Self { executable })
    }

    /// The files and directories it needs: itself, the standard library, and the directories of the shared libraries
    /// that it and its extension modules load.
    #[cfg(target_os = "linux")]
    pub fn needs(&self) -> Result<Vec<PathBuf>, SandboxError> {
        let args = [FLAGS.as_slice(), &["-c", include_str!("py/explore.py")]].concat();
        let told = ask(&self.executable, &self.executable, &args, true)?;
        Ok(told.lines().filter(|line| line.starts_with('/')).map(PathBuf::from).collect())
    }
}

fn ask(asked_for: &Path, python: &Path, args: &[&str], clean: bool) -> Result<String, SandboxError> {
    let mut command = Command::new(python);
    if clean {
        command.env_clear();
    }
    let output = command
        .args(args)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| unusable(asked_for, format!("it does not start: {error}")))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let last = said.lines().last().unwrap_or_default();
        return Err(unusable(asked_for, format!("it ended with {}: {last}", output.status)));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn unusable(path: &Path, reason: String) -> SandboxError {
    SandboxError::Python { path: path.to_owned(), reason }
}
