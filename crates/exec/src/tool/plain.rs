//! Tools in plain text, for models whose server does not speak of tools: the tools stand in the instructions, and a call is a
//! block of the reply. Many chat models were trained on these blocks.

use super::{OfferedTool, PYTHON, RequestedCall};
use crate::code::program_in;
use crate::form::Form;
use crate::worker::{AskError, ChatMessage, Reply, Request, Speaker, Worker};
use serde_json::{Value, json};
use std::borrow::Cow;
use std::fmt::Write;

const OPEN: &str = "<tool_call>";
const CLOSE: &str = "</tool_call>";

/// Asks a worker. One that does not speak of tools itself is told of them in plain text, and its reply is read for calls.
pub(crate) async fn ask(worker: &dyn Worker, request: &Request) -> Result<Reply, AskError> {
    if !request.speaks_of_tools() || worker.calls_tools(request.level) {
        return worker.ask(request).await;
    }
    let reply = worker.ask(&in_plain_text(request)).await?;
    match request.tools.as_deref() {
        None => Ok(reply),
        Some(tools) => {
            let (text, tool_calls) = calls_of(&reply.text, tools, request);
            Ok(Reply { text, tool_calls, ..reply })
        }
    }
}

/// A request that says in plain text what another says with tools.
pub fn in_plain_text(request: &Request) -> Request {
    Request { messages: written_out(request).into_owned(), tools: None, ..request.clone() }
}

/// The conversation of a request with its tools, calls and results in plain text.
pub(crate) fn written_out(request: &Request) -> Cow<'_, [ChatMessage]> {
    if !request.speaks_of_tools() {
        return Cow::Borrowed(&request.messages);
    }
    let mut messages: Vec<ChatMessage> = request.messages.iter().map(plain).collect();
    if let Some(tools) = request.tools.as_deref() {
        let instructions = instructions(tools);
        match messages.first_mut().filter(|first| first.role == Speaker::System) {
            Some(system) => {
                system.content.push_str("\n\n");
                system.content.push_str(&instructions);
            }
            None => messages.insert(0, ChatMessage::system(instructions)),
        }
    }
    Cow::Owned(messages)
}

fn plain(message: &ChatMessage) -> ChatMessage {
    match message.role {
        Speaker::Tool => ChatMessage::user(format!("<tool_response>\n{}\n</tool_response>", message.content)),
        _ if message.tool_calls.is_empty() => message.clone(),
        _ => {
            let mut text = message.content.clone();
            for call in &message.tool_calls {
                let call = json!({ "name": call.tool, "arguments": call.input() });
                // Writing to a string does not fail.
                write!(text, "{}{OPEN}\n{call}\n{CLOSE}", if text.is_empty() { "" } else { "\n" }).unwrap_or_default();
            }
            ChatMessage::assistant(text)
        }
    }
}

fn instructions(tools: &[OfferedTool]) -> String {
    let mut text = "You can use these tools, one JSON object a line:\n<tools>\n".to_owned();
    for tool in tools {
        let function = json!({ "name": tool.name, "description": tool.description, "parameters": tool.schema });
        // Writing to a string does not fail.
        writeln!(text, "{}", json!({ "type": "function", "function": function })).unwrap_or_default();
    }
    text + "</tools>\nTo call a tool, reply with this block and end your reply:\n<tool_call>\n\
            {\"name\": \"NAME\", \"arguments\": {…}}\n</tool_call>\n\
            The next message has the result. A reply without such a block is your answer."
}

/// The calls in a reply to a request, and its text without them.
///
/// Models that were trained on code answer with a program where they are offered Python. A reply that ends with one is taken for
/// a call, unless the task asks for code: there it is the answer.
pub fn calls_of(reply: &str, offered: &[OfferedTool], request: &Request) -> (String, Vec<RequestedCall>) {
    let (text, calls) = calls_in(reply, offered);
    if !calls.is_empty() || !offered.iter().any(|tool| tool.name == PYTHON) || asks_for_code(request) {
        return (text, calls);
    }
    let block = text.trim_end().strip_suffix("```").and_then(|body| body.rsplit_once("```"));
    let program =
        |(said, block): (&str, &str)| Some((said.trim_end().to_owned(), program_in(&format!("```{block}```"))?));
    match block.and_then(program) {
        Some((said, code)) if code.contains("print(") => {
            let arguments = json!({ "code": code }).to_string();
            (said, vec![RequestedCall { id: String::new(), tool: PYTHON.to_owned(), arguments }])
        }
        _ => (text, calls),
    }
}

