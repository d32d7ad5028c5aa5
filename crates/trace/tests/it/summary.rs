//! Summaries and metrics of sample runs, whole and cut.

use lemon_spec::{AnswerRule, Share};
use lemon_trace::{
    AgentStatus, Candidate, Edge, EdgeKind, Event, EventKind, Header, Metrics, ORCHESTRATOR, Spend, StopReason, Trace,
    VERSION, sample,
};
use proptest::prelude::*;
use std::collections::BTreeMap;

#[test]
fn two_rounds_with_everything() {
    let summary = sample::eight().summary();
    assert_eq!(summary.answer.as_deref(), Some("246"));
    assert_eq!(summary.stop_reason, Some(StopReason::Answered));
    assert_eq!(summary.rounds, 2);
    let by_status = |status| summary.agents.iter().filter(|agent| agent.status == Some(status)).count();
    assert_eq!(by_status(AgentStatus::Done), 7);
    let status = |id: &str| summary.agent(id).and_then(|agent| agent.status);
    assert_eq!(status("criticise"), Some(AgentStatus::Failed));
    assert_eq!(status("mend"), Some(AgentStatus::Skipped));
    let retried = summary.agent("solve_c").unwrap();
    assert_eq!((retried.attempts, retried.level, retried.after.as_slice()), (2, 2, &["plan".to_owned()][..]));
    // Three texts, six agents done at the first attempt, one at the second, one that failed twice.
    assert_eq!(summary.calls, 3 + 6 + 2 + 2);
    assert_eq!(summary.tokens.total, summary.tokens.orchestrator + summary.tokens.workers);
    assert!(summary.tokens.failed > 0);
    assert_eq!(summary.agent("judge").map(|agent| agent.round), Some(2));
}

#[test]
fn a_resumed_run_has_not_ended() {
    let mut trace = sample::three();
    trace.events.truncate(9);
    let before = trace.summary();
    assert_eq!((before.stop_reason, before.agent("check").unwrap().attempts), (None, 1));
    push(&mut trace, ORCHESTRATOR, 9.0, EventKind::Stop { reason: StopReason::Cancelled, answer: None }, &[]);
    assert_eq!(trace.summary().stop_reason, Some(StopReason::Cancelled));
    push(&mut trace, ORCHESTRATOR, 9.5, EventKind::Resume { finished: 1, lost_tokens: 70 }, &[]);
    let after = trace.summary();
    assert_eq!(after.stop_reason, None);
    assert_eq!(after.agent("check").unwrap().started, None, "it waits again");
    assert_eq!(after.agent("solve").unwrap().status, Some(AgentStatus::Done));
    assert_eq!(after.tokens.workers, before.tokens.workers + 70);
    assert_eq!(after.tokens.failed, before.tokens.failed + 70);
    assert_eq!(after.wall_s, 9.5);
}

#[test]
fn an_agent_still_running() {
    let mut trace = sample::three();
    trace.events.truncate(6);
    let summary = trace.summary();
    let agent = summary.agent("solve").unwrap();
    assert_eq!((agent.status, agent.attempts), (None, 1));
    assert_eq!((agent.started, agent.seconds), (Some(summary.wall_s), 0.0));
    assert_eq!(summary.agent("check").unwrap().started, None);
}

#[test]
fn an_empty_trace() {
    let mut trace = sample::three();
    trace.events.clear();
    let summary = trace.summary();
    assert_eq!((summary.rounds, summary.calls, summary.agents.len(), summary.wall_s), (0, 0, 0, 0.0));
    assert_eq!(trace.metrics(None), Metrics::default());
}

#[test]
fn absurd_numbers_do_not_overflow() {
    let mut trace = sample::three();
    for event in &mut trace.events {
        event.spend =
            Spend { tokens_in: u64::MAX, tokens_out: u64::MAX, usd: f64::MAX, seconds: f64::MAX, counted: true };
        event.t = f64::MAX;
    }
    assert_eq!(trace.summary().tokens.total, u64::MAX);
    assert_eq!(trace.metrics(None).parallel_speedup, None);
    assert!(trace.show().contains("answered"));
}

