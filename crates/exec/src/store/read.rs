//! Reading runs back.

use super::{RunMeta, Store, StoreError, owner};
use lemon_trace::{Event, Header, Trace};
use rusqlite::{OptionalExtension, Row, params};
use serde::Serialize;
use std::sync::PoisonError;

/// A run in a listing.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunRow {
    pub run_id: String,
    pub task_id: String,
    /// The task's text.
    pub question: String,
    /// When it began, in milliseconds of Unix time.
    pub started_at_ms: u64,
    /// The kind of workers.
    pub workers: String,
    pub seed: u64,
    /// Why it ended; `None`: it has not, or its process died.
    pub stop_reason: Option<String>,
    pub answer: Option<String>,
    /// All tokens.
    pub tokens: Option<u64>,
    /// All money.
    pub cost_usd: Option<f64>,
    /// How long it took.
    pub wall_s: Option<f64>,
    /// How many agents it had.
    pub agents: Option<u64>,
    /// A process is working on it now.
    pub running: bool,
    /// The batch it belongs to.
    pub batch: Option<String>,
}

/// A batch of tasks.
#[derive(Debug, Clone, PartialEq)]
pub struct BatchRow {
    /// Its name.
    pub batch: String,
    /// What is needed to take it up again.
    pub meta: String,
    /// Its tasks, in order.
    pub tasks: Vec<BatchTask>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct BatchTask {
    pub task_id: String,
    /// Its text.
    pub question: String,
}

const RUN_COLUMNS: &str =
    "run_id, header, started_at_ms, stop_reason, answer, tokens, usd, wall_s, agents, owner, batch FROM runs";

impl Store {
    /// The runs, newest first.
    ///
    /// # Errors
    /// The database says no.
    pub fn runs(&self, most: usize) -> Result<Vec<RunRow>, StoreError> {
        let reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        let mut statement = reader.prepare(&format!("SELECT {RUN_COLUMNS} ORDER BY run DESC LIMIT ?1"))?;
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let rows = statement.query_map([most], |row| self.run_row(row))?.collect::<Result<Vec<_>, _>>()?;
        Ok(rows)
    }

    /// The newest runs that belong to no batch, newest first. Of a long answer only the beginning is read.
    ///
    /// # Errors
    /// The database says no.
    pub fn single_runs(&self, most: usize) -> Result<Vec<RunRow>, StoreError> {
        let columns = RUN_COLUMNS.replace(" answer,", " substr(answer, 1, 1000),");
        let reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        let mut statement =
            reader.prepare(&format!("SELECT {columns} WHERE batch IS NULL ORDER BY run DESC LIMIT ?1"))?;
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let rows = statement.query_map([most], |row| self.run_row(row))?.collect::<Result<Vec<_>, _>>()?;
        Ok(rows)
    }

    /// The full name of the one run called `name`: its whole id, the beginning of it, or `last`.
    ///
    /// # Errors
    /// There is none, or more than one.
    pub fn find_run(&self, name: &str) -> Result<String, StoreError> {
        let reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        let newest = "SELECT run_id FROM runs ORDER BY run DESC LIMIT 1";
        if name == "last" {
            let found = reader.query_row(newest, [], |row| row.get(0)).optional()?;
            return found.ok_or_else(|| StoreError::NoSuchRun(name.to_owned()));
        }
        let exact: Option<String> =
            reader.query_row("SELECT run_id FROM runs WHERE run_id = ?1", [name], |row| row.get(0)).optional()?;
        if let Some(found) = exact {
            return Ok(found);
        }
        let mut statement = reader.prepare("SELECT run_id FROM runs WHERE substr(run_id, 1, length(?1)) = ?1")?;
        let found = statement.query_map([name], |row| row.get(0))?.collect::<Result<Vec<String>, _>>()?;
        match <[String; 1]>::try_from(found) {
            Ok([run_id]) if !name.is_empty() => Ok(run_id),
            Err(found) if found.len() > 1 => Err(StoreError::Ambiguous { name: name.to_owned(), count: found.len() }),
            _ => Err(StoreError::NoSuchRun(name.to_owned())),
        }
    }

    /// The runs that have not ended and that no process works on, oldest first.
    ///
    /// # Errors
    /// The database says no.
    pub fn interrupted(&self) -> Result<Vec<String>, StoreError> {
        let reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        let mut statement = reader.prepare("SELECT run_id, owner FROM runs WHERE stop_reason IS NULL ORDER BY run")?;
        let row = |row: &Row<'_>| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?));
        let rows = statement.query_map([], row)?.collect::<Result<Vec<_>, _>>()?;
        let is_free = |owner: &str| !self.owns(owner) && owner::alive(&self.path, owner).is_none();
        Ok(rows.into_iter().filter(|(_, owner)| is_free(owner)).map(|(run_id, _)| run_id).collect())
    }

