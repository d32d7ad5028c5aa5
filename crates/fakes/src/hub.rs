//! A fake of the Hugging Face hub: as much of its protocol as fetching a checkpoint takes, and its troubles on demand.

use crate::server::Server;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::get;
use futures::{StreamExt, stream};
use serde_json::{Value, json};
use std::collections::{HashMap, VecDeque};
use std::future::pending;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A file of the repository.
#[derive(Debug, Clone, PartialEq)]
pub struct HubFile {
    pub name: String,
    /// What is in it.
    pub content: Vec<u8>,
    /// The checksum that the hub states. With that of SHA-256 (64 digits) it is a large file, which is sent from another
    /// address; others carry git's name of the blob (40 digits) and are sent at once.
    pub sum: String,
}

/// What goes wrong with the next transfer of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// The connection breaks after this many bytes.
    Cut(usize),
    /// Nothing more comes after this many bytes, and the connection stays open.
    Stall(usize),
    /// The first byte sent is another.
    Corrupt,
    /// An answer with this status in its place.
    Status(u16),
}

/// A transfer of a file, or of the rest of one. A look at the first byte alone, which tells a client its length, is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sent {
    /// The file.
    pub name: String,
    /// Where it began.
    pub from: usize,
    /// The bytes that were sent.
    pub bytes: usize,
}

/// What a hub says that is not so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lie {
    /// The checksum in the headers of this file (`ETag` and `X-Linked-Etag`).
    Etag {
        file: String,
        /// What stands there in place of the checksum.
        etag: String,
    },
    /// The commit in the headers of every file (`X-Repo-Commit`).
    Commit(String),
    /// The list of files has no checksums, as with some mirrors.
    Unlisted,
    /// Large files are at this address instead of the hub's own.
    Elsewhere(String),
    /// This request is sent on to that address before anything else.
    Away {
        /// What the path of the request contains.
        path: String,
        /// The address.
        to: String,
    },
}

/// A request that came in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HubRequest {
    pub path: String,
    /// Its `Authorization`, if it had one.
    pub authorization: Option<String>,
}

/// A hub with one repository, running on loopback; dropping it ends it.
#[derive(Debug)]
pub struct FakeHub {
    shared: Arc<Shared>,
    server: Server,
}

#[derive(Debug)]
struct Shared {
    repository: String,
    commit: String,
    files: Vec<HubFile>,
    // A std mutex and not Tokio's, because no lock is held across an await.
    state: Mutex<Changing>,
}

/// What changes while it runs.
#[derive(Debug, Default)]
struct Changing {
    token: Option<String>,
    troubles: HashMap<String, VecDeque<Trouble>>,
    lies: Vec<Lie>,
    asked: Vec<HubRequest>,
    sent: Vec<Sent>,
}

impl FakeHub {
    /// Starts a hub with this repository (`OWNER/NAME`), whose branch `main` is at this commit.
    ///
    /// # Errors
    /// The port cannot be bound, or there are no threads to be had.
    pub fn start(repository: &str, commit: &str, files: Vec<HubFile>) -> io::Result<Self> {
        let (repository, commit) = (repository.to_owned(), commit.to_owned());
        let shared = Arc::new(Shared { repository, commit, files, state: Mutex::default() });
        let router = Router::new()
            .route("/api/models/{owner}/{name}/revision/{revision}", get(info))
            .route("/{owner}/{name}/resolve/{revision}/{file}", get(resolve))
            .route("/elsewhere/{sum}", get(elsewhere))
            .layer(middleware::from_fn_with_state(Arc::clone(&shared), note))
            .with_state(Arc::clone(&shared));
        Ok(FakeHub { shared, server: Server::start(0, router)? })
    }

    /// What a client is given as `HF_ENDPOINT`.
    pub fn url(&self) -> String {
        format!("http://{}", self.server.address())
    }

    /// From now on files are for those only who show this token.
    pub fn require_token(&self, token: &str) {
        self.shared.state().token = Some(token.to_owned());
    }

    /// Adds a trouble to those that await transfers of this file; each happens once.
    pub fn trouble(&self, file: &str, trouble: Trouble) {
        self.shared.state().troubles.entry(file.to_owned()).or_default().push_back(trouble);
    }

