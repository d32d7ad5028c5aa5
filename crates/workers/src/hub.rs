//! A repository on the Hugging Face hub. What a server says becomes part of a path only as a [`CommitId`], a `Sum` or a
//! plain name; every file has a checksum, or is refused; and it gets its place by a rename, after it was checked.

mod pull;
mod sum;
mod transport;

pub use pull::{PulledCheckpoint, PulledFile, pull};

use crate::error::{WorkersError, WorkersErrorKind};
use crate::models::cache::{Cache, CommitId, Repository, remove_if_there};
use crate::models::{Reference, cache, is_gguf, is_plain};
use crate::progress::{Attempt, DownloadProgress};
use lemon_exec::Retry;
use reqwest::Url;
use serde::{Deserialize, Serialize};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::thread;
use sum::Sum;
use transport::{HubAnswer, HubFailure, Transport};

/// The hub that is asked where no other is named.
const ADDRESS: &str = "https://huggingface.co";
/// What is here of a file is not fetched again.
const GOES_ON: &str = "the same command goes on from here";
/// The most bytes of a file that is read whole: everything but weights.
const MOST_TEXT: u64 = 256 << 20;

/// A repository on the hub.
struct Hub {
    transport: Transport,
    cache: Cache,
    repository: Repository,
    reference: Reference,
    has_token: bool,
}

/// What a repository holds.
struct Listing {
    /// The commit that the revision stands for.
    commit: CommitId,
    files: Vec<RemoteFile>,
    /// The architecture of its GGUF files, where the hub states one.
    architecture: Option<String>,
}

/// A file as the hub states it.
#[derive(Clone)]
struct RemoteFile {
    name: String,
    bytes: Option<u64>,
    sum: Stated,
}

/// The checksum that a list of files states.
#[derive(Clone)]
enum Stated {
    Sum(Sum),
    /// None. A mirror may leave it to the headers of the file.
    Nothing,
    /// Something else, which no file can be checked against.
    Nonsense(String),
}

/// A file that can be checked: its name is plain, its length and its checksum are known.
struct Known<'a> {
    name: &'a str,
    bytes: u64,
    sum: Sum,
    /// Where its content belongs.
    blob: PathBuf,
    /// Where the file belongs.
    place: PathBuf,
}

/// What became of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PullStatus {
    /// It came from the hub.
    Fetched,
    /// It was here, and is right.
    Kept,
}

impl PullStatus {
    pub fn name(self) -> &'static str {
        match self {
            PullStatus::Fetched => "fetched",
            PullStatus::Kept => "kept",
        }
    }
}

impl Hub {
    /// A repository at this address, or at the hub's own.
    ///
    /// # Errors
    /// There is no place for a cache.
    fn new(reference: &Reference, address: Option<&str>) -> Result<Self, WorkersError> {
        let cache = cache()?;
        let given = std::env::var("HF_TOKEN").ok().map(|token| token.trim().to_owned());
        let token = given.filter(|token| !token.is_empty()).or_else(|| cache.token());
        Ok(Hub {
            transport: Transport::new(address.unwrap_or(ADDRESS), token.as_deref())?,
            repository: cache.repository(&reference.name),
            cache,
            reference: reference.clone(),
            has_token: token.is_some(),
        })
    }

    /// Asks what the repository holds.
    ///
    /// # Errors
    /// It does not exist, is closed to us, or the hub cannot be reached.
    fn list(&self, progress: &dyn DownloadProgress) -> Result<Listing, WorkersError> {
        patiently(|text| progress.note(text), || false, || self.ask())
    }

    fn ask(&self) -> Result<Listing, HubFailure> {
        let parts: Vec<&str> = ["api", "models"].into_iter().chain(self.reference.name.split('/')).collect();
        let parts = [parts.as_slice(), &["revision", &self.reference.revision]].concat();
        // The sizes and checksums of all files, in one answer.
        let answer = self.transport.get(self.transport.address(&parts, Some("blobs=true")), None)?;
        if answer.status() != 200 {
            return Err(self.refusal(answer.status(), &format!("{}", self.reference)));
        }
        let body = self.transport.list(answer)?;
        Listing::parse(&body).map_err(|fact| HubFailure::lasting(format!("the hub sent no list of files: {fact}")))
    }