    /// Everything on record about a run.
    ///
    /// # Errors
    /// There is no such run, or its record cannot be read.
    pub fn trace(&self, run_id: &str) -> Result<Trace, StoreError> {
        let reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        let header: Option<String> =
            reader.query_row("SELECT header FROM runs WHERE run_id = ?1", [run_id], |row| row.get(0)).optional()?;
        let header: Header = from_json(&header.ok_or_else(|| StoreError::NoSuchRun(run_id.to_owned()))?)?;
        let mut statement = reader.prepare_cached(
            "SELECT event FROM events WHERE run = (SELECT run FROM runs WHERE run_id = ?1) ORDER BY id",
        )?;
        let events = statement.query_map([run_id], |row| row.get::<_, String>(0))?.collect::<Result<Vec<_>, _>>()?;
        let events = events.iter().map(|event| from_json::<Event>(event)).collect::<Result<_, _>>()?;
        Ok(Trace { header, events })
    }

    /// What is needed to take a run up again.
    ///
    /// # Errors
    /// There is no such run, or another process works on it.
    pub fn meta(&self, run_id: &str) -> Result<RunMeta, StoreError> {
        let reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        let row: Option<(String, String, Option<String>)> = reader
            .query_row("SELECT meta, owner, stop_reason FROM runs WHERE run_id = ?1", [run_id], |row| {
                Ok((row.get(0)?, row.get(1)?, row.get(2)?))
            })
            .optional()?;
        let (meta, owner, stop_reason) = row.ok_or_else(|| StoreError::NoSuchRun(run_id.to_owned()))?;
        if stop_reason.is_none()
            && !self.owns(&owner)
            && let Some(other) = owner::alive(&self.path, &owner)
        {
            return Err(StoreError::Busy { name: run_id.to_owned(), process: other.process });
        }
        from_json(&meta)
    }

    /// The batch called `name`, if there is one.
    ///
    /// # Errors
    /// The database says no.
    pub fn batch(&self, name: &str) -> Result<Option<BatchRow>, StoreError> {
        let reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        let meta: Option<String> =
            reader.query_row("SELECT meta FROM batches WHERE batch = ?1", [name], |row| row.get(0)).optional()?;
        let Some(meta) = meta else { return Ok(None) };
        let mut statement = reader.prepare("SELECT task_id, question FROM tasks WHERE batch = ?1 ORDER BY position")?;
        let task = |row: &Row<'_>| Ok(BatchTask { task_id: row.get(0)?, question: row.get(1)? });
        let tasks = statement.query_map([name], task)?.collect::<Result<Vec<_>, _>>()?;
        Ok(Some(BatchRow { batch: name.to_owned(), meta, tasks }))
    }

    /// The run of the task at `position` of a batch, if it was begun.
    ///
    /// # Errors
    /// The database says no.
    pub fn run_of_task(&self, batch: &str, position: usize) -> Result<Option<String>, StoreError> {
        let reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        let mut statement = reader.prepare_cached("SELECT run_id FROM runs WHERE batch = ?1 AND position = ?2")?;
        Ok(statement.query_row(params![batch, position as i64], |row| row.get(0)).optional()?)
    }

    pub(super) fn owns(&self, owner: &str) -> bool {
        self.owner.get().is_some_and(|own| own.id() == owner)
    }

    pub(super) fn run_row(&self, row: &Row<'_>) -> rusqlite::Result<RunRow> {
        // A listing goes on; the row says that its header cannot be read.
        let header = serde_json::from_str::<Header>(&row.get::<_, String>(1)?);
        let (task_id, question, workers, seed) = match header {
            Ok(header) => (header.task_id, header.question, header.workers, header.seed),
            Err(error) => (String::new(), format!("(the header cannot be read: {error})"), String::new(), 0),
        };
        let owner: String = row.get(9)?;
        let stop_reason: Option<String> = row.get(3)?;
        Ok(RunRow {
            run_id: row.get(0)?,
            task_id,
            question,
            workers,
            seed,
            started_at_ms: row.get::<_, i64>(2)?.max(0) as u64,
            running: stop_reason.is_none() && (self.owns(&owner) || owner::alive(&self.path, &owner).is_some()),
            stop_reason,
            answer: row.get(4)?,
            tokens: row.get::<_, Option<i64>>(5)?.map(|tokens| tokens.max(0) as u64),
            cost_usd: row.get(6)?,
            wall_s: row.get(7)?,
            agents: row.get::<_, Option<i64>>(8)?.map(|agents| agents.max(0) as u64),
            batch: row.get(10)?,
        })
    }
}

pub(super) fn from_json<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, StoreError> {
    serde_json::from_str(text).map_err(|error| StoreError::Database(format!("a record cannot be read: {error}")))
}
