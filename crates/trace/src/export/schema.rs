//! A trace in the published JSON form of orchestration traces.
//!
//! That form has fewer kinds of event than ours. Each goes to its nearest relative and keeps its own name in the extra
//! key `lemon_type`:
//!
//! | ours | theirs |
//! |---|---|
//! | decision, retry, stop | orchestrator_decision |
//! | rejection, budget | safety_event |
//! | delegate, message | message |
//! | resume | human_intervention |
//! | spawn, tool_call, tool_result, return, aggregate | the same |
//! | score, credit | no events but numbers under `rewards` |

use crate::{AgentSummary, Edge, EdgeKind, Event, EventKind, Metrics, ORCHESTRATOR, Summary, Trace};
use serde_json::{Map, Value, json};
use std::collections::HashSet;

/// Whether the texts of an event travel with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Content {
    /// They stay here: an event only says where its content is to be found, in the trace by its number.
    #[default]
    Omitted,
    /// They are in the extra key `content`.
    Included,
}

/// The trace in the published form. It is valid there if the run has an event and its ids are not empty.
pub fn schema(trace: &Trace, content: Content) -> Value {
    let summary = trace.summary();
    json!({
        "trace_id": trace.header.run_id,
        "task_id": trace.header.task_id,
        "system": "lemon",
        "topology": topology(&summary),
        "events": in_the_run(trace).map(|event| event_value(event, &summary, content)).collect::<Vec<_>>(),
        "edges": edges(&trace.events),
        "rewards": rewards(trace),
        "costs": costs(trace, &summary),
        "metrics": metrics(&trace.metrics(None)),
    })
}

fn event_value(event: &Event, summary: &Summary, content: Content) -> Value {
    let mut value = Map::new();
    value.insert("id".into(), name(event.id).into());
    value.insert("t".into(), event.t.max(0.0).into());
    value.insert("type".into(), published_type(&event.kind).into());
    value.insert("lemon_type".into(), event.kind.name().into());
    value.insert("agent".into(), event.agent.as_str().into());
    if let Some(role) = role(event, summary) {
        value.insert("role".into(), role.into());
    }
    let (from, to, tool) = ends(event);
    for (key, end) in [("from", from), ("to", to), ("tool", tool)] {
        if let Some(end) = end {
            value.insert(key.into(), end.into());
        }
    }
    value.insert("content_ref".into(), name(event.id).into());
    if let EventKind::Message { delivered: false, .. } = event.kind {
        value.insert("delivered".into(), false.into());
    }
    if !event.spend.is_zero() {
        value.insert("spend".into(), json!(event.spend));
    }
    if content == Content::Included {
        let mut fields = json!(event.kind);
        if let Some(fields) = fields.as_object_mut() {
            fields.remove("type");
        }
        value.insert("content".into(), fields);
    }
    Value::Object(value)
}

fn name(event: u32) -> String {
    format!("e{event}")
}

fn published_type(kind: &EventKind) -> &'static str {
    match kind {
        EventKind::Decision { .. } | EventKind::Retry { .. } | EventKind::Stop { .. } => "orchestrator_decision",
        EventKind::Rejection { .. } | EventKind::Budget { .. } => "safety_event",
        EventKind::Delegate { .. } | EventKind::Message { .. } => "message",
        EventKind::Resume { .. } | EventKind::Approval { .. } => "human_intervention",
        EventKind::Spawn { .. } => "spawn",
        EventKind::ToolCall { .. } => "tool_call",
        EventKind::ToolResult { .. } => "tool_result",
        EventKind::Return { .. } => "return",
        EventKind::Aggregate { .. } => "aggregate",
        // Not among the events of the run.
        EventKind::Score { .. } | EventKind::Credit { .. } => "orchestrator_decision",
    }
}

/// The base role of the agent an event is about: the customised one is free text, and texts stay here by default.
fn role<'a>(event: &Event, summary: &'a Summary) -> Option<&'a str> {
    let id = match &event.kind {
        EventKind::Spawn { to, .. } => to,
        _ => &event.agent,
    };
    summary.agent(id).map(|agent| agent.base.as_str())
}

