//! Replies cut off at `max_tokens`: they are kept, passed on, and used where nothing better exists.

use crate::common::*;
use lemon_exec::worker::{Reply, Request};
use lemon_exec::{Budget, Runner, Settings};
use lemon_fakes::{Behaviour, ChatRequest, FakeEndpoint, FakeReply};
use lemon_trace::{AgentStatus, EventKind, FailureKind, StopReason, Trace};
use tokio_util::sync::CancellationToken;

const CHAIN: &str = "
agents:
  - {id: first, base: solver, role: First, capacity: small}
  - {id: last, base: critic, role: Last, capacity: small, after: [first]}
";

fn is(request: &ChatRequest, role: &str) -> bool {
    request.last("system").contains(&format!("You are: {role}."))
}

#[track_caller]
fn check_truncated(trace: &Trace, id: &str, truncated: bool) {
    let agent = agent(trace, id);
    assert_eq!((agent.status, agent.truncated, agent.failure), (Some(AgentStatus::Done), truncated, None), "{id}");
}

#[tokio::test]
async fn a_reply_at_its_limit_is_done_and_its_readers_see_it() {
    for stream in [false, true] {
        let cut = FakeReply::Truncated("Eighty times 0.85 is".into());
        let fake = FakeEndpoint::start(Behaviour::function(move |request| match is(request, "First") {
            true => cut.clone(),
            false => FakeReply::Text("Answer: 68".into()),
        }));
        let fake = fake.unwrap();
        let trace = run(&runner(http(&fake, stream), CHAIN)).await;
        check_end(&trace, StopReason::Answered, Some("68"));
        check_truncated(&trace, "first", true);
        check_truncated(&trace, "last", false);
        assert!(!trace.summary().is_answer_truncated());
        let first = agent(&trace, "first");
        assert_eq!((first.reply.as_deref(), first.tokens_out, first.attempts), (Some("Eighty times 0.85 is"), 4, 1));
        let prompt = fake.requests().last().unwrap().body["messages"][1]["content"].as_str().unwrap().to_owned();
        assert!(prompt.contains("Eighty times 0.85 is"), "{prompt}");
    }
}

#[tokio::test]
async fn the_answer_of_a_reply_at_its_limit_says_so_before_and_after_a_crash() {
    let text = "one two three four five";
    let fake = FakeEndpoint::start(Behaviour::text(text)).unwrap();
    let mut runner = runner(http(&fake, true), "agents: [{id: only, base: solver, capacity: small}]");
    runner.backend.levels.iter_mut().for_each(|level| level.max_tokens = 3);
    let trace = run(&runner).await;
    let summary = trace.summary();
    assert_eq!(summary.stop_reason, Some(StopReason::Answered));
    assert!(summary.is_answer_truncated());
    assert_eq!(agent(&trace, "only").reply.as_deref(), Some("one two three"));

    // The process dies before it can say how the run ended.
    let mut dead = trace;
    dead.events.retain(|event| !matches!(event.kind, EventKind::Aggregate { .. } | EventKind::Stop { .. }));
    let resumed = resume(&runner, dead).await;
    assert!(resumed.summary().is_answer_truncated());
    assert_eq!(fake.calls(), 1, "a finished agent is never run again");
}

#[tokio::test]
async fn a_complete_reply_is_preferred() {
    let reply = |request: &Request| -> Result<Reply, _> {
        let text = if request.agent.starts_with("cut") { "Answer: 1" } else { "Answer: 68" };
        Ok(Reply { truncated: request.agent.starts_with("cut"), ..ten(text)? })
    };
    let team = |ids: &[&str], rule: &str| {
        let agent = |id: &&str| format!("  - {{id: {id}, base: solver, capacity: small}}\n");
        let agents: String = ids.iter().map(agent).collect();
        format!("agents:\n{agents}answer: {{from: [{}], by: {rule}}}\n", ids.join(", "))
    };
    for (ids, rule, answer, truncated) in [
        (["cut1", "cut2", "whole"], "vote", "68", false),
        (["whole", "cut1", "cut2"], "last", "68", false),
        (["cut1", "cut2", "cut3"], "vote", "1", true),
        (["cut1", "cut2", "cut3"], "last", "1", true),
    ] {
        let trace = run(&runner(Function::new(reply), &team(&ids, rule))).await;
        check_end(&trace, StopReason::Answered, Some(answer));
        assert_eq!(trace.summary().is_answer_truncated(), truncated, "{ids:?} {rule}");
    }
}

