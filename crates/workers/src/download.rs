//! One file from its source: streamed beside its place, checked on the way, and put there only when it is right.

use crate::progress::{Attempt, DownloadProgress};
use lemon_exec::Retry;
use lemon_exec::worker::{http_client, http_error};
use lemon_task::{Mismatch, SourceFile};
use reqwest::header::{LOCATION, RETRY_AFTER};
use reqwest::{Client, Response, StatusCode, Url};
use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long a source may be silent.
const SILENCE: Duration = Duration::from_secs(30);
/// How often one request may be sent on to another address.
const MOST_REDIRECTS: usize = 5;

/// Fetches files, each with a known checksum.
pub struct Downloader {
    client: Client,
    retry: Retry,
    /// Hosts given up on: a hundred more files from there would only take as long to say the same.
    unreachable: Mutex<HashSet<String>>,
}

/// Why an attempt came to nothing.
struct Failure {
    fact: String,
    /// Whether another attempt may do better.
    passing: bool,
    /// How long the source asks to be left alone.
    asked: Option<Duration>,
    /// The host, if nothing answers there at all.
    unreachable: Option<String>,
}

impl Downloader {
    /// A downloader with the default retries.
    pub fn new() -> Result<Self, String> {
        Ok(Downloader { client: http_client()?, retry: Retry::default(), unreachable: Mutex::default() })
    }

    /// Fetches a file to its place. Until it is whole and right, nothing lies there.
    pub async fn download(
        &self,
        file: &SourceFile,
        place: &Path,
        progress: &dyn DownloadProgress,
    ) -> Result<(), String> {
        let mut attempt = 1;
        loop {
            let Err(failure) = self.attempt(file, place, Attempt::new(progress)).await else { return Ok(()) };
            // So few downloads at a time need no jitter.
            let wait = self.retry.wait(attempt, failure.asked, u64::MAX).filter(|_| failure.passing);
            let Some(wait) = wait else {
                self.given_up().extend(failure.unreachable);
                return Err(failure.fact);
            };
            progress.note(&format!("{}; again in {} s", failure.fact, wait.as_secs_f64()));
            tokio::time::sleep(wait).await;
            attempt += 1;
        }
    }

    fn given_up(&self) -> MutexGuard<'_, HashSet<String>> {
        // A set of names is whole whatever happened to another thread that held it.
        self.unreachable.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn attempt(&self, file: &SourceFile, place: &Path, mut count: Attempt<'_>) -> Result<(), Failure> {
        let url = &file.url;
        let mut response = self.get(url).await?;
        let unwritable = |error| Failure::lasting(format!("{} cannot be written: {error}", place.display()));
        let differs = |mismatch: Mismatch| Failure {
            // A body without a stated length that was cut off looks like a short one.
            passing: matches!(mismatch, Mismatch::Length { .. }),
            ..Failure::lasting(format!("{url} sent something else: {mismatch}"))
        };
        let mut part = Part::create(place).map_err(unwritable)?;
        let mut verifier = file.verifier();
        let broken = |error| Failure::passing(format!("{url} broke off: {}", http_error(&error)));
        while let Some(piece) = in_time(url, response.chunk()).await?.map_err(broken)? {
            verifier.add(&piece).map_err(differs)?;
            // Written here and not on a thread of its own: a piece takes microseconds, the next one milliseconds to come.
            part.file.write_all(&piece).map_err(unwritable)?;
            count.receive(piece.len() as u64);
        }
        verifier.finish().map_err(differs)?;
        part.put_in_place(place).map_err(unwritable)?;
        count.keep();
        Ok(())
    }

    /// The answer of the server that has the file. Redirects are followed here, because the shared client never does: there is no
    /// key to carry away, and the checksum says whether it was the right place.
    async fn get(&self, url: &str) -> Result<Response, Failure> {
        let mut address = Url::parse(url).map_err(|error| Failure::lasting(format!("{url} is no address: {error}")))?;
        for _ in 0..=MOST_REDIRECTS {
            let host = address.origin().ascii_serialization();
            if self.given_up().contains(&host) {
                return Err(Failure::lasting(format!("{host} cannot be reached")));
            }
            let sent = in_time(url, self.client.get(address.clone()).send()).await?;
            let response = sent.map_err(|error| {
                let why = http_error(&error);
                Failure {
                    // A certificate that is refused now is refused in a moment, too.
                    passing: !error.is_builder() && !why.contains("certificate"),
                    unreachable: error.is_connect().then_some(host),
                    ..Failure::lasting(format!("{url} cannot be reached: {why}"))
                }
            })?;
            if response.status().is_success() {
                return Ok(response);
            }
            address = redirect(&response).ok_or_else(|| refusal(url, &response))?;
        }
        Err(Failure::lasting(format!("{url} sends from one address to the next")))
    }
}

impl Failure {
    fn lasting(fact: String) -> Self {
        Failure { fact, passing: false, asked: None, unreachable: None }
    }

    fn passing(fact: String) -> Self {
        Failure { passing: true, ..Failure::lasting(fact) }
    }
}

fn redirect(response: &Response) -> Option<Url> {
    let location = response.headers().get(LOCATION).filter(|_| response.status().is_redirection())?;
    // An address that cannot be read leads nowhere: the reply itself is judged.
    response.url().join(location.to_str().ok()?).ok()
}

fn refusal(url: &str, response: &Response) -> Failure {
    let status = response.status();
    // Seconds; the other form, a date, gets our own waits.
    let asked = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.trim().parse().ok());
    let wish = asked.map(|seconds: u64| format!(" and asks to wait {seconds} s")).unwrap_or_default();
    let busy = matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT);
    Failure {
        passing: busy || status.is_server_error(),
        asked: asked.map(Duration::from_secs),
        ..Failure::lasting(format!("{url} answered {status}{wish}"))
    }
}

async fn in_time<T>(url: &str, step: impl Future<Output = T>) -> Result<T, Failure> {
    let silent = |_| Failure::passing(format!("{url} was silent for {} s", SILENCE.as_secs()));
    tokio::time::timeout(SILENCE, step).await.map_err(silent)
}

/// Where a file lies while it is not whole. Always the same name, so that the next run finds what a killed one has left.
pub fn part_of(place: &Path) -> PathBuf {
    let name = place.file_name().unwrap_or_default().to_string_lossy();
    place.with_file_name(format!(".{name}.part"))
}

/// A file that is not whole yet; gone when dropped.
struct Part {
    file: File,
    path: PathBuf,
}

impl Part {
    fn create(place: &Path) -> io::Result<Self> {
        place.parent().map_or(Ok(()), fs::create_dir_all)?;
        let path = part_of(place);
        Ok(Part { file: File::create(&path)?, path })
    }

    /// On the disk first: a name must never stand for half a file, not even after a crash of the machine.
    fn put_in_place(self, place: &Path) -> io::Result<()> {
        self.file.sync_all()?;
        fs::rename(&self.path, place)
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // Nothing is there any more if it was put in its place.
        let _ = fs::remove_file(&self.path);
    }
}