/// The sender, the receiver, the tool.
fn ends(event: &Event) -> (Option<&str>, Option<&str>, Option<&str>) {
    match &event.kind {
        EventKind::Spawn { to, .. } => (None, Some(to), None),
        EventKind::Delegate { to, .. } => (Some(ORCHESTRATOR), Some(to), None),
        EventKind::Message { from, to, .. } => (Some(from), Some(to), None),
        EventKind::Return { .. } => (Some(&event.agent), Some(ORCHESTRATOR), None),
        EventKind::ToolCall { tool, .. } | EventKind::ToolResult { tool, .. } | EventKind::Approval { tool, .. } => {
            (None, None, Some(tool))
        }
        _ => (None, None, None),
    }
}

fn edges(events: &[Event]) -> Vec<Value> {
    let known: HashSet<u32> = events.iter().map(|event| event.id).collect();
    let all = events.iter().flat_map(|event| event.edges.iter().map(move |edge| (event, edge)));
    let kept = all.filter(|(_, Edge { src, .. })| known.contains(src));
    kept.map(|(event, edge)| {
        let kind = match (edge.kind, &event.kind) {
            (EdgeKind::Cause, EventKind::ToolCall { .. }) => "tool_dependency",
            (EdgeKind::Cause, _) => "causal",
            (kind, _) => kind.as_str(),
        };
        json!({"src": name(edge.src), "dst": name(event.id), "type": kind})
    })
    .collect()
}

/// The events of the run itself, without what was measured afterwards.
fn in_the_run(trace: &Trace) -> impl Iterator<Item = &Event> {
    trace.events.iter().filter(|event| !event.kind.is_measurement())
}

/// Reward channels by name, and credit by unit, target and family: `credit.agent.check.agent`. What was not measured is
/// not there.
fn rewards(trace: &Trace) -> Map<String, Value> {
    let credit = trace.credit();
    let channels = credit.rewards.iter().map(|(name, value)| ((*name).to_owned(), *value));
    let parts = credit.measured().filter_map(|part| Some((part.name(), part.worth.effect()?)));
    channels.chain(parts).map(|(name, value)| (name, value.into())).collect()
}

fn costs(trace: &Trace, summary: &Summary) -> Value {
    let tool_calls = trace.events.iter().filter(|event| matches!(event.kind, EventKind::ToolCall { .. })).count();
    json!({
        "tokens": summary.tokens.total,
        "wall_clock_s": summary.wall_s,
        "tool_calls": tool_calls,
        "messages": summary.messages,
        "usd": summary.usd,
    })
}

fn metrics(metrics: &Metrics) -> Map<String, Value> {
    let measured = [
        ("parallelism_efficiency", metrics.parallel_speedup),
        ("useful_agent_utilisation", metrics.useful_agents),
        ("busy_time", metrics.busy_time),
        ("message_redundancy", metrics.message_redundancy),
        ("protocol_overhead", metrics.protocol_overhead),
        ("error_amplification", metrics.error_amplification),
    ];
    measured.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?.into()))).collect()
}

/// The shape of the team, by the first of these that fits:
///
/// - `unknown`: there are no agents;
/// - `centralized`: no agent reads another, only the orchestrator brings their results together;
/// - `planner_executor_critic`: there is a planner, a critic and a third agent;
/// - `debate`: at least two agents read the same two or more others;
/// - `hierarchical`: a tree, either way up: no agent reads more than one, or no agent is read by more than one;
/// - `mixed`: anything else.
///
/// Judges are part of how answers are brought together and do not count.
fn topology(summary: &Summary) -> &'static str {
    let agents: Vec<&AgentSummary> = summary.agents.iter().filter(|agent| agent.base != "judge").collect();
    let bases: HashSet<&str> = agents.iter().map(|agent| agent.base.as_str()).collect();
    let mut read: Vec<&str> = agents.iter().flat_map(|agent| &agent.after).map(String::as_str).collect();
    let readings = read.len();
    read.sort_unstable();
    read.dedup();
    let debate = |a: &AgentSummary, b: &AgentSummary| a.after.len() >= 2 && sorted(&a.after) == sorted(&b.after);
    let debaters = agents.iter().enumerate().any(|(place, a)| agents.iter().skip(place + 1).any(|b| debate(a, b)));
    match () {
        () if agents.is_empty() => "unknown",
        () if read.is_empty() => "centralized",
        () if bases.contains("planner") && bases.contains("critic") && bases.len() > 2 => "planner_executor_critic",
        () if debaters => "debate",
        () if agents.iter().all(|agent| agent.after.len() <= 1) || read.len() == readings => "hierarchical",
        () => "mixed",
    }
}

fn sorted(ids: &[String]) -> Vec<&String> {
    let mut ids: Vec<&String> = ids.iter().collect();
    ids.sort_unstable();
    ids
}
