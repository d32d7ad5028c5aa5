//! Many tasks at a time, in the order of a file, resumable.

use crate::error::Error;
use futures::stream::{self, Stream, StreamExt};
use lemon_exec::store::{BatchRow, BatchTask, RunMeta, StartedWith, Store};
use lemon_exec::{Budget, Job, Runner, fresh_id, unix_ms};
use lemon_trace::{StopReason, Trace};
use lemon_workers::Before;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// What is needed to resume a batch. The field names are on record in stores.
#[derive(Debug, Serialize, Deserialize)]
pub struct BatchMeta {
    /// The team, where one was given.
    pub spec: Option<String>,
    /// The budget of each run.
    pub budget: Budget,
    /// The kind of workers by its name.
    pub workers: String,
    /// The file of scripted or recorded workers.
    pub worker_file: Option<PathBuf>,
    /// What answered.
    #[serde(default)]
    pub started_with: Option<StartedWith>,
    /// The seed of every run.
    pub seed: u64,
    /// Tasks at a time.
    pub width: usize,
    /// Lines of the file that are no tasks.
    #[serde(default)]
    pub skipped: usize,
}

impl BatchMeta {
    /// The record of a batch.
    ///
    /// # Errors
    /// It cannot be read, or is that of an evaluation.
    pub fn of(batch: &BatchRow) -> Result<Self, Error> {
        if batch.batch.starts_with("e-") {
            return Err(Error::input(format!("`{}` is an evaluation", batch.batch))
                .with_hint(format!("`lemon eval --resume {}` goes on with it", batch.batch)));
        }
        serde_json::from_str(&batch.meta)
            .map_err(|error| Error::input(format!("the record of batch `{}` cannot be read: {error}", batch.batch)))
    }

    /// What its runs were begun with.
    pub fn before(self) -> Before {
        Before {
            spec: self.spec,
            budget: self.budget,
            workers: Some(self.workers),
            worker_file: self.worker_file,
            form: None,
            started_with: self.started_with,
        }
    }
}

/// Puts a new batch on record and claims it for this process.
///
/// # Errors
/// The store failed.
pub async fn begin(store: &Store, meta: &BatchMeta, tasks: Vec<BatchTask>) -> Result<BatchRow, Error> {
    let batch = format!("b-{}", fresh_id());
    let rows = tasks.iter().map(|task| (task.task_id.clone(), task.question.clone())).collect();
    let record = serde_json::to_string(meta).map_err(Error::input)?;
    store.claim_batch(&batch)?.wait().await?;
    store.begin_batch(&batch, unix_ms(), record, rows).wait().await?;
    Ok(BatchRow { batch, meta: String::new(), tasks })
}

/// What the runs of a batch share.
pub struct BatchRunner {
    /// Runs them.
    pub runner: Runner,
    /// Keeps them.
    pub store: Arc<Store>,
    /// What each is begun with.
    pub meta: RunMeta,
    /// The seed of every run.
    pub seed: u64,
}

