//! Which process a run belongs to: a lock file that the system releases when the process dies, however it dies.

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};

/// How the name of a lock file ends until it is locked.
const NOT_LOCKED_YET: &str = ".new";

/// This process, as the owner of runs.
pub struct Owner {
    id: String,
    path: PathBuf,
    /// Holds the lock as long as it is open.
    _file: File,
}

impl Owner {
    /// Makes a lock file beside the store, and clears away those of processes that are gone.
    pub fn new(store: &Path) -> std::io::Result<Self> {
        let folder = folder(store);
        std::fs::create_dir_all(&folder)?;
        clear(&folder);
        let id = crate::fresh_id();
        // Locked under another name first: under its own and unlocked, another process would clear it away.
        let fresh = folder.join(format!("{id}{NOT_LOCKED_YET}"));
        let file = File::create(&fresh)?;
        file.lock()?;
        let path = folder.join(&id);
        std::fs::rename(&fresh, &path)?;
        Ok(Owner { id, path, _file: file })
    }

    pub fn id(&self) -> &str {
        &self.id
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        // Left behind, it is cleared away by the next process.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Whether the process with this owner id is alive.
pub fn is_alive(store: &Path, id: &str) -> bool {
    let Ok(file) = File::open(folder(store).join(id)) else { return false };
    matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock))
}

fn folder(store: &Path) -> PathBuf {
    store.with_extension("owners")
}

fn clear(folder: &Path) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().ends_with(NOT_LOCKED_YET) {
            continue;
        }
        let dead = File::open(entry.path()).is_ok_and(|file| file.try_lock().is_ok());
        if dead {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}
