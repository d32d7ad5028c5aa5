//! Waiting for what takes its time: streams that go on, and servers that load their model.

use crate::common::*;
use lemon_exec::worker::Endpoint;
use lemon_exec::{Budget, Settings};
use lemon_fakes::{Behaviour, FakeEndpoint, FakeReply};
use lemon_trace::{EventKind, FailureKind, StopReason, Trace};
use std::time::Duration;

const ONE: &str = "agents: [{id: solve, base: solver, capacity: small}]";

async fn run_within(behaviour: Behaviour, timeout_ms: u64, total_ms: u64, stream: bool) -> Trace {
    let fake = FakeEndpoint::start(behaviour).unwrap();
    let (timeout, total_timeout) = (Duration::from_millis(timeout_ms), Duration::from_millis(total_ms));
    let mut runner = runner(serve(Endpoint { timeout, total_timeout, stream, ..endpoint(&fake) }), ONE);
    runner.settings.retry.attempts = 1;
    run(&runner).await
}

fn slow(words: usize) -> Behaviour {
    Behaviour::text(format!("{}\nAnswer: 68", "word ".repeat(words))).per_token_ms(100)
}

#[tokio::test]
async fn a_stream_that_goes_on_is_not_cut_off() {
    let trace = run_within(slow(30), 2_000, 60_000, true).await;
    check_end(&trace, StopReason::Answered, Some("68"));
}

#[tokio::test]
async fn a_reply_sent_whole_has_the_time_of_one_call() {
    let trace = run_within(slow(30), 1_000, 60_000, false).await;
    let failure = agent(&trace, "solve").failure.unwrap();
    assert_eq!((failure.kind, failure.message.contains("within 1 s")), (FailureKind::Timeout, true), "{failure:?}");
}

#[tokio::test]
async fn a_stream_without_end_is_ended_at_the_total() {
    let trace = run_within(slow(3_000), 1_000, 2_000, true).await;
    let solve = agent(&trace, "solve");
    let failure = solve.failure.clone().unwrap();
    assert_eq!(failure.kind, FailureKind::Timeout);
    assert!(failure.message.contains("within 2 s in all"), "{failure:?}");
    assert!(solve.tokens_out == 1_024, "all that was reserved is charged: {solve:?}");
}

#[tokio::test]
async fn silence_ends_a_stream_and_what_came_of_it_is_kept() {
    let trace = run_within(Behaviour::script([FakeReply::HangMidStream]), 1_000, 60_000, true).await;
    let solve = agent(&trace, "solve");
    let failure = solve.failure.unwrap();
    assert_eq!(failure.kind, FailureKind::Timeout);
    assert!(failure.message.contains("nothing more came for 1 s"), "{failure:?}");
    assert!(solve.reply.is_some_and(|reply| reply.starts_with("A fake reply")));
}

fn retries(trace: &Trace) -> Vec<FailureKind> {
    let kind = |kind: &EventKind| if let EventKind::Retry { failure, .. } = kind { Some(failure.kind) } else { None };
    trace.events.iter().filter_map(|event| kind(&event.kind)).collect()
}

/// More often than there are attempts, and with a single call allowed: to ask whether a model is loaded is none.
#[tokio::test]
async fn a_server_that_loads_its_model_is_waited_for() {
    for stream in [false, true] {
        let mut replies = vec![FakeReply::loading(); 7];
        replies.push(FakeReply::Text("Answer: 68".into()));
        let fake = FakeEndpoint::start(Behaviour::script(replies)).unwrap();
        let mut runner = runner(http(&fake, stream), ONE);
        runner.settings = budget(Budget { calls: Some(1), ..Budget::default() });
        let trace = run(&runner).await;
        check_end(&trace, StopReason::Answered, Some("68"));
        assert_eq!((retries(&trace), fake.calls()), (vec![FailureKind::Loading; 7], 8));
        assert_eq!((trace.summary().calls, agent(&trace, "solve").attempts), (1, 1));

        // A resumed run counts the same.
        let mut stopped = trace;
        stopped.events.retain(|event| !matches!(event.kind, EventKind::Aggregate { .. } | EventKind::Stop { .. }));
        let resumed = resume(&runner, stopped).await;
        assert_eq!((resumed.summary().calls, resumed.summary().stop_reason), (1, Some(StopReason::Answered)));
    }
}

#[tokio::test]
async fn a_server_that_never_loads_its_model_is_waited_for_within_the_time_of_the_run() {
    let fake = FakeEndpoint::start(Behaviour::script([FakeReply::loading()])).unwrap();
    let mut runner = runner(http(&fake, true), ONE);
    runner.settings = Settings { budget: Budget { seconds: Some(0.5), ..Budget::default() }, ..settings() };
    let trace = run(&runner).await;
    let failure = agent(&trace, "solve").failure.unwrap();
    // Ended while it waited, or just before it would have asked again.
    match failure.kind {
        FailureKind::Cancelled => {}
        kind => {
            assert_eq!(kind, FailureKind::Loading);
            assert!(failure.message.starts_with("the server is loading its model"), "{failure:?}");
            assert!(failure.message.contains("the time budget ends"), "{failure:?}");
        }
    }
    assert!(retries(&trace).len() > 2);
}
