//! A thousand random teams under random limits: no limit is ever overrun, and every run ends with what there is.

use crate::common::*;
use async_trait::async_trait;
use lemon_exec::orchestrator::{Draft, OrchestratorError, WriteContext};
use lemon_exec::worker::{AskError, FailedCost, Reply, Request, Usage};
use lemon_exec::{Budget, OnParentFailure, Orchestrator, Settings, Worker};
use lemon_num::Random;
use lemon_spec::generate::spec_after;
use lemon_spec::render;
use lemon_trace::{AgentStatus, EventKind, FailureKind, LimitKind, ORCHESTRATOR, StopReason, Trace};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Writes a random round after every random round that asks for one.
struct Writes(u64);

#[async_trait]
impl Orchestrator for Writes {
    async fn draft(&self, context: &WriteContext<'_>) -> Result<Option<Draft>, OrchestratorError> {
        let earlier: Vec<String> = context.results.iter().map(|result| result.agent.to_owned()).collect();
        let seed = self.0.wrapping_add(u64::from(context.round) << 32);
        Ok(Some(Draft::Text(render(&spec_after(seed, context.language, &earlier)).text)))
    }
}

/// Takes random times, spends random parts of what it may, and fails in every way there is.
struct Erratic {
    random: Mutex<Random>,
    calls: AtomicU64,
    in_flight: AtomicU64,
    peak: AtomicU64,
}

impl Erratic {
    fn draw(&self, bound: u64) -> u64 {
        self.random.lock().unwrap().next_u64() % (bound + 1)
    }

    fn usage(&self, request: &Request) -> Usage {
        let words = request.messages.iter().map(|message| message.content.split_whitespace().count() as u64).sum();
        // One in three replies is as long as it may be.
        let tokens_out = if self.draw(2) == 0 { request.max_tokens } else { self.draw(request.max_tokens) };
        Usage { tokens_in: self.draw(words), tokens_out, counted: false }
    }
}

#[async_trait]
impl Worker for Erratic {
    async fn ask(&self, request: &Request) -> Result<Reply, AskError> {
        const KINDS: [FailureKind; 6] = [
            FailureKind::RateLimited,
            FailureKind::ServerError,
            FailureKind::Timeout,
            FailureKind::CutShort,
            FailureKind::Refused,
            FailureKind::Truncated,
        ];
        self.calls.fetch_add(1, Ordering::SeqCst);
        let now = self.in_flight.fetch_add(1, Ordering::SeqCst) + 1;
        self.peak.fetch_max(now, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(self.draw(50))).await;
        self.in_flight.fetch_sub(1, Ordering::SeqCst);
        let usage = self.usage(request);
        if self.draw(2) > 0 {
            return Ok(Reply {
                text: format!("Answer: {}", self.draw(3)),
                usage,
                model: None,
                simulated_s: None,
                confidence: None,
                truncated: self.draw(5) == 0,
                tool_calls: Vec::new(),
            });
        }
        let kind = KINDS[self.draw(5) as usize];
        let cost = [FailedCost::Nothing, FailedCost::Known(usage), FailedCost::Unknown][self.draw(2) as usize];
        Err(AskError { cost, ..AskError::free(kind, "at random") })
    }
}

/// Limits that some teams meet and others do not.
fn random_settings(random: &mut Random) -> Settings {
    let mut some = |most: usize| if random.one_in(3) { None } else { Some(random.below(most) as f64) };
    let budget = Budget {
        tokens: some(12_000).map(|tokens| tokens as u64),
        usd: some(60).map(|thousandths| thousandths / 1e3),
        calls: some(12).map(|calls| calls as u64),
        seconds: some(4_000).map(|milliseconds| milliseconds / 1e3),
    };
    let on_parent_failure = if random.one_in(2) { OnParentFailure::Run } else { OnParentFailure::Skip };
    Settings { budget, on_parent_failure, max_parallel: random.between(1, 8), ..settings() }
}