/// Two workers at once for 4 and 2 seconds, then a reader for 2: `8 / 6`.
#[test]
fn metrics_by_hand() {
    let trace = diamond("the sum of both parts is six apples", "the sum of both parts is seven apples");
    let metrics = trace.metrics(None);
    assert_eq!(metrics.parallel_speedup, Some(8.0 / 6.0));
    assert_eq!(metrics.busy_time, Some(6.0 / 8.0));
    // `a` and `c` lead into the answer; `b`'s message was withheld.
    assert_eq!(metrics.useful_agents, Some(2.0 / 3.0));
    // Only `a`'s message was delivered: nothing repeats.
    assert_eq!(metrics.message_redundancy, Some(0.0));
    // The orchestrator's 100 and the 10 of the message, of 100 + 3 * 50.
    assert_eq!(metrics.protocol_overhead, Some(110.0 / 250.0));
    assert_eq!((metrics.error_amplification, metrics.messages), (None, 1));
}

#[test]
fn repeated_words_are_counted_once_said() {
    let check = |a: &str, b: &str, expected: Option<f64>| {
        let mut trace = diamond(a, b);
        deliver_all(&mut trace);
        assert_eq!(trace.metrics(None).message_redundancy, expected, "{a} / {b}");
    };
    check("one two three four", "one two three four", None);
    check("one two three four five", "One  two THREE four\nfive", Some(0.5));
    check("one two three four five six", "two three four five six seven", Some(0.25));
    check("one two three four five", "five four three two one", Some(0.0));
}

#[test]
fn errors_amplify_only_where_graded() {
    let mut trace = diamond("x", "y");
    deliver_all(&mut trace);
    let check = |grades: &[(&str, bool)], expected: Option<f64>| {
        let grades: BTreeMap<String, bool> = grades.iter().map(|(id, right)| ((*id).into(), *right)).collect();
        assert_eq!(trace.metrics(Some(&grades)).error_amplification, expected, "{grades:?}");
    };
    // `c` read the wrong `a` and is wrong: 1; of `a` and `b` half are wrong: 1 / 2.
    check(&[("a", false), ("b", true), ("c", false)], Some(2.0));
    check(&[("a", false), ("b", true), ("c", true)], Some(0.0));
    check(&[("a", true), ("b", true), ("c", false)], None);
    check(&[("a", false), ("c", false)], None);
    check(&[], None);
}

#[test]
fn only_the_chosen_one_of_the_last_is_useful() {
    let check = |rule: AnswerRule, expected: f64| {
        let mut trace = sample::eight();
        trace.events.retain(|event| event.id < last_of(&sample::eight(), "decision"));
        let aggregate = trace.events.iter_mut().find_map(|event| match &mut event.kind {
            EventKind::Aggregate { rule, .. } => Some(rule),
            _ => None,
        });
        *aggregate.unwrap() = rule;
        assert_eq!(trace.metrics(None).useful_agents, Some(expected));
    };
    check(AnswerRule::Vote, 1.0);
    check(AnswerRule::Last, 0.5);
}

proptest! {
    #[test]
    fn metrics_stay_in_range(seed: u64) {
        let trace = sample::random(seed);
        let metrics = trace.metrics(None);
        prop_assert!(metrics.parallel_speedup.is_none_or(|x| x > 1.0 - 1e-9));
        for share in [metrics.busy_time, metrics.useful_agents, metrics.message_redundancy, metrics.protocol_overhead] {
            prop_assert!(share.is_none_or(|x| (0.0..=1.0 + 1e-9).contains(&x)), "{metrics:?}");
        }
        prop_assert_eq!(metrics.events as usize, trace.events.len());
    }

    #[test]
    fn agents_account_for_all_worker_tokens(seed: u64) {
        let summary = sample::random(seed).summary();
        prop_assert_eq!(summary.agents.iter().map(|agent| agent.tokens()).sum::<u64>(), summary.tokens.workers);
        prop_assert!(summary.tokens.failed <= summary.tokens.total);
    }

    /// Wherever a trace is cut, what it says only grows.
    #[test]
    fn prefixes_never_say_more(seed: u64, cut in 0.0..1.0) {
        let whole = sample::random(seed);
        let mut part = whole.clone();
        part.events.truncate((whole.events.len() as f64 * cut) as usize);
        let (whole, part) = (whole.summary(), part.summary());
        prop_assert!(part.tokens.total <= whole.tokens.total);
        prop_assert!(part.agents.len() <= whole.agents.len());
        prop_assert!(part.wall_s <= whole.wall_s && part.messages <= whole.messages && part.rounds <= whole.rounds);
    }
}

