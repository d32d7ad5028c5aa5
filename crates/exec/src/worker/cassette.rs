//! Record a real run once, replay it offline, byte for byte.
//!
//! A cassette is a file of JSON lines: a header, then one line per call that ended, failures included, written the moment
//! it ends. Calls are found by everything that determines a reply except its length limit, which depends on how full the
//! budget was; the same call made twice is answered in the order recorded.

use super::{AskError, Reply, Request, Worker};
use crate::code::{CodeError, CodeJob, CodeRun, CodeRunner};
use crate::tool::{self, OfferedTool, ToolRun, ToolRunner};
use async_trait::async_trait;
use lemon_trace::FailureKind;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{HashMap, VecDeque};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

const VERSION: u32 = 1;
/// In bytes.
const LONGEST_HEADER: u64 = 4096;

#[derive(Serialize, Deserialize)]
struct CassetteHeader {
    cassette: u32,
    /// What kind of workers was recorded: [`super::Backend::name`].
    #[serde(default)]
    workers: String,
}

#[derive(Serialize, Deserialize)]
struct Take {
    key: String,
    agent: String,
    capacity: String,
    /// The last message, for people who look into the file.
    asked: String,
    result: Result<Reply, AskError>,
}

/// A program that was run.
#[derive(Serialize, Deserialize)]
struct CodeTake {
    key: String,
    ran: CodeRun,
}

/// A call of a tool that was made.
#[derive(Serialize, Deserialize)]
struct ToolTake {
    key: String,
    called: ToolRun,
}

/// What was known of a tool.
#[derive(Serialize, Deserialize)]
struct OfferTake {
    tool: String,
    offered: Result<OfferedTool, String>,
}

/// A cassette that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CassetteError {
    /// The file cannot be read or written.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file is something else.
    #[error("{path}, line {line}: {fact}")]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Where.
        line: usize,
        /// What is wrong.
        fact: String,
    },
}

/// What determines a reply, as a key.
fn key(request: &Request) -> String {
    let parts = (&request.capacity, &request.messages, request.temperature, request.seed, &request.schema);
    // Texts, numbers and JSON values always serialise.
    let text = match &request.tools {
        None => serde_json::to_string(&parts),
        Some(tools) => serde_json::to_string(&(parts, tools)),
    };
    blake3::hash(text.unwrap_or_default().as_bytes()).to_hex().to_string()
}

/// What determines how a program ends, as a key.
fn code_key(job: &CodeJob) -> String {
    // Texts always serialise.
    blake3::hash(serde_json::to_string(job).unwrap_or_default().as_bytes()).to_hex().to_string()
}

/// What determines the result of a tool, as a key.
fn tool_key(tool: &str, arguments: &Value) -> String {
    blake3::hash(serde_json::json!([tool, arguments]).to_string().as_bytes()).to_hex().to_string()
}

/// Passes calls on and records how each ended.
pub struct Recording {
    inner: Arc<dyn Worker>,
    code: Option<Arc<dyn CodeRunner>>,
    tools: Option<Arc<dyn ToolRunner>>,
    path: PathBuf,
    // A std mutex: the lock is held for one write and never across an await.
    file: Mutex<File>,
}

impl Recording {
    /// Records what `inner`, workers of this kind, answers into a new file; an existing one is not overwritten.
    ///
    /// # Errors
    /// The file exists already, or cannot be written.
    pub fn create(path: &Path, workers: &str, inner: Arc<dyn Worker>) -> Result<Self, CassetteError> {
        let io = |source| CassetteError::Io { path: path.to_owned(), source };
        let mut file = OpenOptions::new().write(true).create_new(true).open(path).map_err(io)?;
        writeln!(file, "{}", serde_json::json!(CassetteHeader { cassette: VERSION, workers: workers.to_owned() }))
            .map_err(io)?;
        Ok(Recording { inner, code: None, tools: None, path: path.to_owned(), file: Mutex::new(file) })
    }

    /// The same that also records the programs that `code` runs.
    #[must_use]
    pub fn with_code(self, code: Option<Arc<dyn CodeRunner>>) -> Self {
        Recording { code, ..self }
    }

    /// The same that also records the calls of `tools`.
    #[must_use]
    pub fn with_tools(self, tools: Option<Arc<dyn ToolRunner>>) -> Self {
        Recording { tools, ..self }
    }

    fn write(&self, take: &impl Serialize) -> std::io::Result<()> {
        let line = serde_json::to_string(take)? + "\n";
        self.file.lock().unwrap_or_else(PoisonError::into_inner).write_all(line.as_bytes())
    }
}

