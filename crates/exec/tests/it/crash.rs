//! A process may die after any event: whatever is on record is enough to go on, and nothing finished is done again.

use crate::common::*;
use async_trait::async_trait;
use lemon_exec::orchestrator::{Draft, OrchestratorError, WriteContext};
use lemon_exec::store::{RunMeta, Store};
use lemon_exec::worker::{AskError, Reply, Request};
use lemon_exec::{Budget, Job, Orchestrator, Runner};
use lemon_num::Random;
use lemon_spec::generate::spec_after;
use lemon_spec::render;
use lemon_trace::{AgentStatus, EventKind, FailureKind, StopReason, Trace};
use std::collections::HashSet;
use std::sync::{Arc, Mutex};

/// Two rounds, a judge, a failure and retries: something of everything.
struct Rounds;

#[async_trait]
impl Orchestrator for Rounds {
    async fn draft(&self, context: &WriteContext<'_>) -> Result<Option<Draft>, OrchestratorError> {
        let text = match context.round {
            1 => {
                "agents:
  - {id: one, base: solver, capacity: small}
  - {id: flaky, base: solver, capacity: medium}
  - {id: broken, base: solver, capacity: small}
  - {id: reads, base: critic, capacity: large, after: [one, broken]}
answer: {from: [one, flaky, reads], by: judge}
next: review"
            }
            2 => {
                "agents: [{id: more, base: critic, capacity: small, after: [judge, flaky]}]\nanswer: {from: [more, one], by: judge}"
            }
            _ => return Ok(None),
        };
        Ok(Some(Draft::Text(text.into())))
    }
}

/// Every agent has its own fate, whatever process asks it.
fn fate(tried: &Mutex<HashSet<String>>, request: &Request) -> Result<Reply, AskError> {
    let first = tried.lock().unwrap().insert(request.agent.clone());
    match request.agent.as_str() {
        "flaky" if first => Err(AskError::free(FailureKind::ServerError, "at first")),
        "broken" => Err(AskError::free(FailureKind::Refused, "always")),
        id => ten(format!("Thoughts of {id}.\nAnswer: {id}")),
    }
}

fn worker() -> Arc<Function<impl Fn(&Request) -> Result<Reply, AskError> + Send + Sync>> {
    let tried = Mutex::default();
    Function::new(move |request| fate(&tried, request))
}

fn cut(trace: &Trace, events: usize) -> Trace {
    Trace { header: trace.header.clone(), events: trace.events[..events].to_vec() }
}

fn done(trace: &Trace) -> HashSet<String> {
    let done = trace.summary().agents.into_iter().filter(|agent| agent.status == Some(AgentStatus::Done));
    done.map(|agent| agent.id).collect()
}

/// Tokens reserved by calls that have no end in these events.
fn open_tokens(trace: &Trace) -> u64 {
    let reserved = |event: &lemon_trace::Event| match &event.kind {
        EventKind::Delegate { to, reserved, .. } => Some((to.clone(), *reserved, event.id)),
        _ => None,
    };
    let ended = |id: &str, since: u32| {
        trace.events.iter().any(|e| e.id > since && e.agent == id && matches!(e.kind, EventKind::Return { .. }))
    };
    trace.events.iter().filter_map(reserved).filter(|(id, _, at)| !ended(id, *at)).map(|(_, tokens, _)| tokens).sum()
}

