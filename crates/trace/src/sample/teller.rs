//! Tells a sample run, event by event.

use super::{Dice, Fate, Member, Round, member};
use crate::{
    AgentStatus, Candidate, Edge, EdgeKind, Event, EventKind, Failure, FailureKind, Header, ORCHESTRATOR, Spend,
    StopReason, Trace, VERSION,
};
use lemon_num::splitmix;
use lemon_spec::{AnswerRule, Code, Diagnostic, Severity, Share, Span};
use std::collections::{HashMap, HashSet};

const CAPACITIES: [&str; 3] = ["small", "medium", "large"];
const MODELS: [&str; 3] = ["qwen-7b", "qwen-14b", "qwen-32b"];

pub(super) fn write(seed: u64, question: &str, rounds: &[Round]) -> Trace {
    let header = Header {
        version: VERSION,
        run_id: format!("run-{seed}"),
        task_id: format!("task-{seed}"),
        question: question.into(),
        started_at_ms: 1_767_225_600_000 + seed % 1_000_000,
        seed,
        workers: "scripted".into(),
    };
    let trace = Trace { header, events: Vec::new() };
    let mut teller = Teller { dice: Dice(splitmix(seed)), trace, t: 0.0, ends: HashMap::new() };
    let mut last = None;
    for (number, round) in (1..).zip(rounds) {
        last = teller.round(number, round, last);
    }
    teller.stop(last);
    teller.trace
}

/// How an agent ended: its return, when, and what it said.
struct End {
    event: u32,
    t: f64,
    status: AgentStatus,
    reply: String,
    answer: String,
}

enum Step {
    Begin,
    Retry,
    End,
}

/// Writes events in the executor's order.
struct Teller {
    dice: Dice,
    trace: Trace,
    t: f64,
    ends: HashMap<String, End>,
}

impl Teller {
    fn round(&mut self, number: u32, round: &Round, last: Option<u32>) -> Option<u32> {
        let decision = self.decide(number, round, last);
        let judge = (round.rule == AnswerRule::Judge).then(|| {
            let from: Vec<&str> = round.from.iter().map(String::as_str).collect();
            let answer = round.members.last().map_or("", |member| &member.answer);
            member("judge", "judge", "Judge", "Read the results and decide.", 2, &from, answer)
        });
        let members: Vec<&Member> = round.members.iter().chain(&judge).collect();
        let spawns: Vec<u32> = members.iter().map(|member| self.spawn(number, member, decision)).collect();
        let mut delegates = HashMap::new();
        for (t, place, step) in self.schedule(&members) {
            self.t = t;
            let (member, spawn) = (members[place], spawns[place]);
            match step {
                Step::Begin => {
                    delegates.insert(place, self.begin(round, member, spawn));
                }
                Step::Retry => {
                    let failure = failure(FailureKind::RateLimited, "429: too many requests, slow down");
                    let kind = EventKind::Retry { attempt: 1, failure, wait_s: 0.5 };
                    let spend = Spend { tokens_in: 40 + self.dice.below(60) as u64, ..Spend::default() };
                    let edge = Edge { src: delegates[&place], kind: EdgeKind::Cause };
                    delegates.insert(place, self.push(&member.id, kind, spend, vec![edge]));
                }
                Step::End => self.end(member, spawn, delegates.get(&place).copied()),
            }
        }
        self.aggregate(number, round, judge.as_ref())
    }

    fn decide(&mut self, number: u32, round: &Round, last: Option<u32>) -> u32 {
        let mut edges: Vec<Edge> = last.map(|src| Edge { src, kind: EdgeKind::Cause }).into_iter().collect();
        let text = yaml(round);
        let model = Some("orchestrator-7b".to_owned());
        let by = |by: &str, text: String| EventKind::Decision {
            round: number,
            by: by.into(),
            model: model.clone(),
            text,
            written: None,
        };
        self.ask_orchestrator(number);
        if round.rejected_first {
            let spend = self.spend(420, 35, 1.1);
            let written = self.push(ORCHESTRATOR, by("prompted", "agents: [".into()), spend, edges);
            let rejection = EventKind::Rejection { round: number, diagnostics: vec![fault()], failure: None };
            let cause = vec![Edge { src: written, kind: EdgeKind::Cause }];
            let rejection = self.push(ORCHESTRATOR, rejection, Spend::default(), cause);
            edges = vec![Edge { src: rejection, kind: EdgeKind::Cause }];
            self.ask_orchestrator(number);
        }
        let spend = self.spend(510, text.len() as u64 / 4, 1.8);
        self.push(ORCHESTRATOR, by(if round.rejected_first { "repair" } else { "prompted" }, text), spend, edges)
    }

    fn ask_orchestrator(&mut self, round: u32) {
        let duty = format!("write round {round}");
        let kind = EventKind::Delegate { to: ORCHESTRATOR.into(), duty, reserved: 4096 };
        self.push(ORCHESTRATOR, kind, Spend::default(), Vec::new());
    }

