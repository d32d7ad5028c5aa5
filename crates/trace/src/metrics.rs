//! How well the agents worked together, computed from the events alone.
//!
//! Every metric is absent where it cannot be measured; none is ever made up as zero.

use crate::{AgentStatus, Edge, Event, EventKind, Summary, Trace};
use lemon_spec::AnswerRule;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap, HashSet};

/// The base role whose agents only decide between the results of others.
const JUDGE: &str = "judge";

/// Words in one n-gram of [`Metrics::message_redundancy`].
const GRAM_WORDS: usize = 5;

/// The metrics of one run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Metrics {
    /// How much faster the team was than its calls one after another:
    /// `T_serial / T_parallel`, the sum of all calls' durations over the length of the union of their time spans.
    /// 1: never two at once. Absent if no call took any time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parallel_speedup: Option<f64>,
    /// The share of the run in which at least one agent was working:
    /// length of the union of the calls' time spans over the time of the last event. Absent if no time passed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busy_time: Option<f64>,
    /// The share of finished agents that had a part in the answer: those from whose result a path of delivered messages
    /// and aggregations leads into it (through the orchestrator's review, too, where there were several rounds), over
    /// all that are done. Absent without an answer or without a finished agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub useful_agents: Option<f64>,
    /// How much of what agents told each other had been said before in the run: the share of runs of five words, among
    /// all those in delivered messages, that an earlier place in a delivered message has word for word. Case does not
    /// count. Absent if no message has five words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_redundancy: Option<f64>,
    /// What was spent on working together instead of on working: (tokens of the orchestrator + tokens of judges + tokens
    /// of delivered messages in the prompts that contained them) over all tokens. Absent if none were spent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol_overhead: Option<f64>,
    /// How much likelier an agent is wrong for having read something wrong:
    /// `P(wrong | some parent it read is wrong) / P(wrong | none is)`, over the graded agents all of whose read parents
    /// are graded. Absent without grades, where one of the groups is empty, or where no agent errs in the second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_amplification: Option<f64>,
    /// The length of the run, in events; what was measured after its end is no part of it.
    pub events: u64,
    /// Messages delivered.
    pub messages: u64,
}

impl Trace {
    /// The metrics of the run. `grades` says which agents' answers are right, by id, where they are graded.
    pub fn metrics(&self, grades: Option<&BTreeMap<String, bool>>) -> Metrics {
        let summary = self.summary();
        let calls = calls(&self.events);
        let (serial, parallel) = (calls.iter().map(|(start, end)| end - start).sum(), union_length(calls));
        Metrics {
            parallel_speedup: ratio(serial, parallel),
            busy_time: ratio(parallel, summary.wall_s),
            useful_agents: useful_agents(&self.events, &summary),
            message_redundancy: message_redundancy(&self.events),
            protocol_overhead: protocol_overhead(&self.events, &summary),
            error_amplification: grades.and_then(|grades| error_amplification(&self.events, grades)),
            events: self.events.iter().filter(|event| !event.kind.is_measurement()).count() as u64,
            messages: summary.messages,
        }
    }
}

/// The time spans of the agents' calls. What the cache served was no call.
fn calls(events: &[Event]) -> Vec<(f64, f64)> {
    let mut began = HashMap::new();
    let mut calls = Vec::new();
    for event in events {
        match &event.kind {
            EventKind::Delegate { to, .. } => {
                began.insert(to.as_str(), event.t);
            }
            EventKind::Return { reused, .. } => match began.remove(event.agent.as_str()) {
                Some(start) if !reused && event.t > start => calls.push((start, event.t)),
                _ => {}
            },
            // The end of a call that a crash cut off was never seen.
            EventKind::Resume { .. } => began.clear(),
            _ => {}
        }
    }
    calls
}

/// The length of the time that at least one of the spans covers.
fn union_length(mut spans: Vec<(f64, f64)>) -> f64 {
    spans.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut length = 0.0;
    let mut covered_to = f64::NEG_INFINITY;
    for (start, end) in spans {
        length += (end - start.max(covered_to)).max(0.0);
        covered_to = covered_to.max(end);
    }
    length
}