#[tokio::test]
async fn nothing_but_thoughts_up_to_the_limit_is_no_reply() {
    let fake = FakeEndpoint::start(Behaviour::script([FakeReply::Truncated(" ".into())])).unwrap();
    let trace = run(&runner(http(&fake, true), CHAIN)).await;
    let first = agent(&trace, "first");
    assert_eq!((first.status, first.attempts), (Some(AgentStatus::Failed), 1));
    assert_eq!(first.failure.unwrap().kind, FailureKind::Truncated);
}

/// A reply that a tight budget cut short is asked for again when there is more; one at `max_tokens` is not.
#[tokio::test]
async fn only_the_limit_of_the_level_is_remembered() {
    let words = "word ".repeat(400);
    let fake = FakeEndpoint::start(Behaviour::text(words.trim())).unwrap();
    let (store, _folder) = store();
    let mut runner = runner(http(&fake, true), "agents: [{id: only, base: solver, capacity: small}]");
    runner.store = Some(store);
    runner.backend.levels.iter_mut().for_each(|level| level.max_tokens = 300);
    let mut ask = async |tokens: Option<u64>, id: &str| {
        runner.settings = Settings { reuse: true, ..budget(Budget { tokens, ..Budget::default() }) };
        let job = lemon_exec::Job { run_id: id.into(), ..job() };
        let trace = runner.run(&job, &CancellationToken::new(), None).await.unwrap();
        (agent(&trace, "only"), fake.calls())
    };
    let (tight, calls) = ask(Some(400), "tight").await;
    assert!(tight.truncated && tight.tokens_out < 300 && calls == 1, "{tight:?}");
    let (full, calls) = ask(None, "full").await;
    assert_eq!((full.truncated, full.tokens_out, full.reused, calls), (true, 300, false, 2));
    let (again, calls) = ask(None, "again").await;
    assert_eq!((again.truncated, again.reused, calls), (true, true, 2));
}

fn answers_in_parts() -> FakeEndpoint {
    FakeEndpoint::start(Behaviour::function(|request: &ChatRequest| match request.last("assistant") {
        "" => FakeReply::Truncated("one two".into()),
        "one two" => FakeReply::Truncated(" three four".into()),
        "one two three four" => FakeReply::Text(" five.".into()),
        other => FakeReply::Text(format!(" unexpected {other:?}")),
    }))
    .unwrap()
}

#[tokio::test]
async fn an_agent_goes_on_where_it_stopped() {
    let fake = answers_in_parts();
    let (store, _folder) = store();
    let mut runner = runner(http(&fake, true), "agents: [{id: only, base: solver, capacity: small}]");
    runner.store = Some(store.clone());
    let go_on = async |trace| runner.go_on(trace, &job().meta, &CancellationToken::new(), None).await.unwrap();
    let first = run(&runner).await;
    let second = go_on(first.clone()).await;
    assert_eq!(agent(&second, "only").reply.as_deref(), Some("one two three four"));
    assert!(second.summary().is_answer_truncated());
    let third = go_on(store.trace("run1").unwrap()).await;
    let only = agent(&third, "only");
    assert_eq!((only.reply.as_deref(), only.truncated), (Some("one two three four five."), false));
    let summary = third.summary();
    assert_eq!((summary.stop_reason, summary.is_answer_truncated()), (Some(StopReason::Answered), false));
    assert_eq!((summary.calls, fake.calls()), (3, 3));
    let last = fake.requests().pop().unwrap().body;
    let roles: Vec<&str> = last["messages"].as_array().unwrap().iter().map(|it| it["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["system", "user", "assistant", "user"]);

    // A complete answer is left as it is, and so is one that cannot go on.
    assert_eq!(go_on(third.clone()).await, third);
    assert_eq!(store.trace("run1").unwrap(), third);
    let mut stopped = fake;
    stopped.stop();
    let runner = Runner { store: None, ..runner };
    let failed = runner.go_on(first, &job().meta, &CancellationToken::new(), None).await.unwrap();
    assert_eq!(agent(&failed, "only").reply.as_deref(), Some("one two"));
    assert!(failed.summary().is_answer_truncated());
}
