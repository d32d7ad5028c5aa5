//! `lemon plan`: the team of a task and what running it can cost at most, before anything is spent.

mod tell;

use super::run::{self, ready};
use crate::args::{Cli, RunArgs};
use crate::fault::Fault;
use crate::runtime;
use lemon::jobs::{self, plan::PlanOutcome};
use lemon_exec::Settings;
use lemon_trace::{EventKind, LimitKind, StopReason, Trace};
use lemon_workers::{Before, Capacity, Config, ReadyRun};
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
    let stop = CancellationToken::new();
    if args.write && resolved.kind.asks_models() {
        tokio::spawn(run::cancel_on_signal(stop.clone(), run::ON_RECORD));
        runner.store = Some(run::open_store(cli, config)?);
    }
    let seed = args.seed.or(config.run.seed).unwrap_or(0);
    let planned = jobs::plan::plan(&mut runner, &resolved, (question, seed, meta), args.write, &stop).await?;
    let capacities = &runner.language.capacities;
    let known = Known { question, capacities, levels: resolved.capacities(), settings: &runner.settings };
    match planned {
        PlanOutcome::Written(team) => tell::written(args, &known, &team),
        PlanOutcome::Unwritten { capacity, call } => tell::unwritten(args, &known, &capacity, &call),
        PlanOutcome::Failed(trace) => Err(no_team(&trace, args)),
    }
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