#[async_trait]
impl Worker for Recording {
    async fn ask(&self, request: &Request) -> Result<Reply, AskError> {
        let result = tool::ask(&*self.inner, request).await;
        let take = Take {
            key: key(request),
            agent: request.agent.clone(),
            capacity: request.capacity.clone(),
            asked: request.messages.last().map(|message| message.content.clone()).unwrap_or_default(),
            result,
        };
        if let Err(error) = self.write(&take) {
            let message = format!("the reply came but could not be recorded in {}: {error}", self.path.display());
            return Err(AskError::unknown_cost(FailureKind::Refused, message));
        }
        take.result
    }

    /// Whatever the inner worker does: what is on the cassette is the request with its tools.
    fn calls_tools(&self, _: usize) -> bool {
        true
    }
}

#[async_trait]
impl CodeRunner for Recording {
    fn ready(&self) -> Result<(), CodeError> {
        self.code.as_ref().map_or(Ok(()), |code| code.ready())
    }

    async fn run(&self, job: &CodeJob) -> Result<CodeRun, CodeError> {
        let unreachable = |message| CodeError { kind: FailureKind::Unreachable, message };
        let code = self.code.as_ref().ok_or_else(|| unreachable("no code is run here".to_owned()))?;
        let take = CodeTake { key: code_key(job), ran: code.run(job).await? };
        self.write(&take).map_err(|error| {
            unreachable(format!("a program ran but could not be recorded in {}: {error}", self.path.display()))
        })?;
        Ok(take.ran)
    }
}

#[async_trait]
impl ToolRunner for Recording {
    async fn offered(&self, names: &[String]) -> Vec<Result<OfferedTool, String>> {
        let Some(tools) = &self.tools else { return names.iter().map(|_| Err(NO_TOOLS.to_owned())).collect() };
        let mut offers = tools.offered(names).await;
        for (name, offered) in names.iter().zip(&mut offers) {
            let take = OfferTake { tool: name.clone(), offered: offered.clone() };
            if let Err(error) = self.write(&take) {
                *offered = Err(format!("what is known of the tool could not be recorded: {error}"));
            }
        }
        offers
    }

    async fn permit(&self, tool: &OfferedTool) -> Result<(), String> {
        match &self.tools {
            Some(tools) => tools.permit(tool).await,
            None => Err(NO_TOOLS.to_owned()),
        }
    }

    async fn call(&self, tool: &OfferedTool, arguments: &Value) -> ToolRun {
        let Some(tools) = &self.tools else { return ToolRun::failed(NO_TOOLS) };
        let called = tools.call(tool, arguments).await;
        let take = ToolTake { key: tool_key(&tool.name, arguments), called };
        match self.write(&take) {
            Ok(()) => take.called,
            Err(error) => ToolRun::failed(format!("the tool ran, and its result could not be recorded: {error}")),
        }
    }
}

/// What a runner says that has no tools.
const NO_TOOLS: &str = "no tool is run here";

/// What kind of workers a cassette says was recorded; empty where it does not say, or is none.
pub fn recorded_workers(path: &Path) -> String {
    let mut line = String::new();
    let read = File::open(path).and_then(|file| BufReader::new(file).take(LONGEST_HEADER).read_line(&mut line));
    let header = read.ok().and_then(|_| serde_json::from_str::<CassetteHeader>(&line).ok());
    header.map(|header| header.workers).unwrap_or_default()
}

/// Answers from a cassette. A call that is not on it is an error.
pub struct Replay {
    path: PathBuf,
    takes: Mutex<HashMap<String, VecDeque<Result<Reply, AskError>>>>,
    /// How each program ended, by its key.
    programs: HashMap<String, CodeRun>,
    /// How each call of a tool ended, by its key, in order.
    calls: Mutex<HashMap<String, VecDeque<ToolRun>>>,
    /// What was known of each tool.
    offers: HashMap<String, Result<OfferedTool, String>>,
}

impl Replay {
    /// Reads a cassette. A last line cut short by a crash is left out: its call never ended for the run either.
    ///
    /// # Errors
    /// The file cannot be read, or is no cassette.
    pub fn open(path: &Path) -> Result<Self, CassetteError> {
        let bytes = std::fs::read(path).map_err(|source| CassetteError::Io { path: path.to_owned(), source })?;
        Replay::read(path, &bytes)
    }

