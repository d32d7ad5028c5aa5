//! `lemon plan`: the team of a task and what running it can cost at most, before anything is spent.

mod tell;

use super::run::{self, ready};
use crate::args::{Cli, RunArgs};
use crate::fault::Fault;
use crate::runtime;
use async_trait::async_trait;
use lemon_exec::worker::{AskError, Reply, Request, Worker};
use lemon_exec::{BudgetFit, CallForecast, Forecast, Job, Observer, Settings, forecast_call, fresh_id};
use lemon_spec::{Language, Next, Plan, validate};
use lemon_trace::{EventKind, FailureKind, LimitKind, ORCHESTRATOR, StopReason, Trace};
use lemon_workers::{Before, Capacity, Config, ReadyRun};
use std::sync::{Arc, Mutex, PoisonError};
use tokio_util::sync::CancellationToken;

pub fn plan(cli: &Cli, args: &RunArgs) -> Result<u8, Fault> {
    if args.tasks.is_some() || args.resume.is_some() || args.record.is_some() {
        return Err(Fault::new("a plan is made for one task").hint("leave out --tasks, --resume and --record"));
    }
    let Some(task) = &args.task else {
        return Err(Fault::new("there is no task").hint("give it as a word: lemon plan \"What is …?\""));
    };
    let config = cli.config(&args.endpoints)?;
    let question = run::question(task)?;
    runtime()?.block_on(make(cli, &config, args, &question))
}

async fn make(cli: &Cli, config: &Config, args: &RunArgs, question: &str) -> Result<u8, Fault> {
    let ReadyRun { mut runner, resolved, meta } = ready(config, args, Before::default(), &[question]).await?;
    // Scripts and cassettes cost nothing, so they may write.
    let free = !resolved.kind.asks_models();
    let stop = CancellationToken::new();
    let writers = (free || args.write).then(|| runner.backend.worker.clone());
    let worker = Arc::new(WritersOnly { writers, asked: Mutex::default(), stop: stop.clone() });
    runner.backend.worker = worker.clone();
    if args.write && !free {
        tokio::spawn(run::cancel_on_signal(stop.clone(), run::ON_RECORD));
        runner.store = Some(run::open_store(cli, config)?);
    }
    let run_id = format!("r-{}", fresh_id());
    let job = Job {
        task_id: run_id.clone(),
        run_id,
        question: question.to_owned(),
        seed: args.seed.or(config.run.seed).unwrap_or(0),
        meta,
    };
    // The run is the one that `lemon run` would make; it ends as soon as its team is written.
    let written = stop.clone();
    let observer: Observer = Arc::new(move |_, event| {
        if matches!(event.kind, EventKind::Spawn { .. }) {
            written.cancel();
        }
    });
    let trace = runner.run(&job, &stop, Some(observer)).await?;
    let capacities = &runner.language.capacities;
    let known = Known { question, capacities, levels: resolved.capacities(), settings: &runner.settings };
    let asked = worker.asked.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(request) = &asked {
        // Whatever was written in the place of its reply is not what a run would get.
        let level = runner.backend.levels.get(request.level).ok_or_else(|| Fault::new("no model writes the team"))?;
        let call = forecast_call(ORCHESTRATOR, &request.messages, request.level, level);
        return tell::unwritten(args, &known, &request.capacity, &call);
    }
    let Some((by, model, plan)) = team(&trace, &runner.language) else { return Err(no_team(&trace, args)) };
    let judge = runner.language.roles.get("judge").ok_or(lemon_exec::RunError::NoJudge)?.clone();
    let forecast = Forecast::new(&plan, question, &runner.backend.levels, judge);
    let more_rounds = match plan.next() {
        Next::Review => runner.settings.max_rounds.saturating_sub(1),
        Next::Stop => 0,
    };
    let fits = forecast.within(&runner.settings);
    let spent = trace.summary().tokens.orchestrator;
    let run_id = runner.store.is_some().then_some(trace.header.run_id);
    tell::written(args, &known, &Team { by, model, plan, forecast, fits, more_rounds, spent, run_id })
}