    fn spawn(&mut self, round: u32, member: &Member, decision: u32) -> u32 {
        let kind = EventKind::Spawn {
            to: member.id.clone(),
            round,
            base: member.base.into(),
            role: member.role.clone(),
            capacity: CAPACITIES[member.level].into(),
            level: member.level,
            after: member.after.clone(),
        };
        self.push(ORCHESTRATOR, kind, Spend::default(), vec![Edge { src: decision, kind: EdgeKind::Spawn }])
    }

    /// When each agent begins, retries and ends. An agent with a failed parent ends without having begun.
    fn schedule(&mut self, members: &[&Member]) -> Vec<(f64, usize, Step)> {
        let mut steps = Vec::new();
        let mut ended: HashMap<&str, f64> = HashMap::new();
        let mut lost: HashSet<&str> = HashSet::new();
        for (place, member) in members.iter().enumerate() {
            let parents = member.after.iter().map(String::as_str);
            let ready = parents.clone().filter_map(|id| ended.get(id)).fold(self.t, |a, b| a.max(*b)) + 0.01;
            let skipped = member.base != "judge" && parents.clone().any(|id| lost.contains(id));
            let seconds = match (skipped, member.fate) {
                (true, _) | (_, Fate::Reused) => 0.0,
                _ => round6(0.6 + 0.9 * member.level as f64 + self.dice.below(2000) as f64 / 1000.0),
            };
            if !skipped {
                steps.push((ready, place, Step::Begin));
                if matches!(member.fate, Fate::Retried | Fate::Failed) {
                    steps.push((ready + 0.4 * seconds, place, Step::Retry));
                }
            }
            steps.push((ready + seconds, place, Step::End));
            ended.insert(&member.id, ready + seconds);
            if skipped || member.fate == Fate::Failed {
                lost.insert(&member.id);
            }
        }
        steps.sort_by(|a, b| a.0.total_cmp(&b.0));
        steps
    }

    fn begin(&mut self, round: &Round, member: &Member, spawn: u32) -> u32 {
        let mut edges = vec![Edge { src: spawn, kind: EdgeKind::Cause }];
        for parent in &member.after {
            let Some(end) = self.ends.get(parent).filter(|end| end.status == AgentStatus::Done) else { continue };
            let share = round.members.iter().find(|m| m.id == *parent).map_or(Share::Reply, |m| m.share);
            let content = if share == Share::Reply { end.reply.clone() } else { end.answer.clone() };
            let delivered = !round.withheld.iter().any(|(from, to)| from == parent && *to == member.id);
            let made_of = vec![Edge { src: end.event, kind: EdgeKind::Message }];
            let tokens = 1 + content.len() as u64 / 4;
            let (from, to) = (parent.clone(), member.id.clone());
            let kind = EventKind::Message { from, to, share, content, tokens, delivered };
            let src = self.push(parent, kind, Spend::default(), made_of);
            if delivered {
                edges.push(Edge { src, kind: EdgeKind::Message });
            }
        }
        let reserved = if member.fate == Fate::Reused { 0 } else { 2048 };
        let kind = EventKind::Delegate { to: member.id.clone(), duty: member.duty.clone(), reserved };
        self.push(ORCHESTRATOR, kind, Spend::default(), edges)
    }

    fn end(&mut self, member: &Member, spawn: u32, asked: Option<u32>) {
        let status = match (asked, member.fate) {
            (None, _) => AgentStatus::Skipped,
            (_, Fate::Failed) => AgentStatus::Failed,
            _ => AgentStatus::Done,
        };
        let done = status == AgentStatus::Done;
        let reused = done && member.fate == Fate::Reused;
        let reply = format!(
            "As {}, I went through the task step by step.\n\n1. {}\n2. I compared the result with what I was given and \
             found it consistent.\n\nThe answer is {}.",
            member.role, member.duty, member.answer
        );
        let kind = EventKind::Return {
            status,
            reply: done.then(|| reply.clone()),
            answer: done.then(|| member.answer.clone()),
            failure: match status {
                AgentStatus::Done => None,
                AgentStatus::Skipped => Some(failure(FailureKind::ParentFailed, "an agent it reads has failed")),
                _ => Some(failure(FailureKind::ServerError, "503: the model is overloaded")),
            },
            model: done.then(|| MODELS[member.level].to_owned()),
            confidence: None,
            truncated: false,
            attempts: match member.fate {
                _ if asked.is_none() || reused => 0,
                Fate::Retried | Fate::Failed => 2,
                _ => 1,
            },
            reused,
            saved: None,
        };
        let spend = match (status, reused) {
            (AgentStatus::Done, false) => {
                let tokens_in = 180 + 90 * member.after.len() as u64 + self.dice.below(120) as u64;
                let tokens_out = 60 + 120 * member.level as u64 + self.dice.below(140) as u64;
                let usd = (tokens_in + 4 * tokens_out) as f64 * (1 + 3 * member.level) as f64 * 1e-7;
                Spend { tokens_in, tokens_out, usd: round6(usd), ..Spend::default() }
            }
            _ => Spend::default(),
        };
        let begun = asked.and_then(|id| self.begun(id));
        let spend = Spend { seconds: begun.map_or(0.0, |t| round6(self.t - t)), ..spend };
        let edge = match asked {
            Some(src) => Edge { src, kind: EdgeKind::Return },
            None => Edge { src: spawn, kind: EdgeKind::Cause },
        };
        let event = self.push(&member.id, kind, spend, vec![edge]);
        let end = End { event, t: self.t, status, reply, answer: member.answer.clone() };
        self.ends.insert(member.id.clone(), end);
    }

