//! `lemon run --tasks`: many tasks at a time, in the order of the file, resumable.

use super::run::{Prepared, open_store, prepare};
use crate::args::{Cli, RunArgs};
use crate::fault::{Fault, read_file};
use crate::one_line;
use futures::StreamExt;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use lemon::RunResult;
use lemon::jobs::batch::{self, BatchMeta, BatchRunner, read_tasks};
use lemon_exec::store::{BatchRow, Store};
use lemon_trace::Trace;
use lemon_workers::{Before, Config};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Tasks at a time by default.
const WIDTH: usize = 8;

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
    let batch = batch::begin(&prepared.store, &meta, tasks).await?;
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
    let meta = BatchMeta::of(&batch)?;
    // Before anything is read of its runs: two processes at work on a batch would run its tasks twice.
    store.claim_batch(&batch.batch)?.wait().await?;
    let (seed, width, skipped) = (meta.seed, args.width.unwrap_or(meta.width), meta.skipped);
    let prepared = prepare(config, args, meta.before(), &[], || Ok(store)).await?;
    let code = work(args, prepared, &batch, seed, width, cancel).await?;
    Ok(strict(args, code, skipped))
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
    let Prepared { runner, store, resolved, meta } = prepared;
    let (resolved, replies) = (Arc::new(resolved), args.replies);
    let read = move |trace: &Trace| {
        let result = RunResult::new(trace, &resolved.language, resolved.capacities());
        if replies { result.with_replies(trace) } else { result }
    };
    let runner = Arc::new(BatchRunner { runner, store, meta, seed });
    let mut ends = std::pin::pin!(runner.run(batch, width, cancel.clone(), read));
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
