//! The calls of tools, as they were made and what came of them. Arguments and results are text of others: the template
//! escapes them.

use lemon_trace::{Event, EventKind, Trace, text};
use serde_json::Value;

/// One call.
pub(super) struct ToolCall<'a> {
    pub agent: &'a str,
    pub tool: &'a str,
    /// Its name in the run: `solve/c1.1`.
    pub name: String,
    pub status: &'static str,
    pub class: &'static str,
    /// A person has to decide about it.
    pub is_waiting: bool,
    /// How long it took and what it cost.
    pub note: String,
    /// The beginning of its arguments.
    pub begins: String,
    pub input: String,
    /// Absent where none is on record.
    pub output: Option<String>,
}

/// Characters of the beginning of a call's arguments.
const BEGINNING: usize = 60;

/// The calls that agents asked for, in the order in which they began.
pub(super) fn tool_calls(trace: &Trace) -> Vec<ToolCall<'_>> {
    let mut calls: Vec<ToolCall<'_>> = Vec::new();
    for event in &trace.events {
        match &event.kind {
            EventKind::Approval { tool, input, call, granted } => {
                let (status, class) = match granted {
                    None => ("waits for a person", "cancelled"),
                    Some(true) => ("approved", "done"),
                    Some(false) => ("denied", "failed"),
                };
                let place = place(&mut calls, event, tool, &call.id, input);
                (place.status, place.class, place.is_waiting) = (status, class, granted.is_none());
            }
            EventKind::ToolCall { tool, input, call: Some(call) } => {
                let place = place(&mut calls, event, tool, &call.id, input);
                // Of a call whose end is on record, that says how it ended.
                (place.status, place.class, place.is_waiting) = ("no end on record", "cancelled", false);
            }
            EventKind::ToolResult { output, ok, call: Some(id), .. } => {
                let name = format!("{}/{id}", event.agent);
                let Some(place) = calls.iter_mut().rfind(|call| call.name == name) else { continue };
                (place.status, place.class) = if *ok { ("done", "done") } else { ("failed", "failed") };
                place.is_waiting = false;
                let mut notes = vec![text::seconds(event.spend.seconds)];
                notes.extend((event.spend.usd > 0.0).then(|| text::usd(event.spend.usd)));
                place.note = notes.join(" · ");
                place.output = Some(said(output));
            }
            _ => {}
        }
    }
    calls
}

/// The place of a call; a new one if it has none.
fn place<'c, 'a>(
    calls: &'c mut Vec<ToolCall<'a>>,
    event: &'a Event,
    tool: &'a str,
    id: &str,
    input: &Value,
) -> &'c mut ToolCall<'a> {
    let name = format!("{}/{id}", event.agent);
    let at = match calls.iter().position(|call| call.name == name) {
        Some(at) => at,
        None => {
            let input = given(input);
            calls.push(ToolCall {
                agent: &event.agent,
                tool,
                name,
                status: "",
                class: "",
                is_waiting: false,
                note: String::new(),
                begins: text::line(&input, BEGINNING),
                input,
                output: None,
            });
            calls.len() - 1
        }
    };
    &mut calls[at] // `at` is a position in it
}

/// Arguments: a single text as it stands, such as a program; else JSON.
fn given(input: &Value) -> String {
    let single = input.as_object().filter(|fields| fields.len() == 1).and_then(|fields| fields.values().next());
    match (single, input) {
        (Some(Value::String(text)), _) | (_, Value::String(text)) => text.clone(),
        // Writing a JSON value does not fail.
        _ => serde_json::to_string_pretty(input).unwrap_or_default(),
    }
}

/// What a tool said.
fn said(output: &Value) -> String {
    match output.get("text").or_else(|| output.get("error")) {
        Some(Value::String(text)) => text.clone(),
        _ => given(output),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lemon_trace::{AgentCall, Spend, sample::three};
    use serde_json::json;

    fn event(kind: EventKind) -> Event {
        let mut event = three().events[0].clone();
        (event.agent, event.kind, event.spend) = ("solve".to_owned(), kind, Spend::default());
        event
    }

    fn trace(kinds: Vec<EventKind>) -> Trace {
        let mut trace = three();
        trace.events.extend(kinds.into_iter().map(event));
        trace
    }

    fn call(id: &str) -> AgentCall {
        AgentCall { id: id.to_owned(), ..AgentCall::default() }
    }

    fn made(id: &str, input: Value) -> EventKind {
        EventKind::ToolCall { tool: "python".into(), input, call: Some(call(id)) }
    }

    fn result(id: &str, ok: bool, text: &str) -> EventKind {
        let output = if ok { json!({ "text": text }) } else { json!({ "error": text }) };
        EventKind::ToolResult { tool: "python".into(), output, ok, call: Some(id.into()) }
    }

    fn approval(id: &str, granted: Option<bool>) -> EventKind {
        EventKind::Approval { tool: "send".into(), input: json!({"to": "a", "n": 1}), call: call(id), granted }
    }

    #[test]
    fn a_call_is_told_by_how_far_it_came() {
        let check = |kinds: Vec<EventKind>, status: &str, is_waiting: bool, output: Option<&str>| {
            let trace = trace(kinds);
            let calls = tool_calls(&trace);
            let [call] = &calls[..] else { panic!("{} calls", calls.len()) };
            assert_eq!((call.status, call.is_waiting, call.output.as_deref()), (status, is_waiting, output));
            assert_eq!((call.agent, call.name.as_str()), ("solve", "solve/c1.1"));
        };
        let code = || json!({"code": "print(1)"});
        check(vec![made("c1.1", code())], "no end on record", false, None);
        check(vec![made("c1.1", code()), result("c1.1", true, "1")], "done", false, Some("1"));
        check(vec![made("c1.1", code()), result("c1.1", false, "timeout")], "failed", false, Some("timeout"));
        check(vec![approval("c1.1", None)], "waits for a person", true, None);
        check(vec![approval("c1.1", None), approval("c1.1", Some(true))], "approved", false, None);
        let denied =
            vec![approval("c1.1", None), approval("c1.1", Some(false)), result("c1.1", false, "A person denied")];
        check(denied, "failed", false, Some("A person denied"));
        // A call that is made again after an interruption is one call.
        check(vec![made("c1.1", code()), made("c1.1", code()), result("c1.1", true, "1")], "done", false, Some("1"));
    }

    #[test]
    fn what_others_wrote_is_escaped() {
        let hostile = "</pre><script>alert(1)</script>";
        let trace = trace(vec![made("c1.1", json!({ "code": hostile })), result("c1.1", true, hostile)]);
        for page in [crate::run::html(&trace), crate::run::hosted(&trace)] {
            assert!(!page.contains(hostile), "{page}");
            // The beginning of the call, its input, its result.
            let section = page.split_once("id=\"tools\"").unwrap().1.split_once("</section>").unwrap().0;
            assert_eq!(section.matches("&lt;script&gt;alert(1)").count(), 3, "{section}");
        }
    }
}
