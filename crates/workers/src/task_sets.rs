//! `lemon data fetch`: the public task sets, from their sources into a folder.

use super::MOST_NAMED;
use super::download::{Downloader, part_of};
use super::progress::Progress;
use crate::args::FetchArgs;
use crate::commands::run::wait_for_signal;
use crate::fault::{Fault, read_file};
use crate::{print, println, runtime, to_json};
use futures::stream::{self, StreamExt};
use indicatif::HumanBytes;
use lemon_task::{Mismatch, SetName, SourceFile, parse_sources, sources};
use serde::Serialize;
use serde_json::json;
use std::collections::BTreeSet;
use std::fs::{self, File, TryLockError};
use std::io::{self, BufRead, BufReader};
use std::path::Path;
use tokio_util::sync::CancellationToken;

/// Files at a time: enough to hide the way to the source, not so many that it takes offence.
const WIDTH: usize = 4;

pub fn fetch(args: &FetchArgs) -> Result<u8, Fault> {
    let files = chosen(args)?;
    let unusable = |error| Fault::new(format!("{} cannot be used: {error}", args.dir.display()));
    fs::create_dir_all(&args.dir).map_err(unusable)?;
    let _lock = lock(&args.dir)?;
    announce(&files);
    let surveyed = files.into_iter().map(|file| survey(file, args)).collect();
    report(args, &settle_all(&args.dir, surveyed)?)
}

/// The files of the sets asked for, with the addresses they will be had from.
fn chosen(args: &FetchArgs) -> Result<Vec<SourceFile>, Fault> {
    let mut files = match &args.sources {
        None => sources(),
        Some(table) => parse_sources(&read_file(table)?)
            .map_err(|error| Fault::new(format!("{} cannot be used: {error}", table.display())))?,
    };
    files.retain(|file| args.sets.is_empty() || args.sets.contains(&file.set));
    if files.is_empty() {
        return Err(Fault::new("the table of sources has no file of the sets asked for"));
    }
    if let Some(mirror) = &args.from {
        files.iter_mut().for_each(|file| file.url = file.url_at(mirror));
    }
    Ok(files)
}

/// Two processes would write into each other's files. The system gives the folder free however a process dies; one that
/// cannot lock folders goes without.
fn lock(dir: &Path) -> Result<Option<File>, Fault> {
    let Ok(folder) = File::open(dir) else { return Ok(None) };
    match folder.try_lock() {
        Err(TryLockError::WouldBlock) => {
            let fact = format!("another process is fetching into {}", dir.display());
            Err(Fault::new(fact).hint("wait for that process, or end it, and try again"))
        }
        _ => Ok(Some(folder)),
    }
}

/// What will be here, and under which license.
fn announce(files: &[SourceFile]) {
    for set in SetName::PUBLIC {
        let files: Vec<_> = files.iter().filter(|file| file.set == set).collect();
        if files.is_empty() {
            continue;
        }
        let licenses: BTreeSet<&str> = files.iter().map(|file| file.license.as_str()).collect();
        let licenses: Vec<&str> = licenses.into_iter().collect();
        let bytes = HumanBytes(files.iter().map(|file| file.bytes).sum());
        eprintln!("{set}: {} files, {bytes}, license: {}", files.len(), licenses.join(", "));
    }
}

/// What is to be done about a file.
enum Survey {
    Keep,
    Fetch,
    Refuse(String),
}

