//! The folder of a training run: the last two checkpoints and one line of metrics for each step.
//!
//! A checkpoint appears whole or not at all, and its checksums are verified when it is read. One process at a time writes into
//! the folder.

pub(crate) mod sums;
#[cfg(test)]
mod tests;

use lemon_model::PolicyError;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs::{self, File, TryLockError};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

/// The folder of a run. It stays locked until this value is dropped.
pub struct Checkpoints {
    folder: PathBuf,
    /// The operating system releases it however the process ends. `None`: the file system cannot lock files.
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
    /// The folder holds another run, or something else.
    #[error("{}: {fact}", path.display())]
    OtherRun {
        /// The folder.
        path: PathBuf,
        /// What is different.
        fact: String,
    },
    /// Another process is training in the folder.
    #[error("another process is training in {}", path.display())]
    Busy {
        /// The folder.
        path: PathBuf,
    },
    /// The folder holds files that are not those of a run.
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

/// Checks that a run may start or resume in this folder: it does not exist, it is empty, or it is the folder of a run.
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

/// What is damaged in the folder of a run: a sentence for each checkpoint that cannot be used, newest first, and for each recorded
/// line that a resumed run drops. A last line that was cut short is not damage: the resumed run records its step again.
///
/// # Errors
/// The folder cannot be read, or another process is training in it.
pub fn damage(folder: &Path) -> Result<Vec<String>, KeepError> {
    // A folder without a lock file was never in use.
    let _lock = if folder.join(LOCK).exists() { lock(folder)? } else { None };
    let described = |step: &u64| {
        let path = checkpoint(folder, *step);
        let fact = sums::damage(&path)?;
        let taken = "it is put aside, and the one before is used if it is whole";
        Some(format!("{} is damaged: {fact}; {taken}", path.display()))
    };
    if !folder.exists() {
        return Ok(Vec::new());
    }
    let mut facts: Vec<String> = steps(folder)?.iter().rev().filter_map(described).collect();
    for file in [METRICS, TIMING] {
        let path = folder.join(file);
        let text = lines_of(&path)?;
        let whole = text.split_inclusive('\n').filter(|line| line.ends_with('\n')).enumerate();
        let lost = whole.filter(|(_, line)| step_of_line(line).is_none());
        let described =
            |(at, _)| format!("{} line {}: expected the JSON of a step; it is left out", path.display(), at + 1);
        facts.extend(lost.map(described));
    }
    Ok(facts)
}

/// The text of a file of one line for each step; empty if there is no file.
fn lines_of(path: &Path) -> Result<String, KeepError> {
    match fs::read(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(String::new()),
        bytes => Ok(String::from_utf8_lossy(&bytes.map_err(at(path))?).into_owned()),
    }
}

/// The step of a recorded line. `None`: the line is damaged.
fn step_of_line(line: &str) -> Option<u64> {
    serde_json::from_str::<serde_json::Value>(line).ok()?.get("step")?.as_u64()
}

impl Checkpoints {
    /// Opens the folder of a run, or starts one there. `begun` names what the run depends on: it can be resumed only with the
    /// same values.
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

    /// Opens the folder of a run, and continues it from its last checkpoint if it has one: `load` gives the policy its state of then.
    /// Otherwise the run begins with the default state.
    ///
    /// # Errors
    /// As [`Self::new`] and [`Self::resume`], or the policy cannot be loaded.
    pub fn begin<S: DeserializeOwned + Default>(
        folder: &Path,
        begun: &[(&str, String)],
        step_of: impl Fn(&S) -> u64,
        load: impl FnOnce(&Path) -> Result<(), PolicyError>,
    ) -> Result<(Self, S), KeepError> {
        let checkpoints = Checkpoints::new(folder, begun)?;
        let Some((state, folder)) = checkpoints.resume(step_of)? else { return Ok((checkpoints, S::default())) };
        load(&folder)?;
        Ok((checkpoints, state))
    }

    /// The state of the last checkpoint that is whole, if there is one, and the folder with the policy's state. `step_of` returns
    /// the step of a state. Later checkpoints that are damaged are renamed; [`damage`] reports them.
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
        // The resumed run writes a checkpoint of the same name.
        for (step, folder) in damaged {
            let aside = self.folder.join(format!("damaged-{step:08}"));
            remove(&aside)?;
            fs::rename(&folder, &aside).map_err(at(&folder))?;
        }
        self.keep_lines(step_of(&state))?;
        Ok(Some((state, folder)))
    }

    /// Writes a checkpoint, then removes all but the last two.
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

    /// Drops the lines of later steps, which the resumed run records again, and damaged lines, which [`damage`] reports.
    fn keep_lines(&self, last: u64) -> Result<(), KeepError> {
        for file in [METRICS, TIMING] {
            let path = self.folder.join(file);
            if !path.exists() {
                continue;
            }
            let text = lines_of(&path)?;
            let is_kept = |line: &&str| step_of_line(line).is_some_and(|step| step <= last);
            let kept: String = text.lines().filter(is_kept).map(|line| format!("{line}\n")).collect();
            replace(&path, kept.as_bytes())?;
        }
        Ok(())
    }

    fn path(&self, step: u64) -> PathBuf {
        checkpoint(&self.folder, step)
    }
}

/// What a run depends on.
const RUN: &str = "run.json";
/// Where a run stands, in a checkpoint.
const STATE: &str = "state.json";
const LOCK: &str = ".lock";
/// Files that a folder may hold before a run starts there: a warm start, the replies of peer workers, and what a process leaves that
/// was killed at its very beginning.
const BEFORE: [&str; 5] = [LOCK, "run.part", "warm", "replies.jsonl", "replies.part"];

fn checkpoint(folder: &Path, step: u64) -> PathBuf {
    folder.join(format!("checkpoint-{step:08}"))
}

/// The steps that have a checkpoint, in order.
fn steps(folder: &Path) -> Result<Vec<u64>, KeepError> {
    let entries = fs::read_dir(folder).map_err(at(folder))?;
    let mut steps = Vec::new();
    for entry in entries {
        let name = entry.map_err(at(folder))?.file_name();
        // Another name is not that of a checkpoint.
        steps.extend(name.to_str().and_then(|name| name.strip_prefix("checkpoint-")?.parse::<u64>().ok()));
    }
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

/// Removes a folder with everything in it, if it exists.
fn remove(folder: &Path) -> Result<(), KeepError> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(at(folder)(error)),
        _ => Ok(()),
    }
}

/// One line for each step, of what follows from the settings and the seed.
pub const METRICS: &str = "metrics.jsonl";
/// One line for each step, of durations.
pub const TIMING: &str = "timing.jsonl";

fn at(path: &Path) -> impl Fn(std::io::Error) -> KeepError + '_ {
    |source| KeepError::File { path: path.to_owned(), source }
}

/// Identifies training examples: other tokens give another text. The word in it is part of the file format.
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

/// Writes a file whole or not at all.
pub fn replace(path: &Path, bytes: &[u8]) -> Result<(), KeepError> {
    let part = path.with_extension("part");
    fs::write(&part, bytes).map_err(at(&part))?;
    fs::rename(&part, path).map_err(at(path))
}
