//! Endpoints that misbehave, over real HTTP, whole and in streams: what is recorded, charged and passed on.

use crate::common::*;
use futures::future::join_all;
use lemon_exec::worker::{Endpoint, OpenAi};
use lemon_exec::{OnParentFailure, Settings};
use lemon_fakes::{Behaviour, FakeEndpoint, FakeReply};
use lemon_trace::{AgentStatus, EventKind, FailureKind, StopReason, Trace};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

/// One agent meets the fault, its sibling does not, and a third reads both.
const TEAM: &str = "
agents:
  - {id: bad, base: solver, role: Victim, capacity: small}
  - {id: good, base: solver, role: Sibling, capacity: medium}
  - {id: last, base: solver, role: Reader, capacity: large, after: [bad, good]}
answer: {from: [last], by: last}
";
const SIBLING_SAYS: &str = "Eighty times 0.85.\nAnswer: 68";

/// What the victim is charged with.
#[derive(Debug, Clone, Copy)]
enum Charge {
    /// Nothing.
    Nothing,
    /// Everything reserved, for each attempt.
    Reserved,
    /// The prompt and so many words of reply, as the endpoint counts them, for each attempt.
    Reported(u64),
}

async fn run_with(fault: FakeReply, stream: bool, policy: OnParentFailure) -> (Trace, FakeEndpoint) {
    let hangs = matches!(fault, FakeReply::Hang | FakeReply::HangMidStream);
    let fake = FakeEndpoint::start(Behaviour::function(move |request| {
        let victim = request.last("system").contains("You are: Victim");
        if victim { fault.clone() } else { FakeReply::Text(SIBLING_SAYS.into()) }
    }));
    let fake = fake.unwrap();
    // The victim's level is soon given up where it never answers; those who answer have all the time they need.
    let ordinary = Endpoint { stream, ..endpoint(&fake) };
    let victim_s =
        Endpoint { timeout: if hangs { Duration::from_secs(1) } else { ordinary.timeout }, ..ordinary.clone() };
    let mut runner = runner(Arc::new(OpenAi::new(vec![victim_s, ordinary.clone(), ordinary]).unwrap()), TEAM);
    runner.settings = Settings { on_parent_failure: policy, ..settings() };
    (run(&runner).await, fake)
}

/// The whole consequence of one fault, whichever way the reply comes.
async fn check(fault: FakeReply, stream: bool, kind: FailureKind, attempts: u32, charge: Charge) {
    let (trace, fake) = run_with(fault.clone(), stream, OnParentFailure::Run).await;
    let context = format!("{fault:?}, stream: {stream}").chars().take(120).collect::<String>();
    let bad = agent(&trace, "bad");
    let failure = bad.failure.clone().unwrap_or_else(|| panic!("{context}: no failure"));
    assert_eq!((bad.status, failure.kind, bad.attempts), (Some(AgentStatus::Failed), kind, attempts), "{context}");
    assert!(bad.reply.is_none() || stream, "{context}");
    check_charge(&trace, attempts, charge, &context);
    assert_eq!(fake.calls(), u64::from(attempts) + 2, "{context}: calls");

    // The sibling goes on, and the child is told who failed.
    assert_eq!(agent(&trace, "good").status, Some(AgentStatus::Done), "{context}");
    let prompt = fake.requests().last().unwrap().body["messages"][1]["content"].as_str().unwrap().to_owned();
    assert!(prompt.contains("no message from bad, Victim: it failed"), "{context}: {prompt}");
    assert!(prompt.contains(SIBLING_SAYS), "{context}: {prompt}");
    check_end(&trace, StopReason::Answered, Some("68"));
    let retries =
        places(&trace, |event| matches!(&event.kind, EventKind::Retry { failure, .. } if failure.kind == kind));
    assert_eq!(retries.len() as u32, attempts - 1, "{context}: retries on record");

    // Told to skip, the child never runs, and the answer is made of what there is.
    let (trace, fake) = run_with(fault, stream, OnParentFailure::Skip).await;
    let last = agent(&trace, "last");
    assert_eq!((last.status, last.failure.unwrap().kind), (Some(AgentStatus::Skipped), FailureKind::ParentFailed));
    assert_eq!(fake.calls(), u64::from(attempts) + 1, "{context}: calls");
    check_end(&trace, StopReason::AnswerAgentsFailed, Some("68"));
}

