//! The folders of the Hugging Face hub's cache. A path in it is made of checked parts only: a commit, a checksum, a plain
//! name. No text that a server sent becomes part of a path in any other way.

use super::{DEFAULT_REVISION, is_plain};
use std::fmt;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// The longest file that says which commit a branch is, in bytes.
const MOST_REFERENCE: u64 = 1 << 10;

/// The cache, as other programs lay it out: `models--OWNER--NAME/{blobs,snapshots,refs}`.
#[derive(Debug, Clone)]
pub struct Cache {
    path: PathBuf,
    /// What the hub's programs have beside it.
    home: PathBuf,
}

impl Cache {
    /// In `HF_HUB_CACHE`, in `HF_HOME`, or in the user's folder; `None` if none of them is known.
    pub fn from_env() -> Option<Self> {
        let given = |name: &str| std::env::var_os(name).filter(|folder| !folder.is_empty()).map(PathBuf::from);
        let home = given("HF_HOME").or_else(|| Some(std::env::home_dir()?.join(".cache").join("huggingface")))?;
        Some(Cache { path: given("HF_HUB_CACHE").unwrap_or_else(|| home.join("hub")), home })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The token that a program of the hub's has left beside the cache; where it cannot be read, requests go without one.
    pub fn token(&self) -> Option<String> {
        let text = fs::read_to_string(self.home.join("token")).ok()?;
        Some(text.trim().to_owned()).filter(|token| !token.is_empty())
    }

    /// The folder of a repository. `name` is `OWNER/NAME` of plain names, as [`super::Reference`] has it.
    pub fn repository(&self, name: &str) -> Repository {
        Repository { folder: self.path.join(format!("models--{}", name.replace('/', "--"))) }
    }
}

/// A commit: forty hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitId(String);

impl CommitId {
    /// Reads one; `None` for everything else.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.len() == 40 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        digits.then(|| CommitId(text.to_ascii_lowercase()))
    }

