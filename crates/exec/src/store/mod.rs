//! Everything on record, in one SQLite file: runs, their events, replies that can be reused, batches of tasks.
//!
//! The events are the record: what a run did and what it must not do again is read back from them, so there is no second
//! copy that could disagree. One thread writes; what many runs hand it at the same time becomes durable in one
//! transaction. With `sync: normal` a committed event survives the death of the process; with `full`, of the machine.

mod checkpoint;
mod file;
mod owner;
mod read;
mod replies;
mod search;
#[cfg(test)]
mod tests;
mod writer;

pub use read::{BatchRow, BatchTask, RunRow};
pub use search::{FoundRun, RunEnd, RunOrdering, RunSearch};
pub use writer::Durable;

use crate::worker::Reply;
use checkpoint::Checkpointer;
use file::{APPLICATION, connect};
use lemon_trace::{Event, EventKind, Header, ORCHESTRATOR, Spend, Summary, Trace};
use owner::Owner;
use replies::KnownReplies;
use rusqlite::{Connection, OptionalExtension};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};
use writer::{Op, Writer};

/// The store of an installation.
pub struct Store {
    path: PathBuf,
    writer: Writer,
    // A std mutex around one connection, and not a pool: reads are single look-ups of microseconds.
    reader: Mutex<Connection>,
    replies: KnownReplies,
    /// Taken with the first run, so that looking at traces leaves no files behind.
    owner: OnceLock<Owner>,
}

/// What is lost at worst when the machine (not just the process) dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Sync {
    /// The last moments.
    #[default]
    Normal,
    /// Nothing.
    Full,
}

/// A store that cannot be used.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// There is none.
    #[error("there is no store at {0}")]
    Missing(PathBuf),
    /// The file is something else.
    #[error("{path} is not a store of runs: {why}")]
    NoStore {
        /// The file.
        path: PathBuf,
        /// What it is.
        why: &'static str,
    },
    /// It belongs to another program.
    #[error("{0} is a database of another program")]
    Foreign(PathBuf),
    /// No run goes by this name.
    #[error("no run is called `{0}`")]
    NoSuchRun(String),
    /// More than one run goes by this name.
    #[error("`{name}` is the beginning of {count} runs")]
    Ambiguous {
        /// What was given.
        name: String,
        /// How many it fits.
        count: usize,
    },
    /// Another process is working on a run or a batch.
    #[error("`{name}` is being run by another process{}", .process.map(|id| format!(" (process {id})")).unwrap_or_default())]
    Busy {
        /// The run or the batch.
        name: String,
        /// The other process, where it is known.
        process: Option<u32>,
    },
    /// A run went on in another process after this one had read it.
    #[error("run `{0}` went on in another process since this one read it")]
    WentOn(String),
    /// It was written by a newer version of the program.
    #[error("{path}: expected a store of version {known} or older, found version {found}")]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: i64,
        /// Ours.
        known: i64,
    },
    /// The database says no.
    #[error("the store failed: {0}")]
    Database(String),
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        StoreError::Database(error.to_string())
    }
}

impl From<std::io::Error> for StoreError {
    fn from(error: std::io::Error) -> Self {
        StoreError::Database(error.to_string())
    }
}

/// What is needed to take a run up again, beside its events.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct RunMeta {
    /// The specification it was given, if it was given one.
    pub spec: Option<String>,
    /// Its limits.
    pub budget: crate::ledger::Budget,
    /// Messages and results of tools withheld: sender and reader.
    #[serde(default)]
    pub withhold: Vec<(String, String)>,
    /// The batch it belongs to, and its position there.
    #[serde(default)]
    pub batch: Option<(String, usize)>,
    /// Files the workers were made of: a script or a cassette.
    #[serde(default)]
    pub worker_file: Option<PathBuf>,
    /// The form of the answer, where it was given and not read off the question.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub form: Option<crate::form::Form>,
    /// Who answered when it was started; `None`: the program that started it did not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_with: Option<StartedWith>,
    /// What a server was asked, where one started the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub served: Option<ServedRequest>,
}

