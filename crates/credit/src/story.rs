//! Small runs for the tests, told agent by agent.

use lemon_spec::{AnswerRule, Share};
use lemon_trace::{
    AgentStatus, Candidate, Event, EventKind, Failure, FailureKind, Header, ORCHESTRATOR, Spend, StopReason, Trace,
    VERSION,
};

/// What an agent of a story is.
pub struct StoryPart<'a> {
    pub id: &'a str,
    pub base: &'a str,
    pub level: usize,
    pub after: &'a [&'a str],
    /// `None`: its call fails.
    pub answer: Option<&'a str>,
}

/// An agent of the weakest capacity.
pub fn part<'a>(id: &'a str, base: &'a str, after: &'a [&'a str], answer: &'a str) -> StoryPart<'a> {
    StoryPart { id, base, level: 0, after, answer: Some(answer) }
}

/// One round of these agents, one second and 100 tokens each, one after another. The answer is the last of `from`.
pub fn tell(parts: &[StoryPart], from: &[&str]) -> Trace {
    let mut trace = begin();
    round(&mut trace, 1, parts, from);
    stop(&mut trace);
    trace
}

pub fn begin() -> Trace {
    let header = Header {
        version: VERSION,
        run_id: "run".into(),
        task_id: "task".into(),
        question: "?".into(),
        started_at_ms: 0,
        seed: 0,
        workers: "scripted".into(),
    };
    Trace { header, events: Vec::new() }
}

pub fn round(trace: &mut Trace, round: u32, parts: &[StoryPart], from: &[&str]) {
    decide(trace, round, "fixed");
    for part in parts {
        let kind = EventKind::Spawn {
            to: part.id.into(),
            round,
            base: part.base.into(),
            role: part.base.into(),
            capacity: part.level.to_string(),
            level: part.level,
            after: part.after.iter().map(ToString::to_string).collect(),
        };
        push(trace, ORCHESTRATOR, kind);
    }
    parts.iter().for_each(|part| ask(trace, part));
    aggregate(trace, round, from);
}

pub fn decide(trace: &mut Trace, round: u32, by: &str) {
    let text = "agents: []".into();
    push(trace, ORCHESTRATOR, EventKind::Decision { round, by: by.into(), model: None, text, written: None });
}

pub fn push<'a>(trace: &'a mut Trace, agent: &str, kind: EventKind) -> &'a mut Event {
    let id = trace.events.len() as u32 + 1;
    let t = trace.events.last().map_or(0.0, |event| event.t);
    trace.events.push(Event { id, t, agent: agent.into(), kind, spend: Spend::default(), edges: Vec::new() });
    trace.events.last_mut().unwrap()
}

pub fn failure() -> Failure {
    Failure { kind: FailureKind::Timeout, message: "nothing came".into() }
}

pub fn stop(trace: &mut Trace) {
    let answer = trace.events.iter().rev().find_map(|event| match &event.kind {
        EventKind::Aggregate { answer, .. } => answer.clone(),
        _ => None,
    });
    let reason = if answer.is_some() { StopReason::Answered } else { StopReason::Rejected };
    push(trace, ORCHESTRATOR, EventKind::Stop { reason, answer });
}

fn ask(trace: &mut Trace, part: &StoryPart) {
    for parent in part.after {
        let Some(content) = trace.summary().agent(parent).and_then(|parent| parent.reply.clone()) else { continue };
        let (from, to) = ((*parent).into(), part.id.into());
        push(trace, parent, EventKind::Message { from, to, share: Share::Reply, content, tokens: 1, delivered: true });
    }
    push(trace, part.id, EventKind::Delegate { to: part.id.into(), duty: "do".into(), reserved: 1 });
    let kind = EventKind::Return {
        status: if part.answer.is_some() { AgentStatus::Done } else { AgentStatus::Failed },
        reply: part.answer.map(|answer| format!("I say {answer}")),
        answer: part.answer.map(str::to_owned),
        failure: part.answer.is_none().then(failure),
        model: None,
        confidence: None,
        truncated: false,
        attempts: 1,
        reused: false,
        saved: None,
    };
    let event = push(trace, part.id, kind);
    event.t += 1.0;
    event.spend = Spend { tokens_in: 60, tokens_out: 40, ..Spend::default() };
}

fn aggregate(trace: &mut Trace, round: u32, from: &[&str]) {
    let summary = trace.summary();
    let answer_of = |id: &str| summary.agent(id).and_then(|agent| agent.answer.clone());
    let candidate = |id: &&str| Some(Candidate { agent: (*id).into(), answer: answer_of(id)? });
    let candidates: Vec<Candidate> = from.iter().filter_map(candidate).collect();
    let (chosen, answer) = candidates.last().map(|last| (last.agent.clone(), last.answer.clone())).unzip();
    push(trace, ORCHESTRATOR, EventKind::Aggregate { round, rule: AnswerRule::Last, candidates, chosen, answer });
}
