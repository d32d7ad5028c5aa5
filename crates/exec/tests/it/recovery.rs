//! Faults that pass: the next attempt succeeds. And odd replies that are usable all the same.

use crate::common::*;
use lemon_exec::worker::{ApiKey, Endpoint};
use lemon_exec::{Retry, Runner, Settings};
use lemon_fakes::{Behaviour, FakeEndpoint, FakeReply};
use lemon_trace::{AgentStatus, EventKind, FailureKind, StopReason, Trace};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

const ONE: &str = "agents: [{id: solve, base: solver, capacity: small}]";

fn answers() -> FakeReply {
    FakeReply::Text("Answer: 68".into())
}

async fn run_one(behaviour: Behaviour, stream: bool) -> (Trace, FakeEndpoint) {
    let fake = FakeEndpoint::start(behaviour).unwrap();
    let trace = run(&runner(http(&fake, stream), ONE)).await;
    (trace, fake)
}

#[tokio::test]
async fn every_passing_fault_is_overcome_by_the_next_attempt() {
    let faults = [
        FakeReply::status(429),
        FakeReply::status(500),
        FakeReply::status(503),
        FakeReply::HtmlError(502),
        FakeReply::Garbage,
        FakeReply::GarbageChunk,
        FakeReply::Empty,
        FakeReply::NullContent,
        FakeReply::NoChoices,
        FakeReply::ToolCallsInsteadOfText,
        FakeReply::CutBody,
        FakeReply::DropMidStream,
        FakeReply::DropConnection,
    ];
    for (fault, stream) in faults.into_iter().flat_map(|fault| [(fault.clone(), false), (fault, true)]) {
        let (trace, fake) = run_one(Behaviour::script([fault.clone(), answers()]), stream).await;
        check_end(&trace, StopReason::Answered, Some("68"));
        let solve = agent(&trace, "solve");
        assert_eq!((solve.status, solve.attempts, fake.calls()), (Some(AgentStatus::Done), 2, 2), "{fault:?}");
        assert_eq!(trace.summary().calls, 2, "{fault:?}");
        // What the first attempt cost stands on the retry, and is part of the whole.
        let on_retries: u64 = trace.events.iter().filter(|e| is_retry(&e.kind)).map(|e| e.spend.tokens()).sum();
        assert_eq!(trace.summary().tokens.failed, on_retries, "{fault:?}");
    }
}

fn is_retry(kind: &EventKind) -> bool {
    matches!(kind, EventKind::Retry { .. })
}

fn busy(retry_after: &str) -> FakeReply {
    FakeReply::Status { code: 429, retry_after: Some(retry_after.into()), body: String::new() }
}

/// The seconds waited before the second attempt.
async fn wait_after(retry_after: &str) -> f64 {
    let (trace, _fake) = run_one(Behaviour::script([busy(retry_after), answers()]), false).await;
    check_end(&trace, StopReason::Answered, Some("68"));
    let wait = |kind: &EventKind| if let EventKind::Retry { wait_s, .. } = kind { Some(*wait_s) } else { None };
    trace.events.iter().find_map(|event| wait(&event.kind)).expect("a retry")
}

#[tokio::test]
async fn an_endpoint_is_left_alone_as_long_as_it_asks() {
    assert_eq!(wait_after("1").await, 1.0);
    assert_eq!(wait_after("0").await, 0.0);
    let date = httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(2));
    let wait = wait_after(&date).await;
    assert!(0.0 < wait && wait <= 2.0, "{wait}");
}

#[tokio::test]
async fn a_wait_that_makes_no_sense_is_not_waited_for() {
    let long_ago = httpdate::fmt_http_date(SystemTime::UNIX_EPOCH);
    for odd in [long_ago.as_str(), "-5", "soon", "NaN", "inf", ""] {
        let wait = wait_after(odd).await;
        assert!(wait <= 0.002, "{odd:?}: {wait}");
    }
}

#[tokio::test]
async fn an_endpoint_that_asks_for_too_long_is_given_up_on() {
    let (trace, fake) = run_one(Behaviour::script([busy("3600"), answers()]), true).await;
    check_end(&trace, StopReason::AllAgentsFailed, None);
    let failure = agent(&trace, "solve").failure.unwrap();
    assert_eq!((failure.kind, fake.calls()), (FailureKind::RateLimited, 1));
    assert!(failure.message.contains("3600 s, longer than this run waits"), "{failure:?}");
}

