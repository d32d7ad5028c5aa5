//! Keys: who may ask, and what each may spend in an hour, a day, a month or ever.
//!
//! They lie in a database of their own beside the store. Of a key only its hash is kept. What is spent is put on record
//! before a call is made (see [`lemon_exec::SharedBudget::journaled`]), so that a server that is killed has never spent more than it says.

mod account;
mod period;

pub use account::Grant;
pub use period::Period;

use crate::guard::Caller;
use crate::refusal::Refusal;
use account::KeyAccount;
use axum::http::StatusCode;
use lemon_exec::unix_ms;
use lemon_workers::Capacity;
use rusqlite::{Connection, OptionalExtension, Row, params};
use serde::Serialize;
use std::collections::HashMap;
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What every key begins with.
pub const PREFIX: &str = "lemon-sk-";
/// Letters after it: 160 bits.
const LETTERS: usize = 32;
/// How long to wait while another process writes.
const PATIENCE: Duration = Duration::from_secs(10);

const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS keys (
        id TEXT PRIMARY KEY, name TEXT NOT NULL UNIQUE, hash BLOB NOT NULL UNIQUE, created_at_ms INTEGER NOT NULL,
        tokens INTEGER, usd REAL, period TEXT NOT NULL, rpm INTEGER
    );
    CREATE TABLE IF NOT EXISTS spent (
        key TEXT NOT NULL, period TEXT NOT NULL, tokens INTEGER NOT NULL, usd REAL NOT NULL, PRIMARY KEY (key, period)
    ) WITHOUT ROWID;
";

/// A key, without what opens the door.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ServerKey {
    /// Names it on record.
    pub id: String,
    pub name: String,
    /// When it was made, in milliseconds of Unix time.
    pub created_at_ms: u64,
    /// What it may spend and how often it may ask.
    #[serde(flatten)]
    pub limits: KeyLimits,
}

/// What a key may spend and how often it may ask.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct KeyLimits {
    /// Tokens in a period.
    pub budget_tokens: Option<u64>,
    /// US dollars in a period.
    pub budget_usd: Option<f64>,
    /// The period.
    pub per: Period,
    /// Requests in a minute.
    pub rpm: Option<u64>,
}

/// A key, and what it has spent in the period that is now.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct KeyUse {
    #[serde(flatten)]
    pub key: ServerKey,
    /// Tokens. While runs are under way, it may be ahead of the truth by what they hold and a thousandth of the budget.
    pub spent_tokens: u64,
    /// US dollars; likewise.
    pub spent_usd: f64,
}

/// A database of keys that cannot be used.
#[derive(Debug, Clone, thiserror::Error)]
pub enum KeyError {
    /// The database says no.
    #[error("{path}: {reason}")]
    Database {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// The name is taken.
    #[error("there is a key called `{0}` already")]
    Taken(String),
    /// No key has this name.
    #[error("no key is called `{0}`")]
    Unknown(String),
    /// A name that cannot be one.
    #[error("the name of a key must be 1 to 60 letters, digits, `-`, `_`, `.` or `@`, got `{0}`")]
    Name(String),
    /// No randomness.
    #[error("the system gives no random bytes: {0}")]
    Random(String),
}

impl From<KeyError> for Refusal {
    fn from(error: KeyError) -> Self {
        Refusal::internal(error)
    }
}

/// The keys of an installation.
pub struct Keys {
    path: PathBuf,
    // A std mutex around one connection: reads and writes are of microseconds, and never across an await.
    database: Arc<Mutex<Connection>>,
    accounts: Mutex<HashMap<String, KeyAccount>>,
    /// Held by the one server that spends the budgets.
    lock: Option<File>,
}

impl Keys {
    /// Where the keys of a store lie.
    pub fn path_beside(store: &Path) -> PathBuf {
        store.with_extension("keys.db")
    }

    /// Opens the keys to list and change them.
    ///
    /// # Errors
    /// The file cannot be used.
    pub fn open(path: &Path) -> Result<Self, KeyError> {
        let failed = |reason: String| KeyError::Database { path: path.to_owned(), reason };
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            std::fs::create_dir_all(folder).map_err(|error| failed(error.to_string()))?;
        }
        let open = || -> rusqlite::Result<Connection> {
            let connection = Connection::open(path)?;
            connection.busy_timeout(PATIENCE)?;
            connection.pragma_update(None, "journal_mode", "WAL")?;
            connection.execute_batch(SCHEMA)?;
            Ok(connection)
        };
        let database = Arc::new(Mutex::new(open().map_err(|error| failed(error.to_string()))?));
        Ok(Keys { path: path.to_owned(), database, accounts: Mutex::default(), lock: None })
    }

