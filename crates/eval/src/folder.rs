//! The folder of an evaluation, and the right to work on it.

use crate::report::files::{self, ROWS};
use crate::report::items::ItemDetail;
use crate::{Evaluation, Report};
use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

/// Why the folder of an evaluation cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// The folder cannot be written.
    #[error("{} cannot be written: {source}", folder.display())]
    Unwritable {
        folder: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The lock file cannot be used.
    #[error("{} cannot be locked: {source}", path.display())]
    Lock {
        /// The lock file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Another process has claimed the evaluation.
    #[error("another process works on `{0}`")]
    Busy(String),
    /// There is none of this name.
    #[error("there is no evaluation `{0}`")]
    Missing(String),
    /// The file holds something else.
    #[error("{} is no evaluation: {source}", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// Where it fails to be one.
        source: serde_json::Error,
    },
}

impl FolderError {
    /// What to do about it, where that is known.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            FolderError::Busy(_) => Some("wait for that process, or end it, and try again"),
            FolderError::Missing(_) => Some("give its id (e-…), the folder of its report, or the eval.json in there"),
            FolderError::Unwritable { .. } => Some("name another folder with --out DIR"),
            FolderError::Lock { .. } | FolderError::Foreign { .. } => None,
        }
    }
}

/// Where the report of an evaluation lies by default: beside the store.
pub fn default_folder(store: &Path, eval_id: &str) -> PathBuf {
    store.parent().unwrap_or(Path::new(".")).join("evals").join(eval_id)
}

/// Makes the folder, and makes sure that the report can be written there before anything is spent on it.
///
/// # Errors
/// It cannot.
pub fn make_folder(folder: &Path) -> Result<(), FolderError> {
    let probe = folder.join("eval.json.new");
    std::fs::create_dir_all(folder)
        .and_then(|()| std::fs::write(&probe, ""))
        .and_then(|()| std::fs::remove_file(&probe))
        .map_err(|source| FolderError::Unwritable { folder: folder.to_owned(), source })
}

/// The evaluation that a user names: by its file, its folder or its id.
///
/// # Errors
/// There is none.
pub fn find(store: &Path, name: &str) -> Result<PathBuf, FolderError> {
    let candidates = [PathBuf::from(name), Path::new(name).join(ROWS), default_folder(store, name).join(ROWS)];
    let found = candidates.iter().find(|path| path.is_file());
    found.cloned().ok_or_else(|| FolderError::Missing(name.to_owned()))
}

/// The evaluation that a file holds.
///
/// # Errors
/// It holds something else.
pub fn parse(path: &Path, text: &str) -> Result<Evaluation, FolderError> {
    serde_json::from_str(text).map_err(|source| FolderError::Foreign { path: path.to_owned(), source })
}

/// Writes the rows and the report.
///
/// # Errors
/// The folder cannot be written.
pub fn write(
    folder: &Path,
    evaluation: &Evaluation,
    report: &Report,
    details: &[ItemDetail],
) -> Result<(), FolderError> {
    files::write(folder, evaluation, report, details)
        .map_err(|source| FolderError::Unwritable { folder: folder.to_owned(), source })
}

/// The right to work on an evaluation. The system takes it back when the process dies, however it dies.
#[derive(Debug)]
pub struct Claim {
    path: PathBuf,
    /// Holds the lock as long as it is open.
    _file: File,
}

impl Claim {
    /// Claims an evaluation for this process: two at work on it would run everything twice.
    ///
    /// # Errors
    /// Another process has it, or the lock file cannot be used.
    pub fn new(store: &Path, eval_id: &str) -> Result<Self, FolderError> {
        let path = store.with_file_name(format!("{eval_id}.lock"));
        let failed = |source: io::Error| FolderError::Lock { path: path.clone(), source };
        // A link could lead to another user's file.
        if path.symlink_metadata().is_ok_and(|found| !found.is_file()) {
            return Err(failed(io::Error::other("it is no plain file")));
        }
        let file = File::options().create(true).truncate(false).write(true).open(&path).map_err(failed)?;
        match file.try_lock() {
            // The process that had it may have removed the file in between: then the lock is on a file that no other sees.
            Ok(()) if is_at(&file, &path).map_err(failed)? => Ok(Claim { path, _file: file }),
            Ok(()) | Err(TryLockError::WouldBlock) => Err(FolderError::Busy(eval_id.to_owned())),
            Err(TryLockError::Error(error)) => Err(failed(error)),
        }
    }
}

/// Whether this open file is what lies at the path.
#[cfg(unix)]
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt;
    let place = |found: &std::fs::Metadata| (found.dev(), found.ino());
    match path.symlink_metadata() {
        Ok(found) => Ok(place(&found) == place(&file.metadata()?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Elsewhere an open file cannot be removed.
#[cfg(not(unix))]
fn is_at(_: &File, _: &Path) -> io::Result<bool> {
    Ok(true)
}

impl Drop for Claim {
    fn drop(&mut self) {
        // Left behind, it does no harm: the lock is what counts, and it goes with the process.
        let _ = std::fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_process_has_an_evaluation_and_links_are_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("lemon.db");
        let first = Claim::new(&store, "e-1").unwrap();
        assert!(matches!(Claim::new(&store, "e-1"), Err(FolderError::Busy(_))));
        drop(first);
        assert!(Claim::new(&store, "e-1").is_ok());
        #[cfg(unix)]
        {
            let precious = folder.path().join("precious");
            std::fs::write(&precious, "text").unwrap();
            std::os::unix::fs::symlink(&precious, folder.path().join("e-2.lock")).unwrap();
            assert!(Claim::new(&store, "e-2").is_err());
            assert_eq!(std::fs::read_to_string(&precious).unwrap(), "text");
        }
    }
}
