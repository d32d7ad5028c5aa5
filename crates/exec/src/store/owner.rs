//! Which process a run belongs to: a lock file that the system releases when the process dies, however it dies.
//!
//! The lock files lie in a folder of their own beside the store, `STORE.lemon-locks`. Only a folder with our marker in it is
//! used, only files with a name of ours are removed from it, and no link is followed: whatever else lies there is left alone.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Error, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

/// What the name of the folder adds to that of the store.
const FOLDER: &str = ".lemon-locks";
/// The file that tells a folder of ours from others.
const MARKER: &str = "this-folder-is-written-by-lemon";
/// The name of a lock file is this, the id of its owner, and [`ENDS`].
const BEGINS: &str = "owner-";
const ENDS: &str = ".lock";
/// How many letters an id has.
const ID_LETTERS: usize = 8;

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
        // Held until the lock file is locked: a process that clears away must not find it unlocked.
        let marker = claim(&folder)?;
        marker.lock()?;
        clear(&folder)?;
        let id = crate::fresh_id();
        let path = folder.join(file_name(&id));
        let mut file = no_link().read(true).write(true).create_new(true).open(&path)?;
        file.lock()?;
        writeln!(file, "{}", std::process::id())?;
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

/// The process with this owner id, if it is alive.
pub fn alive(store: &Path, id: &str) -> Option<Alive> {
    // An id is read from the store, and a store may come from anywhere.
    if !is_id(id) {
        return None;
    }
    let file = open_plain(&folder(store).join(file_name(id))).ok()?;
    if !matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)) {
        return None;
    }
    let mut text = String::new();
    // Some systems do not let other processes read a locked file.
    let process = (&file).take(32).read_to_string(&mut text).ok().and_then(|_| text.trim().parse().ok());
    Some(Alive { process })
}

/// A process that is alive.
pub struct Alive {
    /// Its number, where it can be read.
    pub process: Option<u32>,
}

fn folder(store: &Path) -> PathBuf {
    let mut name = store.as_os_str().to_owned();
    name.push(FOLDER);
    name.into()
}

fn file_name(id: &str) -> String {
    format!("{BEGINS}{id}{ENDS}")
}

fn is_id(text: &str) -> bool {
    text.len() == ID_LETTERS && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
}

/// Makes the folder if there is none, and opens its marker. A folder that is not ours is refused.
fn claim(folder: &Path) -> std::io::Result<File> {
    match std::fs::create_dir(folder) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(at(folder, &error)),
        _ => {}
    }
    if !std::fs::symlink_metadata(folder).map_err(|error| at(folder, &error))?.is_dir() {
        return Err(refused(folder, "it is not a folder"));
    }
    let marker = folder.join(MARKER);
    // The marker is written before anything else: a process that sees a lock file of ours sees the marker after it.
    let is_empty = std::fs::read_dir(folder).map_err(|error| at(folder, &error))?.next().is_none();
    if !is_empty && std::fs::symlink_metadata(&marker).is_err() {
        return Err(refused(folder, &format!("there is no file `{MARKER}` in it")));
    }
    match no_link().write(true).create_new(true).open(&marker) {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        Err(error) => return Err(at(&marker, &error)),
    }
    open_plain(&marker)
}

/// Removes the lock files of processes that are gone.
fn clear(folder: &Path) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder).map_err(|error| at(folder, &error))? {
        let entry = entry.map_err(|error| at(folder, &error))?;
        let name = entry.file_name();
        let id = name.to_str().and_then(|name| name.strip_prefix(BEGINS)?.strip_suffix(ENDS));
        if id.is_some_and(is_id) && open_plain(&entry.path()).is_ok_and(|file| file.try_lock().is_ok()) {
            // Another process may have cleared it away; a file that stays does no harm.
            let _ = std::fs::remove_file(entry.path());
        }
    }
    Ok(())
}

/// Opens a file that must be a plain one: no link, no pipe, no device.
fn open_plain(path: &Path) -> std::io::Result<File> {
    if !std::fs::symlink_metadata(path).map_err(|error| at(path, &error))?.is_file() {
        return Err(refused(path, "it is not a plain file"));
    }
    no_link().read(true).open(path).map_err(|error| at(path, &error))
}

/// Options that follow no link, even one put there since we looked.
fn no_link() -> OpenOptions {
    #[allow(unused_mut)]
    let mut options = OpenOptions::new();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, libc::O_NOFOLLOW | libc::O_NONBLOCK);
    options
}

