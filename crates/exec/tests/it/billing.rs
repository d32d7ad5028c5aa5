//! What a run is charged never falls behind what its endpoints did, however their replies end.

use crate::common::*;
use lemon_exec::{Budget, Settings};
use lemon_fakes::{Behaviour, ChatRequest, FakeEndpoint, FakeReply, fault_rounds};
use lemon_trace::{AgentStatus, FailureKind, StopReason};
use proptest::prelude::*;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const TEAM: &str = "
agents:
  - {id: a, base: solver, capacity: small}
  - {id: b, base: solver, capacity: small}
  - {id: c, base: critic, capacity: small, after: [a, b]}
answer: {from: [a, b, c], by: vote}
";

/// What a server does with a request, by chance.
#[derive(Debug, Clone)]
enum Act {
    Reply,
    Cut { share: f64, close: bool },
    Lie(u64, u64),
    NoUsage,
    Empty,
    Drop,
    Garbage,
}

fn acts() -> impl Strategy<Value = Act> {
    prop_oneof![
        2 => Just(Act::Reply),
        6 => (0.0..1.1f64, any::<bool>()).prop_map(|(share, close)| Act::Cut { share, close }),
        // Reports that no server could mean.
        2 => prop_oneof![Just((0, 0)), Just((1, 1)), Just((1, 0)), Just((u64::MAX, 1))].prop_map(|(a, b)| Act::Lie(a, b)),
        1 => Just(Act::NoUsage),
        1 => Just(Act::Empty),
        1 => Just(Act::Drop),
        1 => Just(Act::Garbage),
    ]
}

/// The bytes of a proper reply, as a stream or whole: a cut beyond the end is none.
fn length(text: &str, stream: bool) -> f64 {
    let words = text.split_whitespace().count();
    (text.len() + if stream { 190 * (words + 4) } else { 420 }) as f64
}

/// An endpoint that writes a hundred words, whatever it then sends of them, and keeps its own account.
fn server(acts: Vec<Act>, bill: Arc<AtomicU64>) -> Behaviour {
    let text = "word ".repeat(100).trim().to_owned();
    Behaviour::function(move |request: &ChatRequest| {
        let written = request.limit().unwrap_or(u64::MAX).min(100);
        bill.fetch_add(request.prompt_tokens() as u64 + written, Ordering::SeqCst);
        let text = text.clone();
        match acts[(request.number as usize - 1) % acts.len()].clone() {
            Act::Reply => FakeReply::Text(text),
            Act::Cut { share, close } => {
                let bytes = (length(&text, request.stream) * share) as usize;
                FakeReply::CutAt { text, bytes, close }
            }
            Act::Lie(prompt, completion) => {
                FakeReply::WrongUsage(text, json!({"prompt_tokens": prompt, "completion_tokens": completion}))
            }
            Act::NoUsage => FakeReply::NoUsage(text),
            Act::Empty => FakeReply::NoUsage(String::new()),
            Act::Drop => FakeReply::DropConnection,
            Act::Garbage => FakeReply::Garbage,
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: fault_rounds(48) as u32, ..ProptestConfig::default() })]

    #[test]
    fn no_server_bills_more_than_the_budget(
        acts in prop::collection::vec(acts(), 1..12),
        budget in 300u64..3_000,
        stream: bool,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let bill = Arc::new(AtomicU64::new(0));
        let fake = FakeEndpoint::start(server(acts, bill.clone())).unwrap();
        let mut runner = runner(http(&fake, stream), TEAM);
        runner.backend.levels.iter_mut().for_each(|level| level.max_tokens = 200);
        runner.settings = Settings { budget: Budget { tokens: Some(budget), ..Budget::default() }, ..settings() };
        let trace = runtime.block_on(run(&runner));
        let (charged, billed) = (trace.summary().tokens.total, bill.load(Ordering::SeqCst));
        prop_assert!(charged <= budget, "charged {} of {}", charged, budget);
        prop_assert!(billed <= charged, "billed {}, charged {}", billed, charged);
    }
}

/// The case that was seen: streams that break off again and again, each of them billed in full.
#[tokio::test]
async fn streams_that_break_off_cost_their_reservation() {
    let bill = Arc::new(AtomicU64::new(0));
    let cut = Act::Cut { share: 0.05, close: true };
    let fake = FakeEndpoint::start(server(vec![cut], bill.clone())).unwrap();
    let mut runner = runner(http(&fake, true), TEAM);
    runner.settings.budget.tokens = Some(6_000);
    let trace = run(&runner).await;
    let summary = trace.summary();
    assert!(bill.load(Ordering::SeqCst) <= summary.tokens.total && summary.tokens.total <= 6_000, "{summary:?}");
    assert_eq!(summary.stop_reason, Some(StopReason::TokenBudget));
    let spent: Vec<_> = trace.events.iter().filter(|event| event.spend.tokens() > 0).collect();
    assert!(!spent.is_empty() && spent.iter().all(|event| event.spend.counted), "marked as estimates");
}