/// No agent comes into being twice, and no message is sent twice, however often a run is taken up.
#[track_caller]
fn check_once(trace: &Trace) {
    let mut seen = HashSet::new();
    for event in &trace.events {
        let once = match &event.kind {
            EventKind::Spawn { to, .. } => seen.insert(format!("{to} is spawned")),
            EventKind::Message { from, to, .. } => seen.insert(format!("{from} tells {to}")),
            _ => true,
        };
        assert!(once, "a second time: {event:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_cut_after_any_event_ends_the_same() {
    let whole = run(&runner_by(worker(), Arc::new(Rounds))).await;
    check_end(&whole, StopReason::Answered, Some("judge2"));
    assert!(whole.events.len() > 25, "{}", whole.events.len());
    for events in 0..=whole.events.len() {
        let before = cut(&whole, events);
        let (lost, spent) = (open_tokens(&before), before.summary().tokens.total);
        let worker = worker();
        let resumed = resume(&runner_by(worker.clone(), Arc::new(Rounds)), before.clone()).await;
        check_end(&resumed, StopReason::Answered, Some("judge2"));
        let again: Vec<String> = worker.asked().into_iter().filter(|id| done(&before).contains(id)).collect();
        assert!(again.is_empty(), "cut after {events}: {again:?} are done and were asked again");

        // What was spent, lost and spent again adds up.
        let failed = |id: &&String| *id == "broken" || *id == "flaky";
        let replies = worker.asked().len() - worker.asked().iter().filter(failed).count()
            + usize::from(worker.asked().iter().filter(|id| *id == "flaky").count() == 2);
        assert_eq!(resumed.summary().tokens.total, spent + lost + 20 * replies as u64, "cut after {events}");
        let said = resumed.events.iter().find_map(|event| match event.kind {
            EventKind::Resume { lost_tokens, finished } => Some((lost_tokens, finished)),
            _ => None,
        });
        let expected = (1..whole.events.len()).contains(&events).then(|| (lost, done(&before).len()));
        assert_eq!(said, expected, "cut after {events}");

        check_once(&resumed);
        // And may be cut again.
        let twice = cut(&resumed, events + (resumed.events.len() - events) / 2);
        let resumed = resume(&runner_by(crate::crash::worker(), Arc::new(Rounds)), twice).await;
        check_end(&resumed, StopReason::Answered, Some("judge2"));
        check_once(&resumed);
    }
}

#[tokio::test]
async fn a_run_that_has_answered_is_left_as_it_is() {
    let worker = worker();
    let runner = runner_by(worker.clone(), Arc::new(Rounds));
    let whole = run(&runner).await;
    let asked = worker.asked().len();
    assert_eq!(resume(&runner, whole.clone()).await, whole);
    assert_eq!(worker.asked().len(), asked);
}

#[tokio::test]
async fn the_store_s_record_of_a_dead_process_is_enough() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lemon.db");
    let mut runner = runner_by(worker(), Arc::new(Rounds));
    runner.store = Some(Arc::new(Store::open(&path, Default::default()).unwrap()));
    let whole = run(&runner).await;
    drop(runner);
    for events in (1..whole.events.len()).rev() {
        // What a process leaves behind that dies after so many events.
        let left = format!("DELETE FROM events WHERE id > {events}; UPDATE runs SET stop_reason = NULL");
        rusqlite::Connection::open(&path).unwrap().execute_batch(&left).unwrap();
        let store = Arc::new(Store::open_existing(&path).unwrap());
        let row = store.runs(9).unwrap().remove(0);
        assert_eq!((row.stop_reason, row.running), (None, false), "its process is gone");
        let worker = worker();
        let mut runner = runner_by(worker.clone(), Arc::new(Rounds));
        runner.store = Some(store.clone());
        let trace = store.trace(&store.find_run("run").unwrap()).unwrap();
        assert_eq!(trace.events, whole.events[..events]);
        let meta = store.meta("run1").unwrap();
        let resumed = runner.resume(trace, &meta, &Default::default(), None).await.unwrap();
        check_end(&resumed, StopReason::Answered, Some("judge2"));
        assert_eq!(store.trace("run1").unwrap(), resumed);
        assert_eq!(store.runs(9).unwrap()[0].stop_reason.as_deref(), Some("answered"));
    }
}

/// A random team of two rounds at most.
struct Random2(u64);

#[async_trait]
impl Orchestrator for Random2 {
    async fn draft(&self, context: &WriteContext<'_>) -> Result<Option<Draft>, OrchestratorError> {
        let earlier: Vec<String> = context.results.iter().map(|result| result.agent.to_owned()).collect();
        let text = render(&spec_after(self.0 + u64::from(context.round), context.language, &earlier)).text;
        Ok((context.round <= 2).then_some(Draft::Text(text)))
    }
}

/// A runner whose agents each always reply the same, at once or after a failure, or always fail.
fn random_team(seed: u64, limits: Budget) -> (Runner, Arc<Mutex<Vec<String>>>) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&asked);
    let worker = Function::new(move |request: &Request| {
        let mut heard = heard.lock().unwrap();
        let heard_before = heard.contains(&request.agent);
        heard.push(request.agent.clone());
        let own = request.agent.bytes().fold(seed, |sum, byte| sum.wrapping_mul(31) + u64::from(byte));
        match own % 5 {
            0 => Err(AskError::unknown_cost(FailureKind::Refused, "always")),
            1 => Err(AskError::free(FailureKind::Truncated, "always")),
            2 if !heard_before => Err(AskError::free(FailureKind::ServerError, "at first")),
            _ => ten(format!("Answer: {}", own % 3)),
        }
    });
    let mut runner = runner_by(worker, Arc::new(Random2(seed)));
    runner.settings = budget(limits);
    (runner, asked)
}

