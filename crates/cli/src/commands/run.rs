//! `lemon run`: one task, many tasks, or one taken up again.

use super::{pages, tasks};
use crate::args::{Cli, Endpoints, RunArgs, WorkerKind};
use crate::config::{Capacity, Config};
use crate::fault::{Fault, need_plain_file};
use crate::live::Talk;
use crate::result::RunResult;
use crate::workers::choose;
use crate::{cut_off, in_the_box, print_data, println, runtime, setup, started, to_json};
use lemon_exec::store::{RunMeta, StartedWith, Store};
use lemon_exec::worker::recorded_workers;
use lemon_exec::{Budget, Job, Runner, fresh_id};
use lemon_spec::{Language, diagnostic};
use lemon_trace::{EventKind, Failure, StopReason, Trace};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

pub fn run(cli: &Cli, args: &RunArgs) -> Result<u8, Fault> {
    if args.dry_run {
        return super::plan::plan(cli, args);
    }
    if args.write {
        return Err(Fault::new("--write belongs to --dry-run").hint("`lemon run` writes the team anyway; leave it out"));
    }
    let config = Config::load(cli.config.as_deref())?;
    let runtime = runtime()?;
    let cancel = CancellationToken::new();
    runtime.spawn(cancel_on_signal(cancel.clone(), ON_RECORD));
    match (&args.resume, &args.tasks, &args.task) {
        (Some(name), _, _) => {
            let store = Arc::new(Store::open_existing(&setup::store_path(&config, cli.store.as_deref()))?);
            match store.batch(name)? {
                Some(batch) => runtime.block_on(tasks::resume(&config, args, store, batch, &cancel)),
                None => runtime.block_on(resume(&config, args, store, name, &cancel)),
            }
        }
        (None, Some(file), _) => runtime.block_on(tasks::run(cli, &config, args, file, &cancel)),
        (None, None, Some(task)) => runtime.block_on(one(cli, &config, args, &question(task)?, &cancel)),
        (None, None, None) => Err(Fault::new("there is no task")
            .hint("give it as a word: lemon run \"What is …?\"; or --tasks FILE, or --resume RUN")),
    }
}

/// The task as it was given; `-` is standard input.
pub fn question(task: &str) -> Result<String, Fault> {
    let question = if task == "-" { super::read_input("-".as_ref())? } else { task.to_owned() };
    match question.trim() {
        "" => Err(Fault::new("the task is empty")),
        question => Ok(question.to_owned()),
    }
}

/// What the parts of this command share.
pub struct Prepared {
    pub runner: Runner,
    pub store: Arc<Store>,
    pub language: Arc<Language>,
    pub levels: Vec<(String, Capacity)>,
    pub kind: WorkerKind,
    pub meta: RunMeta,
}

/// The same without a store: enough for a run that leaves nothing behind.
pub struct Ready {
    pub runner: Runner,
    pub levels: Vec<(String, Capacity)>,
    pub kind: WorkerKind,
    pub meta: RunMeta,
}

/// What a run that is taken up again was begun with.
#[derive(Default)]
pub struct Before {
    pub spec: Option<String>,
    pub budget: Budget,
    pub workers: Option<String>,
    pub worker_file: Option<PathBuf>,
    pub form: Option<lemon_exec::Form>,
    pub started_with: Option<StartedWith>,
}

/// Everything a run needs, from configuration, flags, and what it was begun with.
pub async fn prepare(
    config: &Config,
    args: &RunArgs,
    before: Before,
    questions: &[&str],
    store: impl FnOnce() -> Result<Arc<Store>, Fault>,
) -> Result<Prepared, Fault> {
    let Ready { mut runner, levels, kind, meta } = ready(config, args, before, questions).await?;
    // Last, so that a run that cannot begin leaves no store behind.
    let store = store()?;
    runner.store = Some(store.clone());
    let language = runner.language.clone();
    Ok(Prepared { runner, store, language, levels, kind, meta })
}

