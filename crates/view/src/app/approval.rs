//! Calls of tools that wait for a person, with a button for either decision.

use crate::markup::Markup;
use crate::page::render;
use askama::Template;
use lemon_trace::{EventKind, StopReason, Trace, visible};

#[derive(Template)]
#[template(path = "app-waiting.html")]
struct Waiting<'a> {
    run_id: &'a str,
    calls: Vec<WaitingCall<'a>>,
}

struct WaitingCall<'a> {
    /// How a decision names it: `AGENT/CALL`.
    name: String,
    agent: &'a str,
    tool: &'a str,
    input: String,
}

/// The calls of a run that wait, as a piece of a page; nothing where the run waits for none.
pub(crate) fn waiting(trace: &Trace) -> Markup {
    if trace.summary().stop_reason != Some(StopReason::Approval) {
        return Markup::default();
    }
    let names = trace.waiting_calls();
    let call = |name: String| {
        let asked = trace.events.iter().rev().find_map(|event| match &event.kind {
            EventKind::Approval { tool, input, call, .. } if name == format!("{}/{}", event.agent, call.id) => {
                Some((event.agent.as_str(), tool.as_str(), input))
            }
            _ => None,
        });
        let (agent, tool, input) = asked?;
        // A JSON value always has a text.
        let input = serde_json::to_string_pretty(input).unwrap_or_default();
        Some(WaitingCall { name, agent, tool, input: visible(&input).into_owned() })
    };
    Markup::trusted(render(&Waiting {
        run_id: &trace.header.run_id,
        calls: names.into_iter().filter_map(call).collect(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use lemon_trace::sample::eight;
    use lemon_trace::{AgentCall, Event};
    use serde_json::json;

    fn asking(input: serde_json::Value, granted: Option<bool>) -> Trace {
        let mut trace = eight();
        trace.events.retain(|event| !matches!(event.kind, EventKind::Stop { .. }));
        let agent = trace.summary().agents[0].id.clone();
        let call = AgentCall { id: "c1.1".into(), ..AgentCall::default() };
        let kinds = [
            EventKind::Approval { tool: "files.delete".into(), input, call, granted },
            EventKind::Stop { reason: StopReason::Approval, answer: None },
        ];
        for kind in kinds {
            let id = trace.events.len() as u32 + 1;
            trace.events.push(Event { id, agent: agent.clone(), kind, ..trace.events[0].clone() });
        }
        trace
    }

    #[test]
    fn a_call_that_waits_has_its_buttons() {
        let html = waiting(&asking(json!({"path": "<b>x</b>"}), None)).into_string();
        assert!(html.contains("files.delete") && html.contains("/c1.1\"") && html.contains("&lt;b&gt;x"), "{html}");
        assert_eq!(html.matches("<button").count(), 2);
        assert!(!html.contains("<b>x"));
        assert!(!waiting(&asking(json!({}), Some(true))).into_string().contains("<form"));
        assert_eq!(waiting(&eight()).into_string(), "");
    }
}