/// What a plan is made for.
struct Known<'a> {
    question: &'a str,
    /// The names of the capacities.
    capacities: &'a [String],
    /// What serves them, where something does.
    levels: &'a [(String, Capacity)],
    settings: &'a Settings,
}

/// A team that was written, and what it can cost.
struct Team {
    by: String,
    model: Option<String>,
    plan: Plan,
    forecast: Forecast,
    fits: Vec<BudgetFit>,
    /// Rounds that may follow.
    more_rounds: u32,
    /// Tokens that writing it took.
    spent: u64,
    /// The run that goes on with it, where one is on record.
    run_id: Option<String>,
}

/// The team that was written, by whom, and by which model.
fn team(trace: &Trace, language: &Language) -> Option<(String, Option<String>, Plan)> {
    // A text that is no team was rejected, and the next one was tried.
    let mut written = trace.events.iter().rev().filter_map(|event| match &event.kind {
        EventKind::Decision { by, model, text, .. } => {
            Some((by.clone(), model.clone(), validate(text, language).ok()?))
        }
        _ => None,
    });
    written.next()
}

/// Why there is no team.
fn no_team(trace: &Trace, args: &RunArgs) -> Fault {
    run::explain_rejection(trace, args.spec.as_deref());
    let refused = trace.events.iter().find_map(|event| match &event.kind {
        EventKind::Budget { limit, needed, left } => Some((*limit, *needed, *left)),
        _ => None,
    });
    if let Some((limit, needed, left)) = refused {
        let (unit, flag) = match limit {
            LimitKind::Tokens => ("tokens", "--budget-tokens"),
            LimitKind::Usd => ("USD", "--budget-usd"),
            LimitKind::Calls => ("calls", "--budget-calls"),
            LimitKind::Seconds => ("seconds", "--timeout"),
        };
        let fact = format!("writing the team takes {needed} {unit} at least, and the budget has {left}");
        return Fault::new(fact).hint(format!("give more with {flag}")).code(1);
    }
    let reason = trace.summary().stop_reason;
    let mut fact = format!("no team was written: {}", reason.map_or("no end", StopReason::as_str));
    if let (Some(StopReason::OrchestratorFailed), Some(failure)) = (reason, run::writing_failure(trace)) {
        fact.push_str(&format!("; {}", failure.message));
    }
    let fault = Fault::new(fact).code(1);
    match reason {
        Some(StopReason::Rejected) => fault.hint("correct the specification; `lemon validate FILE` checks it"),
        _ => fault,
    }
}

/// Workers that are asked for teams and for nothing else; without `writers`, for nothing at all.
struct WritersOnly {
    writers: Option<Arc<dyn Worker>>,
    /// The call that was held back.
    asked: Mutex<Option<Request>>,
    stop: CancellationToken,
}

#[async_trait]
impl Worker for WritersOnly {
    async fn ask(&self, request: &Request) -> Result<Reply, AskError> {
        match &self.writers {
            Some(writers) if request.agent == ORCHESTRATOR => writers.ask(request).await,
            _ => {
                *self.asked.lock().unwrap_or_else(PoisonError::into_inner) = Some(request.clone());
                self.stop.cancel();
                Err(AskError::free(FailureKind::Cancelled, "a plan sends nothing to the workers"))
            }
        }
    }
}

/// The price of some calls in US dollars; `None`: one of their capacities has no price.
fn usd<'c>(levels: &[(String, Capacity)], calls: impl Iterator<Item = &'c CallForecast>) -> Option<f64> {
    let priced = |call: &CallForecast| {
        let (_, capacity) = levels.get(call.level)?;
        (capacity.price.is_some() || capacity.local.is_some()).then(|| call.usd())
    };
    calls.map(priced).sum()
}