    /// Where the files of a commit lie.
    fn folder(&self, commit: &CommitId) -> PathBuf {
        self.repository.snapshot(commit)
    }

    /// Sees to it that a file is in its place, and right.
    ///
    /// # Errors
    /// It cannot be had, has no checksum, or is not what the hub says it is. Then nothing lies in its place.
    fn settle(
        &self,
        commit: &CommitId,
        file: &RemoteFile,
        progress: &dyn DownloadProgress,
    ) -> Result<PullStatus, WorkersError> {
        let file = &patiently(|text| progress.note(text), || false, || self.identify(commit, file))?;
        let unusable = |error| WorkersError::new(format!("{} cannot be used: {error}", file.place.display()));
        self.repository.make_room(commit).map_err(unusable)?;
        self.adopt(file).map_err(unusable)?;
        if file.place.exists() {
            match file.difference(&file.place).map_err(unusable)? {
                None => return Ok(PullStatus::Kept),
                Some(difference) => {
                    progress.note(&format!("{} is damaged: {difference}; fetching it again", file.name))
                }
            }
            self.discard(file).map_err(unusable)?;
        }
        self.fetch(commit, file, progress)?;
        Ok(PullStatus::Fetched)
    }

    /// Gives the revision's name to the commit, as other programs expect it in the cache.
    ///
    /// # Errors
    /// The cache cannot be written.
    fn name(&self, commit: &CommitId) -> Result<(), WorkersError> {
        let unusable = |error| WorkersError::new(format!("{} cannot be used: {error}", self.cache.path().display()));
        self.repository.refer(&self.reference.revision, commit).map_err(unusable)
    }