/// The same, but for the store.
pub async fn ready(config: &Config, args: &RunArgs, before: Before, questions: &[&str]) -> Result<Ready, Fault> {
    let kind = match before.workers.as_deref() {
        Some(name) if args.workers.is_none() => {
            let kind = <WorkerKind as clap::ValueEnum>::from_str(name, true);
            Some(kind.map_err(|_| Fault::new(format!("no workers are called `{name}`")))?)
        }
        _ => setup::worker_kind(config, args)?,
    };
    let (quiet, max_tokens) = (args.quiet, args.max_tokens);
    let recorded = before.started_with.as_ref().map(|with| started::again(config, args, with)).transpose()?.flatten();
    let recorded = recorded.map(|capacity| Config { capacity, ..config.clone() });
    let (config, endpoints) = match &recorded {
        Some(recorded) => (recorded, Endpoints::default()),
        None => (config, args.endpoints.clone()),
    };
    let mut chosen = choose(config, &endpoints, kind, questions, quiet).await?;
    let kind = chosen.kind;
    let started_with = started::record(kind, &chosen.levels);
    if let Some(with) = before.started_with.as_ref().filter(|_| !args.anyway) {
        started::check(with, &started_with)?;
    }
    let cassette = args.cassette.as_ref().or(before.worker_file.as_ref());
    cassette.filter(|path| path.exists()).map_or(Ok(()), |path| need_plain_file(path))?;
    let is_of_the_box = |path| recorded_workers(path) == WorkerKind::InTheBox.name();
    if kind == WorkerKind::Replay && chosen.levels.is_empty() && cassette.is_some_and(|path| is_of_the_box(path)) {
        // So that the same orchestrator writes as when it was recorded.
        chosen.levels = in_the_box::levels();
    }
    let config = &Config { capacity: chosen.levels.clone(), ..config.clone() };
    let mut args = RunArgs {
        budget_tokens: args.budget_tokens.or(before.budget.tokens),
        budget_usd: args.budget_usd.or(before.budget.usd),
        budget_calls: args.budget_calls.or(before.budget.calls),
        timeout: args.timeout.or(before.budget.seconds),
        script: args.script.clone(),
        cassette: args.cassette.clone(),
        record: args.record.clone(),
        no_reuse: args.no_reuse,
        spec: args.spec.clone(),
        form: args.form.or(before.form),
        ..RunArgs::default()
    };
    match kind {
        WorkerKind::Scripted => args.script = args.script.or(before.worker_file),
        WorkerKind::Replay => args.cassette = args.cassette.or(before.worker_file),
        WorkerKind::Endpoints | WorkerKind::Local | WorkerKind::InTheBox => {}
    }
    let language = Arc::new(setup::language(config, &args.endpoints)?);
    let spec = match &args.spec {
        Some(path) => Some(super::read_input(path)?),
        None => before.spec,
    };
    let (mut backend, worker_file) = setup::backend(config, &args, kind, &language)?;
    if let Some(most) = max_tokens {
        backend.levels.iter_mut().for_each(|level| level.max_tokens = most);
    }
    let settings = setup::settings(config, &args, kind)?;
    let orchestrator = setup::orchestrator(config, spec.as_deref(), &language, kind)?;
    let started_with = Some(started_with);
    let form = args.form;
    let meta = RunMeta { spec, budget: settings.budget, worker_file, started_with, form, ..RunMeta::default() };
    let runner = Runner { backend, orchestrator, language, store: None, reply_cache: None, settings, on_delta: None };
    match &meta.started_with {
        Some(with) if recorded.is_some() && !quiet => {
            eprintln!("it goes on with what it was started with: {}", started::told(&with.capacities));
        }
        _ if chosen.configured && !quiet => eprintln!("what is configured answers: {}", chosen.names()),
        _ => {}
    }
    Ok(Ready { runner, levels: chosen.levels, kind, meta })
}

