//! Recorded once over HTTP, replayed without any endpoint.

use crate::common::*;
use lemon_exec::worker::{ApiKey, CassetteError, Endpoint, Recording, Replay};
use lemon_exec::{Job, Runner};
use lemon_fakes::{Behaviour, ChatRequest, FakeEndpoint, FakeReply};
use lemon_trace::{AgentStatus, EventKind, FailureKind, StopReason, Trace};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

const TEAM: &str = "
agents:
  - {id: a, base: solver, capacity: small}
  - {id: b, base: expert, capacity: medium}
  - {id: c, base: critic, capacity: large, after: [a, b]}
answer: {from: [a, b, c], by: vote}
";
const SECRET: &str = "sk-secret-0123456789";

/// A recorded run in which every call fails at first.
async fn recorded() -> (Trace, PathBuf, TempDir) {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("tape.jsonl");
    let reply = |request: &ChatRequest| FakeReply::Text(format!("Schön.\nAnswer: {}", request.messages.len() + 66));
    let busy = FakeReply::Status { code: 429, retry_after: Some("0".into()), body: format!("you, {SECRET}!") };
    let behaviour = Behaviour::function(reply).fault_first_time(busy).api_key(SECRET);
    let fake = FakeEndpoint::start(behaviour).unwrap();
    let worker = serve(Endpoint { api_key: Some(ApiKey::new(SECRET)), ..endpoint(&fake) });
    let trace = run(&runner(Arc::new(Recording::create(&path, "fakes", worker).unwrap()), TEAM)).await;
    check_end(&trace, StopReason::Answered, Some("68"));
    assert_eq!(fake.calls(), 6);
    (trace, path, folder)
}

fn replaying(path: &Path) -> Runner {
    runner(Arc::new(Replay::open(path).unwrap()), TEAM)
}

/// Everything that does not depend on time or on who was faster.
fn essence(trace: &Trace) -> Vec<String> {
    let agents = trace.summary().agents;
    let line = |a: &lemon_trace::AgentSummary| {
        format!("{} {:?} {:?} {} {} {} {}", a.id, a.status, a.reply, a.attempts, a.tokens_in, a.tokens_out, a.usd)
    };
    agents.iter().map(line).collect()
}

#[tokio::test]
async fn a_replay_is_the_run_again() {
    let (trace, path, _folder) = recorded().await;
    let runner = replaying(&path);
    for _ in 0..2 {
        let replayed = run(&runner).await;
        check_end(&replayed, StopReason::Answered, Some("68"));
        assert_eq!(replayed.summary().tokens.total, trace.summary().tokens.total);
        let attempts = agent(&replayed, "a").attempts;
        assert!((1..=2).contains(&attempts), "what failed once need not fail again in a second replay");
    }
    assert_eq!(essence(&run(&replaying(&path)).await), essence(&trace));
}

#[tokio::test]
async fn a_key_is_not_on_the_tape() {
    let (_, path, _folder) = recorded().await;
    let tape = std::fs::read_to_string(path).unwrap();
    assert!(tape.contains("rate_limited") && tape.contains("you, ***!"), "the failure is on the tape");
    assert!(!tape.contains(SECRET));
}

#[tokio::test]
async fn what_was_not_recorded_is_said_and_not_tried_again() {
    let (_, path, _folder) = recorded().await;
    let job = Job { question: "Something else?".into(), ..job() };
    let trace = replaying(&path).run(&job, &CancellationToken::new(), None).await.unwrap();
    check_end(&trace, StopReason::AllAgentsFailed, None);
    let a = agent(&trace, "a");
    let failure = a.failure.unwrap();
    assert_eq!((a.status, failure.kind, a.attempts), (Some(AgentStatus::Failed), FailureKind::NotRecorded, 1));
    for part in [path.to_str().unwrap(), "agent `a`", "small", "differs from what was recorded"] {
        assert!(failure.message.contains(part), "{part}: {}", failure.message);
    }
    assert!(places(&trace, |event| matches!(event.kind, EventKind::Retry { .. })).is_empty());
    assert_eq!(trace.summary().tokens.total, 0);
}

#[tokio::test]
async fn a_tape_cut_anywhere_in_its_last_line_is_read() {
    let (trace, path, folder) = recorded().await;
    let tape = std::fs::read(&path).unwrap();
    let last_line = tape[..tape.len() - 1].iter().rposition(|byte| *byte == b'\n').unwrap() + 1;
    let short = folder.path().join("short.jsonl");
    // Every byte, those within a character included.
    for end in last_line..tape.len() {
        std::fs::write(&short, &tape[..end]).unwrap();
        let replay = Replay::open(&short);
        assert!(replay.is_ok(), "cut at {} of {}: {:?}", end - last_line, tape.len() - last_line, replay.err());
    }
    std::fs::write(&short, &tape[..last_line + 20]).unwrap();
    let replayed = run(&replaying(&short)).await;
    assert_eq!(agent(&replayed, "a").reply, agent(&trace, "a").reply, "the calls before it are there");
    assert_eq!(agent(&replayed, "c").status, Some(AgentStatus::Failed), "the last one is not");
}

#[track_caller]
fn check_refused(content: &[u8], line: usize, fact: &str) {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("tape.jsonl");
    std::fs::write(&path, content).unwrap();
    match Replay::open(&path).err() {
        Some(CassetteError::Malformed { line: found, fact: said, .. }) => {
            assert_eq!(found, line, "{said}");
            assert!(said.contains(fact), "{said}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_no_tape_is_refused_with_the_line() {
    check_refused(b"", 1, "not a cassette");
    check_refused(b"hello\n", 1, "not a cassette");
    check_refused(b"\xff\xfe\x00garbage", 1, "not a cassette");
    check_refused(b"{\"cassette\":99}\n", 1, "newer");
    check_refused(b"{\"cassette\":1}\n{\"key\":1}\n{}\n", 2, "");
    check_refused(b"{\"cassette\":1}\n{\"ke\n{\"cassette\":1}\n", 2, "");
    check_refused(b"{\"cassette\":1}\nnonsense\n", 2, "");
    let missing = Replay::open(Path::new("/nowhere/tape.jsonl")).err();
    assert!(matches!(missing, Some(CassetteError::Io { .. })));
}

#[tokio::test]
async fn a_tape_is_never_overwritten() {
    let (_, path, _folder) = recorded().await;
    let before = std::fs::read(&path).unwrap();
    let refused = Recording::create(&path, "script", scripted("")).err();
    assert!(matches!(refused, Some(CassetteError::Io { .. })), "{refused:?}");
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

#[tokio::test]
async fn a_tape_that_lies_about_tokens_breaks_nothing() {
    let (_, path, _folder) = recorded().await;
    let tape = std::fs::read_to_string(&path).unwrap();
    let lies = tape.lines().map(|line| {
        let mut take: serde_json::Value = serde_json::from_str(line).unwrap();
        if let Some(usage) = take.pointer_mut("/result/Ok/usage") {
            usage["tokens_in"] = u64::MAX.into();
        }
        take.to_string() + "\n"
    });
    let lies = lies.collect::<String>();
    std::fs::write(&path, lies).unwrap();
    let trace = run(&replaying(&path)).await;
    check_end(&trace, StopReason::Answered, Some("68"));
    assert_eq!(trace.summary().tokens.total, u64::MAX);
}
