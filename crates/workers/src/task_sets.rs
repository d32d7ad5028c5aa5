//! The public task sets, from their sources into a folder.

use crate::download::{Downloader, part_of};
use crate::error::WorkersError;
use crate::files::read_file;
use crate::progress::{DownloadProgress, StartProgress};
use futures::stream::{self, StreamExt};
use lemon_task::{Mismatch, SetName, SourceFile, parse_sources, sources};
use serde::Serialize;
use std::fs::{self, File, TryLockError};
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use tokio_util::sync::CancellationToken;

/// Files at a time: enough to hide latency, few enough for the source not to refuse.
const WIDTH: usize = 4;

/// What is fetched, and where to.
#[derive(Debug, Clone)]
pub struct FetchRequest {
    /// The folder, made if there is none.
    pub dir: PathBuf,
    /// Only these sets; all where empty.
    pub sets: Vec<SetName>,
    /// A mirror, in the place of scheme and host of every source.
    pub from: Option<String>,
    /// A table of sources in place of our own.
    pub sources: Option<PathBuf>,
    /// Whether files that are there and differ are replaced.
    pub force: bool,
}

/// Fetches task sets; only files with the known checksums get their place. `announce` is told of the files before the first one is
/// fetched. The files are returned in the order of the table, each with what became of it.
///
/// # Errors
/// The folder or the table of sources cannot be used, or another process is fetching into the folder.
pub async fn fetch(
    request: &FetchRequest,
    announce: impl FnOnce(&[SourceFile]),
    start: StartProgress,
    cancel: &CancellationToken,
) -> Result<Vec<FileResult>, WorkersError> {
    let files = chosen(request)?;
    let unusable = |error| WorkersError::new(format!("{} cannot be used: {error}", request.dir.display()));
    fs::create_dir_all(&request.dir).map_err(unusable)?;
    let _lock = lock(&request.dir)?;
    announce(&files);
    let surveyed = files.into_iter().map(|file| survey(file, request)).collect();
    settle_all(&request.dir, surveyed, start, cancel).await
}

/// The files of the sets asked for, with the addresses they will be had from.
fn chosen(request: &FetchRequest) -> Result<Vec<SourceFile>, WorkersError> {
    let mut files = match &request.sources {
        None => sources(),
        Some(table) => parse_sources(&read_file(table)?)
            .map_err(|error| WorkersError::new(format!("{} cannot be used: {error}", table.display())))?,
    };
    files.retain(|file| request.sets.is_empty() || request.sets.contains(&file.set));
    if files.is_empty() {
        return Err(WorkersError::new("the table of sources has no file of the sets asked for"));
    }
    if let Some(mirror) = &request.from {
        files.iter_mut().for_each(|file| file.url = file.url_at(mirror));
    }
    Ok(files)
}

/// Two processes would write into each other's files. The system gives the folder free however a process dies; one that
/// cannot lock folders goes without.
fn lock(dir: &Path) -> Result<Option<File>, WorkersError> {
    let Ok(folder) = File::open(dir) else { return Ok(None) };
    match folder.try_lock() {
        Err(TryLockError::WouldBlock) => {
            let fact = format!("another process is fetching into {}", dir.display());
            Err(WorkersError::new(fact).hint("wait for that process, or end it, and try again"))
        }
        _ => Ok(Some(folder)),
    }
}

/// What is to be done about a file.
enum Survey {
    Keep,
    Fetch,
    Refuse(String),
}

fn survey(file: SourceFile, request: &FetchRequest) -> (SourceFile, Survey) {
    let place = request.dir.join(&file.path);
    // What a process that was killed has left: the lock keeps others out. An error shows when the file is written.
    let _ = fs::remove_file(part_of(&place));
    let survey = match difference(&file, &place) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Survey::Fetch,
        Err(error) => Survey::Refuse(format!("what is there cannot be read: {error}")),
        Ok(None) => Survey::Keep,
        Ok(Some(_)) if request.force => Survey::Fetch,
        Ok(Some(difference)) => Survey::Refuse(format!("another file is there: {difference}")),
    };
    (file, survey)
}

/// How the file that lies there differs from the one of the table.
fn difference(file: &SourceFile, place: &Path) -> io::Result<Option<Mismatch>> {
    let mut verifier = file.verifier();
    let mut here = BufReader::new(File::open(place)?);
    loop {
        let piece = here.fill_buf()?;
        let length = piece.len();
        if length == 0 {
            return Ok(verifier.finish().err());
        }
        if let Err(mismatch) = verifier.add(piece) {
            return Ok(Some(mismatch));
        }
        here.consume(length);
    }
}

/// A file of the table, and what became of it.
#[derive(Debug, Serialize)]
pub struct FileResult {
    #[serde(flatten)]
    pub file: SourceFile,
    /// What became of it.
    #[serde(flatten)]
    pub end: FetchStatus,
}

/// What became of a file.
#[derive(Debug, Serialize)]
#[serde(tag = "status", rename_all = "lowercase")]
pub enum FetchStatus {
    /// It came from its source.
    Fetched,
    /// It was here, and is right.
    Kept,
    /// It is not here.
    Failed {
        /// Why.
        error: String,
        /// Whether a file that was there stood in the way.
        #[serde(skip)]
        refused: bool,
    },
}

/// Settles every file, several at a time, and returns them in the order of the table.
async fn settle_all(
    dir: &Path,
    surveyed: Vec<(SourceFile, Survey)>,
    start: StartProgress,
    cancel: &CancellationToken,
) -> Result<Vec<FileResult>, WorkersError> {
    let missing = surveyed.iter().filter(|(_, survey)| matches!(survey, Survey::Fetch)).map(|(file, _)| file.bytes);
    let progress = start(missing.clone().count(), missing.sum());
    let downloader = Downloader::new().map_err(WorkersError::new)?;
    let fetching = Fetching { dir, downloader, progress: &*progress, cancel };
    let settle = async |(position, (file, survey))| (position, fetching.settle(file, survey).await);
    let all = stream::iter(surveyed.into_iter().enumerate()).map(settle).buffer_unordered(WIDTH).collect();
    let mut results: Vec<_> = all.await;
    progress.finish();
    results.sort_by_key(|(position, _)| *position);
    Ok(results.into_iter().map(|(_, result)| result).collect())
}

struct Fetching<'a> {
    dir: &'a Path,
    downloader: Downloader,
    progress: &'a dyn DownloadProgress,
    cancel: &'a CancellationToken,
}

impl Fetching<'_> {
    async fn settle(&self, file: SourceFile, survey: Survey) -> FileResult {
        let end = match survey {
            Survey::Keep => FetchStatus::Kept,
            Survey::Refuse(error) => FetchStatus::Failed { error, refused: true },
            Survey::Fetch => self.fetch(&file).await,
        };
        FileResult { file, end }
    }

    async fn fetch(&self, file: &SourceFile) -> FetchStatus {
        let place = self.dir.join(&file.path);
        let download = self.downloader.download(file, &place, self.progress);
        let ended = self.cancel.run_until_cancelled(download).await.unwrap_or_else(|| Err("interrupted".to_owned()));
        self.progress.file_done(&file.path, if ended.is_ok() { "fetched" } else { "failed" });
        ended.map_or_else(|error| FetchStatus::Failed { error, refused: false }, |()| FetchStatus::Fetched)
    }
}
