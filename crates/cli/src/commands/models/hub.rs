//! A repository on the Hugging Face hub. The crate `hf-hub` speaks its protocol, keeps its cache and goes on with half a
//! file; what it lacks is here: checksums, another attempt, an end to silence, and no second download of what is here.

use super::sum::Sum;
use crate::commands::data::progress::{Attempt, Progress};
use crate::fault::Fault;
use crate::models::{Reference, cache};
use hf_hub::api::sync::{Api, ApiBuilder, ApiError};
use hf_hub::{Cache, CacheRepo, Repo, RepoType};
use lemon_exec::Retry;
use serde::{Deserialize, Serialize};
use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

/// How long the hub may be silent.
const SILENCE: Duration = Duration::from_secs(30);
/// What is here of a file is not fetched again.
const GOES_ON: &str = "the same command goes on from here";

/// A repository on the hub.
pub struct Hub {
    api: Api,
    cache: Cache,
    reference: Reference,
    has_token: bool,
}

/// What a repository holds.
pub struct Listing {
    /// The commit that the revision stands for.
    pub commit: String,
    pub files: Vec<RemoteFile>,
}

/// A file as the hub states it.
pub struct RemoteFile {
    pub name: String,
    pub bytes: Option<u64>,
    sum: Option<Sum>,
}

/// What became of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum End {
    Fetched,
    /// It was here, and is right.
    Kept,
}

impl End {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            End::Fetched => "fetched",
            End::Kept => "kept",
        }
    }
}

/// Why an attempt came to nothing.
struct Failure {
    fact: String,
    hint: Option<String>,
    /// Whether another attempt may do better.
    passing: bool,
}

impl Hub {
    /// A repository at this address, or at the hub's own.
    ///
    /// # Errors
    /// There is no place for a cache.
    pub fn new(reference: &Reference, address: Option<&str>) -> Result<Self, Fault> {
        let cache = cache()?;
        let given = std::env::var("HF_TOKEN").ok().map(|token| token.trim().to_owned());
        let token = given.filter(|token| !token.is_empty()).or_else(|| cache.token());
        let has_token = token.is_some();
        let mut builder = ApiBuilder::from_cache(cache.clone()).with_progress(false).with_token(token);
        if let Some(address) = address {
            builder = builder.with_endpoint(address.trim_end_matches('/').to_owned());
        }
        let api = builder.build().map_err(|error| Fault::new(format!("no client for the hub: {error}")))?;
        Ok(Hub { api, cache, reference: reference.clone(), has_token })
    }

    /// Asks what the repository holds.
    ///
    /// # Errors
    /// It does not exist, is closed to us, or the hub cannot be reached.
    pub fn list(&self) -> Result<Listing, Fault> {
        patiently(|text| eprintln!("{text}"), || false, || self.ask())
    }

    fn ask(&self) -> Result<Listing, Failure> {
        let repository = self.api.repo(self.repo(&self.reference.revision));
        let ask = move |_| {
            // The sizes and checksums of all files, in one answer.
            let request = repository.info_request().query("blobs", "true");
            let mut reply = request.config().http_status_as_error(false).build().call()?;
            let status = reply.status().as_u16();
            // At most 10 MB, by the client's own limit.
            reply.body_mut().read_to_vec().map(|body| (status, body))
        };
        let answered = on_a_thread(ask, |_| {})?;
        let (status, body) =
            answered.map_err(|error| Failure::passing(format!("the hub cannot be reached: {error}")))?;
        match status {
            200 => {
                Listing::parse(&body).map_err(|fact| Failure::lasting(format!("the hub sent no list of files: {fact}")))
            }
            _ => Err(self.refusal(status, &format!("{}", self.reference))),
        }
    }

    /// Where the files of a commit lie.
    pub fn folder(&self, commit: &str) -> PathBuf {
        self.cached(commit).pointer_path(commit)
    }

    /// Sees to it that a file is in its place, and right.
    ///
    /// # Errors
    /// It cannot be had, or is not what the hub says it is. Then nothing lies in its place.
    pub fn settle(&self, commit: &str, file: &RemoteFile, progress: &Progress) -> Result<End, Fault> {
        let place = self.folder(commit).join(&file.name);
        let unusable = |error| Fault::new(format!("{} cannot be used: {error}", place.display()));
        self.adopt(commit, file, &place).map_err(unusable)?;
        if place.exists() {
            match file.difference(&place).map_err(unusable)? {
                None => return Ok(End::Kept),
                Some(difference) => {
                    progress.note(&format!("{} is damaged: {difference}; fetching it again", file.name))
                }
            }
            self.discard(commit, file, &place);
        }
        self.fetch(commit, file, progress)?;
        let Some(difference) = file.difference(&place).map_err(unusable)? else { return Ok(End::Fetched) };
        self.discard(commit, file, &place);
        let fact = format!("the hub sent something else as {}: {difference}", file.name);
        Err(Fault::new(fact).hint("it was removed; try again, or ask another mirror with --endpoint").code(1))
    }