#[tokio::test]
async fn replies_without_possible_token_counts_are_counted_here() {
    let huge = u64::MAX;
    let odd = [
        json!({"prompt_tokens": "30", "completion_tokens": "2"}),
        json!({"prompt_tokens": -3, "completion_tokens": -1}),
        json!({"prompt_tokens": 0, "completion_tokens": 0}),
        json!({"prompt_tokens": 30, "completion_tokens": 0}),
        json!({"prompt_tokens": huge, "completion_tokens": huge}),
        json!({"prompt_tokens": 30, "completion_tokens": 1_000_000}),
        json!({"prompt_tokens": 1_000_000, "completion_tokens": 2}),
        json!({"prompt_tokens": 0, "completion_tokens": 2}),
        json!({"prompt_tokens": 1, "completion_tokens": 1}),
        json!({"prompt_tokens": 30}),
        json!({"completion_tokens": 2}),
        json!({"prompt_tokens": 1.5, "completion_tokens": 2.5}),
        json!({"prompt_tokens": null, "completion_tokens": null}),
        json!({}),
        json!([1, 2]),
        json!("many"),
        json!(17),
        Value::Null,
    ];
    let text = "Answer: 68".to_owned();
    let replies = odd.into_iter().map(|usage| FakeReply::WrongUsage(text.clone(), usage));
    for reply in replies.chain([FakeReply::NoUsage(text.clone())]) {
        for stream in [false, true] {
            let (trace, _fake) = run_one(Behaviour::script([reply.clone()]), stream).await;
            check_end(&trace, StopReason::Answered, Some("68"));
            let solve = agent(&trace, "solve");
            assert!((20..1000).contains(&solve.tokens_in) && solve.tokens_out == 4, "{reply:?}: {solve:?}");
            assert!(trace.events.iter().any(|event| event.spend.counted), "{reply:?}: marked as counted");
        }
    }
}

#[tokio::test]
async fn token_counts_that_are_possible_are_believed() {
    for stream in [false, true] {
        let usage = json!({"prompt_tokens": 41, "completion_tokens": 3, "total_tokens": 999});
        let (trace, _fake) =
            run_one(Behaviour::script([FakeReply::WrongUsage("Answer: 68".into(), usage)]), stream).await;
        let solve = agent(&trace, "solve");
        assert_eq!((solve.tokens_in, solve.tokens_out), (41, 3));
        assert!(!trace.events.iter().any(|event| event.spend.counted));
        assert!((trace.summary().usd - (41.0 + 30.0) / 1e6).abs() < 1e-12);
    }
}

#[tokio::test]
async fn however_a_stream_is_cut_the_reply_is_the_same() {
    let text = "Fünfundachtzig Prozent von 80 $ — also 68 $.\nAnswer: 68 €";
    for bytes in [1, 2, 3, 7, 100] {
        let (trace, _fake) = run_one(Behaviour::text(text).split_bytes(bytes), true).await;
        assert_eq!(agent(&trace, "solve").reply.as_deref(), Some(text), "{bytes} bytes at a time");
    }
}

/// Status 200 with this body, whatever was asked for.
fn body(body: Value) -> Behaviour {
    Behaviour::script([FakeReply::Status { code: 200, retry_after: None, body: body.to_string() }])
}

#[tokio::test]
async fn a_reply_sent_whole_where_a_stream_was_asked_for_is_read() {
    let message = json!({"role": "assistant", "content": "Answer: 68"});
    let usage = json!({"prompt_tokens": 30, "completion_tokens": 2});
    let reply = json!({"choices": [{"message": message, "finish_reason": "stop"}], "usage": usage, "unknown": [1]});
    let (trace, _fake) = run_one(body(reply), true).await;
    check_end(&trace, StopReason::Answered, Some("68"));
    assert_eq!(trace.summary().tokens.total, 32);
    assert_eq!(agent(&trace, "solve").model, None);
}

#[tokio::test]
async fn bodies_of_any_shape_are_failures_and_no_panics() {
    let check = async |reply: Value, kind: FailureKind| {
        let (trace, fake) = run_one(body(reply.clone()), false).await;
        check_end(&trace, StopReason::AllAgentsFailed, None);
        let failure = agent(&trace, "solve").failure.unwrap();
        assert_eq!((failure.kind, fake.calls()), (kind, 3), "{reply}: {failure:?}");
        assert!(failure.message.chars().count() < 400, "{failure:?}");
    };
    check(json!({"error": {"message": "overloaded", "code": 503}}), FailureKind::ServerError).await;
    check(json!({"error": "x".repeat(10_000)}), FailureKind::ServerError).await;
    for odd in [
        json!(null),
        json!([]),
        json!("text"),
        json!({}),
        json!({"choices": null}),
        json!({"choices": [null]}),
        json!({"choices": [{"message": {"content": 7}}]}),
        json!({"choices": {"0": {}}}),
        json!({"choices": [], "usage": {}}),
        json!({"choices": "y".repeat(10_000)}),
    ] {
        check(odd, FailureKind::Malformed).await;
    }
    check(json!({"choices": [{}]}), FailureKind::Empty).await;
    check(json!({"choices": [{"message": {"content": " \n "}}]}), FailureKind::Empty).await;
}

/// A secret long enough to lie across the point where an error message is cut.
const SECRET: &str = "sk-secret-0123456789-0123456789-0123456789";

fn with_key(fake: &FakeEndpoint, stream: bool) -> Runner {
    let mut runner = runner(serve(Endpoint { stream, api_key: Some(ApiKey::new(SECRET)), ..endpoint(fake) }), ONE);
    let retry = Retry { attempts: 2, first_wait_s: 0.001, longest_wait_s: 1.0 };
    runner.settings = Settings { retry, ..settings() };
    runner
}