#[tokio::test(start_paused = true)]
async fn random_teams_cut_anywhere_end_the_same() {
    for seed in 0..60 {
        let (runner, _) = random_team(seed << 8, Budget::default());
        let whole = run(&runner).await;
        let summary = whole.summary();
        let mut random = Random::new(seed);
        for _ in 0..8 {
            let before = cut(&whole, random.below(whole.events.len()));
            let (runner, asked) = random_team(seed << 8, Budget::default());
            let resumed = resume(&runner, before.clone()).await;
            check_end(&resumed, summary.stop_reason.unwrap(), summary.answer.as_deref());
            let asked = asked.lock().unwrap();
            assert!(asked.iter().all(|id| !done(&before).contains(id)), "seed {seed}: {asked:?}");
            let attempts = |id: &String| asked.iter().filter(|other| *other == id).count();
            assert!(asked.iter().all(|id| attempts(id) <= 2), "seed {seed}: asked again after success: {asked:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn no_crash_makes_a_budget_be_overrun() {
    for seed in 0..200 {
        let mut random = Random::new(seed);
        let limits = Budget {
            tokens: Some(random.between(1_000, 9_000) as u64),
            usd: Some(random.between(10, 60) as f64 / 1e3),
            calls: Some(random.between(1, 12) as u64),
            seconds: None,
        };
        let mut trace = run(&random_team(seed << 8, limits).0).await;
        // It crashes over and over; each time some of what was spent is lost.
        for _ in 0..8 {
            let before = cut(&trace, random.between(1, trace.events.len()));
            trace = resume(&random_team(seed << 8, limits).0, before).await;
            let summary = trace.summary();
            assert!(Some(summary.tokens.total) <= limits.tokens, "seed {seed}: {:?} of {limits:?}", summary.tokens);
            assert!(Some(summary.calls) <= limits.calls, "seed {seed}: {} of {limits:?}", summary.calls);
            assert!(summary.usd <= limits.usd.unwrap() + 1e-9, "seed {seed}: {} of {limits:?}", summary.usd);
        }
    }
}

#[tokio::test]
async fn money_that_was_lost_counts_as_spent() {
    let one = "agents: [{id: solve, base: solver, capacity: small}]";
    let whole = run(&runner(Function::new(|_| ten("Answer: 1")), one)).await;
    let before = cut(&whole, delegated(&whole, "solve") as usize);
    let mut poor = runner(Function::new(|_| ten("Answer: 1")), one);
    // Enough for the call that was lost, but not for another.
    poor.settings = budget(Budget { usd: Some(0.0105), ..Budget::default() });
    let resumed = resume(&poor, before).await;
    check_end(&resumed, StopReason::CostBudget, None);
    assert!(resumed.summary().usd > 0.0 && resumed.summary().usd <= 0.0105);
}

#[tokio::test]
async fn withheld_messages_stay_withheld() {
    let text =
        "agents:\n  - {id: a, base: solver, capacity: small}\n  - {id: b, base: critic, capacity: small, after: [a]}\n";
    let seen = Arc::new(Mutex::new(String::new()));
    let heard = Arc::clone(&seen);
    let worker = Function::new(move |request: &Request| {
        *heard.lock().unwrap() = request.messages.last().unwrap().content.clone();
        ten(format!("Answer: from {}", request.agent))
    });
    let runner = runner(worker, text);
    let meta = RunMeta { withhold: vec![("a".into(), "b".into())], ..RunMeta::default() };
    let whole = runner.run(&Job { meta: meta.clone(), ..job() }, &Default::default(), None).await.unwrap();
    let withheld =
        |trace: &Trace| places(trace, |e| matches!(e.kind, EventKind::Message { delivered: false, .. })).len();
    assert_eq!((withheld(&whole), whole.summary().messages), (1, 0));
    assert!(!seen.lock().unwrap().contains("from a"));

    let resumed =
        runner.resume(cut(&whole, returned(&whole, "a") as usize), &meta, &Default::default(), None).await.unwrap();
    assert_eq!(withheld(&resumed), 1);
    assert!(!seen.lock().unwrap().contains("from a"));
}