    /// Gives the revision's name to the commit, as other programs expect it in the cache.
    ///
    /// # Errors
    /// The cache cannot be written.
    pub fn name(&self, commit: &str) -> Result<(), Fault> {
        let unusable = |error| Fault::new(format!("{} cannot be used: {error}", self.cache.path().display()));
        self.cached(&self.reference.revision).create_ref(commit).map_err(unusable)
    }

    /// A file of another commit with the same content is the same file.
    fn adopt(&self, commit: &str, file: &RemoteFile, place: &Path) -> io::Result<()> {
        if place.exists() {
            return Ok(());
        }
        // A link to nothing would be in the way.
        match fs::remove_file(place) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        match self.blob(commit, file).filter(|blob| blob.exists()) {
            Some(blob) => {
                fs::create_dir_all(self.folder(commit))?;
                fs::hard_link(blob, place)
            }
            None => Ok(()),
        }
    }

    /// Removes a file, and the content that it links to in the cache.
    fn discard(&self, commit: &str, file: &RemoteFile, place: &Path) {
        let ours = |path: &PathBuf| fs::canonicalize(self.cache.path()).is_ok_and(|cache| path.starts_with(cache));
        let target = fs::canonicalize(place).ok().filter(ours);
        let all = [target, self.blob(commit, file), Some(place.to_owned())];
        // What cannot be removed is found damaged again the next time.
        all.into_iter().flatten().for_each(|path| drop(fs::remove_file(path)));
    }

    fn fetch(&self, commit: &str, file: &RemoteFile, progress: &Progress) -> Result<(), Fault> {
        let part = self.blob(commit, file).map(|blob| blob.with_extension("part"));
        let length = || part.as_ref().and_then(|part| fs::metadata(part).ok()).map_or(0, |part| part.len());
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
                part.iter().for_each(|part| leave_a_rest(part, file.bytes));
                let mut count = progress.attempt();
                self.attempt(commit, file, &mut count)?;
                count.keep();
                Ok(())
            },
        )
    }

    fn attempt(&self, commit: &str, file: &RemoteFile, count: &mut Attempt<'_>) -> Result<(), Failure> {
        let (repository, name) = (self.api.repo(self.repo(commit)), file.name.clone());
        let download = move |counter| repository.download_with_progress(&name, counter).map(drop);
        on_a_thread(download, |bytes| count.receive(bytes))?.map_err(|error| self.failure(&file.name, error))
    }

    fn failure(&self, file: &str, error: ApiError) -> Failure {
        if let Some(status) = status(&error) {
            return self.refusal(status, &format!("{file} in {}", self.reference));
        }
        match error {
            ApiError::RequestError(error) => Failure::passing(format!("the hub cannot be reached: {error}")),
            ApiError::LockAcquisition(_) => Failure {
                hint: Some("wait for that process, or end it, and try again".into()),
                ..Failure::lasting(format!("another process is fetching {file}"))
            },
            ApiError::IoError(error) => Failure {
                passing: !matches!(
                    error.kind(),
                    ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::PermissionDenied
                ),
                ..Failure::lasting(format!("{file} broke off: {error}"))
            },
            other => Failure::lasting(format!("the hub does not speak its protocol: {file}: {other}")),
        }
    }

    fn refusal(&self, status: u16, what: &str) -> Failure {
        let lasting = |fact: String, hint: &str| Failure { hint: Some(hint.into()), ..Failure::lasting(fact) };
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
            408 | 429 | 500..=599 => Failure::passing(format!("the hub answered {status} for {what}")),
            _ => Failure::lasting(format!("the hub answered {status} for {what}")),
        }
    }

    /// Where the cache keeps the content of a file.
    fn blob(&self, commit: &str, file: &RemoteFile) -> Option<PathBuf> {
        file.sum.as_ref().map(|sum| self.cached(commit).blob_path(sum.digits()))
    }

    fn cached(&self, revision: &str) -> CacheRepo {
        self.cache.repo(self.repo(revision))
    }

    fn repo(&self, revision: &str) -> Repo {
        Repo::with_revision(self.reference.name.clone(), RepoType::Model, revision.to_owned())
    }
}

impl Listing {
    fn parse(body: &[u8]) -> Result<Self, String> {
        let Info { sha, siblings } = serde_json::from_slice(body).map_err(|error| error.to_string())?;
        // It becomes part of a path.
        if !matches!(Sum::parse(&sha), Some(Sum::Git(_))) {
            return Err(format!("`{sha}` is no commit"));
        }
        let file = |Sibling { rfilename, size, blob_id, lfs }| {
            let digits = lfs.map_or(blob_id, |lfs| Some(lfs.sha256));
            RemoteFile { name: rfilename, bytes: size, sum: digits.and_then(|digits| Sum::parse(&digits)) }
        };
        Ok(Listing { commit: sha, files: siblings.into_iter().map(file).collect() })
    }

