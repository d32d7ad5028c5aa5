//! What an evaluation keeps of the methods that learn, so that a resume has the same teams and pays for them once:
//! `METHOD/seed-N/` has what was learned, or which capacity was chosen.

use crate::error::Error;
use lemon_baselines::TrainedRival;
use lemon_eval::{Method, Training};
use serde::{Deserialize, Serialize};
use std::fmt::Display;
use std::path::{Path, PathBuf};

/// What the choice of a capacity came to, in the folder of a method and seed.
const CHOICE: &str = "choice.json";

/// Where a method that was trained with a seed is kept.
pub(super) fn folder_of(folder: &Path, method: &Method, seed: u64) -> PathBuf {
    folder.join(method.name()).join(format!("seed-{seed}"))
}

/// The capacity that was chosen for a method.
#[derive(Serialize, Deserialize)]
pub(super) struct Choice {
    /// The choice, with all that it cost.
    pub account: Training,
    /// What of that is neither a training nor kept as one: the runs that the choice is made by.
    pub tried_tokens: u64,
}

impl Choice {
    /// Writes it at once: a file that is there is whole.
    pub fn write(&self, folder: &Path) -> Result<(), Error> {
        let file = folder.join(CHOICE);
        let failed = |error: &dyn Display| Error::input(format!("{} cannot be written: {error}", file.display()));
        let text = serde_json::to_string_pretty(self).map_err(|error| failed(&error))?;
        let new = file.with_extension("json.new");
        let made = std::fs::create_dir_all(folder);
        let written = made.and_then(|()| std::fs::write(&new, text)).and_then(|()| std::fs::rename(&new, &file));
        written.map_err(|error| failed(&error))
    }

    /// Reads it. `None`: nothing was chosen yet.
    pub fn read(folder: &Path) -> Result<Option<Self>, Error> {
        let file = folder.join(CHOICE);
        if !file.is_file() {
            return Ok(None);
        }
        let failed = |error: &dyn Display| Error::input(format!("{} cannot be read: {error}", file.display()));
        let text = std::fs::read_to_string(&file).map_err(|error| failed(&error))?;
        Ok(Some(serde_json::from_str(&text).map_err(|error| failed(&error))?))
    }
}

/// All tokens of the trainings and choices in a folder, each counted once. What stands in the folder `given` too was paid for
/// elsewhere.
pub(super) fn kept_tokens(folder: &Path, given: Option<&Path>) -> Result<u64, Error> {
    let mut sum = 0u64;
    for method in folders_in(folder)? {
        for seed in folders_in(&method)? {
            let is_given =
                |given: &Path| seed.strip_prefix(folder).is_ok_and(|at| TrainedRival::is_kept(&given.join(at)));
            if TrainedRival::is_kept(&seed) && !given.is_some_and(is_given) {
                sum = sum.saturating_add(TrainedRival::account_in(&seed)?.all_tokens());
            }
            sum = sum.saturating_add(Choice::read(&seed)?.map_or(0, |choice| choice.tried_tokens));
        }
    }
    Ok(sum)
}

/// The folders in a folder; none where there is no such folder.
fn folders_in(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let failed = |error: &dyn Display| Error::input(format!("{} cannot be read: {error}", folder.display()));
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let entries = std::fs::read_dir(folder).map_err(|error| failed(&error))?;
    let paths = entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<Vec<_>, _>>();
    Ok(paths.map_err(|error| failed(&error))?.into_iter().filter(|path| path.is_dir()).collect())
}