    pub fn digits(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for CommitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A repository in the cache.
#[derive(Debug, Clone)]
pub struct Repository {
    folder: PathBuf,
}

impl Repository {
    /// Where the contents of files are.
    pub fn blobs(&self) -> PathBuf {
        self.folder.join("blobs")
    }

    /// Where the files of a commit are.
    pub fn snapshot(&self, commit: &CommitId) -> PathBuf {
        self.folder.join("snapshots").join(commit.digits())
    }

    /// The snapshot that a branch, a tag or a commit stands for; for the default revision without a reference the only one
    /// there is.
    pub fn find_snapshot(&self, revision: &str) -> Option<PathBuf> {
        let snapshots = self.folder.join("snapshots");
        if let Some(commit) = self.referred(revision) {
            return Some(self.snapshot(&commit)).filter(|folder| folder.is_dir());
        }
        match super::entries(&snapshots).as_slice() {
            [only] if revision == DEFAULT_REVISION => Some(only.clone()),
            _ => Some(snapshots.join(revision)).filter(|folder| is_plain(revision) && folder.is_dir()),
        }
    }

    /// The commit of a branch or tag. A file that cannot be read, or holds something else, refers to none.
    fn referred(&self, revision: &str) -> Option<CommitId> {
        let parts = revision.split('/');
        let path =
            parts.clone().all(is_plain).then(|| parts.fold(self.folder.join("refs"), |path, it| path.join(it)))?;
        let is_short = fs::metadata(&path).is_ok_and(|file| file.is_file() && file.len() <= MOST_REFERENCE);
        is_short.then(|| CommitId::parse(fs::read_to_string(path).ok()?.trim()))?
    }

    /// Makes the folders for a file of a commit.
    ///
    /// # Errors
    /// They cannot be made, or one of them is a link or a file.
    pub fn make_room(&self, commit: &CommitId) -> io::Result<()> {
        self.make(&["blobs"])?;
        self.make(&["snapshots", commit.digits()]).map(drop)
    }

    /// Lets a branch or tag stand for a commit.
    ///
    /// # Errors
    /// The file cannot be written, or `revision` is no path of plain names.
    pub fn refer(&self, revision: &str, commit: &CommitId) -> io::Result<()> {
        let parts: Vec<&str> = std::iter::once("refs").chain(revision.split('/')).collect();
        let (Some((name, folders)), true) = (parts.split_last(), parts.iter().all(|part| is_plain(part))) else {
            return Err(io::Error::new(ErrorKind::InvalidInput, format!("{revision:?} is no name of a revision")));
        };
        let folder = self.make(folders)?;
        // No plain name begins with a dot.
        let part = folder.join(format!(".{name}.part"));
        remove_if_there(&part)?;
        fs::write(&part, commit.digits())?;
        fs::rename(&part, folder.join(name))
    }

    /// Puts the content of a file where the file belongs: a link, or the content itself where the system knows no links.
    ///
    /// # Errors
    /// Neither can be made.
    pub fn link(&self, digits: &str, place: &Path) -> io::Result<()> {
        let linked = symlink(&Path::new("..").join("..").join("blobs").join(digits), place);
        match linked {
            Ok(()) => Ok(()),
            // Another process was faster, with the same content.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
            Err(_) => fs::hard_link(self.blobs().join(digits), place),
        }
    }

    /// Makes a folder of the repository. The user may have put the repository elsewhere; nothing in it may lead further.
    fn make(&self, parts: &[&str]) -> io::Result<PathBuf> {
        fs::create_dir_all(&self.folder)?;
        let mut folder = self.folder.clone();
        for part in parts {
            folder.push(part);
            match fs::create_dir(&folder) {
                Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
            if !fs::symlink_metadata(&folder)?.is_dir() {
                return Err(io::Error::new(ErrorKind::NotADirectory, format!("{} is no folder", folder.display())));
            }
        }
        Ok(folder)
    }
}

/// Removes a file or a link. That there is none is no error.
pub fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(unix)]
fn symlink(target: &Path, place: &Path) -> io::Result<()> {
    std::os::unix::fs::symlink(target, place)
}

#[cfg(not(unix))]
fn symlink(_target: &Path, _place: &Path) -> io::Result<()> {
    Err(ErrorKind::Unsupported.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commits() {
        let check = |text: &str, expected: Option<&str>| {
            assert_eq!(CommitId::parse(text).as_ref().map(CommitId::digits), expected, "{text}");
        };
        let digits = "0123456789abcdef0123456789abcdef01234567";
        check(digits, Some(digits));
        check(&digits.to_uppercase(), Some(digits));
        for bad in ["", "main", "..", "../../../x", &digits[1..], &format!("{digits}0"), &format!("/{}", &digits[1..])]
        {
            check(bad, None);
        }
        check(&format!("{}\u{e9}", &digits[..38]), None);
    }

    #[test]
    fn a_revision_is_written_inside_the_cache_only() {
        let home = tempfile::tempdir().unwrap();
        let repository = Cache { path: home.path().join("hub"), home: home.path().to_owned() }.repository("a/b");
        let commit = CommitId::parse(&"a".repeat(40)).unwrap();
        repository.refer("refs/pr/1", &commit).unwrap();
        let written = home.path().join("hub/models--a--b/refs/refs/pr/1");
        assert_eq!(fs::read_to_string(written).unwrap(), "a".repeat(40));
        for bad in ["..", "../x", "/x", "", "x/../../../y", "x\0", "x\\y", "x\ny"] {
            assert!(repository.refer(bad, &commit).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn snapshots_are_found_by_branch_and_commit() {
        let home = tempfile::tempdir().unwrap();
        let repository = Cache { path: home.path().join("hub"), home: home.path().to_owned() }.repository("a/b");
        let [one, two] = ["1", "2"].map(|digit| CommitId::parse(&digit.repeat(40)).unwrap());
        assert_eq!(repository.find_snapshot("main"), None);
        repository.make_room(&one).unwrap();
        assert_eq!(repository.find_snapshot("main"), Some(repository.snapshot(&one)), "the only one");
        assert_eq!(repository.find_snapshot("v1"), None);
        repository.make_room(&two).unwrap();
        assert_eq!(repository.find_snapshot("main"), None, "either");
        repository.refer("main", &two).unwrap();
        assert_eq!(repository.find_snapshot("main"), Some(repository.snapshot(&two)));
        assert_eq!(repository.find_snapshot(one.digits()), Some(repository.snapshot(&one)));
        for bad in ["..", "../..", "", "/", "x\0", "../snapshots"] {
            assert_eq!(repository.find_snapshot(bad), None, "{bad:?}");
        }
        for bad in ["../../../..", "", &"x".repeat(5_000)] {
            fs::write(home.path().join("hub/models--a--b/refs/main"), bad).unwrap();
            assert_eq!(repository.find_snapshot("main"), None, "{bad:?}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn no_folder_of_a_repository_leads_elsewhere() {
        let home = tempfile::tempdir().unwrap();
        let repository = Cache { path: home.path().join("hub"), home: home.path().to_owned() }.repository("a/b");
        let (commit, outside) = (CommitId::parse(&"a".repeat(40)).unwrap(), home.path().join("outside"));
        for link in ["blobs", "snapshots", "refs"] {
            fs::create_dir_all(home.path().join("hub/models--a--b")).unwrap();
            fs::create_dir_all(&outside).unwrap();
            std::os::unix::fs::symlink(&outside, home.path().join("hub/models--a--b").join(link)).unwrap();
            let made = repository.make_room(&commit).and_then(|()| repository.refer("main", &commit));
            assert!(made.unwrap_err().to_string().contains("is no folder"), "{link}");
            assert_eq!(fs::read_dir(&outside).unwrap().count(), 0, "{link}");
            fs::remove_dir_all(home.path().join("hub")).unwrap();
        }
    }
}