    /// The same from the bytes of a cassette; `path` is its name in errors.
    ///
    /// # Errors
    /// The bytes are no cassette.
    pub fn read(path: &Path, bytes: &[u8]) -> Result<Self, CassetteError> {
        let malformed = |line, fact: String| CassetteError::Malformed { path: path.to_owned(), line, fact };
        // Bytes and not text: a line cut short may end within a character.
        let lines: Vec<&[u8]> = bytes.strip_suffix(b"\n").unwrap_or(bytes).split(|byte| *byte == b'\n').collect();
        let header: CassetteHeader = serde_json::from_slice(lines.first().copied().unwrap_or(bytes))
            .map_err(|_| malformed(1, "this is not a cassette".into()))?;
        if header.cassette > VERSION {
            return Err(malformed(1, format!("a cassette of version {}, newer than {VERSION}", header.cassette)));
        }
        let (mut takes, mut programs): (HashMap<_, VecDeque<_>>, _) = (HashMap::new(), HashMap::new());
        let (mut calls, mut offers): (HashMap<_, VecDeque<_>>, _) = (HashMap::new(), HashMap::new());
        for (at, line) in lines.iter().enumerate().skip(1) {
            match serde_json::from_slice::<Take>(line) {
                Ok(take) => takes.entry(take.key).or_default().push_back(take.result),
                Err(error) if error.is_eof() && at + 1 == lines.len() => {}
                Err(error) => {
                    if let Ok(take) = serde_json::from_slice::<CodeTake>(line) {
                        programs.insert(take.key, take.ran);
                    } else if let Ok(take) = serde_json::from_slice::<ToolTake>(line) {
                        calls.entry(take.key).or_default().push_back(take.called);
                    } else if let Ok(take) = serde_json::from_slice::<OfferTake>(line) {
                        offers.insert(take.tool, take.offered);
                    } else {
                        return Err(malformed(at + 1, error.to_string()));
                    }
                }
            }
        }
        Ok(Replay { path: path.to_owned(), takes: Mutex::new(takes), programs, calls: Mutex::new(calls), offers })
    }

    /// How many calls are on it.
    pub fn calls(&self) -> usize {
        self.takes.lock().unwrap_or_else(PoisonError::into_inner).values().map(VecDeque::len).sum()
    }

    fn next_take(&self, request: &Request) -> Option<Result<Reply, AskError>> {
        let mut takes = self.takes.lock().unwrap_or_else(PoisonError::into_inner);
        let recorded = takes.get_mut(&key(request))?;
        // The last take of a call stays: a replay may be resumed, or run twice.
        if recorded.len() > 1 { recorded.pop_front() } else { recorded.front().cloned() }
    }
}

#[async_trait]
impl Worker for Replay {
    async fn ask(&self, request: &Request) -> Result<Reply, AskError> {
        match self.next_take(request) {
            None => {
                let message = format!(
                    "{} has no recording of this call by agent `{}` ({}); the task, the team, the seed or an earlier reply differs from what was recorded",
                    self.path.display(),
                    request.agent,
                    request.capacity
                );
                Err(AskError::free(FailureKind::NotRecorded, message))
            }
            Some(Ok(reply)) if reply.usage.tokens_out > request.max_tokens => {
                let message =
                    format!("the recorded reply is longer than the {} tokens left for it", request.max_tokens);
                Err(AskError::free(FailureKind::Truncated, message))
            }
            Some(Ok(reply)) => Ok(reply),
            // A replay has no endpoint that could ask to wait.
            Some(Err(error)) => Err(AskError { retry_after: Some(Duration::ZERO), ..error }),
        }
    }

    fn calls_tools(&self, _: usize) -> bool {
        true
    }
}

#[async_trait]
impl ToolRunner for Replay {
    async fn offered(&self, names: &[String]) -> Vec<Result<OfferedTool, String>> {
        let missing = || Err(format!("{} has no recording of this tool", self.path.display()));
        names.iter().map(|name| self.offers.get(name).cloned().unwrap_or_else(missing)).collect()
    }

    async fn call(&self, tool: &OfferedTool, arguments: &Value) -> ToolRun {
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        let recorded = calls.get_mut(&tool_key(&tool.name, arguments));
        // As with replies, the last one stays.
        let run = recorded.and_then(|runs| if runs.len() > 1 { runs.pop_front() } else { runs.front().cloned() });
        run.unwrap_or_else(|| ToolRun::failed(format!("{} has no recording of this call", self.path.display())))
    }
}

#[async_trait]
impl CodeRunner for Replay {
    async fn run(&self, job: &CodeJob) -> Result<CodeRun, CodeError> {
        self.programs.get(&code_key(job)).cloned().ok_or_else(|| CodeError {
            kind: FailureKind::NotRecorded,
            message: format!("{} has no recording of this program", self.path.display()),
        })
    }
}