/// What the server reported before the connection broke is believed, and the reply is whole.
#[tokio::test]
async fn a_connection_that_breaks_after_the_reply_costs_no_reply() {
    let text = "Answer: 68";
    let whole = FakeEndpoint::start(Behaviour::text(text)).unwrap();
    let trace = run(&runner(http(&whole, true), "agents: [{id: a, base: solver, capacity: small}]")).await;
    let reported = agent(&trace, "a");
    // The bytes of the stream: up to the finish reason, up to the usage.
    let mut seen = (0, 0);
    for bytes in (0..2_000).step_by(10) {
        let cut = FakeReply::CutAt { text: text.into(), bytes, close: true };
        let fake = FakeEndpoint::start(Behaviour::script([cut, FakeReply::status(400)])).unwrap();
        let trace = run(&runner(http(&fake, true), "agents: [{id: a, base: solver, capacity: small}]")).await;
        let a = agent(&trace, "a");
        match a.status {
            Some(AgentStatus::Done) if a.tokens() == reported.tokens() => seen.1 += 1,
            Some(AgentStatus::Done) => {
                assert!(a.tokens() > 1_024, "all that was reserved: {a:?}");
                seen.0 += 1;
            }
            _ => assert_eq!(a.failure.unwrap().kind, FailureKind::Refused, "the second attempt"),
        }
    }
    assert!(seen.0 > 0 && seen.1 > 0, "{seen:?}");
}

#[tokio::test]
async fn a_report_that_is_too_small_to_be_true_is_not_believed() {
    let text = format!("{}Answer: 68", "a long reply ".repeat(50));
    for (prompt, completion) in [(1, 1), (200, 1), (1, 200), (200, 8)] {
        let usage = json!({"prompt_tokens": prompt, "completion_tokens": completion});
        for stream in [false, true] {
            let reply = FakeReply::WrongUsage(text.clone(), usage.clone());
            let fake = FakeEndpoint::start(Behaviour::script([reply])).unwrap();
            let trace = run(&runner(http(&fake, stream), "agents: [{id: a, base: solver, capacity: small}]")).await;
            let a = agent(&trace, "a");
            assert!(a.tokens_out >= 150 && a.tokens_in >= 50, "{usage}: {a:?}");
            assert!(trace.events.iter().any(|event| event.spend.counted), "{usage}");
        }
    }
}

/// Many replies without end at once, with no reader: what is kept of each follows from `max_tokens`.
#[tokio::test]
async fn replies_far_too_long_are_neither_held_nor_stored() {
    let agents: String = (0..64).map(|n| format!("  - {{id: a{n}, base: solver, capacity: small}}\n")).collect();
    let team = format!("agents:\n{agents}answer: {{from: [a0], by: last}}\n");
    for reply in [FakeReply::HugeBody(16 << 20), FakeReply::Flood(80_000)] {
        for stream in [true, false] {
            let fake = FakeEndpoint::start(Behaviour::script([reply.clone()]).without_record()).unwrap();
            let (store, folder) = store();
            let mut runner = runner(http(&fake, stream), &team);
            runner.store = Some(store);
            runner.settings.retry.attempts = 1;
            runner.backend.levels.iter_mut().for_each(|level| level.gate = Arc::new(tokio::sync::Semaphore::new(64)));
            let trace = run(&runner).await;
            for a in &trace.summary().agents {
                let failure = a.failure.clone().unwrap();
                assert_eq!(failure.kind, FailureKind::Malformed, "{failure:?}");
                assert!(failure.message.contains("longer than the"), "{failure:?}");
                assert!(a.tokens_out == 1_024, "all that was reserved is charged: {a:?}");
                assert!(a.reply.as_ref().is_none_or(|reply| reply.len() <= 96 << 10));
            }
            drop(runner);
            let bytes: u64 =
                std::fs::read_dir(folder.path()).unwrap().map(|it| it.unwrap().metadata().unwrap().len()).sum();
            assert!(bytes < 24 << 20, "{bytes} bytes on disk, stream: {stream}");
        }
    }
}