    /// Opens the keys to spend their budgets. One server at a time can: [`Keys::are_ours`] says whether it is this one.
    ///
    /// # Errors
    /// The file cannot be used.
    pub fn open_to_spend(path: &Path) -> Result<Self, KeyError> {
        let keys = Keys::open(path)?;
        let failed = |reason: std::io::Error| KeyError::Database { path: path.to_owned(), reason: reason.to_string() };
        let file = File::options().create(true).truncate(false).write(true).open(path.with_extension("lock"));
        let file = file.map_err(failed)?;
        let lock = match file.try_lock() {
            Ok(()) => Some(file),
            Err(TryLockError::WouldBlock) => None,
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        };
        Ok(Keys { lock, ..keys })
    }

    /// Whether no other server spends these budgets.
    pub fn are_ours(&self) -> bool {
        self.lock.is_some()
    }

    /// Makes a key and returns it: the only time it is seen.
    ///
    /// # Errors
    /// The name is taken or none, or the database says no.
    pub fn add(&self, name: &str, limits: &KeyLimits) -> Result<String, KeyError> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '@');
        if name.is_empty() || name.len() > 60 || !name.chars().all(is_plain) {
            return Err(KeyError::Name(name.to_owned()));
        }
        let secret = secret()?;
        let tokens = limits.budget_tokens.map(|tokens| i64::try_from(tokens).unwrap_or(i64::MAX));
        let rpm = limits.rpm.map(|rpm| i64::try_from(rpm).unwrap_or(i64::MAX));
        let id = format!("k-{}", lemon_exec::fresh_id());
        let added = self.database().execute(
            "INSERT INTO keys (id, name, hash, created_at_ms, tokens, usd, period, rpm) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
             ON CONFLICT (name) DO NOTHING",
            params![id, name, hash(&secret), unix_ms() as i64, tokens, limits.budget_usd, limits.per.as_str(), rpm],
        );
        match added.map_err(|error| self.failed(&error))? {
            0 => Err(KeyError::Taken(name.to_owned())),
            _ => Ok(secret),
        }
    }

    /// Removes a key. Requests that use it are refused from now on.
    ///
    /// # Errors
    /// There is none of this name, or the database says no.
    pub fn remove(&self, name: &str) -> Result<(), KeyError> {
        let database = self.database();
        let of_key = "DELETE FROM spent WHERE key = (SELECT id FROM keys WHERE name = ?1)";
        database.execute(of_key, [name]).map_err(|error| self.failed(&error))?;
        match database.execute("DELETE FROM keys WHERE name = ?1", [name]).map_err(|error| self.failed(&error))? {
            0 => Err(KeyError::Unknown(name.to_owned())),
            _ => Ok(()),
        }
    }

    /// All keys, by name, with what each has spent in the period that is now.
    ///
    /// # Errors
    /// The database says no.
    pub fn list(&self) -> Result<Vec<KeyUse>, KeyError> {
        let database = self.database();
        let list = || -> rusqlite::Result<Vec<ServerKey>> {
            let mut statement = database.prepare(&format!("SELECT {COLUMNS} FROM keys ORDER BY name"))?;
            statement.query_map([], key)?.collect()
        };
        let keys = list().map_err(|error| self.failed(&error))?;
        let used = |key: ServerKey| {
            let (spent_tokens, spent_usd) = spent(&database, &key.id, &key.limits.per.at(unix_ms()))?;
            Ok(KeyUse { key, spent_tokens, spent_usd })
        };
        keys.into_iter().map(used).collect::<rusqlite::Result<_>>().map_err(|error| self.failed(&error))
    }

    /// Whether there are any.
    ///
    /// # Errors
    /// The database says no.
    pub fn exist(&self) -> Result<bool, KeyError> {
        let any = self.database().query_row("SELECT EXISTS (SELECT 1 FROM keys)", [], |row| row.get(0));
        any.map_err(|error| self.failed(&error))
    }

    /// The key that opens with this text.
    pub(crate) fn find(&self, secret: &str) -> Result<Option<ServerKey>, KeyError> {
        self.query(&format!("SELECT {COLUMNS} FROM keys WHERE hash = ?1"), params![hash(secret)])
    }

    /// Who has the key with this id; a client without a key, where there is no id.
    pub(crate) fn caller_of(&self, id: Option<&str>) -> Result<Caller, Refusal> {
        let Some(id) = id else { return Ok(Caller::anonymous()) };
        match self.query(&format!("SELECT {COLUMNS} FROM keys WHERE id = ?1"), params![id])? {
            Some(key) => Ok(Caller::with_key(key)),
            None => Err(Refusal::new(StatusCode::UNAUTHORIZED, "invalid_request_error", "the key was removed")),
        }
    }

    /// Lets a caller make a run, inside what its key may spend.
    ///
    /// # Errors
    /// The rate or the budget is used up, or there is a budget in US dollars and capacities without a price.
    pub(crate) fn admit(&self, caller: &Caller, capacities: &[(String, Capacity)]) -> Result<Grant, Refusal> {
        let Some(key) = caller.key() else { return Ok(Grant::unlimited()) };
        if !self.are_ours() {
            let fact = "the budgets of keys are spent by another server on the same store";
            return Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "server_error", fact).retry_after(60));
        }
        if key.limits.budget_usd.is_some() {
            lemon_workers::check_prices(capacities)?;
        }
        let period = key.limits.per.at(unix_ms());
        let mut accounts = self.accounts.lock().unwrap_or_else(PoisonError::into_inner);
        let known = accounts.get(&key.id).is_some_and(|account| account.period() == period);
        if !known {
            let spent = spent(&self.database(), &key.id, &period).map_err(|error| self.failed(&error))?;
            let calls = accounts.remove(&key.id).map(KeyAccount::into_calls).unwrap_or_default();
            accounts.insert(key.id.clone(), KeyAccount::new(key, period, spent, calls, self.database.clone()));
        }
        match accounts.get_mut(&key.id) {
            Some(account) => account.admit(key),
            None => Err(Refusal::internal("the account of the key is gone")),
        }
    }

    fn query(&self, sql: &str, params: impl rusqlite::Params) -> Result<Option<ServerKey>, KeyError> {
        let database = self.database();
        let mut statement = database.prepare_cached(sql).map_err(|error| self.failed(&error))?;
        statement.query_row(params, key).optional().map_err(|error| self.failed(&error))
    }

    fn database(&self) -> MutexGuard<'_, Connection> {
        self.database.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failed(&self, error: &rusqlite::Error) -> KeyError {
        KeyError::Database { path: self.path.clone(), reason: error.to_string() }
    }
}

