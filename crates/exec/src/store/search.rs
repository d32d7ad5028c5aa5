//! Searching the runs on record: filters, an order, a page.

use super::read::RunRow;
use super::{Store, StoreError, owner};
use rusqlite::types::Value;
use rusqlite::{Row, params_from_iter};
use std::sync::PoisonError;

/// Words of a search that count; a question has no more that matter.
const MOST_WORDS: usize = 12;

/// Which runs, and in which order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunSearch {
    /// Words that all stand in the question, the answer or the id.
    pub text: String,
    /// How the run ended.
    pub end: RunEnd,
    /// The model that a server was asked for, such as `lemon/NAME`.
    pub model: Option<String>,
    /// It began at this time or later, in milliseconds of Unix time.
    pub from_ms: Option<u64>,
    /// It began before this time.
    pub before_ms: Option<u64>,
    /// It spent so many tokens at least.
    pub least_tokens: Option<u64>,
    pub order: RunOrdering,
}

/// How a run ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum RunEnd {
    /// In any way, or not yet.
    #[default]
    Any,
    /// A process works on it.
    Running,
    /// No process works on it, and it has no end on record.
    Interrupted,
    /// A limit on tokens, time, money or calls was met.
    Budget,
    /// For this reason.
    Reason(String),
}

/// The order of runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum RunOrdering {
    /// Newest first.
    #[default]
    Newest,
    /// Most tokens first.
    Tokens,
    /// Most money first.
    Cost,
    /// Longest first.
    Time,
}

/// A run that was found.
#[derive(Debug, Clone, PartialEq)]
pub struct FoundRun {
    /// The run. Of a long answer only the beginning is read.
    pub row: RunRow,
    /// The model that a server was asked for.
    pub model: Option<String>,
}

const COLUMNS: &str = "run_id, header, started_at_ms, stop_reason, substr(answer, 1, 1000), tokens, usd, wall_s, agents, \
                       owner, batch, json_extract(meta, '$.served.model')";

impl Store {
    /// The runs that match, from the one numbered `skip`, and how many match in all.
    ///
    /// # Errors
    /// The database says no.
    pub fn search(&self, search: &RunSearch, skip: u64, most: u64) -> Result<(Vec<FoundRun>, u64), StoreError> {
        let conditions = self.conditions(search)?;
        let filter = match conditions.clauses.is_empty() {
            true => String::new(),
            false => format!(" WHERE {}", conditions.clauses.join(" AND ")),
        };
        let order = match search.order {
            RunOrdering::Newest => "run DESC",
            RunOrdering::Tokens => "tokens DESC NULLS LAST, run DESC",
            RunOrdering::Cost => "usd DESC NULLS LAST, run DESC",
            RunOrdering::Time => "wall_s DESC NULLS LAST, run DESC",
        };
        let reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        let count = format!("SELECT count(*) FROM runs{filter}");
        let total: i64 = reader.query_row(&count, params_from_iter(&conditions.values), |row| row.get(0))?;
        let mut values = conditions.values;
        values.extend([most, skip].map(|number| Value::Integer(i64::try_from(number).unwrap_or(i64::MAX))));
        let query = format!("SELECT {COLUMNS} FROM runs{filter} ORDER BY {order} LIMIT ? OFFSET ?");
        let mut statement = reader.prepare(&query)?;
        let found = |row: &Row<'_>| Ok(FoundRun { row: self.run_row(row)?, model: row.get(11)? });
        let rows = statement.query_map(params_from_iter(&values), found)?.collect::<Result<Vec<_>, _>>()?;
        Ok((rows, total.max(0) as u64))
    }

    fn conditions(&self, search: &RunSearch) -> Result<Conditions, StoreError> {
        let mut conditions = Conditions::default();
        for word in words(&search.text) {
            let pattern = Value::Text(format!("%{}%", escaped(word)));
            conditions.add(
                "(json_extract(header, '$.question') LIKE ? ESCAPE '\\' OR answer LIKE ? ESCAPE '\\' OR run_id LIKE ? ESCAPE '\\')",
                [pattern.clone(), pattern.clone(), pattern],
            );
        }
        match &search.end {
            RunEnd::Any => {}
            RunEnd::Budget => conditions.add("stop_reason LIKE '%\\_budget' ESCAPE '\\'", []),
            RunEnd::Reason(reason) => conditions.add("stop_reason = ?", [Value::Text(reason.clone())]),
            RunEnd::Running | RunEnd::Interrupted => {
                let word = if search.end == RunEnd::Running { "IN" } else { "NOT IN" };
                let alive: Vec<Value> = self.working()?.into_iter().map(Value::Text).collect();
                let places = vec!["?"; alive.len()].join(", ");
                conditions.add(&format!("stop_reason IS NULL AND owner {word} ({places})"), alive);
            }
        }
        if let Some(model) = &search.model {
            conditions.add("json_extract(meta, '$.served.model') = ?", [Value::Text(model.clone())]);
        }
        let number = |number: u64| [Value::Integer(i64::try_from(number).unwrap_or(i64::MAX))];
        if let Some(from) = search.from_ms {
            conditions.add("started_at_ms >= ?", number(from));
        }
        if let Some(before) = search.before_ms {
            conditions.add("started_at_ms < ?", number(before));
        }
        if let Some(tokens) = search.least_tokens {
            conditions.add("tokens >= ?", number(tokens));
        }
        Ok(conditions)
    }

    /// The owners of unfinished runs that are processes which still run.
    fn working(&self) -> Result<Vec<String>, StoreError> {
        let reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        let mut statement = reader.prepare("SELECT DISTINCT owner FROM runs WHERE stop_reason IS NULL")?;
        let owners = statement.query_map([], |row| row.get(0))?.collect::<Result<Vec<String>, _>>()?;
        let works = |owner: &String| self.owns(owner) || owner::alive(&self.path, owner).is_some();
        Ok(owners.into_iter().filter(works).collect())
    }

    /// The models that servers were asked for, by name.
    ///
    /// # Errors
    /// The database says no.
    pub fn models_asked(&self) -> Result<Vec<String>, StoreError> {
        let reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        let query = "SELECT DISTINCT json_extract(meta, '$.served.model') AS model FROM runs WHERE model IS NOT NULL ORDER BY model";
        let mut statement = reader.prepare(query)?;
        let models = statement.query_map([], |row| row.get(0))?.collect::<Result<Vec<String>, _>>()?;
        Ok(models)
    }
}

#[derive(Default)]
struct Conditions {
    clauses: Vec<String>,
    values: Vec<Value>,
}

impl Conditions {
    fn add(&mut self, clause: &str, values: impl IntoIterator<Item = Value>) {
        self.clauses.push(clause.to_owned());
        self.values.extend(values);
    }
}

/// The words of a search.
fn words(text: &str) -> impl Iterator<Item = &str> {
    // A control character ends a text of the database, so that it cannot be a part of a word.
    let words = text.split(|char: char| char.is_whitespace() || char.is_control());
    words.filter(|word| !word.is_empty()).take(MOST_WORDS)
}

/// A word in which no character stands for others.
fn escaped(word: &str) -> String {
    let mut pattern = String::with_capacity(word.len());
    for char in word.chars() {
        if matches!(char, '%' | '_' | '\\') {
            pattern.push('\\');
        }
        pattern.push(char);
    }
    pattern
}