fn refused(path: &Path, why: &str) -> Error {
    let text = format!(
        "{} is not used for lock files: {why}; move it away, or give another store with --store",
        path.display()
    );
    Error::new(ErrorKind::InvalidInput, text)
}

fn at(path: &Path, error: &Error) -> Error {
    Error::new(error.kind(), format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Everything in a folder, by name, with what is in it.
    fn contents(folder: &Path) -> BTreeMap<String, Vec<u8>> {
        let entry = |entry: std::fs::DirEntry| {
            (entry.file_name().into_string().unwrap(), std::fs::read(entry.path()).unwrap_or_default())
        };
        std::fs::read_dir(folder).unwrap().map(|found| entry(found.unwrap())).collect()
    }

    #[test]
    fn a_folder_that_is_not_ours_is_refused_and_left_as_it_is() {
        let place = tempfile::tempdir().unwrap();
        let store = place.path().join("x.db");
        let foreign = folder(&store);
        std::fs::create_dir(&foreign).unwrap();
        std::fs::write(foreign.join("thesis.txt"), "years of work").unwrap();
        std::fs::write(foreign.join("owner-abcdefgh.lock"), "looks like ours").unwrap();
        let before = contents(&foreign);
        let error = Owner::new(&store).err().unwrap().to_string();
        assert!(error.contains("x.db.lemon-locks") && error.contains(MARKER), "{error}");
        assert_eq!(contents(&foreign), before);
    }

    #[test]
    fn only_dead_lock_files_of_ours_are_cleared_away() {
        let place = tempfile::tempdir().unwrap();
        let store = place.path().join("x.db");
        let living = Owner::new(&store).unwrap();
        let ours = folder(&store);
        for name in ["notes", "owner-abcdefgh.lock.bak", "owner-ABCDEFGH.lock", "owner-a.lock", "owner-abcdefgh.lock"] {
            std::fs::write(ours.join(name), "1").unwrap();
        }
        let other = Owner::new(&store).unwrap();
        let left: Vec<String> = contents(&ours).into_keys().collect();
        let mut expected = ["notes", "owner-abcdefgh.lock.bak", "owner-ABCDEFGH.lock", "owner-a.lock", MARKER]
            .map(str::to_owned)
            .to_vec();
        expected.extend([living.id(), other.id()].map(file_name));
        expected.sort();
        assert_eq!(left, expected);
    }

    #[test]
    fn the_process_of_an_owner_is_known_while_it_lives() {
        let place = tempfile::tempdir().unwrap();
        let store = place.path().join("x.db");
        let owner = Owner::new(&store).unwrap();
        let id = owner.id().to_owned();
        assert_eq!(alive(&store, &id).unwrap().process, Some(std::process::id()));
        drop(owner);
        assert!(alive(&store, &id).is_none());
        assert!(alive(&store, "../../etc").is_none() && alive(&store, "").is_none());
    }

    #[cfg(unix)]
    #[test]
    fn links_are_not_followed() {
        let place = tempfile::tempdir().unwrap();
        let elsewhere = place.path().join("elsewhere");
        std::fs::create_dir(&elsewhere).unwrap();
        std::fs::write(elsewhere.join(MARKER), "").unwrap();
        std::fs::write(elsewhere.join("owner-abcdefgh.lock"), "1").unwrap();
        let before = contents(&elsewhere);
        // The folder is a link to a folder that even looks like ours.
        let store = place.path().join("x.db");
        std::os::unix::fs::symlink(&elsewhere, folder(&store)).unwrap();
        let error = Owner::new(&store).err().unwrap().to_string();
        assert!(error.contains("not a folder"), "{error}");
        assert_eq!(contents(&elsewhere), before);
        // The marker is a link.
        let store = place.path().join("y.db");
        std::fs::create_dir(folder(&store)).unwrap();
        std::os::unix::fs::symlink(elsewhere.join("new"), folder(&store).join(MARKER)).unwrap();
        assert!(Owner::new(&store).is_err());
        assert_eq!(contents(&elsewhere), before);
        // A lock file is a link.
        let store = place.path().join("z.db");
        let owner = Owner::new(&store).unwrap();
        let link = folder(&store).join("owner-abcdefgh.lock");
        std::os::unix::fs::symlink(elsewhere.join("owner-abcdefgh.lock"), &link).unwrap();
        drop(Owner::new(&store).unwrap());
        assert!(std::fs::symlink_metadata(&link).is_ok() && contents(&elsewhere) == before);
        assert!(alive(&store, "abcdefgh").is_none());
        drop(owner);
    }
}