async fn one(
    cli: &Cli,
    config: &Config,
    args: &RunArgs,
    question: &str,
    cancel: &CancellationToken,
) -> Result<u8, Fault> {
    let store = || setup::store(config, cli.store.as_deref());
    let mut prepared = prepare(config, args, Before::default(), &[question], store).await?;
    let run_id = format!("r-{}", fresh_id());
    let job = Job {
        task_id: run_id.clone(),
        run_id,
        question: question.to_owned(),
        seed: args.seed.or(config.run.seed).unwrap_or(0),
        meta: prepared.meta.clone(),
    };
    let talk = Talk::start(args, &prepared, Some(question));
    prepared.runner.on_delta = talk.on_delta();
    let trace = prepared.runner.run(&job, cancel, talk.observer()).await;
    talk.finish();
    conclude(args, &prepared, &trace?)
}

async fn resume(
    config: &Config,
    args: &RunArgs,
    store: Arc<Store>,
    name: &str,
    cancel: &CancellationToken,
) -> Result<u8, Fault> {
    let run_id = store.find_run(name)?;
    let meta = store.meta(&run_id)?;
    let trace = store.trace(&run_id)?;
    if args.go_on && !trace.summary().is_answer_truncated() {
        return Err(Fault::new(format!("there is nothing to continue: the answer of {run_id} is not cut off"))
            .hint("without --continue, --resume finishes what is left of a run"));
    }
    let before = Before {
        spec: meta.spec,
        budget: meta.budget,
        workers: Some(meta.started_with.as_ref().map_or(&trace.header.workers, |with| &with.kind).clone()),
        worker_file: meta.worker_file,
        form: meta.form,
        started_with: meta.started_with,
    };
    let mut prepared = prepare(config, args, before, &[], || Ok(store)).await?;
    let meta = RunMeta { withhold: meta.withhold, batch: meta.batch, ..prepared.meta.clone() };
    let talk = Talk::start(args, &prepared, None);
    prepared.runner.on_delta = talk.on_delta();
    talk.catch_up(&trace);
    let trace = match args.go_on {
        true => prepared.runner.go_on(trace, &meta, cancel, talk.observer()).await,
        false => prepared.runner.resume(trace, &meta, cancel, talk.observer()).await,
    };
    talk.finish();
    conclude(args, &prepared, &trace?)
}

/// Prints the result: the answer to standard output, the rest to standard error.
fn conclude(args: &RunArgs, prepared: &Prepared, trace: &Trace) -> Result<u8, Fault> {
    let mut result = RunResult::new(trace, &prepared.language, &prepared.levels);
    if args.replies {
        result = result.with_replies(trace);
    }
    if !args.quiet {
        if let Some(warning) = result.failures() {
            eprintln!("warning: {warning}");
        }
        let sure = result.confidence.map(|it| format!("confidence {:.0} % · ", it * 100.0)).unwrap_or_default();
        // The answer was paid for: it is told whether or not there is room for a page.
        match pages::write(&prepared.store, trace) {
            Ok(path) => eprintln!("{sure}page: {}", path.display()),
            Err(fault) => eprintln!("warning: there is no page: {}", fault.fact),
        }
        cut_off::warn(trace, &prepared.runner.backend.levels);
    }
    if args.json {
        println(&to_json(&result))?;
    } else {
        if args.replies {
            eprintln!("{}", trace.replies().trim_end());
        }
        explain_rejection(trace, args.spec.as_deref());
        if let Some(response) = &result.response {
            print_data(&format!("{response}\n"))?;
        }
    }
    let summary = trace.summary();
    if let (false, Some(hint)) = (result.answered(), summary.stop_reason.and_then(advice)) {
        let mut fact = format!("the run ended with `{}`", result.stop_reason.unwrap_or("nothing"));
        let mut failures = summary.agents.into_iter().filter_map(|agent| Some((agent.id, agent.failure?.message)));
        if let (Some(StopReason::AllAgentsFailed), Some((agent, why))) = (summary.stop_reason, failures.next()) {
            fact.push_str(&format!("; {agent}: {why}"));
        }
        if let (Some(StopReason::OrchestratorFailed), Some(failure)) = (summary.stop_reason, writing_failure(trace)) {
            fact.push_str(&format!("; {}", failure.message));
        }
        Fault::new(fact).hint(hint).print();
    }
    Ok(u8::from(!result.answered()))
}

