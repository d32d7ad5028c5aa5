//! What is kept of a run: checkpoints that appear whole or not at all, and one line of metrics for each step.

use super::{Lesson, Look, Metrics, SftError, SftSettings};
use lemon_policy::LanguagePolicy;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Where a run stands.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(super) struct State {
    pub(super) step: u64,
    pub(super) best_step: u64,
    pub(super) best: Look,
    /// Looks since the best.
    pub(super) since_best: u64,
    pub(super) stopped_early: bool,
    pub(super) skipped: u64,
}

/// What a run was begun with: it can be taken up only with the same.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Begun {
    settings: SftSettings,
    lessons: String,
    validation: String,
}

pub(super) struct Checkpoints {
    folder: PathBuf,
}

impl Checkpoints {
    /// Opens the folder of a run, or begins one there.
    pub(super) fn new(
        folder: &Path,
        settings: &SftSettings,
        lessons: &[Lesson],
        validation: &[Lesson],
    ) -> Result<Self, SftError> {
        fs::create_dir_all(folder).map_err(at(folder))?;
        let begun =
            Begun { settings: settings.clone(), lessons: fingerprint(lessons), validation: fingerprint(validation) };
        let path = folder.join("run.json");
        if path.exists() {
            let text = fs::read(&path).map_err(at(&path))?;
            let before: Option<Begun> = serde_json::from_slice(&text).ok();
            let fact = match before {
                None => "it is not the record of a run",
                Some(before) if before.settings != begun.settings => "the run here was begun with other settings",
                Some(before) if before != begun => "the run here was begun with other lessons",
                Some(_) => return Ok(Checkpoints { folder: folder.to_owned() }),
            };
            return Err(SftError::OtherRun { path, fact: format!("{fact}; take another folder") });
        }
        let text = serde_json::to_string_pretty(&begun).unwrap_or_default();
        replace(&path, text.as_bytes())?;
        Ok(Checkpoints { folder: folder.to_owned() })
    }

    /// Puts the model back to the last checkpoint, if there is one.
    pub(super) fn resume(&self, policy: &mut LanguagePolicy) -> Result<State, SftError> {
        let Some(last) = self.steps()?.pop() else {
            self.keep_metrics(0)?;
            return Ok(State::default());
        };
        let folder = self.path(last);
        let state_path = folder.join("state.json");
        let text = fs::read(&state_path).map_err(at(&state_path))?;
        let state: State = serde_json::from_slice(&text).map_err(|error| SftError::OtherRun {
            path: state_path,
            fact: format!("it is not the state of a run: {error}"),
        })?;
        policy.load_state(&folder)?;
        self.keep_metrics(state.step)?;
        Ok(state)
    }

    /// Writes a checkpoint beside the last one, then drops those before.
    pub(super) fn save(&self, policy: &LanguagePolicy, state: &State) -> Result<(), SftError> {
        let part = self.folder.join("checkpoint.part");
        if part.exists() {
            fs::remove_dir_all(&part).map_err(at(&part))?;
        }
        policy.save_state(&part)?;
        replace(&part.join("state.json"), serde_json::to_string(state).unwrap_or_default().as_bytes())?;
        let whole = self.path(state.step);
        fs::rename(&part, &whole).map_err(at(&whole))?;
        for old in self.steps()?.into_iter().filter(|step| *step < state.step) {
            let old = self.path(old);
            fs::remove_dir_all(&old).map_err(at(&old))?;
        }
        Ok(())
    }

    /// Adds a line to `metrics.jsonl`.
    pub(super) fn record(&self, metrics: &Metrics) -> Result<(), SftError> {
        let path = self.folder.join("metrics.jsonl");
        let line = serde_json::to_string(metrics).unwrap_or_default();
        let mut file = fs::OpenOptions::new().create(true).append(true).open(&path).map_err(at(&path))?;
        writeln!(file, "{line}").map_err(at(&path))
    }

    /// Drops the lines of steps that will be taken again.
    fn keep_metrics(&self, last: u64) -> Result<(), SftError> {
        let path = self.folder.join("metrics.jsonl");
        let Ok(text) = fs::read_to_string(&path) else { return Ok(()) };
        let is_kept = |line: &&str| serde_json::from_str::<Metrics>(line).is_ok_and(|metrics| metrics.step <= last);
        let kept: String = text.lines().filter(is_kept).map(|line| format!("{line}\n")).collect();
        replace(&path, kept.as_bytes())
    }

    fn path(&self, step: u64) -> PathBuf {
        self.folder.join(format!("checkpoint-{step:08}"))
    }

    /// The steps that have a checkpoint, in order.
    fn steps(&self) -> Result<Vec<u64>, SftError> {
        let entries = fs::read_dir(&self.folder).map_err(at(&self.folder))?;
        let step = |entry: fs::DirEntry| entry.file_name().to_str()?.strip_prefix("checkpoint-")?.parse().ok();
        let mut steps: Vec<u64> = entries.flatten().filter_map(step).collect();
        steps.sort_unstable();
        Ok(steps)
    }
}

fn at(path: &Path) -> impl Fn(std::io::Error) -> SftError + '_ {
    |source| SftError::File { path: path.to_owned(), source }
}

/// Puts a file in place, whole or not at all.
fn replace(path: &Path, bytes: &[u8]) -> Result<(), SftError> {
    let part = path.with_extension("part");
    fs::write(&part, bytes).map_err(at(&part))?;
    fs::rename(&part, path).map_err(at(path))
}

/// A number that other lessons would not have.
fn fingerprint(lessons: &[Lesson]) -> String {
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    for lesson in lessons {
        for token in lesson.prompt.iter().chain([&u32::MAX]).chain(&lesson.tokens).chain([&u32::MAX]) {
            hash = (hash ^ u64::from(*token)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    format!("{} lessons, {hash:016x}", lessons.len())
}
