//! What is kept of a training run: checkpoints that appear whole or not at all, and one line of metrics for each step.

use lemon_policy::PolicyError;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

/// The folder of a run.
pub(crate) struct Checkpoints {
    folder: PathBuf,
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
    /// The policy could not be kept or read.
    #[error(transparent)]
    Policy(#[from] PolicyError),
}

impl Checkpoints {
    /// Opens the folder of a run, or begins one there. What a run was `begun` with names its parts: it can be taken up only
    /// with the same.
    pub fn new(folder: &Path, begun: &[(&str, String)]) -> Result<Self, KeepError> {
        fs::create_dir_all(folder).map_err(at(folder))?;
        let parts = begun.iter().map(|(name, part)| ((*name).to_owned(), serde_json::Value::from(part.as_str())));
        let begun = serde_json::Value::Object(parts.collect());
        let path = folder.join("run.json");
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
            return Ok(Checkpoints { folder: folder.to_owned() });
        }
        replace(&path, serde_json::to_string_pretty(&begun).unwrap_or_default().as_bytes())?;
        Ok(Checkpoints { folder: folder.to_owned() })
    }

    /// The state of the last checkpoint, if there is one, and the folder with the policy's. `step_of` says which step it is.
    pub fn resume<S: DeserializeOwned>(&self, step_of: impl Fn(&S) -> u64) -> Result<Option<(S, PathBuf)>, KeepError> {
        let Some(last) = self.steps()?.pop() else {
            self.keep_lines(0)?;
            return Ok(None);
        };
        let folder = self.path(last);
        let path = folder.join("state.json");
        let text = fs::read(&path).map_err(at(&path))?;
        let state: S = serde_json::from_slice(&text)
            .map_err(|error| KeepError::OtherRun { path, fact: format!("it is not the state of a run: {error}") })?;
        self.keep_lines(step_of(&state))?;
        Ok(Some((state, folder)))
    }

    /// Writes a checkpoint beside the last one, then drops those before.
    pub fn save<S: Serialize>(
        &self,
        step: u64,
        state: &S,
        save_policy: impl FnOnce(&Path) -> Result<(), PolicyError>,
    ) -> Result<(), KeepError> {
        let part = self.folder.join("checkpoint.part");
        if part.exists() {
            fs::remove_dir_all(&part).map_err(at(&part))?;
        }
        save_policy(&part)?;
        replace(&part.join("state.json"), serde_json::to_string(state).unwrap_or_default().as_bytes())?;
        let whole = self.path(step);
        fs::rename(&part, &whole).map_err(at(&whole))?;
        for old in self.steps()?.into_iter().filter(|old| *old < step) {
            let old = self.path(old);
            fs::remove_dir_all(&old).map_err(at(&old))?;
        }
        Ok(())
    }

    /// Adds a line to a file of one line for each step.
    pub fn record<L: Serialize>(&self, file: &str, line: &L) -> Result<(), KeepError> {
        let path = self.folder.join(file);
        let line = serde_json::to_string(line).unwrap_or_default();
        let mut open = fs::OpenOptions::new().create(true).append(true).open(&path).map_err(at(&path))?;
        writeln!(open, "{line}").map_err(at(&path))
    }

    /// Drops what was recorded after a step: it comes again.
    fn keep_lines(&self, last: u64) -> Result<(), KeepError> {
        for file in [METRICS, TIMING] {
            let path = self.folder.join(file);
            let Ok(text) = fs::read_to_string(&path) else { continue };
            let step = |line: &str| serde_json::from_str::<serde_json::Value>(line).ok()?.get("step")?.as_u64();
            let is_kept = |line: &&str| step(line).is_some_and(|step| step <= last);
            let kept: String = text.lines().filter(is_kept).map(|line| format!("{line}\n")).collect();
            replace(&path, kept.as_bytes())?;
        }
        Ok(())
    }

    fn path(&self, step: u64) -> PathBuf {
        self.folder.join(format!("checkpoint-{step:08}"))
    }

    /// The steps that have a checkpoint, in order.
    fn steps(&self) -> Result<Vec<u64>, KeepError> {
        let entries = fs::read_dir(&self.folder).map_err(at(&self.folder))?;
        let step = |entry: fs::DirEntry| entry.file_name().to_str()?.strip_prefix("checkpoint-")?.parse().ok();
        let mut steps: Vec<u64> = entries.flatten().filter_map(step).collect();
        steps.sort_unstable();
        Ok(steps)
    }
}

/// One line for each step: what follows from the settings and the seed.
pub(crate) const METRICS: &str = "metrics.jsonl";
/// One line for each step: what a clock says.
pub(crate) const TIMING: &str = "timing.jsonl";

fn at(path: &Path) -> impl Fn(std::io::Error) -> KeepError + '_ {
    |source| KeepError::File { path: path.to_owned(), source }
}

/// A number that other lessons would not have.
pub(crate) fn fingerprint<'a>(lessons: usize, tokens: impl Iterator<Item = &'a u32>) -> String {
    let hash =
        tokens.fold(0xcbf2_9ce4_8422_2325u64, |hash, token| (hash ^ u64::from(*token)).wrapping_mul(0x0100_0000_01b3));
    format!("{lessons} lessons, {hash:016x}")
}

/// Puts a file in place, whole or not at all.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> Result<(), KeepError> {
    let part = path.with_extension("part");
    fs::write(&part, bytes).map_err(at(&part))?;
    fs::rename(&part, path).map_err(at(path))
}
