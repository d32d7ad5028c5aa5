//! `lemon run --tasks`: many tasks at a time, in the order of the file, resumable.

use super::run::{Prepared, open_store, prepare};
use crate::args::{Cli, RunArgs};
use crate::fault::{Fault, read_file};
use crate::one_line;
use futures::stream::{self, StreamExt};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use lemon::RunResult;
use lemon_exec::store::{BatchRow, BatchTask, RunMeta, StartedWith, Store};
use lemon_exec::{Budget, Job, fresh_id, unix_ms};
use lemon_trace::{StopReason, Trace};
use lemon_workers::{Before, Config};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Tasks at a time by default.
const WIDTH: usize = 8;

/// What is needed to resume a batch.
#[derive(Serialize, Deserialize)]
struct BatchMeta {
    spec: Option<String>,
    budget: Budget,
    workers: String,
    worker_file: Option<PathBuf>,
    #[serde(default)]
    started_with: Option<StartedWith>,
    seed: u64,
    width: usize,
    /// Lines of the file that are no tasks.
    #[serde(default)]
    skipped: usize,
}

pub async fn run(
    cli: &Cli,
    config: &Config,
    args: &RunArgs,
    file: &Path,
    cancel: &CancellationToken,
) -> Result<u8, Fault> {
    let (tasks, faults) = read_tasks(&read_file(file)?);
    for fault in &faults {
        eprintln!("warning: {}, {fault}; skipped", file.display());
    }
    if tasks.is_empty() {
        return Err(Fault::new(format!("{} has no usable task", file.display()))
            .hint(r#"one JSON object a line: {"id": "t1", "question": "What is …?"}"#));
    }
    let questions: Vec<&str> = tasks.iter().map(|task| task.question.as_str()).collect();
    let store = || open_store(cli, config);
    let prepared = prepare(config, args, Before::default(), &questions, store).await?;
    let meta = BatchMeta {
        spec: prepared.meta.spec.clone(),
        budget: prepared.meta.budget,
        workers: prepared.resolved.kind.name().to_owned(),
        worker_file: prepared.meta.worker_file.clone(),
        started_with: prepared.meta.started_with.clone(),
        seed: args.seed.or(config.run.seed).unwrap_or(0),
        width: args.width.or(config.run.width).unwrap_or(WIDTH),
        skipped: faults.len(),
    };
    let batch = format!("b-{}", fresh_id());
    let rows = tasks.iter().map(|task| (task.task_id.clone(), task.question.clone())).collect();
    let record = serde_json::to_string(&meta).map_err(Fault::new)?;
    prepared.store.claim_batch(&batch)?.wait().await?;
    prepared.store.begin_batch(&batch, unix_ms(), record, rows).wait().await?;
    let batch = BatchRow { batch, meta: String::new(), tasks };
    let code = work(args, prepared, &batch, meta.seed, meta.width, cancel).await?;
    Ok(strict(args, code, meta.skipped))
}

/// The exit code, where lines that were skipped count as failures if that was asked for.
fn strict(args: &RunArgs, code: u8, skipped: usize) -> u8 {
    if !args.strict || skipped == 0 {
        return code;
    }
    let lines = if skipped == 1 { "line was" } else { "lines were" };
    eprintln!("{skipped} {lines} skipped, which --strict counts as a failure");
    code.max(1)
}

pub async fn resume(
    config: &Config,
    args: &RunArgs,
    store: Arc<Store>,
    batch: BatchRow,
    cancel: &CancellationToken,
) -> Result<u8, Fault> {
    if batch.batch.starts_with("e-") {
        return Err(Fault::new(format!("`{}` is an evaluation", batch.batch))
            .hint(format!("`lemon eval --resume {}` goes on with it", batch.batch)));
    }
    // Before anything is read of its runs: two processes at work on a batch would run its tasks twice.
    store.claim_batch(&batch.batch)?.wait().await?;
    let meta: BatchMeta = serde_json::from_str(&batch.meta)
        .map_err(|error| Fault::new(format!("the record of batch `{}` cannot be read: {error}", batch.batch)))?;
    let before = Before {
        spec: meta.spec,
        budget: meta.budget,
        workers: Some(meta.workers),
        worker_file: meta.worker_file,
        form: None,
        started_with: meta.started_with,
    };
    let prepared = prepare(config, args, before, &[], || Ok(store)).await?;
    let code = work(args, prepared, &batch, meta.seed, args.width.unwrap_or(meta.width), cancel).await?;
    Ok(strict(args, code, meta.skipped))
}

async fn work(
    args: &RunArgs,
    prepared: Prepared,
    batch: &BatchRow,
    seed: u64,
    width: usize,
    cancel: &CancellationToken,
) -> Result<u8, Fault> {
    let progress = Progress::start(args.quiet, batch);
    let prepared = Arc::new(prepared);
    let replies = args.replies;
    let one = |(position, task): (usize, &BatchTask)| {
        let (prepared, batch, task, cancel) = (prepared.clone(), batch.batch.clone(), task.clone(), cancel.clone());
        // A task of its own for the runtime: woken alone, not with all the others.
        let run = tokio::spawn(async move {
            let trace = run_task(&prepared, &batch, position, &task, seed, &cancel).await?;
            Ok(trace.map(|trace| {
                let result = RunResult::new(&trace, &prepared.resolved.language, prepared.resolved.capacities());
                if replies { result.with_replies(&trace) } else { result }
            }))
        });
        async move { (position, run.await.unwrap_or_else(|error| Err(Fault::new(format!("a run broke off: {error}"))))) }
    };
    let mut ends = stream::iter(batch.tasks.iter().enumerate()).map(one).buffer_unordered(width.max(1));
    let mut totals = Totals::default();
    // Results wait here for those before them: the same tasks give the same lines in the same order.
    let (mut waiting, mut next) = (BTreeMap::new(), 0);
    while let Some((position, result)) = ends.next().await {
        let result = result?;
        totals.add(result.as_ref());
        if let Some(result) = &result {
            progress.add(result, &totals);
        }
        waiting.insert(position, result);
        while let Some(result) = waiting.remove(&next) {
            next += 1;
            result.map_or(Ok(0), |result| print_result(args, &result))?;
        }
    }
    progress.finish(&totals, batch);
    Ok(u8::from(totals.count("answered") < batch.tasks.len()))
}

fn print_result(args: &RunArgs, result: &RunResult) -> Result<u8, Fault> {
    if args.json {
        return crate::println(&serde_json::to_string(result).map_err(Fault::new)?);
    }
    let (id, answer) = (one_line(&result.task_id), one_line(result.answer.as_deref().unwrap_or("-")));
    crate::println(&format!("{id}\t{answer}"))
}

/// What became of the tasks so far.
#[derive(Default)]
struct Totals {
    by_end: BTreeMap<&'static str, usize>,
    tokens: u64,
    not_begun: usize,
}

impl Totals {
    fn add(&mut self, result: Option<&RunResult>) {
        let Some(result) = result else {
            self.not_begun += 1;
            return;
        };
        *self.by_end.entry(result.stop_reason.unwrap_or("unfinished")).or_default() += 1;
        self.tokens += result.tokens.total;
    }

    fn ended(&self) -> usize {
        self.by_end.values().sum()
    }

    fn count(&self, end: &str) -> usize {
        self.by_end.get(end).copied().unwrap_or(0)
    }
}

/// Runs a task, goes on with it, or reads what it came to. `None`: not begun, because the batch was cancelled.
async fn run_task(
    prepared: &Prepared,
    batch: &str,
    position: usize,
    task: &BatchTask,
    seed: u64,
    cancel: &CancellationToken,
) -> Result<Option<Trace>, Fault> {
    let store = &prepared.store;
    let meta = RunMeta { batch: Some((batch.to_owned(), position)), ..prepared.meta.clone() };
    if let Some(run_id) = store.run_of_task(batch, position)? {
        store.meta(&run_id)?;
        let trace = store.trace(&run_id)?;
        // What ended for good stays as it ended; what was cut off goes on.
        let summary = trace.summary();
        let ended = summary.stop_reason.is_some_and(|reason| reason != StopReason::Cancelled);
        if ended {
            // The process may have died between the last event and this entry.
            drop(store.finish_run(&run_id, &summary));
        }
        if ended || cancel.is_cancelled() {
            return Ok(Some(trace));
        }
        return Ok(Some(prepared.runner.resume(trace, &meta, cancel, None).await?));
    }
    if cancel.is_cancelled() {
        return Ok(None);
    }
    let job = Job {
        run_id: format!("r-{}", fresh_id()),
        task_id: task.task_id.clone(),
        question: task.question.clone(),
        seed,
        meta,
    };
    Ok(Some(prepared.runner.run(&job, cancel, None).await?))
}

/// The tasks of a file, and what is wrong with the lines that are none.
fn read_tasks(text: &str) -> (Vec<BatchTask>, Vec<String>) {
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

/// Progress on standard error: a bar with an estimate on a terminal, a line a task elsewhere.
enum Progress {
    Silent,
    Lines { all: usize },
    Bar(ProgressBar),
}

impl Progress {
    fn start(quiet: bool, batch: &BatchRow) -> Self {
        if quiet {
            return Progress::Silent;
        }
        let all = batch.tasks.len();
        eprintln!(
            "{}: {all} {}; go on after an interruption with `lemon run --resume {}`",
            batch.batch,
            if all == 1 { "task" } else { "tasks" },
            batch.batch
        );
        if !console::Term::stderr().features().is_attended() {
            return Progress::Lines { all };
        }
        let bar = ProgressBar::with_draw_target(Some(all as u64), ProgressDrawTarget::stderr());
        let style =
            ProgressStyle::with_template("{bar:32.yellow/dim} {pos}/{len} tasks · {msg} · {elapsed} · {eta} left");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.set_message("0 tokens");
        bar.enable_steady_tick(std::time::Duration::from_millis(200));
        Progress::Bar(bar)
    }

    fn add(&self, result: &RunResult, totals: &Totals) {
        if let (Some(warning), false) = (result.failures(), matches!(self, Progress::Silent)) {
            let warn = || eprintln!("warning: {}: {warning}", one_line(&result.task_id));
            match self {
                Progress::Bar(bar) => bar.suspend(warn),
                _ => warn(),
            }
        }
        match self {
            Progress::Silent => {}
            Progress::Lines { all } => {
                let reason = result.stop_reason.unwrap_or("unfinished");
                eprintln!(
                    "{} of {all} · {}: {reason}, {} tokens, {:.1} s",
                    totals.ended(),
                    one_line(&result.task_id),
                    result.tokens.total,
                    result.wall_s
                );
            }
            Progress::Bar(bar) => {
                bar.set_message(format!("{} tokens", totals.tokens));
                bar.inc(1);
            }
        }
    }

    fn finish(&self, totals: &Totals, batch: &BatchRow) {
        if let Progress::Bar(bar) = self {
            bar.finish_and_clear();
        }
        if matches!(self, Progress::Silent) {
            return;
        }
        let ends = totals.by_end.iter().map(|(end, count)| format!("{count} {end}")).collect::<Vec<_>>().join(", ");
        eprintln!("{}: {ends}; {} tokens", batch.batch, totals.tokens);
        if totals.not_begun > 0 {
            eprintln!("{} not begun; go on with `lemon run --resume {}`", totals.not_begun, batch.batch);
        }
    }
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