    /// What a file is to be checked against: what the list states, or else the headers of the file.
    fn identify<'a>(&self, commit: &CommitId, file: &'a RemoteFile) -> Result<Known<'a>, HubFailure> {
        let name = file.name.as_str();
        if !is_plain(name) {
            return Err(HubFailure::lasting(format!("the hub names a file {}, which is no plain name", shown(name))));
        }
        let unchecked = |found: &str| HubFailure {
            hint: Some("ask the hub itself, or another mirror with --endpoint".into()),
            ..HubFailure::lasting(format!(
                "{name} cannot be checked: the hub names it by {found}; a SHA-256 or git's name of the blob is needed"
            ))
        };
        let listed = match &file.sum {
            Stated::Nonsense(text) => return Err(unchecked(&shown(text))),
            Stated::Sum(sum) => Some(sum.clone()),
            Stated::Nothing => None,
        };
        let (sum, bytes) = match (listed, file.bytes) {
            (Some(sum), Some(bytes)) => (sum, bytes),
            (listed, bytes) => {
                let answer = self.transport.get(self.address(commit, name), Some((0, Some(0))))?;
                let empty = answer.status() == 416;
                if !empty {
                    self.accept(&answer, commit, name)?;
                }
                // Quoted, and marked as weak where a server may have packed it.
                let etag = answer.etag.as_deref().map(|etag| etag.trim_start_matches("W/").trim_matches('"'));
                let stated =
                    || etag.and_then(Sum::parse).ok_or_else(|| unchecked(&etag.map_or("nothing".into(), shown)));
                let length = if empty { Some(0) } else { answer.whole_length() };
                let bytes = bytes.or(length);
                let bytes = bytes.ok_or_else(|| HubFailure::senseless(&format!("{name} has no length")))?;
                (listed.map_or_else(stated, Ok)?, bytes)
            }
        };
        if bytes > MOST_TEXT && !is_weights(name) {
            return Err(HubFailure::lasting(format!("{name} has {bytes} bytes; at most {MOST_TEXT} make sense")));
        }
        let blob = self.repository.blobs().join(sum.digits());
        Ok(Known { name, bytes, sum, blob, place: self.repository.snapshot(commit).join(name) })
    }

    /// A file of another commit with the same content is the same file.
    fn adopt(&self, file: &Known<'_>) -> io::Result<()> {
        if file.place.exists() {
            return Ok(());
        }
        // A link to nothing would be in the way.
        remove_if_there(&file.place)?;
        // Not a link to somewhere else.
        match fs::symlink_metadata(&file.blob) {
            Ok(blob) if blob.is_file() => self.repository.link(file.sum.digits(), &file.place),
            _ => Ok(()),
        }
    }

    /// Removes a file, and the content of this repository that it links to.
    fn discard(&self, file: &Known<'_>) -> io::Result<()> {
        let ours =
            |path: &PathBuf| fs::canonicalize(self.repository.blobs()).is_ok_and(|blobs| path.starts_with(blobs));
        // A place that leads nowhere has no content to remove.
        let target = fs::canonicalize(&file.place).ok().filter(ours);
        let all = [target.as_deref(), Some(file.blob.as_path()), Some(file.place.as_path())];
        all.into_iter().flatten().try_for_each(remove_if_there)
    }

    /// Fetches the content, checks it, and puts it in its place.
    fn fetch(&self, commit: &CommitId, file: &Known<'_>, progress: &dyn DownloadProgress) -> Result<(), WorkersError> {
        let _lock = file.lock()?;
        let part = file.part();
        let unusable = |error| WorkersError::new(format!("{} cannot be used: {error}", part.display()));
        let length = || fs::metadata(&part).map_or(0, |part| part.len());
        let mut before = length();
        // An attempt that brought something is a new beginning.
        let brought = || {
            let now = length();
            std::mem::replace(&mut before, now) < now
        };
        patiently(
            |text| progress.note(text),
            brought,
            || {
                let mut count = Attempt::new(progress);
                self.attempt(commit, file, &mut count)?;
                count.keep();
                Ok(())
            },
        )?;
        if let Some(difference) = file.difference(&part).map_err(unusable)? {
            remove_if_there(&part).map_err(unusable)?;
            let fact = format!("the hub sent something else as {}: {difference}", file.name);
            return Err(WorkersError::new(fact)
                .hint("it was removed; try again, or ask another mirror with --endpoint")
                .kind(WorkersErrorKind::Download));
        }
        fs::rename(&part, &file.blob).map_err(unusable)?;
        let unusable = |error| WorkersError::new(format!("{} cannot be used: {error}", file.place.display()));
        self.repository.link(file.sum.digits(), &file.place).map_err(unusable)
    }

    fn attempt(&self, commit: &CommitId, file: &Known<'_>, count: &mut Attempt<'_>) -> Result<(), HubFailure> {
        let name = file.name;
        let unwritable = |error: io::Error| HubFailure::lasting(format!("{} cannot be written: {error}", name));
        let (mut part, mut from) = file.open_part().map_err(unwritable)?;
        if file.bytes == 0 {
            return part.sync_all().map_err(unwritable);
        }
        let range = (from > 0).then_some((from, None));
        let mut answer = self.transport.get(self.address(commit, name), range)?;
        self.accept(&answer, commit, name)?;
        match answer.status() {
            206 if answer.begins_at() != Some(from) => {
                return Err(HubFailure::senseless(&format!("another part of {name} than was asked for")));
            }
            206 => {}
            // It sends the whole.
            _ => from = 0,
        }
        part.set_len(from).and_then(|()| part.seek(SeekFrom::Start(from))).map_err(unwritable)?;
        count.receive(from);
        let mut length = from;
        let received = self.transport.receive(&mut answer, |piece| {
            length += piece.len() as u64;
            if length > file.bytes {
                let fact = format!("the hub sent something else as {name}: more than {} bytes", file.bytes);
                return Err(HubFailure::lasting(fact));
            }
            part.write_all(piece).map_err(unwritable)?;
            count.receive(piece.len() as u64);
            Ok(())
        });
        received.map_err(|failure| match failure.passing {
            true => HubFailure { fact: format!("{name} broke off: {}", failure.fact), ..failure },
            false => failure,
        })?;
        if length < file.bytes {
            return Err(HubFailure::passing(format!("{name} broke off: {length} of {} bytes came", file.bytes)));
        }
        // On the disk first: a name must never stand for half a file, not even after a crash of the machine.
        part.sync_all().map_err(unwritable)
    }

    /// Whether an answer is the file that was asked for.
    fn accept(&self, answer: &HubAnswer, commit: &CommitId, name: &str) -> Result<(), HubFailure> {
        if !matches!(answer.status(), 200 | 206) {
            return Err(self.refusal(answer.status(), &format!("{name} in {}", self.reference)));
        }
        match &answer.commit {
            Some(other) if CommitId::parse(other).as_ref() != Some(commit) => {
                let fact = format!("{name} of commit {commit} was asked for, the hub sent that of {}", shown(other));
                Err(HubFailure::lasting(fact))
            }
            _ => Ok(()),
        }
    }

    fn refusal(&self, status: u16, what: &str) -> HubFailure {
        let lasting = |fact: String, hint: &str| HubFailure { hint: Some(hint.into()), ..HubFailure::lasting(fact) };
        match status {
            401 | 403 if self.has_token => lasting(
                format!("the hub answered {status}: your token gives no access to {what}"),
                "does the name exist? accept its terms on its page, and let HF_TOKEN hold a token that may read it",
            ),
            401 | 403 => lasting(
                format!("the hub answered {status}: {what} does not exist or asks for a token"),
                "check the name; if its page asks for an agreement, give it and export HF_TOKEN=…",
            ),
            404 => lasting(format!("the hub has no {what}"), "check the name: OWNER/NAME[@REVISION], as on its page"),
            408 | 429 | 500..=599 => HubFailure::passing(format!("the hub answered {status} for {what}")),
            _ => HubFailure::lasting(format!("the hub answered {status} for {what}")),
        }
    }

    /// Where the hub has a file.
    fn address(&self, commit: &CommitId, name: &str) -> Url {
        let parts: Vec<&str> = self.reference.name.split('/').chain(["resolve", commit.digits(), name]).collect();
        self.transport.address(&parts, None)
    }
}