fn asks_for_code(request: &Request) -> bool {
    let asked = || request.messages.iter().find(|message| message.role == Speaker::User);
    let question = match &request.agent_prompt {
        Some(prompt) => Some(&*prompt.question),
        None => asked().map(|message| message.content.as_str()),
    };
    question.is_some_and(|question| Form::of(question) == Form::Code)
}

/// The calls in a reply, and its text without them. A block that is no call stays in the text: it is an answer that looks odd,
/// and no call is made of it.
///
/// Qwen2.5-Coder writes its calls as fenced JSON instead, and Llama as bare JSON with `parameters`. A reply without a marked call
/// that ends with such an object is taken for a call if it names an offered tool, its arguments, and nothing else.
pub fn calls_in(reply: &str, offered: &[OfferedTool]) -> (String, Vec<RequestedCall>) {
    let (text, calls) = marked_calls(reply);
    match last_call(&text, offered).filter(|_| calls.is_empty()) {
        Some((before, call)) => (before.trim().to_owned(), vec![call]),
        None => (text, calls),
    }
}

/// The text before the call that ends a reply, and the call. Its fence may be open: a reply may end with its call.
fn last_call<'r>(reply: &'r str, offered: &[OfferedTool]) -> Option<(&'r str, RequestedCall)> {
    let reply = reply.trim();
    let closed = reply.strip_suffix("```");
    let body = closed.unwrap_or(reply).trim_end();
    let (start, _) = body.match_indices('{').find(|(start, _)| {
        // Only what begins like a call is read to its end: a text of braces alone would take a square of its length.
        let name = body.get(start + 1..).unwrap_or_default().trim_start();
        name.starts_with("\"name\"") && body.get(*start..).is_some_and(|block| is_call(block, offered))
    })?;
    let (before, block) = body.split_at(start);
    let before = before.trim_end();
    let before = before.strip_suffix("json").unwrap_or(before);
    let fenced = before.strip_suffix("```");
    // A fence that closes nothing is a part of what is said.
    if closed.is_some() && fenced.is_none() {
        return None;
    }
    Some((fenced.unwrap_or(body.split_at(start).0), call_of(block)?))
}

/// Whether a text is the call of an offered tool: its name, its arguments, and nothing else.
fn is_call(block: &str, offered: &[OfferedTool]) -> bool {
    let Ok(Value::Object(call)) = serde_json::from_str::<Value>(block) else { return false };
    let keys: Vec<&str> = call.keys().map(String::as_str).collect();
    let is_offered = offered.iter().any(|tool| call.get("name").and_then(Value::as_str) == Some(&tool.name));
    matches!(keys[..], ["name", "arguments" | "parameters"]) && call.values().any(Value::is_object) && is_offered
}

fn marked_calls(reply: &str) -> (String, Vec<RequestedCall>) {
    let (mut text, mut calls, mut rest) = (String::new(), Vec::new(), reply);
    while let Some((before, block)) = rest.split_once(OPEN) {
        text.push_str(before);
        // A model that stops at the end of its call may leave the closing mark out.
        let (inner, after) = block.split_once(CLOSE).unwrap_or((block, ""));
        match call_of(inner) {
            Some(call) => calls.push(call),
            None => {
                text.push_str(OPEN);
                text.push_str(inner);
                if block.len() > inner.len() {
                    text.push_str(CLOSE);
                }
            }
        }
        rest = after;
    }
    text.push_str(rest);
    let text = if calls.is_empty() { text } else { text.trim().to_owned() };
    (text, calls)
}