async fn check(seed: u64) -> StopReason {
    let mut random = Random::new(seed);
    let worker = Arc::new(Erratic {
        random: Mutex::new(Random::new(random.next_u64())),
        calls: AtomicU64::new(0),
        in_flight: AtomicU64::new(0),
        peak: AtomicU64::new(0),
    });
    let mut runner = runner_by(worker.clone(), Arc::new(Writes(seed)));
    runner.settings = random_settings(&mut random);
    let trace = run(&runner).await;

    let Settings { budget, max_parallel, .. } = runner.settings;
    let summary = trace.summary();
    assert!(
        summary.tokens.total <= budget.tokens.unwrap_or(u64::MAX),
        "seed {seed}: {:?} of {budget:?}",
        summary.tokens
    );
    assert!(summary.usd <= budget.usd.unwrap_or(f64::MAX) + 1e-9, "seed {seed}: {} of {budget:?}", summary.usd);
    assert!(summary.calls <= budget.calls.unwrap_or(u64::MAX), "seed {seed}: {} of {budget:?}", summary.calls);
    let calls = worker.calls.load(Ordering::SeqCst);
    assert!(calls <= summary.calls, "seed {seed}: {calls} calls were made, {} are on record", summary.calls);
    assert!(worker.peak.load(Ordering::SeqCst) as usize <= max_parallel, "seed {seed}");
    check_events(&trace, seed);
    check_ends(&trace, seed);
    check_reason(&trace, seed)
}

/// Events are numbered, in the order of time, and led to by earlier ones.
fn check_events(trace: &Trace, seed: u64) {
    let mut before = 0.0;
    for (event, id) in trace.events.iter().zip(1..) {
        assert_eq!(event.id, id, "seed {seed}");
        assert!(event.t >= before, "seed {seed}: {event:?}");
        assert!(event.edges.iter().all(|edge| edge.src < id && edge.src > 0), "seed {seed}: {event:?}");
        // Only the first has no cause.
        let caused = !event.edges.is_empty() || id == 1 || matches!(event.kind, EventKind::Aggregate { .. });
        let by_run = matches!(&event.kind, EventKind::Budget { .. }) && event.agent == ORCHESTRATOR;
        assert!(caused || by_run, "seed {seed}: {event:?} came of nothing");
        before = event.t;
    }
}

/// Every agent that came into being ends once, and the answer is that of an agent that is done.
fn check_ends(trace: &Trace, seed: u64) {
    let mut ends: HashMap<&str, u32> = HashMap::new();
    for event in &trace.events {
        if let EventKind::Return { .. } = event.kind {
            *ends.entry(&event.agent).or_default() += 1;
        }
    }
    let summary = trace.summary();
    assert!(summary.agents.iter().all(|agent| ends.get(agent.id.as_str()) == Some(&1)), "seed {seed}: {ends:?}");
    let mut done = summary.agents.iter().filter(|agent| agent.status == Some(AgentStatus::Done)).peekable();
    match &summary.answer {
        None => assert!(done.peek().is_none(), "seed {seed}: an agent is done, and there is no answer"),
        Some(answer) => assert!(done.any(|agent| agent.answer.as_ref() == Some(answer)), "seed {seed}: {answer}"),
    }
}

/// The run ended for the reason that its events show.
fn check_reason(trace: &Trace, seed: u64) -> StopReason {
    let met = trace.events.iter().find_map(|event| match event.kind {
        EventKind::Budget { limit, .. } => Some(limit),
        _ => None,
    });
    let reason = trace.summary().stop_reason.expect("it ended");
    let fits = match reason {
        StopReason::TokenBudget => met == Some(LimitKind::Tokens),
        StopReason::CostBudget => met == Some(LimitKind::Usd),
        StopReason::CallBudget => met == Some(LimitKind::Calls),
        StopReason::TimeBudget => true,
        StopReason::AllAgentsFailed => met.is_none() && trace.summary().answer.is_none(),
        StopReason::Answered | StopReason::AnswerAgentsFailed => met.is_none() && trace.summary().answer.is_some(),
        StopReason::Cancelled | StopReason::Approval | StopReason::Rejected | StopReason::OrchestratorFailed => false,
    };
    assert!(fits, "seed {seed}: {reason:?} with {met:?}");
    reason
}

#[tokio::test(start_paused = true)]
async fn no_limit_is_overrun_by_a_thousand_random_teams() {
    let mut reasons: HashMap<StopReason, u32> = HashMap::new();
    for seed in 0..1_000 {
        *reasons.entry(check(seed).await).or_default() += 1;
    }
    // The limits were really met, and not only sometimes.
    for reason in [
        StopReason::Answered,
        StopReason::TokenBudget,
        StopReason::CostBudget,
        StopReason::CallBudget,
        StopReason::TimeBudget,
        StopReason::AnswerAgentsFailed,
        StopReason::AllAgentsFailed,
    ] {
        assert!(reasons.get(&reason) >= Some(&10), "{reason:?} too seldom: {reasons:?}");
    }
}