impl Listing {
    fn parse(body: &[u8]) -> Result<Self, String> {
        let Info { sha, siblings, gguf } = serde_json::from_slice(body).map_err(|error| error.to_string())?;
        let commit = CommitId::parse(&sha).ok_or_else(|| format!("{} is no commit", shown(&sha)))?;
        let file = |Sibling { rfilename, size, blob_id, lfs }| {
            // A large file has both, and git's name is then that of a note about it.
            let stated = lfs.map(|lfs| (lfs.sha256, true)).or(blob_id.map(|id| (id, false)));
            let sum = match stated.map(|(digits, is_large)| (Sum::parse(&digits), is_large, digits)) {
                None => Stated::Nothing,
                Some((Some(sum @ Sum::Sha256(_)), true, _) | (Some(sum @ Sum::Git(_)), false, _)) => Stated::Sum(sum),
                Some((_, _, text)) => Stated::Nonsense(text),
            };
            RemoteFile { name: rfilename, bytes: size, sum }
        };
        let architecture = gguf.and_then(|gguf| gguf.architecture);
        Ok(Listing { commit, files: siblings.into_iter().map(file).collect(), architecture })
    }

    fn file(&self, name: &str) -> Option<&RemoteFile> {
        self.files.iter().find(|file| file.name == name)
    }
}

/// The answer of the hub, as far as it matters.
#[derive(Deserialize)]
struct Info {
    sha: String,
    siblings: Vec<Sibling>,
    gguf: Option<GgufInfo>,
}