/// `{"name": …, "arguments": {…}}`.
fn call_of(block: &str) -> Option<RequestedCall> {
    let Value::Object(mut call) = serde_json::from_str(block.trim()).ok()? else { return None };
    let tool = call.get("name")?.as_str()?.to_owned();
    let arguments = match call.remove("arguments").or_else(|| call.remove("parameters")) {
        None => "{}".to_owned(),
        Some(Value::String(text)) => text,
        Some(value) => value.to_string(),
    };
    Some(RequestedCall { id: String::new(), tool, arguments })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tool(name: &str) -> OfferedTool {
        let (name, description, schema) = (name.to_owned(), String::new(), Value::Null);
        OfferedTool { name, description, schema, price: 0.0, idempotent: true, read_only: true, approve: false }
    }

    fn check(reply: &str, text: &str, calls: &[(&str, &str)]) {
        let (found, found_calls) = calls_in(reply, &[tool("python")]);
        let found_calls: Vec<(&str, &str)> =
            found_calls.iter().map(|call| (call.tool.as_str(), call.arguments.as_str())).collect();
        assert_eq!((found.as_str(), found_calls.as_slice()), (text, calls), "{reply}");
    }

    #[test]
    fn calls_are_read_strictly() {
        check("The answer is 4.", "The answer is 4.", &[]);
        check(
            "I compute.\n<tool_call>\n{\"name\": \"python\", \"arguments\": {\"code\": \"1\"}}\n</tool_call>",
            "I compute.",
            &[("python", "{\"code\":\"1\"}")],
        );
        check(
            "<tool_call>{\"name\":\"a\",\"arguments\":{}}</tool_call><tool_call>{\"name\":\"b\"}</tool_call>",
            "",
            &[("a", "{}"), ("b", "{}")],
        );
        check("<tool_call>{\"name\":\"a\",\"arguments\":\"{1\"}", "", &[("a", "{1")]);
        for odd in ["<tool_call>{\"name\":</tool_call>", "<tool_call>[]</tool_call>x", "<tool_call>", "<tool_call>{}"] {
            check(odd, odd, &[]);
        }
    }

    #[test]
    fn fenced_json_is_a_call_where_nothing_else_is_meant() {
        let call = r#"{"name": "python", "arguments": {"code": "1"}}"#;
        let expected: &[(&str, &str)] = &[("python", r#"{"code":"1"}"#)];
        check(&format!("```json\n{call}\n```"), "", expected);
        check(&format!("I compute.\n```\n{call}\n```\n"), "I compute.", expected);
        check(call, "", expected);
        check(&call.replace("arguments", "parameters"), "", expected);
        // Models that are held to a grammar end with their call.
        check(&format!("I compute.\n```json\n{call}"), "I compute.", expected);
        check(&format!("I compute {{1}}: {call}"), "I compute {1}:", expected);
        for other in [
            format!("```json\n{call}\n```\nThat is a call."),
            format!("{call}\n```"),
            call.replace("python", "ruby"),
            call.replace("arguments", "values"),
            call.replace("{\"code\": \"1\"}", "1"),
            r#"{"name": "python", "arguments": {}, "id": 1}"#.to_owned(),
            "```".to_owned(),
        ] {
            check(&other, &other, &[]);
        }
    }

    fn asked(question: &str) -> Request {
        Request {
            agent: "a1".to_owned(),
            level: 0,
            capacity: "small".to_owned(),
            messages: vec![ChatMessage::user(question)],
            max_tokens: 100,
            temperature: None,
            seed: 0,
            schema: None,
            tools: None,
            agent_prompt: None,
            progress: None,
        }
    }

    #[test]
    fn a_program_at_the_end_is_a_call_unless_code_is_asked_for() {
        #[track_caller]
        fn check(question: &str, reply: &str, offered: &str, expected: Option<(&str, &str)>) {
            let (text, calls) = calls_of(reply, &[tool(offered)], &asked(question));
            let code = calls.first().map(|call| call.object().unwrap()["code"].as_str().unwrap().to_owned());
            let found = code.as_deref().map(|code| (text.as_str(), code));
            assert_eq!(found, expected, "{reply}");
            assert!(expected.is_some() || text == reply);
        }
        let sum = "How much is 2 + 3?";
        let program = "I compute.\n```python\nprint(2 + 3)\n```";
        check(sum, program, "python", Some(("I compute.", "print(2 + 3)")));
        check(sum, program, "calculator", None);
        check(sum, &format!("{program}\nAnswer: 5"), "python", None);
        check(sum, "```python\nx = 2 + 3\n```", "python", None);
        check("Write a Python function that adds two numbers.", program, "python", None);
    }

    proptest! {
        #[test]
        fn what_is_no_call_is_kept(text in "(<tool_call>|</tool_call>|\\{|\"name\"|:|a|\n){0,30}") {
            let (kept, calls) = calls_in(&text, &[tool("a")]);
            prop_assert!(!calls.is_empty() || kept == text);
        }
    }
}