    /// From now on the hub tells this too.
    pub fn lie(&self, lie: Lie) {
        self.shared.state().lies.push(lie);
    }

    /// How many requests came in, of any kind.
    pub fn requests(&self) -> usize {
        self.shared.state().asked.len()
    }

    /// The requests so far, of any kind, in their order.
    pub fn asked(&self) -> Vec<HubRequest> {
        self.shared.state().asked.clone()
    }

    /// The transfers so far, in the order they began. What is to be sent counts, whether or not the client waits for it.
    pub fn sent(&self) -> Vec<Sent> {
        self.shared.state().sent.clone()
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, Changing> {
        // Lists and counts stay true even if a thread panicked while it held them.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has(&self, owner: &str, name: &str, revision: &str) -> bool {
        self.repository == format!("{owner}/{name}") && ["main", &self.commit].contains(&revision)
    }

    /// What the first lie that `find` knows says.
    fn lie<T>(&self, find: impl Fn(&Lie) -> Option<T>) -> Option<T> {
        self.state().lies.iter().find_map(find)
    }

    fn admits(&self, headers: &HeaderMap) -> bool {
        let shown = headers.get(header::AUTHORIZATION).map(HeaderValue::as_bytes);
        self.state().token.as_ref().is_none_or(|token| shown == Some(format!("Bearer {token}").as_bytes()))
    }
}

impl HubFile {
    fn is_large(&self) -> bool {
        self.sum.len() == 64
    }
}

/// Notes a request, and sends it away if that was asked for.
async fn note(State(shared): State<Arc<Shared>>, request: Request, next: Next) -> Response {
    let path = request.uri().path().to_owned();
    let authorization = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    shared.state().asked.push(HubRequest { path: path.clone(), authorization: authorization.map(str::to_owned) });
    let away = shared.lie(|lie| match lie {
        Lie::Away { path: part, to } if path.contains(part) => Some(format!("{to}{path}")),
        _ => None,
    });
    match away {
        Some(address) => (StatusCode::TEMPORARY_REDIRECT, [(header::LOCATION, address)]).into_response(),
        None => next.run(request).await,
    }
}

/// What the repository holds.
async fn info(
    State(shared): State<Arc<Shared>>,
    Path((owner, name, revision)): Path<(String, String, String)>,
) -> Response {
    if !shared.has(&owner, &name, &revision) {
        return refusal(StatusCode::NOT_FOUND, "RepoNotFound");
    }
    let is_unlisted = shared.lie(|lie| (*lie == Lie::Unlisted).then_some(())).is_some();
    let sibling = |file: &HubFile| {
        let (name, size) = (&file.name, file.content.len());
        match file.is_large() {
            _ if is_unlisted => json!({"rfilename": name}),
            true => json!({"rfilename": name, "size": size, "lfs": {"sha256": file.sum, "size": size}}),
            false => json!({"rfilename": name, "size": size, "blobId": file.sum}),
        }
    };
    let siblings: Vec<Value> = shared.files.iter().map(sibling).collect();
    Json(json!({"id": shared.repository, "sha": shared.commit, "siblings": siblings})).into_response()
}

/// A small file, or where a large one is.
async fn resolve(
    State(shared): State<Arc<Shared>>,
    Path((owner, name, revision, file)): Path<(String, String, String, String)>,
    headers: HeaderMap,
) -> Response {
    if !shared.has(&owner, &name, &revision) {
        return refusal(StatusCode::NOT_FOUND, "RepoNotFound");
    }
    if !shared.admits(&headers) {
        return refusal(StatusCode::UNAUTHORIZED, "GatedRepo");
    }
    let Some(file) = shared.files.iter().find(|other| other.name == file) else {
        return refusal(StatusCode::NOT_FOUND, "EntryNotFound");
    };
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let other = shared.lie(|lie| match lie {
        Lie::Elsewhere(address) => Some(address.clone()),
        _ => None,
    });
    let store = other.unwrap_or_else(|| format!("http://{host}"));
    let mut response = match file.is_large() {
        true => (StatusCode::FOUND, [(header::LOCATION, format!("{store}/elsewhere/{}", file.sum))]).into_response(),
        false => transfer(&shared, file, &headers),
    };
    let etag = shared.lie(|lie| match lie {
        Lie::Etag { file: name, etag } if *name == file.name => Some(etag.clone()),
        _ => None,
    });
    let commit = shared.lie(|lie| match lie {
        Lie::Commit(commit) => Some(commit.clone()),
        _ => None,
    });
    let quoted = format!("\"{}\"", etag.as_ref().unwrap_or(&file.sum));
    put(&mut response, "x-repo-commit", commit.as_ref().unwrap_or(&shared.commit));
    put(&mut response, if file.is_large() { "x-linked-etag" } else { "etag" }, &quoted);
    response
}

/// A large file. The address is not guarded: it is known only to those who were sent there.
async fn elsewhere(State(shared): State<Arc<Shared>>, Path(sum): Path<String>, headers: HeaderMap) -> Response {
    let Some(file) = shared.files.iter().find(|file| file.sum == sum) else {
        return refusal(StatusCode::NOT_FOUND, "EntryNotFound");
    };
    let mut response = transfer(&shared, file, &headers);
    // Not the checksum, as with the stores behind the true hub.
    put(&mut response, "etag", "\"made-by-the-store\"");
    response
}

/// A file from where the client wants it, with what goes wrong.
fn transfer(shared: &Shared, file: &HubFile, headers: &HeaderMap) -> Response {
    let all = file.content.len();
    let (from, last) = range(headers).unwrap_or((0, usize::MAX));
    if from >= all {
        return refusal(StatusCode::RANGE_NOT_SATISFIABLE, "RangeNotSatisfiable");
    }
    let last = last.min(all - 1);
    let mut content = file.content.get(from..=last).unwrap_or_default().to_vec();
    let length = content.len();
    let mut state = shared.state();
    let trouble = match last {
        0 => None,
        _ => state.troubles.get_mut(&file.name).and_then(VecDeque::pop_front),
    };
    match trouble {
        Some(Trouble::Cut(bytes) | Trouble::Stall(bytes)) => content.truncate(bytes),
        Some(Trouble::Corrupt) => content.iter_mut().take(1).for_each(|byte| *byte ^= 1),
        Some(Trouble::Status(status)) => {
            return refusal(StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_GATEWAY), "Trouble");
        }
        None => {}
    }
    if last > 0 {
        state.sent.push(Sent { name: file.name.clone(), from, bytes: content.len() });
    }
    let mut response = Response::new(body(content, trouble));
    put(&mut response, "content-length", &length.to_string());
    if headers.contains_key(header::RANGE) {
        *response.status_mut() = StatusCode::PARTIAL_CONTENT;
        put(&mut response, "content-range", &format!("bytes {from}-{last}/{all}"));
    }
    response
}