fn survey(file: SourceFile, args: &FetchArgs) -> (SourceFile, Survey) {
    let place = args.dir.join(&file.path);
    // What a process that was killed has left; nobody else is at work here. A fault will show when the file is written.
    let _ = fs::remove_file(part_of(&place));
    let survey = match difference(&file, &place) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Survey::Fetch,
        Err(error) => Survey::Refuse(format!("what is there cannot be read: {error}")),
        Ok(None) => Survey::Keep,
        Ok(Some(_)) if args.force => Survey::Fetch,
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
#[derive(Serialize)]
struct FileResult {
    #[serde(flatten)]
    file: SourceFile,
    #[serde(flatten)]
    end: End,
}

#[derive(Serialize)]
#[serde(tag = "status", rename_all = "lowercase")]
enum End {
    Fetched,
    Kept,
    Failed {
        error: String,
        /// Whether a file that was there stood in the way.
        #[serde(skip)]
        refused: bool,
    },
}

/// Settles every file, several at a time, and returns them in the order of the table.
fn settle_all(dir: &Path, surveyed: Vec<(SourceFile, Survey)>) -> Result<Vec<FileResult>, Fault> {
    let missing = surveyed.iter().filter(|(_, survey)| matches!(survey, Survey::Fetch)).map(|(file, _)| file.bytes);
    let progress = Progress::start(missing.clone().count(), missing.sum());
    let fetching = Fetching {
        dir,
        downloader: Downloader::new().map_err(Fault::new)?,
        progress,
        cancel: CancellationToken::new(),
    };
    let runtime = runtime()?;
    let cancel = fetching.cancel.clone();
    runtime.spawn(async move {
        wait_for_signal().await;
        cancel.cancel();
    });
    let settle = async |(position, (file, survey))| (position, fetching.settle(file, survey).await);
    let all = stream::iter(surveyed.into_iter().enumerate()).map(settle).buffer_unordered(WIDTH).collect();
    let mut results: Vec<_> = runtime.block_on(all);
    fetching.progress.finish();
    results.sort_by_key(|(position, _)| *position);
    Ok(results.into_iter().map(|(_, result)| result).collect())
}

struct Fetching<'a> {
    dir: &'a Path,
    downloader: Downloader,
    progress: Progress,
    cancel: CancellationToken,
}

impl Fetching<'_> {
    async fn settle(&self, file: SourceFile, survey: Survey) -> FileResult {
        let end = match survey {
            Survey::Keep => End::Kept,
            Survey::Refuse(error) => End::Failed { error, refused: true },
            Survey::Fetch => self.fetch(&file).await,
        };
        FileResult { file, end }
    }

    async fn fetch(&self, file: &SourceFile) -> End {
        let place = self.dir.join(&file.path);
        let download = self.downloader.download(file, &place, &self.progress);
        let ended = self.cancel.run_until_cancelled(download).await.unwrap_or_else(|| Err("interrupted".to_owned()));
        self.progress.file_done(&file.path, if ended.is_ok() { "fetched" } else { "failed" });
        ended.map_or_else(|error| End::Failed { error, refused: false }, |()| End::Fetched)
    }
}

fn report(args: &FetchArgs, results: &[FileResult]) -> Result<u8, Fault> {
    let failed: Vec<_> = results.iter().filter_map(FileResult::failure).collect();
    let sound = failed.is_empty();
    if args.json {
        // A path need not be UTF-8, which JSON must be.
        println(&to_json(&json!({ "dir": args.dir.to_string_lossy(), "files": results, "sound": sound })))?;
    } else {
        print(&results.iter().map(line).collect::<String>())?;
    }
    let kept = results.iter().filter(|result| matches!(result.end, End::Kept)).count();
    eprintln!("{}: {} fetched, {kept} kept", args.dir.display(), results.len() - kept - failed.len());
    if sound { Ok(0) } else { Err(summary(&failed, results.len())) }
}

fn line(result: &FileResult) -> String {
    let FileResult { file, end } = result;
    let (status, remark) = match end {
        End::Fetched => ("fetched", &file.license),
        End::Kept => ("kept", &file.license),
        End::Failed { error, .. } => ("failed", error),
    };
    format!("{status}\t{}\t{}\t{}\t{remark}\n", file.path, file.bytes, file.sha256)
}

/// Which files are missing, why, and what can be done.
fn summary(failed: &[Failed<'_>], all: usize) -> Fault {
    let mut fact = format!("{} of {all} files could not be had:", failed.len());
    failed.iter().take(MOST_NAMED).for_each(|Failed { path, error, .. }| fact += &format!("\n  {path}: {error}"));
    if failed.len() > MOST_NAMED {
        fact += &format!("\n  … and {} more", failed.len() - MOST_NAMED);
    }
    let refused = failed.iter().filter(|failed| failed.refused).count();
    let hint = match refused {
        0 => "the same command goes on from here; --from URL asks a mirror",
        _ if refused == failed.len() => "move what is there away, or replace it with --force",
        _ => "the same command goes on from here; --force replaces files that differ",
    };
    Fault { code: 1, ..Fault::new(fact).hint(hint) }
}

/// A file that could not be had.
struct Failed<'a> {
    path: &'a str,
    error: &'a str,
    refused: bool,
}

impl FileResult {
    fn failure(&self) -> Option<Failed<'_>> {
        match &self.end {
            End::Failed { error, refused } => Some(Failed { path: &self.file.path, error, refused: *refused }),
            End::Fetched | End::Kept => None,
        }
    }
}
