//! One plain line for each thing worth telling.

use crate::one_line;
use lemon_trace::{AgentStatus, Event, EventKind, ORCHESTRATOR};

/// That a team is being written.
pub fn writing(t: f64) -> String {
    format!("{t:8.2} s  writing the team…")
}

/// The line for an event, if it is worth one: that a team is being written is said once.
pub fn line(event: &Event, was_writing: bool) -> Option<String> {
    let t = event.t;
    let agent = &event.agent;
    let text = match &event.kind {
        // What models write is canonical.
        EventKind::Decision { round, by, text, .. } if text.starts_with("agents: []") => {
            format!("round {round}: stop ({by})")
        }
        EventKind::Decision { round, by, .. } => format!("round {round}: the team is written ({by})"),
        EventKind::Rejection { diagnostics, failure, .. } => match failure {
            Some(failure) => format!("no specification: {}", failure.message),
            None if diagnostics.len() == 1 => "the specification is refused: 1 fault".into(),
            None => format!("the specification is refused: {} faults", diagnostics.len()),
        },
        EventKind::Spawn { to, role, capacity, after, .. } => {
            let reads = if after.is_empty() { String::new() } else { format!(", reads {}", after.join(", ")) };
            format!("{to}: {} ({capacity}){reads}", one_line(role))
        }
        EventKind::Delegate { to, .. } if to == ORCHESTRATOR => return (!was_writing).then(|| writing(t)),
        EventKind::Delegate { to, .. } => format!("{to} begins"),
        EventKind::Retry { attempt, failure, wait_s } => {
            format!("{agent}: attempt {attempt} failed: {}; again in {wait_s:.1} s", failure.message)
        }
        EventKind::Return { status: AgentStatus::Done, reused, .. } => {
            let spend = &event.spend;
            let reused = if *reused { ", reused" } else { "" };
            format!("{agent} done: {} tokens, {:.1} s{reused}", spend.tokens(), spend.seconds)
        }
        EventKind::Return { status, failure, .. } => {
            let why = failure.as_ref().map(|failure| format!(": {}", failure.message)).unwrap_or_default();
            format!("{agent} {}{why}", status.as_str())
        }
        EventKind::Budget { limit, needed, left } => {
            format!("the limit on {} is met: {needed:.0} needed, {left:.0} left", limit.as_str())
        }
        EventKind::Resume { finished, .. } => format!("resumed: {finished} agents are finished"),
        _ => return None,
    };
    Some(format!("{t:8.2} s  {text}"))
}