    pub fn file(&self, name: &str) -> Option<&RemoteFile> {
        self.files.iter().find(|file| file.name == name)
    }
}

/// The answer of the hub, as far as it matters.
#[derive(Deserialize)]
struct Info {
    sha: String,
    siblings: Vec<Sibling>,
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

impl RemoteFile {
    /// How the file that lies there differs from the one on the hub.
    fn difference(&self, place: &Path) -> io::Result<Option<String>> {
        let length = fs::metadata(place)?.len();
        if let Some(bytes) = self.bytes.filter(|bytes| *bytes != length) {
            return Ok(Some(format!("{length} bytes instead of {bytes}")));
        }
        // A mirror may not list checksums; then the cache has named the content by the one that came with it.
        let named = || Sum::parse(fs::canonicalize(place).ok()?.file_name()?.to_str()?);
        let Some(stated) = self.sum.clone().or_else(named) else { return Ok(None) };
        let found = stated.of_file(place)?;
        Ok((found != stated).then(|| format!("its checksum is {} instead of {}", found.digits(), stated.digits())))
    }
}

impl Failure {
    fn lasting(fact: String) -> Self {
        Failure { fact, hint: None, passing: false }
    }

    fn passing(fact: String) -> Self {
        Failure { passing: true, ..Failure::lasting(fact) }
    }
}

/// Tries again what may pass; attempts that brought something do not count.
fn patiently<T>(
    note: impl Fn(&str),
    mut brought: impl FnMut() -> bool,
    mut attempt: impl FnMut() -> Result<T, Failure>,
) -> Result<T, Fault> {
    let retry = Retry::default();
    let mut attempts = 1;
    loop {
        let Failure { fact, hint, passing } = match attempt() {
            Ok(value) => return Ok(value),
            Err(failure) => failure,
        };
        if brought() {
            attempts = 1;
        }
        let Some(wait) = retry.wait(attempts, None, u64::MAX).filter(|_| passing) else {
            let hint = hint.or_else(|| passing.then(|| GOES_ON.to_owned()));
            return Err(Fault { hint, ..Fault::new(fact).code(1) });
        };
        note(&format!("{fact}; again in {} s", wait.as_secs_f64()));
        thread::sleep(wait);
        attempts += 1;
    }
}

/// The crate asks for the rest of a file, and takes it for a fault if there is none: what a process that was killed at the
/// very end has left. A byte of rest is left for it; the checksum is taken of the whole.
fn leave_a_rest(part: &Path, bytes: Option<u64>) {
    let length = fs::metadata(part).map_or(0, |part| part.len());
    if let Some(bytes) = bytes.filter(|bytes| length >= *bytes)
        && let Ok(file) = OpenOptions::new().write(true).open(part)
    {
        // If it fails, so will the download, and say so.
        let _ = file.set_len(bytes.saturating_sub(1));
    }
}

/// The status of an answer. The crate hands its client's error on, but not the type to take it apart with.
fn status(error: &ApiError) -> Option<u16> {
    error.to_string().rsplit_once("http status: ")?.1.parse().ok()
}

/// What a thread says.
enum News<T> {
    Received(u64),
    Done(T),
}

/// Tells how many bytes came.
struct Counter<T>(Sender<News<T>>);

impl<T> hf_hub::api::Progress for Counter<T> {
    fn init(&mut self, _size: usize, _filename: &str) {}

    fn update(&mut self, size: usize) {
        // Whoever waited may have given up.
        let _ = self.0.send(News::Received(size as u64));
    }

    fn finish(&mut self) {}
}

/// Waits for what the crate does. It knows no time limit, and panics at some answers that no hub should give; a thread can
/// be left behind, and outlived.
fn on_a_thread<T: Send + 'static>(
    work: impl FnOnce(Counter<T>) -> T + Send + 'static,
    mut receive: impl FnMut(u64),
) -> Result<T, Failure> {
    let (sender, news) = mpsc::channel();
    thread::spawn(move || {
        let done = work(Counter(sender.clone()));
        let _ = sender.send(News::Done(done));
    });
    loop {
        match news.recv_timeout(SILENCE) {
            Ok(News::Received(bytes)) => receive(bytes),
            Ok(News::Done(value)) => return Ok(value),
            // Not tried again: the thread may still hold the file.
            Err(RecvTimeoutError::Timeout) => {
                let fact = format!("the hub was silent for {} s", SILENCE.as_secs());
                return Err(Failure { hint: Some(GOES_ON.into()), ..Failure::lasting(fact) });
            }
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Failure::lasting("the hub sent an answer that makes no sense".into()));
            }
        }
    }
}
