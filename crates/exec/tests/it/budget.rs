//! Limits and cancellation: nothing is overrun, nothing is lost, and more budget finishes the run.

use crate::common::*;
use lemon_exec::orchestrator::Prompted;
use lemon_exec::worker::{AskError, Request};
use lemon_exec::{Budget, Observer, Runner, Settings, Worker};
use lemon_fakes::{Behaviour, FakeEndpoint};
use lemon_trace::{AgentStatus, EventKind, FailureKind, LimitKind, StopReason, Trace};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// A chain of three, so that a limit can fall between any two.
const CHAIN: &str = "
agents:
  - {id: one, base: solver, capacity: small}
  - {id: two, base: critic, capacity: small, after: [one]}
  - {id: three, base: critic, capacity: small, after: [two]}
";

fn says_own_name(request: &Request) -> Result<lemon_exec::worker::Reply, AskError> {
    ten(format!("Answer: {}", request.agent))
}

fn wide(count: usize) -> String {
    let agents: String = (0..count).map(|n| format!("  - {{id: a{n}, base: solver, capacity: small}}\n")).collect();
    format!("agents:\n{agents}answer: {{from: [a0], by: last}}\n")
}

#[tokio::test]
async fn sixty_four_at_once_share_one_account() {
    let fake = FakeEndpoint::start(Behaviour::text("Answer: 68").latency_ms(20).together(64)).unwrap();
    let mut runner = runner(http(&fake, true), &wide(64));
    runner.backend.levels.iter_mut().for_each(|level| level.gate = Arc::new(tokio::sync::Semaphore::new(64)));
    let trace = run(&runner).await;
    assert_eq!((fake.calls(), fake.peak_in_flight()), (64, 64));
    check_end(&trace, StopReason::Answered, Some("68"));

    for (tokens, calls) in [(3_000, 10_000), (5_000, 10_000), (1_000_000, 17)] {
        let before = fake.calls();
        runner.settings = budget(Budget { tokens: Some(tokens), calls: Some(calls), ..Budget::default() });
        let trace = run(&runner).await;
        let summary = trace.summary();
        assert!(summary.tokens.total <= tokens && summary.calls <= calls, "{:?}", summary.tokens);
        assert_eq!(fake.calls() - before, summary.calls, "every call is on record");
        let expected = if calls == 17 { StopReason::CallBudget } else { StopReason::TokenBudget };
        check_end(&trace, expected, Some("68"));
        let done = summary.agents.iter().filter(|agent| agent.status == Some(AgentStatus::Done)).count();
        assert_eq!(done as u64, summary.calls, "agents that were asked are done, the others were skipped");
    }
}

/// Runs the chain under limits that are met at the second agent, then resumes it without.
async fn check_limit(limits: Budget, reason: StopReason, limit: LimitKind) {
    let worker = Function::new(says_own_name);
    let mut runner = runner(worker.clone(), CHAIN);
    runner.settings = budget(limits);
    let trace = run(&runner).await;
    check_end(&trace, reason, Some("one"));
    let two = agent(&trace, "two");
    assert_eq!((two.status, two.failure.unwrap().kind), (Some(AgentStatus::Skipped), FailureKind::Budget));
    let three = agent(&trace, "three");
    assert_eq!((three.status, three.failure.unwrap().kind), (Some(AgentStatus::Skipped), FailureKind::Cancelled));
    let met = |kind: &EventKind| match kind {
        EventKind::Budget { limit, needed, left } => Some((*limit, needed > left)),
        _ => None,
    };
    assert_eq!(trace.events.iter().find_map(|event| met(&event.kind)), Some((limit, true)));

    // Without more budget it ends the same way again; with more it finishes, and asks no agent twice.
    let again = resume(&runner, trace.clone()).await;
    check_end(&again, reason, Some("one"));
    runner.settings = settings();
    let resumed = resume(&runner, again).await;
    check_end(&resumed, StopReason::Answered, Some("three"));
    assert_eq!(worker.asked(), ["one", "two", "three"]);
    assert_eq!(resumed.summary().tokens.total, 60);
}

#[tokio::test]
async fn each_limit_ends_a_run_with_what_there_is() {
    check_limit(Budget { calls: Some(1), ..Budget::default() }, StopReason::CallBudget, LimitKind::Calls).await;
    // Room for one prompt (some 230 tokens) and the least reply, then for less.
    check_limit(Budget { tokens: Some(310), ..Budget::default() }, StopReason::TokenBudget, LimitKind::Tokens).await;
    check_limit(Budget { usd: Some(0.000_95), ..Budget::default() }, StopReason::CostBudget, LimitKind::Usd).await;
}