/// Why the last draft brought no text.
pub(super) fn writing_failure(trace: &Trace) -> Option<&Failure> {
    trace.events.iter().rev().find_map(|event| match &event.kind {
        EventKind::Rejection { failure, .. } => failure.as_ref(),
        _ => None,
    })
}

/// Shows why no team could be had, as `lemon validate` would.
pub(super) fn explain_rejection(trace: &Trace, file: Option<&Path>) {
    if trace.summary().stop_reason != Some(StopReason::Rejected) {
        return;
    }
    let name = file.map_or("the specification".into(), Path::to_string_lossy);
    let mut text = "";
    for event in &trace.events {
        match &event.kind {
            EventKind::Decision { text: written, .. } => text = written,
            EventKind::Rejection { diagnostics, .. } if !diagnostics.is_empty() => {
                let color = console::colors_enabled_stderr();
                eprintln!("{}", diagnostic::explain(diagnostics, text, &name, color).trim_end());
            }
            _ => {}
        }
    }
}

/// What to do about a run that did not answer as it was meant to.
fn advice(reason: StopReason) -> Option<&'static str> {
    Some(match reason {
        StopReason::Answered => return None,
        StopReason::TokenBudget => {
            "the answer, if any, is made of what existed; go on with --resume RUN --budget-tokens N"
        }
        StopReason::TimeBudget => "the answer, if any, is made of what existed; go on with --resume RUN --timeout S",
        StopReason::CostBudget => "the answer, if any, is made of what existed; go on with --resume RUN --budget-usd X",
        StopReason::CallBudget => {
            "the answer, if any, is made of what existed; go on with --resume RUN --budget-calls N"
        }
        StopReason::AnswerAgentsFailed => {
            "the answer is what other agents gave; `lemon trace show` says who failed and why"
        }
        StopReason::AllAgentsFailed => {
            "`lemon trace show` says why each failed; `lemon doctor`, with the same --base-url and --model, checks endpoints"
        }
        StopReason::Cancelled => "nothing is lost; go on with --resume RUN",
        StopReason::Rejected => "mend the specification; `lemon validate FILE` checks it",
        StopReason::OrchestratorFailed => "`lemon trace show` says why; give a team with --spec FILE to run without it",
    })
}

/// What becomes of the work of a run that is ended.
pub(super) const ON_RECORD: &str = "what is finished is on record";

/// The first signal ends runs in good order; a second one ends the process.
pub(super) async fn cancel_on_signal(cancel: CancellationToken, fate: &'static str) {
    for count in 0.. {
        wait_for_signal().await;
        if count > 0 {
            std::process::exit(130);
        }
        eprintln!("\nending: {fate} (once more to end at once)");
        cancel.cancel();
    }
}

#[cfg(unix)]
pub(super) async fn wait_for_signal() {
    use tokio::signal::unix::{SignalKind, signal};
    match signal(SignalKind::terminate()) {
        Ok(mut terminate) => tokio::select! {
            _ = tokio::signal::ctrl_c() => {}
            _ = terminate.recv() => {}
        },
        Err(_) => drop(tokio::signal::ctrl_c().await),
    }
}

#[cfg(not(unix))]
pub(super) async fn wait_for_signal() {
    drop(tokio::signal::ctrl_c().await);
}
