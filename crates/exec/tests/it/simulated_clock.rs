//! A simulated clock: events come when their causes allow, replies take the time they say, and our own time does not count.

use crate::common::*;
use lemon_exec::worker::{AskError, FailedCost, Reply, Request, Usage};
use lemon_exec::{Budget, Clock, Job, Runner};
use lemon_spec::{Language, generate, render};
use lemon_trace::{AgentStatus, EventKind, FailureKind, StopReason, Trace};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

const DIAMOND: &str = "
agents:
  - {id: top, base: planner, capacity: small}
  - {id: left, base: solver, capacity: small, after: [top]}
  - {id: right, base: solver, capacity: large, after: [top]}
  - {id: end, base: judge, capacity: large, after: [left, right]}
";

/// What each agent of the diamond takes: the way over `right` is the longer one.
fn seconds(request: &Request) -> f64 {
    match request.agent.as_str() {
        "top" => 1.5,
        "left" => 2.0,
        "right" => 5.25,
        _ => 0.5,
    }
}

fn taking(seconds: f64, request: &Request) -> Result<Reply, AskError> {
    Ok(Reply { simulated_s: Some(seconds), ..ten(format!("Answer: {}", request.agent))? })
}

fn simulated(spec: &str, reply: impl Fn(&Request) -> Result<Reply, AskError> + Send + Sync + 'static) -> Runner {
    let mut runner = runner(Function::new(reply), spec);
    runner.backend.clock = Clock::Simulated;
    runner
}

fn diamond() -> Runner {
    simulated(DIAMOND, |request| taking(seconds(request), request))
}

#[track_caller]
fn check_times(trace: &Trace, expected: &[(&str, f64, f64)]) {
    let time = |id: u32| trace.events.iter().find(|event| event.id == id).unwrap().t;
    let found: Vec<_> =
        expected.iter().map(|(id, _, _)| (*id, time(delegated(trace, id)), time(returned(trace, id)))).collect();
    assert_eq!(found, expected);
}

#[tokio::test]
async fn times_follow_the_critical_path() {
    let trace = run(&diamond()).await;
    check_end(&trace, StopReason::Answered, Some("end"));
    check_times(&trace, &[("top", 0.0, 1.5), ("left", 1.5, 3.5), ("right", 1.5, 6.75), ("end", 6.75, 7.25)]);
    for event in &trace.events {
        let expected = match &event.kind {
            EventKind::Decision { .. } | EventKind::Spawn { .. } => 0.0,
            EventKind::Aggregate { .. } | EventKind::Stop { .. } => 7.25,
            EventKind::Message { from, .. } => {
                [("top", 1.5), ("left", 3.5), ("right", 6.75)].into_iter().find(|(id, _)| from == id).unwrap().1
            }
            _ => continue,
        };
        assert_eq!(event.t, expected, "{:?}", event.kind);
    }
    assert_eq!(trace.summary().wall_s, 7.25);
}

#[tokio::test]
async fn speedup_is_serial_over_parallel_time() {
    let metrics = run(&diamond()).await.metrics(None);
    let (serial, parallel) = (1.5 + 2.0 + 5.25 + 0.5, 7.25);
    assert!((metrics.parallel_speedup.unwrap() - serial / parallel).abs() < 1e-9, "{metrics:?}");
    assert_eq!(metrics.busy_time, Some(1.0));
    let chain = DIAMOND.replace(
        "id: right, base: solver, capacity: large, after: [top]",
        "id: right, base: solver, capacity: large, after: [left]",
    );
    let metrics = run(&simulated(&chain, |request| taking(seconds(request), request))).await.metrics(None);
    assert!((metrics.parallel_speedup.unwrap() - 1.0).abs() < 1e-9, "{metrics:?}");
}

#[tokio::test]
async fn no_event_comes_before_its_causes() {
    for seed in 0..60 {
        let spec = render(&generate::spec(seed, &Language::default())).text;
        let trace = run(&simulated(&spec, |request| taking((request.seed % 97) as f64 / 7.0, request))).await;
        for event in &trace.events {
            let causes = event.edges.iter().map(|edge| trace.events[edge.src as usize - 1].t);
            let earliest = causes.fold(0.0, f64::max);
            // Times are kept in microseconds.
            assert!((event.t - earliest - event.spend.seconds).abs() < 1e-6, "seed {seed}: {event:?} after {earliest}");
        }
    }
}

