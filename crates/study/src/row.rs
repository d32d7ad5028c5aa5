//! What a study records of each training run: one JSON line.

use crate::arms::Arm;
use lemon_credit::economy::FamilyReport;
use lemon_spec::edit::Family;
use lemon_train::HeldOutResult;
use lemon_train::metrics::Means;
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

/// One training run of a study.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StudyRow {
    /// The study: `table`, `map`, `language`, `stop`.
    pub study: String,
    /// The regime, as `name=value` pairs in a fixed order; empty where there is only one.
    pub regime: String,
    /// What was trained: `full`, `plain`, `no-agent`, …
    #[serde(deserialize_with = "arm_name")]
    pub arm: String,
    /// The seed. Runs of different arms with the same regime and seed are pairs: the same tasks in the same order.
    pub seed: u64,
    /// Steps taken.
    pub steps: u64,
    /// Worker tokens spent on rollouts.
    pub rollout_tokens: u64,
    /// Worker tokens spent on counterfactuals.
    pub credit_tokens: u64,
    /// What held-out tasks gave before training.
    pub before: Means,
    /// What they gave after it.
    pub after: Means,
    /// Held-out evaluations on the way.
    pub curve: Vec<EvalPoint>,
    /// What the run was made with; rows of older studies have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stamp: Option<Stamp>,
    /// The held-out tasks after training, with the likeliest teams and with teams drawn at the temperature of the rollouts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evaluations: Vec<HeldOutResult>,
    /// What credit purchased over the whole run, by family: counts and tokens are sums, the rest means over steps.
    pub families: BTreeMap<Family, FamilyReport>,
}

/// The name of an arm; older rows have the name of then.
fn arm_name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let name = String::deserialize(deserializer)?;
    Ok(Arm::named(&name).map_or(name, |arm| arm.name.to_owned()))
}

/// What a run was made with: rows of different builds or devices are not pooled unasked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Stamp {
    /// The commit of the build; `unknown` where the build was not told.
    pub commit: String,
    /// The device that the policy ran on, and its number format.
    pub device: String,
    /// A hash of the recipe, the arm's changes included and the seed left out.
    pub recipe: String,
    pub learning_rate: f64,
    /// Wall time of the run, in seconds.
    pub seconds: f64,
    /// Worker tokens, of rollouts, counterfactuals and searches together.
    pub worker_tokens: u64,
    /// Tokens that the policy wrote, scored and learned from.
    pub policy_tokens: u64,
}

/// A held-out evaluation on the way.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct EvalPoint {
    /// After so many steps.
    pub step: u64,
    /// … and so many worker tokens.
    pub worker_tokens: u64,
    /// What the tasks gave.
    pub means: Means,
}

/// A file of rows that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RowError {
    /// The file cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A line is not a row.
    #[error("{} line {line}: expected a row of a study: {source}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// A row has no JSON form.
    #[error("a row cannot be written as JSON: {0}")]
    Json(#[from] serde_json::Error),
}

/// The file that a study appends its rows to.
pub(crate) struct RowFile {
    path: PathBuf,
    file: File,
}

impl RowFile {
    /// Opens or creates a file, and reads the rows it holds. A last line that a killed process cut short is removed; its run is
    /// repeated.
    ///
    /// # Errors
    /// The file cannot be used, or another line of it is not a row.
    pub fn open(path: &Path) -> Result<(Self, Vec<StudyRow>), RowError> {
        let at = |source| RowError::File { path: path.to_owned(), source };
        let mut file = OpenOptions::new().create(true).read(true).append(true).open(path).map_err(at)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(at)?;
        let mut rows = Vec::new();
        let mut whole = 0;
        for (number, line) in bytes.split_inclusive(|byte| *byte == b'\n').enumerate() {
            let is_cut_short = !line.ends_with(b"\n");
            match serde_json::from_slice(line) {
                Ok(row) => rows.push(row),
                Err(_) if line.trim_ascii().is_empty() => {}
                Err(_) if is_cut_short => {
                    file.set_len(whole).map_err(at)?;
                    break;
                }
                Err(source) => return Err(RowError::Line { path: path.to_owned(), line: number + 1, source }),
            }
            if is_cut_short {
                writeln!(file).map_err(at)?;
            }
            whole += line.len() as u64;
        }
        Ok((RowFile { path: path.to_owned(), file }, rows))
    }

    /// Appends a row.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn add(&mut self, row: &StudyRow) -> Result<(), RowError> {
        let line = serde_json::to_string(row)?;
        let written = writeln!(self.file, "{line}").and_then(|()| self.file.flush());
        written.map_err(|source| RowError::File { path: self.path.clone(), source })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::row;

    #[test]
    fn a_last_line_that_was_cut_short_is_removed_and_any_other_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows.jsonl");
        let (one, two) = (row("full", 1, 1.0), row("plain", 1, 0.5));
        let (mut file, known) = RowFile::open(&path).unwrap();
        assert!(known.is_empty());
        file.add(&one).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        for rest in ["", "{\"study\": \"ta", "\n"] {
            std::fs::write(&path, format!("{text}{rest}")).unwrap();
            let (mut file, known) = RowFile::open(&path).unwrap();
            assert_eq!(known, std::slice::from_ref(&one), "{rest}");
            file.add(&two).unwrap();
            assert_eq!(RowFile::open(&path).unwrap().1, [one.clone(), two.clone()], "{rest}");
        }
        // A whole row without the end of its line is a row.
        std::fs::write(&path, text.trim_end()).unwrap();
        RowFile::open(&path).unwrap().0.add(&two).unwrap();
        assert_eq!(RowFile::open(&path).unwrap().1.len(), 2);
        std::fs::write(&path, format!("{text}nonsense\n{text}")).unwrap();
        let error = RowFile::open(&path).err().unwrap();
        assert!(error.to_string().contains("rows.jsonl line 2: expected a row"), "{error}");
        assert!(std::fs::read_to_string(&path).unwrap().contains("nonsense"));
    }
}
