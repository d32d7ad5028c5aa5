//! The team of a task and what running it can cost at most, before anything is spent on it.

use crate::error::Error;
use async_trait::async_trait;
use lemon_exec::store::RunMeta;
use lemon_exec::worker::{AskError, Reply, Request, Worker};
use lemon_exec::{BudgetFit, CallForecast, Forecast, Job, Observer, RunError, Runner, forecast_call, fresh_id};
use lemon_spec::{Language, Next, Plan, validate};
use lemon_trace::{EventKind, FailureKind, ORCHESTRATOR, Trace};
use lemon_workers::{Capacity, Resolved};
use std::sync::{Arc, Mutex, PoisonError};
use tokio_util::sync::CancellationToken;

/// What came of planning.
pub enum PlanOutcome {
    /// A team was written.
    Written(Box<PlannedTeam>),
    /// A model writes the team, and that call is paid for: nothing was asked.
    Unwritten {
        /// The capacity that is asked.
        capacity: String,
        /// What the call can cost.
        call: CallForecast,
    },
    /// No team was had; the trace says why.
    Failed(Box<Trace>),
}

/// A team that was written, and what it can cost.
pub struct PlannedTeam {
    /// The orchestrator that wrote it.
    pub by: String,
    /// The model that wrote it.
    pub model: Option<String>,
    /// The team.
    pub plan: Plan,
    /// What it can cost.
    pub forecast: Forecast,
    /// What of that the budget allows, call by call.
    pub fits: Vec<BudgetFit>,
    /// Rounds that may follow.
    pub more_rounds: u32,
    /// Tokens that writing it took.
    pub spent: u64,
    /// The run that goes on with it, where one is on record.
    pub run_id: Option<String>,
}

/// Makes the run that `lemon run` would make, and ends it as soon as its team is written. A model is asked for the team only if
/// that costs nothing or `write` says so. `stop` is cancelled.
///
/// # Errors
/// The store failed, or a level or the judge is missing.
pub async fn plan(
    runner: &mut Runner,
    resolved: &Resolved,
    (question, seed, meta): (&str, u64, RunMeta),
    write: bool,
    stop: &CancellationToken,
) -> Result<PlanOutcome, Error> {
    // Scripts and cassettes cost nothing, so they may write.
    let may_write = write || !resolved.kind.asks_models();
    let writers = may_write.then(|| runner.backend.worker.clone());
    let worker = Arc::new(WritersOnly { writers, asked: Mutex::default(), stop: stop.clone() });
    runner.backend.worker = worker.clone();
    let run_id = format!("r-{}", fresh_id());
    let job = Job { task_id: run_id.clone(), run_id, question: question.to_owned(), seed, meta };
    let written = stop.clone();
    let observer: Observer = Arc::new(move |_, event| {
        if matches!(event.kind, EventKind::Spawn { .. }) {
            written.cancel();
        }
    });
    let trace = runner.run(&job, stop, Some(observer)).await?;
    let asked = worker.asked.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(request) = asked {
        // Whatever was written in the place of its reply is not what a run would get.
        let level = runner.backend.levels.get(request.level).ok_or_else(|| Error::input("no model writes the team"))?;
        let call = forecast_call(ORCHESTRATOR, &request.messages, request.level, level);
        return Ok(PlanOutcome::Unwritten { capacity: request.capacity, call });
    }
    let Some((by, model, plan)) = team(&trace, &runner.language) else {
        return Ok(PlanOutcome::Failed(Box::new(trace)));
    };
    let judge = runner.language.roles.get("judge").ok_or(RunError::NoJudge)?.clone();
    let forecast = Forecast::new(&plan, question, &runner.backend.levels, judge);
    let more_rounds = match plan.next() {
        Next::Review => runner.settings.max_rounds.saturating_sub(1),
        Next::Stop => 0,
    };
    let fits = forecast.within(&runner.settings);
    let spent = trace.summary().tokens.orchestrator;
    let run_id = runner.store.is_some().then_some(trace.header.run_id);
    Ok(PlanOutcome::Written(Box::new(PlannedTeam { by, model, plan, forecast, fits, more_rounds, spent, run_id })))
}

/// The price of some calls in US dollars; `None`: one of their capacities has no price.
pub fn usd<'c>(levels: &[(String, Capacity)], calls: impl Iterator<Item = &'c CallForecast>) -> Option<f64> {
    let priced = |call: &CallForecast| {
        let (_, capacity) = levels.get(call.level)?;
        (capacity.price.is_some() || capacity.local.is_some()).then(|| call.usd())
    };
    calls.map(priced).sum()
}

/// The team that was written, by whom, and by which model.
fn team(trace: &Trace, language: &Language) -> Option<(String, Option<String>, Plan)> {
    // A text that is no team was rejected, and the next one was tried.
    let mut written = trace.events.iter().rev().filter_map(|event| match &event.kind {
        EventKind::Decision { by, model, text, .. } => match validate(text, language) {
            Ok(plan) => Some((by.clone(), model.clone(), plan)),
            Err(_) => None,
        },
        _ => None,
    });
    written.next()
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
