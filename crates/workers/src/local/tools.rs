//! Tools for models of this process: in the form of their chat template where it has one, else in plain text.

use lemon_engine::CompletionRequest;
use lemon_exec::tool::{PYTHON, calls_of, in_plain_text};
use lemon_exec::worker::{ChatMessage, Request, Speaker};
use lemon_exec::{OfferedTool, RequestedCall};
use lemon_model::tokenizer::{CallForm, ChatCall, ChatTool, Message, Turn};
use lemon_model::{Constraint, Tokenizer};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The most lists of tools whose grammars are kept. With more, the memory starts anew.
const MOST_KEPT: usize = 64;

/// The grammars of calls, by capacity and tools: they take a while to make, and agents ask with the same tools again and again.
#[derive(Default)]
pub(super) struct CallGrammars(Mutex<KnownGrammars>);

type KnownGrammars = HashMap<(usize, String), Arc<[Constraint]>>;

/// The tokens of a conversation with tools; `None` where it is written out in plain text: the template has no tools, or objects
/// to this conversation, as Llama's does to two calls at once.
pub(super) fn prompt(tokenizer: &Tokenizer, request: &Request) -> Option<Vec<u32>> {
    tokenizer.call_form()?;
    let turns: Vec<Turn> = turns(&request.messages);
    let tools: Vec<ChatTool> = request.tools.iter().flat_map(|tools| tools.iter()).map(chat_tool).collect();
    tokenizer.prompt_with_tools(&turns, &tools).ok()
}

/// The same request in plain text.
pub(super) fn written_out(request: &Request) -> Vec<ChatMessage> {
    in_plain_text(request).messages
}

/// The calls in a reply, and its text without them and without the mark that the template writes before them.
pub(super) fn calls(text: &str, tokenizer: &Tokenizer, request: &Request) -> (String, Vec<RequestedCall>) {
    let Some(tools) = request.tools.as_deref() else { return (text.to_owned(), Vec::new()) };
    let (text, calls) = calls_of(text, tools, request);
    let mark = tokenizer.call_form().filter(|_| !calls.is_empty()).map_or("", |form| &form.mark);
    match text.strip_suffix(mark).filter(|_| !mark.is_empty()) {
        Some(said) => (said.trim_end().to_owned(), calls),
        None => (text, calls),
    }
}

impl CallGrammars {
    /// Holds a completion to calls that are valid for their tools, and ends it with the first.
    pub(super) fn constrain(
        &self,
        mut asked: CompletionRequest,
        tokenizer: &Tokenizer,
        request: &Request,
    ) -> CompletionRequest {
        let Some(tools) = request.tools.as_deref() else { return asked };
        let plain = CallForm::plain();
        let form = tokenizer.call_form().unwrap_or(&plain);
        if tools.iter().any(|tool| tool.name == PYTHON) {
            // Behind a program, models for code make up what it prints. It is run instead.
            asked.stop.push("```output".to_owned());
        }
        asked.constraints = self.of(form, tools, tokenizer, request.level);
        if asked.constraints.is_empty() {
            asked.stop.extend(Some(form.end.clone()).filter(|end| !end.is_empty()));
        }
        asked
    }

    fn of(&self, form: &CallForm, tools: &[OfferedTool], tokenizer: &Tokenizer, level: usize) -> Arc<[Constraint]> {
        let offered: Vec<ChatTool> = tools.iter().map(chat_tool).collect();
        let names: Value = offered.iter().map(|tool| json!([tool.name, tool.parameters])).collect();
        let key = (level, names.to_string());
        if let Some(constraints) = self.lock().get(&key).cloned() {
            return constraints;
        }
        // Without grammars nothing is lost: a run checks every call that a reply asks for.
        let constraints: Arc<[Constraint]> = form.constraints(&offered, tokenizer).unwrap_or_default().into();
        let mut known = self.lock();
        if known.len() >= MOST_KEPT {
            known.clear();
        }
        known.insert(key, constraints.clone());
        constraints
    }

    fn lock(&self) -> MutexGuard<'_, KnownGrammars> {
        // A panic elsewhere leaves whole entries.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn chat_tool(tool: &OfferedTool) -> ChatTool {
    ChatTool { name: tool.name.clone(), description: tool.description.clone(), parameters: tool.schema.clone() }
}

/// The conversation as templates have it. A result is known by its call, which comes before it.
fn turns(messages: &[ChatMessage]) -> Vec<Turn> {
    let mut names: HashMap<&str, &str> = HashMap::new();
    let turn = |message| -> Turn {
        let ChatMessage { role, content, tool_calls, tool_call_id }: &ChatMessage = message;
        names.extend(tool_calls.iter().map(|call| (call.id.as_str(), call.tool.as_str())));
        let content = content.clone();
        let role = match role {
            Speaker::Tool => {
                let name = tool_call_id.as_deref().and_then(|id| names.get(id).copied()).unwrap_or_default();
                return Turn::Result { tool: name.to_owned(), content };
            }
            Speaker::Assistant if !tool_calls.is_empty() => {
                return Turn::Called { content, calls: tool_calls.iter().map(chat_call).collect() };
            }
            other => super::role(*other),
        };
        Turn::Said(Message { role, content })
    };
    messages.iter().map(turn).collect()
}

/// A call as templates have it: arguments that are no object stand as a text.
fn chat_call(call: &RequestedCall) -> ChatCall {
    ChatCall { name: call.tool.clone(), arguments: call.object().unwrap_or_else(|_| call.input()) }
}