#[tokio::test]
async fn a_key_is_shown_to_the_endpoint_alone() {
    let said = |body: String| FakeReply::Status { code: 401, retry_after: None, body };
    let mut replies = vec![
        said(json!({"error": {"message": format!("bad key {SECRET}")}}).to_string()),
        said(format!("bad key {SECRET}")),
        said(json!({"error": {"unusual": SECRET}}).to_string()),
        FakeReply::Status { code: 200, retry_after: None, body: json!({"error": {"message": SECRET}}).to_string() },
        FakeReply::Status { code: 200, retry_after: None, body: json!({"choices": SECRET}).to_string() },
        FakeReply::CutAt { text: format!("You sent {SECRET} to me"), bytes: 1_000, close: true },
    ];
    // Wherever the cut falls, no part of the secret is left before it.
    replies.extend((0..6).map(|nth| said(format!("{}{SECRET}", "x".repeat(295 - 8 * nth)))));
    for reply in replies {
        for stream in [false, true] {
            let fake = FakeEndpoint::start(Behaviour::script([reply.clone()])).unwrap();
            let trace = run(&with_key(&fake, stream)).await;
            assert_eq!(fake.requests()[0].authorization, Some(format!("Bearer {SECRET}")));
            assert_eq!(agent(&trace, "solve").status, Some(AgentStatus::Failed));
            let record = serde_json::to_string(&trace).unwrap();
            assert!(!record.contains("sk-secret"), "{reply:?}: {record}");
        }
    }
}

/// A reply that quotes the key, in its text or in the name of its model, is kept without it, whatever form it has there.
#[tokio::test]
async fn a_key_in_a_reply_is_not_kept() {
    let escaped: String = SECRET.bytes().map(|byte| format!("%{byte:02X}")).collect();
    let json: String = SECRET.bytes().map(|byte| format!("\\u{byte:04x}")).collect();
    // base64 of `Bearer ` and the secret.
    let base64 = "QmVhcmVyIHNrLXNlY3JldC0wMTIzNDU2Nzg5LTAxMjM0NTY3ODktMDEyMzQ1Njc4OQ==";
    let (half, rest) = SECRET.split_at(17);
    let pieces = |pieces: &[&str]| FakeReply::Pieces(pieces.iter().map(|piece| (*piece).to_owned()).collect());
    let letters: Vec<String> = SECRET.chars().map(String::from).collect();
    let replies = [
        FakeReply::Text(format!("You sent {SECRET}")),
        FakeReply::Truncated(format!("You sent {SECRET}")),
        pieces(&["You sent ", half, rest]),
        FakeReply::Pieces(["You sent ".to_owned()].into_iter().chain(letters).collect()),
        pieces(&["You sent ", &escaped]),
        pieces(&["You sent ", &json]),
        pieces(&["You sent ", base64]),
        FakeReply::ByModel("You sent ***".into(), SECRET.into()),
    ];
    for reply in replies {
        for stream in [false, true] {
            let fake = FakeEndpoint::start(Behaviour::script([reply.clone()])).unwrap();
            let told = Arc::new(Mutex::new(String::new()));
            let pieces = told.clone();
            let mut runner = with_key(&fake, stream);
            runner.on_delta = Some(Arc::new(move |_, _, piece| pieces.lock().unwrap().push_str(piece)));
            let trace = run(&runner).await;
            let solve = agent(&trace, "solve");
            let reply_text = solve.reply.unwrap();
            assert!(reply_text.starts_with("You sent ") && reply_text.contains("***"), "{reply:?}: {reply_text}");
            assert!(reply_text.len() < 40, "{reply:?}: {reply_text}");
            assert_eq!(*told.lock().unwrap(), reply_text, "{reply:?}: what is told piece by piece is the same");
            let record = serde_json::to_string(&trace).unwrap();
            assert!(!record.contains("sk-secret") && !record.contains("0123456789"), "{reply:?}: {record}");
        }
    }
}

#[tokio::test]
async fn a_key_that_is_refused_is_not_tried_again() {
    let fake = FakeEndpoint::start(Behaviour::text("Answer: 68").api_key("another")).unwrap();
    let trace = run(&with_key(&fake, true)).await;
    check_end(&trace, StopReason::AllAgentsFailed, None);
    assert_eq!((agent(&trace, "solve").failure.unwrap().kind, fake.calls()), (FailureKind::Unauthorized, 1));
}

#[tokio::test]
async fn an_endpoint_that_is_not_there_costs_nothing() {
    let mut fake = FakeEndpoint::start(Behaviour::default()).unwrap();
    fake.stop();
    let trace = run(&runner(http(&fake, true), ONE)).await;
    check_end(&trace, StopReason::AllAgentsFailed, None);
    let solve = agent(&trace, "solve");
    assert_eq!((solve.failure.unwrap().kind, solve.attempts), (FailureKind::Unreachable, 3));
    assert_eq!(trace.summary().tokens.total, 0);
}