/// What a server was asked when it started a run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ServedRequest {
    /// The model, as the request names it.
    pub model: String,
    /// Whether the application asked, which watches runs and does not wait for them.
    #[serde(default)]
    pub app: bool,
    /// The id of the key whose budget it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The end user, by the request's own account.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Pairs that the request gives of itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<serde_json::Value>,
    /// Tokens a reply may have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u64>,
    /// Sampling temperature.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
}

/// Who answers in a run.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct StartedWith {
    /// The kind of workers.
    pub kind: String,
    /// What serves each capacity, weakest first; nothing where the kind says it all.
    pub capacities: Vec<ServedBy>,
}

/// What serves a capacity. It holds no secret.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ServedBy {
    /// The capacity.
    pub name: String,
    /// The address of the endpoint, without credentials and query.
    pub base_url: String,
    /// Whether the address had credentials or a query.
    #[serde(default)]
    pub had_secret: bool,
    /// The model there.
    pub model: String,
    /// Instead of both: the folder of a model that runs in the process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local: Option<String>,
    /// The environment variable that holds the key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_key_env: Option<String>,
    /// How it is asked to reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub style: Option<lemon_spec::Style>,
}

const SCHEMA_VERSION: i64 = 1;
/// How long to wait while another process writes.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(30);

// Rows are appended, and runs are numbered in the order they begin: what many runs write at the same time lies on the same
// few pages. Keyed by the runs' random names, every event would dirty a page of its own.
const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS runs (
        run INTEGER PRIMARY KEY, run_id TEXT NOT NULL UNIQUE, started_at_ms INTEGER NOT NULL, owner TEXT NOT NULL,
        header TEXT NOT NULL, meta TEXT NOT NULL, batch TEXT, position INTEGER,
        stop_reason TEXT, answer TEXT, tokens INTEGER, usd REAL, wall_s REAL, agents INTEGER
    );
    CREATE INDEX IF NOT EXISTS runs_by_batch ON runs (batch, position) WHERE batch IS NOT NULL;
    CREATE TABLE IF NOT EXISTS events (run INTEGER NOT NULL, id INTEGER NOT NULL, event TEXT NOT NULL);
    CREATE UNIQUE INDEX IF NOT EXISTS events_by_run ON events (run, id);
    CREATE TABLE IF NOT EXISTS replies (key BLOB NOT NULL UNIQUE, reply TEXT NOT NULL);
    CREATE TABLE IF NOT EXISTS batches (batch TEXT PRIMARY KEY, started_at_ms INTEGER NOT NULL, meta TEXT NOT NULL);
    CREATE TABLE IF NOT EXISTS claims (batch TEXT PRIMARY KEY, owner TEXT NOT NULL) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS tasks (
        batch TEXT NOT NULL, position INTEGER NOT NULL, task_id TEXT NOT NULL, question TEXT NOT NULL,
        PRIMARY KEY (batch, position)
    ) WITHOUT ROWID;
";