#[tokio::test]
async fn attempts_count_as_calls_and_are_never_one_too_many() {
    let worker = Function::new(|_| Err(AskError::free(FailureKind::ServerError, "always")));
    for calls in 1..=3 {
        let mut runner = runner(worker.clone(), CHAIN);
        runner.settings = budget(Budget { calls: Some(calls), ..Budget::default() });
        let before = worker.asked().len();
        let trace = run(&runner).await;
        assert_eq!((worker.asked().len() - before) as u64, calls);
        assert_eq!(trace.summary().calls, calls, "limit {calls}");
        check_end(&trace, StopReason::CallBudget, None);
        assert_eq!(trace.summary().agents[0].attempts as u64, calls.min(3));
    }
}

#[tokio::test(start_paused = true)]
async fn when_the_time_is_up_the_running_are_cancelled_and_the_finished_answer() {
    let slow = "
        [[reply]]\nagent = 'one'\ntext = 'Answer: one'\ndelay_ms = 1000
        [[reply]]\nagent = 'two'\ntext = 'Answer: two'\ndelay_ms = 5000
        [[reply]]\ntext = 'Answer: three'\n";
    let mut runner = runner(scripted(slow), CHAIN);
    runner.settings = budget(Budget { seconds: Some(3.0), ..Budget::default() });
    let trace = run(&runner).await;
    check_end(&trace, StopReason::TimeBudget, Some("one"));
    check_cut_off(&trace);
    assert_eq!(trace.summary().wall_s, 3.0);
    assert_eq!(
        places(&trace, |event| matches!(event.kind, EventKind::Budget { limit: LimitKind::Seconds, .. })).len(),
        1
    );

    // Time goes on counting where it stopped.
    runner.settings = budget(Budget { seconds: Some(4.0), ..Budget::default() });
    let still = resume(&runner, trace).await;
    check_end(&still, StopReason::TimeBudget, Some("one"));
    runner.settings = budget(Budget { seconds: Some(30.0), ..Budget::default() });
    let resumed = resume(&runner, still).await;
    check_end(&resumed, StopReason::Answered, Some("three"));
    assert_eq!((agent(&resumed, "one").attempts, resumed.summary().wall_s), (1, 9.0));
}

/// `one` is done, `two` was running, `three` was waiting.
#[track_caller]
fn check_cut_off(trace: &Trace) {
    let ended = |id| {
        let agent = agent(trace, id);
        (agent.status.unwrap(), agent.failure.map(|failure| failure.kind))
    };
    assert_eq!(ended("one"), (AgentStatus::Done, None));
    assert_eq!(ended("two"), (AgentStatus::Cancelled, Some(FailureKind::Cancelled)));
    assert_eq!(ended("three"), (AgentStatus::Skipped, Some(FailureKind::Cancelled)));
    for id in ["one", "two", "three"] {
        returned(trace, id);
    }
    // A call whose end is not on record counts in full.
    let reserved = trace.events.iter().find_map(|event| match &event.kind {
        EventKind::Delegate { to, reserved, .. } if to == "two" => Some(*reserved),
        _ => None,
    });
    let two = agent(trace, "two");
    assert_eq!(Some(two.tokens()), reserved);
    assert!((two.usd - PRICE.usd(two.tokens_in, two.tokens_out)).abs() < 1e-12);
}

/// Cancels when an event fits.
fn cancel_at(fits: impl Fn(&EventKind) -> bool + Send + Sync + 'static) -> (CancellationToken, Observer) {
    let token = CancellationToken::new();
    let cancel = token.clone();
    let observer: Observer = Arc::new(move |_, event| {
        if fits(&event.kind) {
            cancel.cancel();
        }
    });
    (token, observer)
}

async fn run_until(runner: &Runner, fits: impl Fn(&EventKind) -> bool + Send + Sync + 'static) -> Trace {
    let (token, observer) = cancel_at(fits);
    runner.run(&job(), &token, Some(observer)).await.unwrap()
}

#[tokio::test]
async fn a_cancelled_run_keeps_what_it_has_and_finishes_later() {
    let fake = FakeEndpoint::start(Behaviour::text("Answer: 68").latency_ms(50)).unwrap();
    let (store, _folder) = store();
    let mut runner = runner(http(&fake, true), CHAIN);
    runner.store = Some(store.clone());
    let trace = run_until(&runner, |kind| matches!(kind, EventKind::Delegate { to, .. } if to == "two")).await;
    check_end(&trace, StopReason::Cancelled, Some("68"));
    check_cut_off(&trace);
    assert_eq!(store.trace("run1").unwrap(), trace, "all of it is in the store");

    let resumed = resume(&runner, store.trace("run1").unwrap()).await;
    check_end(&resumed, StopReason::Answered, Some("68"));
    let again = |id: &str| places(&resumed, |e| matches!(&e.kind, EventKind::Delegate { to, .. } if to == id)).len();
    assert_eq!([again("one"), again("two"), again("three")], [1, 2, 1]);
    assert_eq!(store.trace("run1").unwrap(), resumed);
}

