//! What is kept of a training run: the last two checkpoints, each of which appears whole or not at all and is checked when it is
//! read, and one line of metrics for each step. One process at a time writes into the folder of a run.

mod sums;
#[cfg(test)]
mod tests;

use lemon_model::PolicyError;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs::{self, File, TryLockError};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

/// The folder of a run, which is locked as long as this lives.
pub struct Checkpoints {
    folder: PathBuf,
    /// The system lets go of it however the process dies. None where the system cannot lock files.
    _lock: Option<File>,
}

/// A folder that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeepError {
    /// A file could not be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The folder holds something else.
    #[error("{}: {fact}", path.display())]
    OtherRun {
        /// The folder.
        path: PathBuf,
        /// What is different.
        fact: String,
    },
    /// Another process is at work in the folder.
    #[error("another process is training in {}", path.display())]
    Busy {
        /// The folder.
        path: PathBuf,
    },
    /// The folder holds files of others.
    #[error("{} is no folder of a training run: it holds {found} and no run.json", path.display())]
    Foreign {
        /// The folder.
        path: PathBuf,
        /// One of the files.
        found: String,
    },
    /// No checkpoint can be used.
    #[error("no checkpoint in {} can be used: {fact}", path.display())]
    Damaged {
        /// The folder.
        path: PathBuf,
        /// What is wrong with each.
        fact: String,
    },
    /// A value has no JSON form.
    #[error("the record of the run cannot be written as JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// The policy could not be saved or loaded.
    #[error(transparent)]
    Policy(#[from] PolicyError),
}

impl KeepError {
    /// What to do about it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            KeepError::Busy { .. } => Some("wait for that process, or end it, and try again"),
            KeepError::Foreign { .. } => Some("name an empty folder, a new one, or that of a run"),
            KeepError::Damaged { .. } => Some("begin again in another folder, or bring a copy of a checkpoint back"),
            KeepError::OtherRun { .. } | KeepError::File { .. } | KeepError::Json(_) | KeepError::Policy(_) => None,
        }
    }
}

/// Whether a run may be begun or taken up in this folder: it is not there, it is empty, or it is that of a run.
///
/// # Errors
/// It holds something else, or cannot be read.
pub fn check_folder(folder: &Path) -> Result<(), KeepError> {
    if folder.join(RUN).exists() {
        return Ok(());
    }
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(at(folder))?,
    };
    for entry in entries {
        let found = entry.map_err(at(folder))?.file_name().to_string_lossy().into_owned();
        if !BEFORE.contains(&found.as_str()) {
            return Err(KeepError::Foreign { path: folder.to_owned(), found });
        }
    }
    Ok(())
}

/// What is wrong with the checkpoints in the folder of a run, newest first: a sentence for each that cannot be used.
///
/// # Errors
/// The folder cannot be read, or another process is at work there.
pub fn damage(folder: &Path) -> Result<Vec<String>, KeepError> {
    // One that was never locked is in nobody's hands.
    let _lock = if folder.join(LOCK).exists() { lock(folder)? } else { None };
    let described = |step: &u64| {
        let path = checkpoint(folder, *step);
        Some(format!("{} is damaged: {}", path.display(), sums::damage(&path)?))
    };
    match folder.exists() {
        true => Ok(steps(folder)?.iter().rev().filter_map(described).collect()),
        false => Ok(Vec::new()),
    }
}

impl Checkpoints {
    /// Opens the folder of a run, or begins one there. What a run was `begun` with names its parts: it can be taken up only
    /// with the same.
    pub fn new(folder: &Path, begun: &[(&str, String)]) -> Result<Self, KeepError> {
        check_folder(folder)?;
        let parts = begun.iter().map(|(name, part)| ((*name).to_owned(), serde_json::Value::from(part.as_str())));
        let begun = serde_json::Value::Object(parts.collect());
        let path = folder.join(RUN);
        if path.exists() {
            let text = fs::read(&path).map_err(at(&path))?;
            let other = |fact: String| Err(KeepError::OtherRun { path: path.clone(), fact });
            let Ok(serde_json::Value::Object(before)) = serde_json::from_slice(&text) else {
                return other("it is not the record of a run; take another folder".to_owned());
            };
            let now = begun.as_object().into_iter().flatten();
            if let Some((name, _)) = now.into_iter().find(|(name, part)| before.get(*name) != Some(part)) {
                return other(format!("the run here was begun with other {name}; take another folder"));
            }
            return Ok(Checkpoints { folder: folder.to_owned(), _lock: lock(folder)? });
        }
        fs::create_dir_all(folder).map_err(at(folder))?;
        let opened = Checkpoints { folder: folder.to_owned(), _lock: lock(folder)? };
        replace(&path, serde_json::to_string_pretty(&begun)?.as_bytes())?;
        Ok(opened)
    }

    /// The state of the last checkpoint that is whole, if there is one, and the folder with the policy's. `step_of` says which
    /// step it is. A later one that is damaged is put aside: [`damage`] says what is wrong with it.
    pub fn resume<S: DeserializeOwned>(&self, step_of: impl Fn(&S) -> u64) -> Result<Option<(S, PathBuf)>, KeepError> {
        let mut facts = Vec::new();
        let mut damaged = Vec::new();
        let mut found = None;
        for step in steps(&self.folder)?.into_iter().rev() {
            let folder = self.path(step);
            match sums::damage(&folder) {
                None => {
                    found = Some(folder);
                    break;
                }
                Some(fact) => {
                    facts.push(format!("{}: {fact}", folder.display()));
                    damaged.push((step, folder));
                }
            }
        }
        let Some(folder) = found else {
            if damaged.is_empty() {
                self.keep_lines(0)?;
                return Ok(None);
            }
            return Err(KeepError::Damaged { path: self.folder.clone(), fact: facts.join("; ") });
        };
        let path = folder.join(STATE);
        let text = fs::read(&path).map_err(at(&path))?;
        let state: S = serde_json::from_slice(&text)
            .map_err(|error| KeepError::OtherRun { path, fact: format!("it is not the state of a run: {error}") })?;
        // Its place will be taken when the steps are taken again.
        for (step, folder) in damaged {
            let aside = self.folder.join(format!("damaged-{step:08}"));
            remove(&aside)?;
            fs::rename(&folder, &aside).map_err(at(&folder))?;
        }
        self.keep_lines(step_of(&state))?;
        Ok(Some((state, folder)))
    }