fn check_charge(trace: &Trace, attempts: u32, charge: Charge, context: &str) {
    let bad = agent(trace, "bad");
    let events = || trace.events.iter();
    let reserved = events().find_map(|event| match &event.kind {
        EventKind::Delegate { to, reserved, .. } if to == "bad" => Some(*reserved),
        _ => None,
    });
    let counted = events().any(|event| event.agent == "bad" && event.spend.counted);
    match charge {
        Charge::Nothing => assert_eq!(bad.tokens(), 0, "{context}"),
        Charge::Reserved => assert_eq!(Some(bad.tokens()), reserved.map(|all| all * u64::from(attempts)), "{context}"),
        Charge::Reported(words) => {
            assert_eq!(bad.tokens_out, words * u64::from(attempts), "{context}");
            assert!(bad.tokens_in > 0 && !counted, "{context}");
        }
    }
    let sum: u64 = events().map(|event| event.spend.tokens()).sum();
    assert_eq!(trace.summary().tokens.total, sum, "{context}: every token is on one event");
}

fn status(code: u16) -> FakeReply {
    FakeReply::Status { code, retry_after: None, body: json!({"error": {"message": "out of order"}}).to_string() }
}

#[tokio::test]
async fn statuses_that_pass_are_tried_again_and_cost_nothing() {
    for stream in [false, true] {
        check(status(429), stream, FailureKind::RateLimited, 3, Charge::Nothing).await;
        for code in [500, 502, 503] {
            check(status(code), stream, FailureKind::ServerError, 3, Charge::Nothing).await;
        }
        check(FakeReply::HtmlError(502), stream, FailureKind::ServerError, 3, Charge::Nothing).await;
    }
}

#[tokio::test]
async fn refusals_are_not_tried_again() {
    for stream in [false, true] {
        for (code, kind) in [
            (400, FailureKind::Refused),
            (401, FailureKind::Unauthorized),
            (403, FailureKind::Unauthorized),
            (404, FailureKind::Refused),
        ] {
            check(status(code), stream, kind, 1, Charge::Nothing).await;
        }
        check(FakeReply::HtmlError(404), stream, FailureKind::Refused, 1, Charge::Nothing).await;
    }
}

#[tokio::test]
async fn what_an_endpoint_says_of_an_error_is_on_record() {
    let message = |code| async move {
        let (trace, _fake) = run_with(status(code), true, OnParentFailure::Run).await;
        agent(&trace, "bad").failure.unwrap().message
    };
    assert_eq!(message(404).await, "HTTP 404: out of order");
    assert_eq!(message(503).await, "HTTP 503: out of order (given up after 3 attempts)");
}

#[tokio::test]
async fn silence_costs_what_was_reserved() {
    let cases = [FakeReply::Hang, FakeReply::HangMidStream]
        .into_iter()
        .flat_map(|fault| [(fault.clone(), false), (fault, true)]);
    let checks = cases.map(|(fault, stream)| check(fault, stream, FailureKind::Timeout, 3, Charge::Reserved));
    join_all(checks).await;
}

#[tokio::test]
async fn connections_that_break_are_tried_again() {
    for stream in [false, true] {
        check(FakeReply::CutBody, stream, FailureKind::CutShort, 3, Charge::Reserved).await;
        check(FakeReply::DropMidStream, stream, FailureKind::CutShort, 3, Charge::Reserved).await;
        // Whether a model was at work when it happened is unknown.
        check(FakeReply::DropConnection, stream, FailureKind::Unreachable, 3, Charge::Reserved).await;
    }
}

#[tokio::test]
async fn replies_that_are_no_replies_are_tried_again() {
    for stream in [false, true] {
        let kind = if stream { FailureKind::CutShort } else { FailureKind::Malformed };
        check(FakeReply::Garbage, stream, kind, 3, Charge::Reserved).await;
        check(FakeReply::Empty, stream, FailureKind::Empty, 3, Charge::Reported(0)).await;
        check(FakeReply::NullContent, stream, FailureKind::Empty, 3, Charge::Reported(0)).await;
        check(FakeReply::ToolCallsInsteadOfText, stream, FailureKind::Malformed, 3, Charge::Reported(0)).await;
    }
    check(FakeReply::GarbageChunk, true, FailureKind::Malformed, 3, Charge::Reserved).await;
    check(FakeReply::GarbageChunk, false, FailureKind::CutShort, 3, Charge::Reserved).await;
    check(FakeReply::NoChoices, true, FailureKind::Empty, 3, Charge::Reported(0)).await;
    check(FakeReply::NoChoices, false, FailureKind::Malformed, 3, Charge::Reserved).await;
}

#[tokio::test]
async fn a_reply_without_end_is_not_held_in_memory() {
    for stream in [false, true] {
        let (trace, _fake) = run_with(FakeReply::HugeBody(17 << 20), stream, OnParentFailure::Run).await;
        let bad = agent(&trace, "bad");
        let failure = bad.failure.unwrap();
        assert_eq!(failure.kind, FailureKind::Malformed, "{failure:?}");
        assert!(failure.message.contains("longer than the 768 KiB"), "{failure:?}");
        assert_eq!((bad.status, bad.attempts, bad.reply), (Some(AgentStatus::Failed), 3, None));
        check_end(&trace, StopReason::Answered, Some("68"));
    }
}
