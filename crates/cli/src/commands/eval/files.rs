//! The folder of an evaluation, and the right to work on it.

use crate::fault::{Fault, read_file};
use lemon_eval::report::files::{self, ROWS};
use lemon_eval::report::items::ItemDetail;
use lemon_eval::{Evaluation, Report};
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};

/// Where the report of an evaluation lies by default: beside the store.
pub fn folder(store: &Path, eval_id: &str) -> PathBuf {
    store.parent().unwrap_or(Path::new(".")).join("evals").join(eval_id)
}

/// The right to work on an evaluation. The system takes it back when the process dies, however it dies.
pub struct Claim {
    path: PathBuf,
    /// Holds the lock as long as it is open.
    _file: File,
}

impl Claim {
    /// Claims an evaluation for this process: two at work on it would run everything twice.
    pub fn new(store: &Path, eval_id: &str) -> Result<Self, Fault> {
        let path = store.with_file_name(format!("{eval_id}.lock"));
        let failed = |error: std::io::Error| Fault::new(format!("{} cannot be locked: {error}", path.display()));
        let busy = || {
            Fault::new(format!("another process works on `{eval_id}`"))
                .hint("wait for that process, or end it, and try again")
        };
        // A link could lead to another user's file.
        if path.symlink_metadata().is_ok_and(|found| !found.is_file()) {
            return Err(failed(std::io::Error::other("it is no plain file")));
        }
        let file = File::options().create(true).truncate(false).write(true).open(&path).map_err(failed)?;
        match file.try_lock() {
            // The process that had it may have removed the file in between: then the lock is on a file that no other sees.
            Ok(()) if is_at(&file, &path).map_err(failed)? => Ok(Claim { path, _file: file }),
            Ok(()) | Err(TryLockError::WouldBlock) => Err(busy()),
            Err(TryLockError::Error(error)) => Err(failed(error)),
        }
    }
}

/// Whether this open file is what lies at the path.
#[cfg(unix)]
fn is_at(file: &File, path: &Path) -> std::io::Result<bool> {
    use std::os::unix::fs::MetadataExt;
    let place = |found: &std::fs::Metadata| (found.dev(), found.ino());
    match path.symlink_metadata() {
        Ok(found) => Ok(place(&found) == place(&file.metadata()?)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Elsewhere an open file cannot be removed.
#[cfg(not(unix))]
fn is_at(_: &File, _: &Path) -> std::io::Result<bool> {
    Ok(true)
}

impl Drop for Claim {
    fn drop(&mut self) {
        // Left behind, it does no harm.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Makes sure that the report can be written, before anything is spent on it.
pub fn make_folder(folder: &Path) -> Result<(), Fault> {
    let probe = folder.join("eval.json.new");
    std::fs::create_dir_all(folder)
        .and_then(|()| std::fs::write(&probe, ""))
        .and_then(|()| std::fs::remove_file(&probe))
        .map_err(|error| unwritable(folder, &error).hint("name another folder with --out DIR"))
}

fn unwritable(folder: &Path, error: &std::io::Error) -> Fault {
    Fault::new(format!("{} cannot be written: {error}", folder.display()))
}

/// Writes the rows and the report.
pub fn write(folder: &Path, evaluation: &Evaluation, report: &Report, details: &[ItemDetail]) -> Result<(), Fault> {
    files::write(folder, evaluation, report, details).map_err(|error| unwritable(folder, &error))
}

/// The evaluation that a user names: by its file, its folder or its id.
pub fn find(store: &Path, name: &str) -> Result<PathBuf, Fault> {
    let candidates = [PathBuf::from(name), Path::new(name).join(ROWS), folder(store, name).join(ROWS)];
    let found = candidates.iter().find(|path| path.is_file());
    found.cloned().ok_or_else(|| {
        Fault::new(format!("there is no evaluation `{name}`"))
            .hint("give its id (e-…), the folder of its report, or the eval.json in there")
    })
}

pub fn read(path: &Path) -> Result<Evaluation, Fault> {
    let text = read_file(path)?;
    serde_json::from_str(&text).map_err(|error| Fault::new(format!("{} is no evaluation: {error}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_process_has_an_evaluation_and_links_are_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("lemon.db");
        let first = Claim::new(&store, "e-1").ok().unwrap();
        assert!(Claim::new(&store, "e-1").is_err());
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