impl BatchRunner {
    /// Runs the tasks of a batch, `width` at a time, and yields the position of each that ends with what `read` takes from its
    /// trace. `None`: not begun, because the batch was cancelled.
    pub fn run<'b, T: Send + 'static>(
        self: Arc<Self>,
        batch: &'b BatchRow,
        width: usize,
        cancel: CancellationToken,
        read: impl Fn(&Trace) -> T + Clone + Send + 'static,
    ) -> impl Stream<Item = (usize, Result<Option<T>, Error>)> + 'b {
        let one = move |(position, task): (usize, &BatchTask)| {
            let (shared, batch, task, cancel) = (self.clone(), batch.batch.clone(), task.clone(), cancel.clone());
            let read = read.clone();
            // A task of its own for the runtime: woken alone, not with all the others.
            let run = tokio::spawn(async move {
                let trace = shared.run_task(&batch, position, &task, &cancel).await?;
                Ok(trace.map(|trace| read(&trace)))
            });
            let broke_off = |error| Err(Error::input(format!("a run broke off: {error}")));
            async move { (position, run.await.unwrap_or_else(broke_off)) }
        };
        stream::iter(batch.tasks.iter().enumerate()).map(one).buffer_unordered(width.max(1))
    }

    /// Runs a task, goes on with it, or reads what it came to. `None`: not begun, because the batch was cancelled.
    async fn run_task(
        &self,
        batch: &str,
        position: usize,
        task: &BatchTask,
        cancel: &CancellationToken,
    ) -> Result<Option<Trace>, Error> {
        let store = &self.store;
        let meta = RunMeta { batch: Some((batch.to_owned(), position)), ..self.meta.clone() };
        if let Some(run_id) = store.run_of_task(batch, position)? {
            store.meta(&run_id)?;
            let trace = store.trace(&run_id)?;
            // What ended for good stays as it ended; what was cut off goes on.
            let summary = trace.summary();
            let ended = summary.stop_reason.is_some_and(|reason| reason != StopReason::Cancelled);
            if ended {
                // The process may have died between the last event and this entry.
                store.finish_run(&run_id, &summary).wait().await?;
            }
            if ended || cancel.is_cancelled() {
                return Ok(Some(trace));
            }
            return Ok(Some(self.runner.resume(trace, &meta, cancel, None).await?));
        }
        if cancel.is_cancelled() {
            return Ok(None);
        }
        let job = Job {
            run_id: format!("r-{}", fresh_id()),
            task_id: task.task_id.clone(),
            question: task.question.clone(),
            seed: self.seed,
            meta,
        };
        Ok(Some(self.runner.run(&job, cancel, None).await?))
    }
}

/// The tasks of a file of JSON lines, and what is wrong with the lines that are none.
pub fn read_tasks(text: &str) -> (Vec<BatchTask>, Vec<String>) {
    let mut tasks: Vec<BatchTask> = Vec::new();
    let mut lines_by_id: HashMap<String, usize> = HashMap::new();
    let mut faults = Vec::new();
    for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let number = at + 1;
        match read_task(line, number) {
            Err(fact) => faults.push(format!("line {number}: {fact}")),
            Ok(task) => match lines_by_id.get(&task.task_id) {
                Some(first) => faults.push(format!("line {number}: the id `{}` is that of line {first}", task.task_id)),
                None => {
                    lines_by_id.insert(task.task_id.clone(), number);
                    tasks.push(task);
                }
            },
        }
    }
    (tasks, faults)
}

fn read_task(line: &str, number: usize) -> Result<BatchTask, String> {
    // The parser sees one line and calls it line 1.
    let value: Value = serde_json::from_str(line)
        .map_err(|error| format!("not JSON: {}", error.to_string().replace(" at line 1 column", " at column")))?;
    let object = value.as_object().ok_or("not a JSON object")?;
    let question = match object.get("question") {
        Some(Value::String(question)) if !question.trim().is_empty() => question.trim().to_owned(),
        Some(Value::String(_)) => return Err("the question is empty".into()),
        Some(_) => return Err("the question is not a text".into()),
        None => return Err("there is no `question`".into()),
    };
    let task_id = match object.get("id") {
        Some(Value::String(id)) if !id.is_empty() => id.clone(),
        Some(Value::Number(id)) => id.to_string(),
        None => format!("line-{number}"),
        Some(_) => return Err("the id is neither a text nor a number".into()),
    };
    Ok(BatchTask { task_id, question })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_lines_are_named_and_the_rest_is_kept() {
        let text = "{\"id\": \"a\", \"question\": \"Q?\"}\n\nnonsense\n[1]\n{\"id\": \"a\", \"question\": \"again\"}\n\
                    {\"id\": 7, \"question\": \" R? \"}\n{\"question\": \"\"}\n{\"id\": []}\n{\"question\": 3}\n{\"question\": \"S\"}";
        let (tasks, faults) = read_tasks(text);
        let ids: Vec<_> = tasks.iter().map(|task| (task.task_id.as_str(), task.question.as_str())).collect();
        assert_eq!(ids, [("a", "Q?"), ("7", "R?"), ("line-10", "S")]);
        let lines: Vec<_> = faults.iter().map(|fault| fault.split(':').next().unwrap_or_default()).collect();
        assert_eq!(lines, ["line 3", "line 4", "line 5", "line 7", "line 8", "line 9"]);
    }
}
