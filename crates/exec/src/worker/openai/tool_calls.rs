//! Tools as the chat protocol has them: what is offered, what was called before, and the calls of a reply in whatever pieces they
//! come.

use crate::tool::{OfferedTool, RequestedCall};
use crate::worker::{ChatMessage, Request};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Calls that one reply may ask for; the others are left out.
const MOST_CALLS: usize = 64;
/// Characters of a name that the protocol takes.
const MOST_NAME_CHARS: usize = 64;

/// The tools of a request, under names that the protocol takes.
pub(super) fn offered(tools: &[OfferedTool]) -> Value {
    let tool = |tool: &OfferedTool| {
        let function =
            json!({"name": wire_name(&tool.name), "description": tool.description, "parameters": tool.schema});
        json!({"type": "function", "function": function})
    };
    tools.iter().map(tool).collect()
}

/// The name of a tool in the protocol, which takes letters, digits, `_` and `-`: `docs.search` is `docs__search` there.
fn wire_name(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
    name.replacen('.', "__", 1).chars().map(plain).take(MOST_NAME_CHARS).collect()
}

/// The conversation as the protocol has it.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum WireMessages<'a> {
    /// Messages that are texts alone.
    Plain(&'a [ChatMessage]),
    /// The same with calls.
    WithCalls(Vec<Value>),
}

impl<'a> WireMessages<'a> {
    pub(super) fn of(request: &'a Request) -> Self {
        match request.speaks_of_tools() {
            false => WireMessages::Plain(&request.messages),
            true => WireMessages::WithCalls(request.messages.iter().map(message).collect()),
        }
    }
}

fn message(message: &ChatMessage) -> Value {
    let mut value = json!({"role": message.role, "content": message.content});
    if let Some(id) = &message.tool_call_id {
        value["tool_call_id"] = json!(id);
    }
    if !message.tool_calls.is_empty() {
        let call = |call: &RequestedCall| {
            // Some servers read the arguments that they are sent back: what is no JSON would be refused.
            let arguments = call.object().unwrap_or_else(|_| json!({ "malformed": call.arguments })).to_string();
            json!({"id": call.id, "type": "function", "function": {"name": wire_name(&call.tool), "arguments": arguments}})
        };
        value["tool_calls"] = message.tool_calls.iter().map(call).collect();
    }
    value
}

/// Calls of a reply, whole or in pieces.
#[derive(Debug, Default)]
pub(super) struct CallPieces(Vec<(Option<u64>, RequestedCall)>);

/// One element of `tool_calls`: a call, or the next piece of one.
#[derive(Deserialize, Default)]
struct Piece {
    #[serde(default)]
    index: Option<u64>,
    #[serde(default)]
    id: Option<String>,
    #[serde(default)]
    function: Option<Function>,
}

#[derive(Deserialize, Default)]
struct Function {
    #[serde(default)]
    name: Option<String>,
    /// Text; some servers send the object.
    #[serde(default)]
    arguments: Option<Value>,
}

impl CallPieces {
    /// Adds what one message or event has. Whatever is no call is left out: the reply is then told apart by its text.
    pub(super) fn add(&mut self, pieces: Value) {
        let Value::Array(pieces) = pieces else { return };
        for piece in pieces {
            if let Ok(piece) = serde_json::from_value::<Piece>(piece) {
                self.add_piece(piece);
            }
        }
    }

    fn add_piece(&mut self, Piece { index, id, function }: Piece) {
        let Function { name, arguments } = function.unwrap_or_default();
        let name = name.unwrap_or_default();
        // Without an index, what has a name or an id begins a call.
        let begins = !name.is_empty() || id.is_some_and(|id| !id.is_empty());
        let known = match index {
            Some(_) => self.0.iter().position(|(known, _)| *known == index),
            None if begins => None,
            None => self.0.len().checked_sub(1),
        };
        let at = match known {
            Some(at) => at,
            None if self.0.len() >= MOST_CALLS => return,
            None => {
                self.0
                    .push((index, RequestedCall { id: String::new(), tool: String::new(), arguments: String::new() }));
                self.0.len() - 1
            }
        };
        let Some((_, call)) = self.0.get_mut(at) else { return };
        if call.tool.is_empty() {
            call.tool = name;
        }
        match arguments {
            Some(Value::String(text)) => call.arguments.push_str(&text),
            None | Some(Value::Null) => {}
            Some(value) => call.arguments.push_str(&value.to_string()),
        }
    }

    /// Bytes of all of them.
    pub(super) fn bytes(&self) -> usize {
        self.0.iter().map(|(_, call)| call.tool.len() + call.arguments.len()).sum()
    }

    /// All of them as one text, to be counted.
    pub(super) fn text(&self) -> String {
        self.0.iter().map(|(_, call)| format!("{} {}\n", call.tool, call.arguments)).collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The calls, by the names of the tools that were offered where they have one.
    pub(super) fn named(self, offered: &[OfferedTool]) -> Vec<RequestedCall> {
        let named = |(_, call): (_, RequestedCall)| {
            let is_it = |tool: &&OfferedTool| tool.name == call.tool || wire_name(&tool.name) == call.tool;
            let tool = offered.iter().find(is_it).map_or_else(|| call.tool.clone(), |tool| tool.name.clone());
            RequestedCall { tool, ..call }
        };
        self.0.into_iter().map(named).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(name: &str) -> OfferedTool {
        OfferedTool {
            name: name.into(),
            description: String::new(),
            schema: json!({}),
            price: 0.0,
            idempotent: true,
            read_only: true,
            approve: false,
        }
    }

    fn check(pieces: &[Value], expected: &[(&str, &str)]) {
        let mut calls = CallPieces::default();
        pieces.iter().for_each(|piece| calls.add(piece.clone()));
        let found = calls.named(&[tool("docs.search"), tool("python")]);
        let found: Vec<(&str, &str)> = found.iter().map(|it| (it.tool.as_str(), it.arguments.as_str())).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn calls_are_put_together() {
        let of = |name: &str, arguments: &str| json!({"name": name, "arguments": arguments});
        check(&[json!([{"index": 0, "function": of("python", "{}")}])], &[("python", "{}")]);
        check(
            &[
                json!([{"index": 0, "id": "x", "function": of("python", "")}]),
                json!([{"index": 1, "id": "y", "function": of("docs__search", "{\"a")}]),
                json!([{"index": 0, "function": {"arguments": "{\"b"}}]),
                json!([{"index": 1, "function": {"arguments": "\":1}"}}, {"index": 0, "function": {"arguments": "\":2}"}}]),
            ],
            &[("python", "{\"b\":2}"), ("docs.search", "{\"a\":1}")],
        );
        // Without an index, and with an object for a text.
        check(
            &[json!([{"id": "x", "function": of("docs.search", "{")}]), json!([{"function": {"arguments": "}"}}])],
            &[("docs.search", "{}")],
        );
        check(
            &[json!([{"function": {"name": "python", "arguments": {"code": "1"}}}])],
            &[("python", "{\"code\":\"1\"}")],
        );
        check(&[json!({}), json!([7, {"function": 3}]), Value::Null], &[]);
        let many = json!((0..100).map(|index| json!({"index": index, "function": of("x", "")})).collect::<Vec<_>>());
        check(&[many], &[("x", ""); MOST_CALLS]);
    }

    #[test]
    fn names_fit_the_protocol() {
        assert_eq!(wire_name("docs.read text/é"), "docs__read_text__");
        assert_eq!(wire_name(&"x".repeat(100)).len(), MOST_NAME_CHARS);
    }
}
