//! `lemon run`: one task, many tasks, or one that is resumed.

use super::tasks;
use crate::args::{Cli, RunArgs};
use crate::fault::Fault;
use crate::live::Talk;
use crate::{cut_off, print_data, print_json, runtime, say, tell};
use lemon::RunResult;
use lemon::jobs::pages;
use lemon_exec::store::{RunMeta, Store};
use lemon_exec::{Job, OfferedTool, Runner, fresh_id};
use lemon_spec::diagnostic;
use lemon_trace::{EventKind, Failure, StopReason, Trace};
use lemon_workers::{Before, Config, Consent, ReadyRun, Resolved, RunRequest, WorkerFiles};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

pub fn run(cli: &Cli, args: &RunArgs) -> Result<u8, Fault> {
    if args.dry_run {
        return super::plan::plan(cli, args);
    }
    if args.write {
        return Err(Fault::new("--write needs --dry-run").hint("`lemon run` writes the team anyway; leave --write out"));
    }
    let config = cli.config(&args.endpoints)?.with_consent(consent(args));
    let runtime = runtime()?;
    let cancel = CancellationToken::new();
    runtime.spawn(cancel_on_signal(cancel.clone(), ON_RECORD));
    match (&args.resume, &args.tasks, &args.task) {
        (Some(name), _, _) => {
            let store = Arc::new(Store::open_existing(&config.store_path(cli.store.as_deref()))?);
            match store.batch(name)? {
                // A call is named within its run: in a batch one name would decide for many.
                Some(_) if !args.approve.is_empty() || !args.deny.is_empty() => {
                    Err(Fault::new("--approve and --deny are for one run, and this is a batch of tasks")
                        .hint("resume the run: `lemon trace list` names those that ended with `approval`"))
                }
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
    pub resolved: Resolved,
    pub meta: RunMeta,
}

/// Everything a run needs, from configuration, flags, and what it was begun with.
pub async fn prepare(
    config: &Config,
    args: &RunArgs,
    before: Before,
    questions: &[&str],
    store: impl FnOnce() -> Result<Arc<Store>, Fault>,
) -> Result<Prepared, Fault> {
    let ReadyRun { mut runner, resolved, meta } = ready(config, args, before, questions).await?;
    // Last, so that a run that cannot begin leaves no store behind.
    let store = store()?;
    runner.store = Some(store.clone());
    Ok(Prepared { runner, store, resolved, meta })
}

/// The same without a store: enough for a run that leaves nothing behind.
pub async fn ready(config: &Config, args: &RunArgs, before: Before, questions: &[&str]) -> Result<ReadyRun, Fault> {
    let request = RunRequest {
        kind: args.workers,
        files: WorkerFiles {
            script: args.script.clone(),
            cassette: args.cassette.clone(),
            record: args.record.clone(),
        },
        budget: args.budget.budget(args.timeout),
        max_tokens: args.max_tokens,
        no_reuse: args.no_reuse,
        spec: args.spec.as_deref().map(super::read_input).transpose()?,
        form: args.form,
        anyway: args.anyway,
        decisions: decisions(args),
    };
    Ok(ReadyRun::new(config, request, before, questions, tell(args.quiet)).await?)
}

/// Who lets tools run that may change something: the flag, or the person at the terminal.
fn consent(args: &RunArgs) -> Consent {
    use std::io::IsTerminal;
    let has_person = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
    match args.allow_tools {
        true => Consent::Given,
        false if has_person && !args.quiet => Consent::Ask(Arc::new(ask)),
        false => Consent::Withheld,
    }
}

fn ask(tool: &OfferedTool) -> bool {
    eprint!("An agent wants to call `{}`, which may change something. Let it run for this command? [y/N] ", tool.name);
    let mut line = String::new();
    // What cannot be read is no permission.
    std::io::stdin().read_line(&mut line).is_ok() && matches!(line.trim(), "y" | "Y" | "yes")
}

/// What `--approve` and `--deny` say.
fn decisions(args: &RunArgs) -> BTreeMap<String, bool> {
    let granted = args.approve.iter().map(|call| (call.clone(), true));
    granted.chain(args.deny.iter().map(|call| (call.clone(), false))).collect()
}

/// That every decision is about a call that waits for one.
fn check_decisions(args: &RunArgs, trace: &Trace) -> Result<(), Fault> {
    let waiting = trace.waiting_calls();
    let unknown = |call: &&String| !waiting.contains(*call);
    let Some(call) = args.approve.iter().chain(&args.deny).find(unknown) else { return Ok(()) };
    let hint = match waiting.is_empty() {
        true => "no call of this run waits".to_owned(),
        false => format!("these wait: {}", waiting.join(", ")),
    };
    Err(Fault::new(format!("no call `{call}` waits for approval")).hint(hint))
}

/// The store, made if there is none.
pub fn open_store(cli: &Cli, config: &Config) -> Result<Arc<Store>, Fault> {
    Ok(Arc::new(Store::open(&config.store_path(cli.store.as_deref()), config.store.sync)?))
}

async fn one(
    cli: &Cli,
    config: &Config,
    args: &RunArgs,
    question: &str,
    cancel: &CancellationToken,
) -> Result<u8, Fault> {
    let store = || open_store(cli, config);
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
    check_decisions(args, &trace)?;
    let (withhold, batch) = (meta.withhold.clone(), meta.batch.clone());
    let before = Before::of_run(meta, &trace.header.workers);
    let mut prepared = prepare(config, args, before, &[], || Ok(store)).await?;
    let meta = RunMeta { withhold, batch, ..prepared.meta.clone() };
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
    let mut result = RunResult::new(trace, &prepared.resolved.language, prepared.resolved.capacities());
    if args.replies {
        result = result.with_replies(trace);
    }
    if !args.quiet {
        if let Some(warning) = result.failures() {
            eprintln!("warning: {warning}");
        }
        let sure = result.confidence.map(|it| format!("confidence {:.0} % · ", it * 100.0)).unwrap_or_default();
        // The answer was paid for: it is told whether or not there is room for a page.
        match pages::write(&prepared.store, trace, say::talk) {
            Ok(path) => eprintln!("{sure}page: {}", path.display()),
            Err(error) => eprintln!("warning: there is no page: {error}"),
        }
        cut_off::warn(trace, &prepared.runner.backend.levels);
    }
    if args.json {
        print_json(&result)?;
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
            "the answer, if any, uses what was finished; continue with --resume RUN --budget-tokens N"
        }
        StopReason::TimeBudget => "the answer, if any, uses what was finished; continue with --resume RUN --timeout S",
        StopReason::CostBudget => {
            "the answer, if any, uses what was finished; continue with --resume RUN --budget-usd X"
        }
        StopReason::CallBudget => {
            "the answer, if any, uses what was finished; continue with --resume RUN --budget-calls N"
        }
        StopReason::AnswerAgentsFailed => {
            "the answer is what other agents gave; `lemon trace show` says who failed and why"
        }
        StopReason::AllAgentsFailed => {
            "`lemon trace show` says why each failed; `lemon doctor`, with the same --base-url and --model, checks endpoints"
        }
        StopReason::Cancelled => "nothing is lost; continue with --resume RUN",
        StopReason::Approval => {
            "a call waits for you: `lemon trace show` has it; continue with --resume RUN --approve CALL, or --deny CALL"
        }
        StopReason::Rejected => "correct the specification; `lemon validate FILE` checks it",
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

pub(super) async fn wait_for_signal() {
    EndSignals::listen().next().await;
}

/// The signals that end a command. They are caught from the moment this is made, not only when it is waited for.
pub(super) struct EndSignals {
    #[cfg(unix)]
    caught: [Option<tokio::signal::unix::Signal>; 2],
}

impl EndSignals {
    #[cfg(unix)]
    pub fn listen() -> EndSignals {
        use tokio::signal::unix::{SignalKind, signal};
        // One that cannot be caught ends the process as it does without us.
        EndSignals { caught: [SignalKind::terminate(), SignalKind::interrupt()].map(|kind| signal(kind).ok()) }
    }

    #[cfg(unix)]
    pub async fn next(&mut self) {
        let [terminate, interrupt] = &mut self.caught;
        match (terminate, interrupt) {
            (Some(terminate), Some(interrupt)) => tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            },
            (Some(one), None) | (None, Some(one)) => drop(one.recv().await),
            (None, None) => std::future::pending().await,
        }
    }

    #[cfg(not(unix))]
    pub fn listen() -> EndSignals {
        EndSignals {}
    }

    #[cfg(not(unix))]
    pub async fn next(&mut self) {
        drop(tokio::signal::ctrl_c().await);
    }
}