#[tokio::test]
async fn an_agent_that_has_replied_is_done_even_if_the_run_is_cancelled_that_moment() {
    // Whether the store or the cancellation is faster differs from run to run.
    for _ in 0..20 {
        let (store, _folder) = store();
        let mut runner = runner(Function::new(says_own_name), CHAIN);
        runner.store = Some(store.clone());
        let trace = run_until(&runner, |kind| matches!(kind, EventKind::Return { .. })).await;
        check_end(&trace, StopReason::Cancelled, Some("one"));
        returned(&trace, "one");
        assert_eq!(agent(&trace, "one").status, Some(AgentStatus::Done));
        assert_eq!(store.trace("run1").unwrap(), trace);
    }
}

#[tokio::test]
async fn a_run_cancelled_before_it_begins_asks_no_worker() {
    let worker = Function::new(says_own_name);
    let runner = runner(worker.clone(), CHAIN);
    let token = CancellationToken::new();
    token.cancel();
    let trace = runner.run(&job(), &token, None).await.unwrap();
    check_end(&trace, StopReason::Cancelled, None);
    assert!(worker.asked().is_empty());
    let resumed = resume(&runner, trace).await;
    check_end(&resumed, StopReason::Answered, Some("three"));
}

#[tokio::test(start_paused = true)]
async fn a_wait_longer_than_the_time_left_is_not_begun() {
    let worker = Function::new(|_| Err(AskError::free(FailureKind::ServerError, "always")));
    let mut runner = runner(worker.clone(), "agents: [{id: solve, base: solver, capacity: small}]");
    let retry = lemon_exec::Retry { attempts: 9, first_wait_s: 60.0, longest_wait_s: 60.0 };
    let budget = Budget { seconds: Some(10.0), ..Budget::default() };
    runner.settings = Settings { retry, budget, ..settings() };
    let trace = run(&runner).await;
    check_end(&trace, StopReason::AllAgentsFailed, None);
    assert_eq!((worker.asked().len(), trace.summary().wall_s), (1, 0.0));
    assert!(agent(&trace, "solve").failure.unwrap().message.contains("the time budget ends before"));
}

/// An orchestrator that is asked at the dearest level, and the worker that serves it.
fn prompted(worker: Arc<dyn Worker>) -> Runner {
    let mut runner =
        runner_by(worker, Arc::new(Prompted { level: 2, structured: false, fallback: None, models: Vec::new() }));
    runner.backend.levels[2].price = lemon_exec::Price { input: 100.0, output: 1000.0 };
    runner
}

#[tokio::test(start_paused = true)]
async fn a_team_that_is_still_being_written_costs_what_its_writer_may_cost() {
    let mut runner = prompted(scripted("[[reply]]\ntext = 'agents: []'\ndelay_ms = 9000\n"));
    runner.settings = budget(Budget { seconds: Some(2.0), ..Budget::default() });
    let trace = run(&runner).await;
    check_end(&trace, StopReason::TimeBudget, None);
    let summary = trace.summary();
    assert!(summary.tokens.orchestrator > 1024 && summary.tokens.total == summary.tokens.orchestrator);
    let expected = (summary.tokens.total - 1024) as f64 * 100.0 / 1e6 + 1024.0 * 1000.0 / 1e6;
    assert!((summary.usd - expected).abs() < 1e-9, "{} is not {expected}", summary.usd);
}

#[tokio::test]
async fn a_writer_refused_another_attempt_has_lost_nothing() {
    let worker = Function::new(|_| Err(AskError::unknown_cost(FailureKind::ServerError, "always")));
    let mut runner = prompted(worker.clone());
    runner.settings = budget(Budget { tokens: Some(3_000), ..Budget::default() });
    let trace = run(&runner).await;
    check_end(&trace, StopReason::TokenBudget, None);
    assert!(worker.asked().len() < 3, "the limit came before the last attempt");
    let resumed = resume(&runner, trace.clone()).await;
    assert_eq!(resumed.summary().tokens.total, trace.summary().tokens.total, "nothing was under way when it ended");
}

#[tokio::test]
async fn who_watches_sees_every_event_once_and_in_order() {
    let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
    let watch = Arc::clone(&seen);
    let observer: Observer = Arc::new(move |header, event| {
        assert_eq!(header.run_id, "run1");
        watch.lock().unwrap().push(event.clone());
    });
    let runner = runner(Function::new(says_own_name), CHAIN);
    let trace = runner.run(&job(), &CancellationToken::new(), Some(observer)).await.unwrap();
    assert_eq!(*seen.lock().unwrap(), trace.events);
}