    /// When the call began whose delegation or retry this is.
    fn begun(&self, id: u32) -> Option<f64> {
        let event = self.trace.events.get(id as usize - 1)?;
        match event.kind {
            EventKind::Retry { .. } => self.begun(event.edges.first()?.src),
            _ => Some(event.t),
        }
    }

    fn aggregate(&mut self, number: u32, round: &Round, judge: Option<&Member>) -> Option<u32> {
        self.t = self.ends.values().map(|end| end.t).fold(self.t, f64::max);
        let is_done = |id: &&str| self.ends[*id].status == AgentStatus::Done;
        let done: Vec<&str> = round.from.iter().map(String::as_str).filter(is_done).collect();
        let candidate = |id: &&str| Candidate { agent: (*id).into(), answer: self.ends[*id].answer.clone() };
        let candidates: Vec<Candidate> = done.iter().map(candidate).collect();
        // A judge is not among the candidates, but its verdict leads here too.
        let judge = judge.map(|judge| judge.id.as_str()).filter(is_done);
        let verdict = judge.as_ref().map(candidate);
        let votes = |of: &&Candidate| candidates.iter().filter(|other| other.answer == of.answer).count();
        let chosen = match round.rule {
            AnswerRule::Vote => candidates.iter().rev().max_by_key(votes),
            _ => verdict.as_ref().or(candidates.last()),
        };
        let edge = |id: &str| Edge { src: self.ends[id].event, kind: EdgeKind::Aggregate };
        let edges = done.iter().copied().chain(judge).map(edge).collect();
        let kind = EventKind::Aggregate {
            round: number,
            rule: round.rule,
            chosen: chosen.map(|candidate| candidate.agent.clone()),
            answer: chosen.map(|candidate| candidate.answer.clone()),
            candidates,
        };
        Some(self.push(ORCHESTRATOR, kind, Spend::default(), edges))
    }

    fn stop(&mut self, last: Option<u32>) {
        let answer = self.trace.events.iter().rev().find_map(|event| match &event.kind {
            EventKind::Aggregate { answer, .. } => answer.clone(),
            _ => None,
        });
        let reason = if answer.is_some() { StopReason::Answered } else { StopReason::AllAgentsFailed };
        let edges = last.map(|src| Edge { src, kind: EdgeKind::Cause }).into_iter().collect();
        self.push(ORCHESTRATOR, EventKind::Stop { reason, answer }, Spend::default(), edges);
    }

    fn spend(&mut self, tokens_in: u64, tokens_out: u64, seconds: f64) -> Spend {
        self.t += seconds;
        let usd = round6((tokens_in + 4 * tokens_out) as f64 * 2e-7);
        Spend { tokens_in, tokens_out, usd, seconds, counted: false }
    }

    fn push(&mut self, agent: &str, kind: EventKind, spend: Spend, edges: Vec<Edge>) -> u32 {
        let id = self.trace.events.len() as u32 + 1;
        self.trace.events.push(Event { id, t: round6(self.t), agent: agent.into(), kind, spend, edges });
        id
    }
}

fn failure(kind: FailureKind, message: &str) -> Failure {
    Failure { kind, message: message.into() }
}

fn fault() -> Diagnostic {
    Diagnostic {
        code: Code::Syntax,
        severity: Severity::Error,
        line: 1,
        column: 10,
        span: Span { start: 9, end: 9 },
        message: "the list is not closed".into(),
        hint: Some("end it with `]`".into()),
    }
}

fn round6(x: f64) -> f64 {
    (x * 1e6).round() / 1e6
}

fn yaml(round: &Round) -> String {
    let mut text = String::from("agents:\n");
    for member in &round.members {
        let Member { id, base, role, duty, level, after, .. } = member;
        let share = if member.share == Share::Reply { "reply" } else { "answer" };
        let (capacity, after) = (CAPACITIES[*level], after.join(", "));
        text.push_str(&format!("  - id: {id}\n    base: {base}\n    role: {role}\n    duty: {duty}\n"));
        text.push_str(&format!("    capacity: {capacity}\n    after: [{after}]\n    share: {share}\n"));
    }
    let by = format!("{:?}", round.rule).to_lowercase();
    let next = if round.review { "review" } else { "stop" };
    text.push_str(&format!("answer: {{from: [{}], by: {by}}}\nnext: {next}\n", round.from.join(", ")));
    text
}