#[derive(Deserialize)]
struct GgufInfo {
    architecture: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Sibling {
    rfilename: String,
    size: Option<u64>,
    blob_id: Option<String>,
    lfs: Option<Lfs>,
}

#[derive(Deserialize)]
struct Lfs {
    sha256: String,
}

impl Known<'_> {
    /// How a file that lies here differs from the one on the hub.
    fn difference(&self, path: &Path) -> io::Result<Option<String>> {
        let length = fs::metadata(path)?.len();
        if length != self.bytes {
            return Ok(Some(format!("{length} bytes instead of {}", self.bytes)));
        }
        let found = self.sum.of_file(path)?;
        Ok((found != self.sum).then(|| format!("its checksum is {} instead of {}", found.digits(), self.sum.digits())))
    }

    /// Where the content lies while it is not whole. Always the same name, so that the next run finds what a killed one has left.
    fn part(&self) -> PathBuf {
        self.blob.with_extension("part")
    }

    /// Opens what is here of the content, less the last byte if all of it is: the answer to a request for the rest shows that
    /// the hub still has the file. The second value is its length.
    fn open_part(&self) -> io::Result<(File, u64)> {
        let path = self.part();
        match fs::symlink_metadata(&path) {
            Ok(found) if !found.is_file() => {
                let fact = format!("{} is no plain file", path.display());
                return Err(io::Error::new(ErrorKind::InvalidInput, fact));
            }
            // Another name of the same file would be written to as well.
            #[cfg(unix)]
            Ok(found) if std::os::unix::fs::MetadataExt::nlink(&found) > 1 => fs::remove_file(&path)?,
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(path)?;
        let length = file.metadata()?.len().min(self.bytes.saturating_sub(1));
        file.set_len(length)?;
        Ok((file, length))
    }

    /// Two processes would write into each other's files. The system gives the lock free however a process dies; one that
    /// cannot lock files goes without.
    fn lock(&self) -> Result<Option<File>, WorkersError> {
        let path = self.blob.with_extension("lock");
        let unusable = |error| WorkersError::new(format!("{} cannot be used: {error}", path.display()));
        // A link would be followed.
        if fs::symlink_metadata(&path).is_ok_and(|found| !found.is_file()) {
            return Err(unusable(io::Error::new(ErrorKind::InvalidInput, "it is no plain file")));
        }
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(&path).map_err(unusable)?;
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => {
                let fact = format!("another process is fetching {}", self.name);
                Err(WorkersError::new(fact)
                    .hint("wait for that process, or end it, and try again")
                    .kind(WorkersErrorKind::Download))
            }
            _ => Ok(Some(file)),
        }
    }
}

/// Whether a file of this name may be too long to be read whole.
fn is_weights(name: &str) -> bool {
    name.ends_with(".safetensors") || is_gguf(Path::new(name))
}

/// A text of the hub's for a message: short, in one line, and nothing that a terminal would obey.
fn shown(text: &str) -> String {
    const MOST: usize = 80;
    let short: String = text.chars().take(MOST).collect();
    let more = if short.len() < text.len() { "…" } else { "" };
    format!("`{}{more}`", short.escape_debug())
}

/// Tries again what may pass; attempts that brought something do not count.
fn patiently<T>(
    note: impl Fn(&str),
    mut brought: impl FnMut() -> bool,
    mut attempt: impl FnMut() -> Result<T, HubFailure>,
) -> Result<T, WorkersError> {
    let retry = Retry::default();
    let mut attempts = 1;
    loop {
        let HubFailure { fact, hint, passing } = match attempt() {
            Ok(value) => return Ok(value),
            Err(failure) => failure,
        };
        if brought() {
            attempts = 1;
        }
        let Some(wait) = retry.wait(attempts, None, u64::MAX).filter(|_| passing) else {
            let hint = hint.or_else(|| passing.then(|| GOES_ON.to_owned()));
            return Err(WorkersError { hint, ..WorkersError::new(fact).kind(WorkersErrorKind::Download) });
        };
        note(&format!("{fact}; again in {} s", wait.as_secs_f64()));
        thread::sleep(wait);
        attempts += 1;
    }
}