/// A worker that is slow by our clock, and by its own takes what it says or fails, as the seed has it.
fn moody(request: &Request) -> Result<Reply, AskError> {
    std::thread::sleep(Duration::from_micros(request.seed % 300));
    match request.seed % 4 {
        0 => {
            let cost = FailedCost::Known(Usage { tokens_in: 10, tokens_out: 5, counted: true });
            Err(AskError { cost, ..AskError::free(FailureKind::Truncated, "too long") })
        }
        1 => ten("Answer: as fast as thought"),
        _ => taking((request.seed % 1000) as f64 / 100.0, request),
    }
}

/// A run, written out without its name and the time of day.
async fn bytes(runner: &Runner, run_id: &str, seed: u64) -> String {
    let job = Job { run_id: run_id.into(), seed, ..job() };
    let mut trace = runner.run(&job, &CancellationToken::new(), None).await.unwrap();
    (trace.header.run_id, trace.header.started_at_ms) = (String::new(), 0);
    serde_json::to_string(&trace).unwrap()
}

#[tokio::test]
async fn the_same_seed_gives_the_same_bytes_without_a_clock_that_stands_still() {
    let (mut failed, mut differ) = (0, 0);
    for seed in 0..40 {
        let spec = render(&generate::spec(seed, &Language::default())).text;
        let first = bytes(&simulated(&spec, moody), "first", seed).await;
        assert_eq!(first, bytes(&simulated(&spec, moody), "second", seed).await, "seed {seed}");
        failed += u32::from(first.contains("too long"));
        differ += u32::from(first.len() != bytes(&simulated(&spec, moody), "other", seed + 1).await.len());
    }
    assert!(failed > 10, "{failed} runs had an agent that failed");
    assert!(differ > 10, "{differ} runs were others under another seed");
}

#[tokio::test]
async fn what_is_reused_takes_no_time() {
    let (store, _folder) = store();
    let mut runner = diamond();
    (runner.store, runner.settings.reuse) = (Some(store), true);
    let first = run(&runner).await;
    let again = runner.run(&Job { run_id: "run2".into(), ..job() }, &CancellationToken::new(), None).await.unwrap();
    assert_eq!((first.summary().wall_s, again.summary().wall_s), (7.25, 0.0));
    check_end(&again, StopReason::Answered, Some("end"));
}

const CHAIN: &str = "
agents:
  - {id: one, base: solver, capacity: small}
  - {id: two, base: critic, capacity: small, after: [one]}
  - {id: three, base: critic, capacity: small, after: [two]}
";

/// A chain of four seconds each under a budget of so many.
async fn check_budget(seconds: f64, reason: StopReason, answer: &str, asked: &[&str]) -> Trace {
    let worker = Function::new(|request: &Request| taking(4.0, request));
    let mut runner = runner(worker.clone(), CHAIN);
    runner.backend.clock = Clock::Simulated;
    runner.settings = budget(Budget { seconds: Some(seconds), ..Budget::default() });
    let trace = run(&runner).await;
    check_end(&trace, reason, Some(answer));
    assert_eq!(worker.asked(), asked, "{seconds} s");
    trace
}

// Our own clock stands still: were it asked, a run would have all the time in the world, or none.
#[tokio::test(start_paused = true)]
async fn a_budget_of_simulated_seconds_ends_the_run() {
    check_budget(100.0, StopReason::Answered, "three", &["one", "two", "three"]).await;
    check_budget(1e300, StopReason::Answered, "three", &["one", "two", "three"]).await;
    let trace = check_budget(6.0, StopReason::TimeBudget, "two", &["one", "two"]).await;
    let three = agent(&trace, "three");
    assert_eq!((three.status, three.tokens()), (Some(AgentStatus::Cancelled), 0), "it was never asked");
    // A call begun in time is the last, and ends when it ends.
    assert_eq!(trace.summary().wall_s, 8.0);
    check_budget(3.0, StopReason::TimeBudget, "one", &["one"]).await;
}

#[tokio::test]
async fn a_run_taken_up_again_goes_on_at_its_own_time() {
    let trace = check_budget(6.0, StopReason::TimeBudget, "two", &["one", "two"]).await;
    let resumed = resume(&simulated(CHAIN, |request| taking(4.0, request)), trace).await;
    check_end(&resumed, StopReason::Answered, Some("three"));
    assert_eq!(resumed.summary().wall_s, 12.0);
}