/// Walks back from the event that made the answer, along everything but messages that were not delivered.
fn useful_agents(events: &[Event], summary: &Summary) -> Option<f64> {
    let has_answer = |event: &&Event| matches!(&event.kind, EventKind::Aggregate { answer: Some(_), .. });
    let answer = events.iter().rfind(has_answer)?;
    let by_id: HashMap<u32, &Event> = events.iter().map(|event| (event.id, event)).collect();
    let mut led_here = HashSet::from([answer.id]);
    let mut ahead = vec![answer];
    while let Some(event) = ahead.pop() {
        let causes = event.edges.iter().filter_map(|Edge { src, .. }| by_id.get(src).copied());
        for cause in causes.filter(|cause| contributes(cause, event)) {
            if led_here.insert(cause.id) {
                ahead.push(cause);
            }
        }
    }
    let is_done = |event: &&Event| matches!(&event.kind, EventKind::Return { status: AgentStatus::Done, .. });
    let useful: HashSet<&str> =
        events.iter().filter(is_done).filter(|event| led_here.contains(&event.id)).map(|e| e.agent.as_str()).collect();
    let done = summary.agents.iter().filter(|agent| agent.status == Some(AgentStatus::Done)).count();
    ratio(useful.len() as f64, done as f64)
}

/// Whether anything of `cause` went into `event`. Of the candidates for `last`, only the chosen one's did.
fn contributes(cause: &Event, event: &Event) -> bool {
    match (&cause.kind, &event.kind) {
        (EventKind::Message { delivered, .. }, _) => *delivered,
        (EventKind::Return { .. }, EventKind::Aggregate { rule: AnswerRule::Last, chosen: Some(chosen), .. }) => {
            cause.agent == *chosen
        }
        _ => true,
    }
}

fn message_redundancy(events: &[Event]) -> Option<f64> {
    let mut seen = HashSet::new();
    let (mut all, mut repeated) = (0_u64, 0_u64);
    for (_, _, content, _) in delivered(events) {
        let words: Vec<String> = content.split_whitespace().map(str::to_lowercase).collect();
        for gram in words.windows(GRAM_WORDS) {
            all += 1;
            repeated += u64::from(!seen.insert(gram.join(" ")));
        }
    }
    ratio(repeated as f64, all as f64)
}

fn protocol_overhead(events: &[Event], summary: &Summary) -> Option<f64> {
    let mut read: HashMap<&str, u64> = HashMap::new();
    for (_, to, _, tokens) in delivered(events) {
        let sum = read.entry(to).or_default();
        *sum = sum.saturating_add(tokens);
    }
    let coordination = |agent: &crate::AgentSummary| match agent.base.as_str() {
        JUDGE => agent.tokens(),
        // Never more than the prompt held: the message was counted by another tokenizer, and a reused reply cost nothing.
        _ => read.get(agent.id.as_str()).copied().unwrap_or(0).min(agent.tokens_in),
    };
    let agents: f64 = summary.agents.iter().map(|agent| coordination(agent) as f64).sum();
    ratio(summary.tokens.orchestrator as f64 + agents, summary.tokens.total as f64)
}

fn error_amplification(events: &[Event], grades: &BTreeMap<String, bool>) -> Option<f64> {
    let mut parents: HashMap<&str, Vec<&str>> = HashMap::new();
    for (from, to, _, _) in delivered(events) {
        parents.entry(to).or_default().push(from);
    }
    // (wrong, all) of the agents that read nothing wrong, and of those that did.
    let mut groups = [(0.0, 0.0); 2];
    for (agent, right) in grades {
        let read: Option<Vec<bool>> =
            parents.get(agent.as_str()).into_iter().flatten().map(|parent| grades.get(*parent).copied()).collect();
        let Some(read) = read else { continue };
        let (wrong, all) = &mut groups[usize::from(read.contains(&false))];
        *wrong += f64::from(u8::from(!right));
        *all += 1.0;
    }
    let [(wrong_alone, alone), (wrong_misled, misled)] = groups;
    ratio(ratio(wrong_misled, misled)?, ratio(wrong_alone, alone)?)
}

/// The messages that were read: from, to, content, tokens.
fn delivered(events: &[Event]) -> impl Iterator<Item = (&str, &str, &str, u64)> {
    events.iter().filter_map(|event| match &event.kind {
        EventKind::Message { from, to, content, tokens, delivered: true, .. } => {
            Some((from.as_str(), to.as_str(), content.as_str(), *tokens))
        }
        _ => None,
    })
}

/// `part / whole`, or nothing where there is no whole to measure by.
fn ratio(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| part / whole).filter(|ratio| ratio.is_finite())
}