const COLUMNS: &str = "id, name, created_at_ms, tokens, usd, period, rpm";

fn key(row: &Row<'_>) -> rusqlite::Result<ServerKey> {
    let whole = |number: Option<i64>| number.map(|number| number.max(0) as u64);
    let per: String = row.get(5)?;
    Ok(ServerKey {
        id: row.get(0)?,
        name: row.get(1)?,
        created_at_ms: row.get::<_, i64>(2)?.max(0) as u64,
        limits: KeyLimits {
            budget_tokens: whole(row.get(3)?),
            budget_usd: row.get(4)?,
            // A word of a newer version: the longest period refuses most.
            per: per.parse().unwrap_or(Period::Ever),
            rpm: whole(row.get(6)?),
        },
    })
}

fn spent(database: &Connection, key: &str, period: &str) -> rusqlite::Result<(u64, f64)> {
    let mut statement = database.prepare_cached("SELECT tokens, usd FROM spent WHERE key = ?1 AND period = ?2")?;
    let row = statement.query_row([key, period], |row| Ok((row.get::<_, i64>(0)?.max(0) as u64, row.get(1)?)));
    Ok(row.optional()?.unwrap_or_default())
}

fn hash(secret: &str) -> Vec<u8> {
    // The secret has 160 random bits: nothing slower is needed to keep it from being guessed.
    blake3::hash(secret.as_bytes()).as_bytes().to_vec()
}

fn secret() -> Result<String, KeyError> {
    const ALPHABET: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";
    let mut bytes = [0u8; LETTERS];
    getrandom::fill(&mut bytes).map_err(|error| KeyError::Random(error.to_string()))?;
    let letters = bytes.iter().map(|byte| char::from(ALPHABET[usize::from(byte % 32)])); // in range: there are 32
    Ok(PREFIX.chars().chain(letters).collect())
}

#[cfg(test)]
mod tests;