/// `a` and `b` at once, `c` reads `a`'s message; that of `b` is withheld.
fn diamond(said_by_a: &str, said_by_b: &str) -> Trace {
    let header = Header {
        version: VERSION,
        run_id: "r".into(),
        task_id: "t".into(),
        question: "?".into(),
        started_at_ms: 0,
        seed: 0,
        workers: "scripted".into(),
    };
    let mut trace = Trace { header, events: Vec::new() };
    let decision =
        EventKind::Decision { round: 1, by: "fixed".into(), model: None, text: String::new(), written: None };
    push(&mut trace, ORCHESTRATOR, 1.0, decision, &[]);
    trace.events[0].spend.tokens_in = 100;
    for id in ["a", "b", "c"] {
        let after = if id == "c" { vec!["a".into(), "b".into()] } else { vec![] };
        let (to, base, role, capacity) = (id.into(), "solver".into(), "Solver".into(), "small".into());
        let spawn = EventKind::Spawn { to, round: 1, base, role, capacity, level: 0, after };
        push(&mut trace, ORCHESTRATOR, 1.0, spawn, &[(1, EdgeKind::Spawn)]);
    }
    delegate(&mut trace, "a", 1.0, &[(2, EdgeKind::Cause)]);
    delegate(&mut trace, "b", 1.0, &[(3, EdgeKind::Cause)]);
    reply(&mut trace, "b", 3.0, said_by_b, 6);
    reply(&mut trace, "a", 5.0, said_by_a, 5);
    for (from, content, delivered, src) in [("a", said_by_a, true, 8), ("b", said_by_b, false, 7)] {
        let (from, to, content) = (from.into(), "c".into(), content.into());
        let message = EventKind::Message { from, to, share: Share::Reply, content, tokens: 10, delivered };
        push(&mut trace, "a", 6.0, message, &[(src, EdgeKind::Message)]);
    }
    delegate(&mut trace, "c", 6.0, &[(4, EdgeKind::Cause), (9, EdgeKind::Message)]);
    reply(&mut trace, "c", 8.0, "13", 11);
    let aggregate = EventKind::Aggregate {
        round: 1,
        rule: AnswerRule::Last,
        candidates: vec![Candidate { agent: "c".into(), answer: "13".into() }],
        chosen: Some("c".into()),
        answer: Some("13".into()),
    };
    push(&mut trace, ORCHESTRATOR, 8.0, aggregate, &[(12, EdgeKind::Aggregate)]);
    trace
}

fn deliver_all(trace: &mut Trace) {
    for event in &mut trace.events {
        if let EventKind::Message { delivered, .. } = &mut event.kind {
            *delivered = true;
        }
    }
}

fn delegate(trace: &mut Trace, to: &str, t: f64, edges: &[(u32, EdgeKind)]) {
    push(trace, ORCHESTRATOR, t, EventKind::Delegate { to: to.into(), duty: "Solve.".into(), reserved: 64 }, edges);
}

fn reply(trace: &mut Trace, agent: &str, t: f64, reply: &str, asked: u32) {
    let kind = EventKind::Return {
        status: AgentStatus::Done,
        reply: Some(reply.into()),
        answer: Some(reply.into()),
        failure: None,
        model: Some("m".into()),
        confidence: Some(0.5),
        truncated: false,
        attempts: 1,
        reused: false,
        saved: None,
    };
    push(trace, agent, t, kind, &[(asked, EdgeKind::Return)]);
    let spend = &mut trace.events.last_mut().unwrap().spend;
    (spend.tokens_in, spend.tokens_out) = (40, 10);
}

fn push(trace: &mut Trace, agent: &str, t: f64, kind: EventKind, edges: &[(u32, EdgeKind)]) {
    let id = trace.events.len() as u32 + 1;
    let edges = edges.iter().map(|(src, kind)| Edge { src: *src, kind: *kind }).collect();
    trace.events.push(Event { id, t, agent: agent.into(), kind, spend: Spend::default(), edges });
}

fn last_of(trace: &Trace, kind: &str) -> u32 {
    trace.events.iter().rfind(|event| event.kind.name() == kind).unwrap().id
}