/// The first and the last byte of `Range: bytes=FIRST-[LAST]`.
fn range(headers: &HeaderMap) -> Option<(usize, usize)> {
    let (first, last) = headers.get(header::RANGE)?.to_str().ok()?.strip_prefix("bytes=")?.split_once('-')?;
    Some((first.parse().ok()?, last.parse().unwrap_or(usize::MAX)))
}

fn body(content: Vec<u8>, trouble: Option<Trouble>) -> Body {
    let end = match trouble {
        // An error makes the server drop the connection, but not before what was sent has left.
        Some(Trouble::Cut(_)) => Some(Err(io::Error::other("the fake closes the connection"))),
        Some(Trouble::Stall(_)) => None,
        _ => return Body::from(content),
    };
    let start = stream::once(async { Ok(Bytes::from(content)) });
    let rest = stream::once(async {
        // Long enough for the first part to be on its way.
        tokio::task::yield_now().await;
        match end {
            Some(end) => end,
            None => pending().await,
        }
    });
    Body::from_stream(start.chain(rest))
}

fn refusal(status: StatusCode, code: &'static str) -> Response {
    (status, [("x-error-code", code)], Json(json!({"error": code}))).into_response()
}

fn put(response: &mut Response, name: &'static str, value: &str) {
    // Values of tests are plain text; one that is not would only be missing.
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().insert(HeaderName::from_static(name), value);
    }
}