    /// Writes a checkpoint beside the last one, then drops those before these two.
    pub fn save<S: Serialize>(
        &self,
        step: u64,
        state: &S,
        save_policy: impl FnOnce(&Path) -> Result<(), PolicyError>,
    ) -> Result<(), KeepError> {
        let part = self.folder.join("checkpoint.part");
        remove(&part)?;
        save_policy(&part)?;
        replace(&part.join(STATE), to_json(state)?.as_bytes())?;
        sums::write(&part).map_err(at(&part))?;
        let whole = self.path(step);
        fs::rename(&part, &whole).map_err(at(&whole))?;
        let old: Vec<u64> = steps(&self.folder)?.into_iter().filter(|old| *old < step).collect();
        old.iter().rev().skip(1).try_for_each(|old| remove(&self.path(*old)))
    }

    /// Adds a line to a file of one line for each step.
    pub fn record<L: Serialize>(&self, file: &str, line: &L) -> Result<(), KeepError> {
        let path = self.folder.join(file);
        let line = to_json(line)?;
        let mut open = fs::OpenOptions::new().create(true).append(true).open(&path).map_err(at(&path))?;
        writeln!(open, "{line}").map_err(at(&path))
    }

    /// Drops what was recorded after a step: it comes again.
    fn keep_lines(&self, last: u64) -> Result<(), KeepError> {
        for file in [METRICS, TIMING] {
            let path = self.folder.join(file);
            let bytes = match fs::read(&path) {
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                bytes => bytes.map_err(at(&path))?,
            };
            // A line that was damaged is no line of a step.
            let text = String::from_utf8_lossy(&bytes);
            let step = |line: &str| serde_json::from_str::<serde_json::Value>(line).ok()?.get("step")?.as_u64();
            let is_kept = |line: &&str| step(line).is_some_and(|step| step <= last);
            let kept: String = text.lines().filter(is_kept).map(|line| format!("{line}\n")).collect();
            replace(&path, kept.as_bytes())?;
        }
        Ok(())
    }

    fn path(&self, step: u64) -> PathBuf {
        checkpoint(&self.folder, step)
    }
}

/// What a run was begun with.
const RUN: &str = "run.json";
/// Where a run stands, in a checkpoint.
const STATE: &str = "state.json";
const LOCK: &str = ".lock";
/// What may lie in a folder before a run is begun there: the warm start of a training, what the peers of a worker replied, and what
/// a process that was killed at the very beginning has left.
const BEFORE: [&str; 5] = [LOCK, "run.part", "warm", "replies.jsonl", "replies.part"];

fn checkpoint(folder: &Path, step: u64) -> PathBuf {
    folder.join(format!("checkpoint-{step:08}"))
}

/// The steps that have a checkpoint, in order.
fn steps(folder: &Path) -> Result<Vec<u64>, KeepError> {
    let entries = fs::read_dir(folder).map_err(at(folder))?;
    let step = |entry: fs::DirEntry| entry.file_name().to_str()?.strip_prefix("checkpoint-")?.parse().ok();
    let mut steps: Vec<u64> = entries.flatten().filter_map(step).collect();
    steps.sort_unstable();
    Ok(steps)
}

/// Two processes would write over each other's checkpoints.
fn lock(folder: &Path) -> Result<Option<File>, KeepError> {
    let path = folder.join(LOCK);
    let file = File::options().create(true).truncate(false).write(true).open(&path).map_err(at(&path))?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Err(KeepError::Busy { path: folder.to_owned() }),
        Err(TryLockError::Error(_)) => Ok(None),
    }
}

/// Removes a folder with everything in it. That there is none is no error.
fn remove(folder: &Path) -> Result<(), KeepError> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(at(folder)(error)),
        _ => Ok(()),
    }
}

/// One line for each step: what follows from the settings and the seed.
pub const METRICS: &str = "metrics.jsonl";
/// One line for each step: what a clock says.
pub const TIMING: &str = "timing.jsonl";

fn at(path: &Path) -> impl Fn(std::io::Error) -> KeepError + '_ {
    |source| KeepError::File { path: path.to_owned(), source }
}

/// A number that other lessons would not have.
pub fn fingerprint<'a>(lessons: usize, tokens: impl Iterator<Item = &'a u32>) -> String {
    let hash = lemon_num::fnv1a(tokens.copied());
    format!("{lessons} lessons, {hash:016x}")
}

/// A value as one line of JSON.
///
/// # Errors
/// The value has no JSON form.
pub fn to_json<T: Serialize>(value: &T) -> Result<String, KeepError> {
    Ok(serde_json::to_string(value)?)
}

/// Puts a file in place, whole or not at all.
pub fn replace(path: &Path, bytes: &[u8]) -> Result<(), KeepError> {
    let part = path.with_extension("part");
    fs::write(&part, bytes).map_err(at(&part))?;
    fs::rename(&part, path).map_err(at(path))
}