impl Store {
    /// Opens a store, or makes one.
    ///
    /// # Errors
    /// The file cannot be written, is no store, or is a newer one.
    pub fn open(path: &Path, sync: Sync) -> Result<Self, StoreError> {
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            std::fs::create_dir_all(folder)
                .map_err(|error| StoreError::Database(format!("{}: {error}", folder.display())))?;
        }
        file::check(path)?;
        let mut connection = connect(path)?;
        file::check_ours(&connection, path)?;
        let level = match sync {
            Sync::Normal => "NORMAL",
            Sync::Full => "FULL",
        };
        connection.pragma_update(None, "synchronous", level)?;
        // The checkpointer's work, not the writer's.
        connection.pragma_update(None, "wal_autocheckpoint", 0)?;
        let transaction = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
        transaction.execute_batch(SCHEMA)?;
        for (name, value) in [("application_id", APPLICATION), ("user_version", SCHEMA_VERSION)] {
            if transaction.pragma_query_value(None, name, |row| row.get::<_, i64>(0))? != value {
                transaction.pragma_update(None, name, value)?;
            }
        }
        transaction.commit()?;
        // After the file says whose it is: what is written from now on goes to the log first.
        connection.pragma_update(None, "journal_mode", "WAL")?;
        Ok(Store {
            path: path.to_owned(),
            writer: Writer::start(connection, Checkpointer::start(connect(path)?)?)?,
            reader: Mutex::new(connect(path)?),
            replies: KnownReplies::default(),
            owner: OnceLock::new(),
        })
    }

    /// Opens a store that must be there.
    ///
    /// # Errors
    /// As [`Store::open`], or there is none.
    pub fn open_existing(path: &Path) -> Result<Self, StoreError> {
        if !path.exists() {
            return Err(StoreError::Missing(path.to_owned()));
        }
        Store::open(path, Sync::Normal)
    }

    /// Opens a store to look at it. Nothing is written, so that it may lie on a read-only disk.
    ///
    /// # Errors
    /// There is none, it cannot be read, is no store, or is a newer one.
    pub fn open_to_look(path: &Path) -> Result<Self, StoreError> {
        if !path.exists() {
            return Err(StoreError::Missing(path.to_owned()));
        }
        file::check(path)?;
        let mut reader = file::connect_to_look(path)?;
        file::check_ours(&reader, path)?;
        if file::is_empty(&reader)? {
            // Another process has just made it, or died when it had.
            reader = Connection::open_in_memory()?;
            reader.execute_batch(SCHEMA)?;
        }
        Ok(Store {
            path: path.to_owned(),
            writer: Writer::none(),
            reader: Mutex::new(reader),
            replies: KnownReplies::default(),
            owner: OnceLock::new(),
        })
    }

    /// Enters a run, or takes one over that was entered before.
    ///
    /// # Errors
    /// No lock file can be written beside the store.
    pub fn begin_run(&self, header: &Header, meta: &RunMeta) -> Result<Durable, StoreError> {
        Ok(self.writer.send(self.beginning(header, meta, None)?))
    }

    /// Takes a run over that was entered before, where this trace of it ends. Of several processes that try, one succeeds:
    /// looking who has the run and taking it are one transaction. The caller must wait for the result before it does anything.
    ///
    /// # Errors
    /// No lock file can be written beside the store. The result says whether another process has the run, or has gone on
    /// with it since the trace was read.
    pub fn take_up(&self, trace: &Trace, meta: &RunMeta) -> Result<Durable, StoreError> {
        let last = trace.events.iter().map(|event| event.id).max().unwrap_or(0);
        Ok(self.writer.send(self.beginning(&trace.header, meta, Some(last))?))
    }

    fn beginning(&self, header: &Header, meta: &RunMeta, after: Option<u32>) -> Result<Op, StoreError> {
        Ok(Op::BeginRun {
            run_id: header.run_id.clone(),
            started_at_ms: header.started_at_ms,
            owner: self.owner()?.id().to_owned(),
            header: to_json(header),
            meta: to_json(meta),
            batch: meta.batch.clone(),
            after: after.map(|last| (self.path.clone(), last)),
        })
    }

    /// Enters events, by number and as JSON.
    pub(crate) fn append(&self, run_id: &str, events: Vec<(u32, String)>) -> Durable {
        self.writer.send(Op::Events { run_id: run_id.to_owned(), events })
    }

    /// Enters a run that was made elsewhere: all of its events, as JSON in their order, and its end.
    ///
    /// # Errors
    /// No lock file can be written beside the store. The result says whether the run could be written.
    pub fn enter_run(&self, trace: &Trace, events: Vec<String>, meta: &RunMeta) -> Result<Durable, StoreError> {
        self.begin_run(&trace.header, meta)?;
        let numbers = trace.events.iter().map(|event| event.id);
        // Whatever is sent later becomes durable later.
        drop(self.append(&trace.header.run_id, numbers.zip(events).collect()));
        Ok(self.finish_run(&trace.header.run_id, &trace.summary()))
    }

    /// Adds to a finished run what was measured afterwards: scores and credit.
    pub fn annotate(&self, trace: &mut Trace, kinds: impl IntoIterator<Item = EventKind>) -> Durable {
        let t = trace.events.iter().map(|event| event.t).fold(0.0, f64::max);
        let mut added = Vec::new();
        for kind in kinds {
            let id = trace.events.last().map_or(0, |event| event.id) + 1;
            let (agent, spend) = (ORCHESTRATOR.to_owned(), Spend::default());
            let event = Event { id, t, agent, kind, spend, edges: Vec::new() };
            added.push((id, to_json(&event)));
            trace.events.push(event);
        }
        self.writer.send(Op::Annotate { run_id: trace.header.run_id.clone(), events: added })
    }

    /// Enters how a run ended, for listings; the events say it too.
    pub fn finish_run(&self, run_id: &str, summary: &Summary) -> Durable {
        self.writer.send(Op::FinishRun {
            run_id: run_id.to_owned(),
            stop_reason: summary.stop_reason.map(|reason| reason.as_str().to_owned()),
            answer: summary.answer.clone(),
            tokens: summary.tokens.total,
            usd: summary.usd,
            wall_s: summary.wall_s,
            agents: summary.agents.len(),
        })
    }

    /// Its file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Keeps a reply for the next run that makes the same call.
    pub fn remember(&self, key: [u8; 32], reply: &Reply) {
        self.replies.add(&key);
        self.writer.send_and_forget(Op::Reply { key, reply: to_json(reply) });
    }

    /// The reply to this very call, if one is on record.
    ///
    /// # Errors
    /// The database says no, or the record cannot be read. A call that would be paid twice is not made in its place.
    pub fn recall(&self, key: &[u8; 32]) -> Result<Option<Reply>, StoreError> {
        let reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.replies.may_have(key, &reader) {
            return Ok(None);
        }
        let mut statement = reader.prepare_cached("SELECT reply FROM replies WHERE key = ?1")?;
        let reply: Option<String> = statement.query_row([&key[..]], |row| row.get(0)).optional()?;
        reply.map(|reply| read::from_json(&reply)).transpose()
    }

    /// Takes a batch over. Of several processes that try, one succeeds, and keeps it as long as it lives.
    ///
    /// # Errors
    /// No lock file can be written beside the store. The result says whether another process has the batch.
    pub fn claim_batch(&self, batch: &str) -> Result<Durable, StoreError> {
        let (batch, owner, store) = (batch.to_owned(), self.owner()?.id().to_owned(), self.path.clone());
        Ok(self.writer.send(Op::ClaimBatch { batch, owner, store }))
    }

    /// Enters a batch of tasks (`id`, `question`) and what is needed to take it up again.
    pub fn begin_batch(&self, batch: &str, started_at_ms: u64, meta: String, tasks: Vec<(String, String)>) -> Durable {
        self.writer.send(Op::BeginBatch { batch: batch.to_owned(), started_at_ms, meta, tasks })
    }

    fn owner(&self) -> Result<&Owner, StoreError> {
        if let Some(owner) = self.owner.get() {
            return Ok(owner);
        }
        let fresh = Owner::new(&self.path)?;
        Ok(self.owner.get_or_init(|| fresh))
    }
}

pub(crate) fn to_json(value: &impl Serialize) -> String {
    // Our own plain types always serialise; were one not to, reading it back would say so.
    serde_json::to_string(value).unwrap_or_default()
}
