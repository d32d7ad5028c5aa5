//! Renders conversations with the model's own chat template, which never sees the contents of messages.

use super::Message;
use super::guard::on_own_stack;
use super::jinja::{self, Objection, Variables};
use super::tools::{ChatTool, Turn};
use crate::PolicyError;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::sync::{Arc, Mutex, PoisonError};

/// A template, ready to be rendered.
pub(super) struct Template {
    source: String,
    begin: String,
    end: String,
    /// What it made of conversations so far, by what it saw of them.
    known: Mutex<Vec<(String, Arc<str>)>>,
}

/// A part of a conversation.
#[derive(Debug, PartialEq)]
pub(super) enum Piece<'m> {
    /// What the template writes.
    Frame(String),
    /// What a message says.
    Content(&'m str),
}

/// A conversation as a template sees it: what others wrote has a numbered place in it.
pub(super) struct Shown<'m> {
    messages: Vec<Value>,
    tools: Option<Value>,
    contents: Vec<Cow<'m, str>>,
}

/// How many conversations are kept.
const MOST_KNOWN: usize = 32;

/// A content's place in the rendered text, by its number between these. They are of no alphabet, and contents that could hold
/// them are not rendered.
const OPEN: char = '\u{e0f0}';
const CLOSE: char = '\u{e0f1}';

impl<'m> Shown<'m> {
    /// A conversation without tools.
    pub(super) fn messages(messages: &'m [Message]) -> Self {
        let mut shown = Shown { messages: Vec::new(), tools: None, contents: Vec::new() };
        for Message { role, content } in messages {
            let content = shown.place(content.as_str());
            shown.messages.push(json!({ "role": role.name(), "content": content }));
        }
        shown
    }

    /// A conversation with tools. Templates look into what tools and calls say, so a text of theirs is rendered if it `is_plain`:
    /// if it holds nothing that would be taken for a special token.
    pub(super) fn turns(turns: &'m [Turn], tools: &[ChatTool], is_plain: &dyn Fn(&str) -> bool) -> Self {
        let mut shown = Shown { messages: Vec::new(), tools: None, contents: Vec::new() };
        for turn in turns {
            let message = match turn {
                Turn::Said(Message { role, content }) => {
                    json!({ "role": role.name(), "content": shown.place(content.as_str()) })
                }
                Turn::Called { content, calls } => {
                    let mut shown_calls = Vec::with_capacity(calls.len());
                    for call in calls {
                        let (name, arguments) =
                            (shown.text(&call.name, is_plain), shown.value(&call.arguments, is_plain));
                        let function = json!({ "name": name, "arguments": arguments });
                        shown_calls.push(json!({ "type": "function", "function": function }));
                    }
                    // Templates ask whether anything was said.
                    let content = if content.is_empty() { String::new() } else { shown.place(content.as_str()) };
                    json!({ "role": "assistant", "content": content, "tool_calls": shown_calls })
                }
                Turn::Result { tool, content } => {
                    json!({ "role": "tool", "name": shown.text(tool, is_plain), "content": shown.place(content.as_str()) })
                }
            };
            shown.messages.push(message);
        }
        let mut listed = Vec::with_capacity(tools.len());
        for ChatTool { name, description, parameters } in tools {
            let (name, description) = (shown.text(name, is_plain), shown.text(description, is_plain));
            let parameters = shown.value(parameters, is_plain);
            let function = json!({ "name": name, "description": description, "parameters": parameters });
            listed.push(json!({ "type": "function", "function": function }));
        }
        shown.tools = (!listed.is_empty()).then_some(Value::Array(listed));
        shown
    }

    /// The place of a content.
    fn place(&mut self, content: impl Into<Cow<'m, str>>) -> String {
        self.contents.push(content.into());
        Self::place_of(self.contents.len() - 1)
    }

    /// How the place with a number is written.
    pub(super) fn place_of(number: usize) -> String {
        format!("{OPEN}{number}{CLOSE}")
    }

    /// A text as it stands, or its place. There it stands as in JSON: that is how templates write these texts.
    fn text(&mut self, text: &str, is_plain: &dyn Fn(&str) -> bool) -> String {
        if !text.contains([OPEN, CLOSE]) && is_plain(text) {
            return text.to_owned();
        }
        let quoted = Value::from(text).to_string();
        let inner = quoted.get(1..quoted.len() - 1).unwrap_or_default(); // Between the quotes, which JSON always has.
        self.place(inner.to_owned())
    }

    /// A value, with places for the texts in it that need one. As deep as the reader of JSON admits.
    fn value(&mut self, value: &Value, is_plain: &dyn Fn(&str) -> bool) -> Value {
        match value {
            Value::String(text) => Value::from(self.text(text, is_plain)),
            Value::Array(items) => items.iter().map(|item| self.value(item, is_plain)).collect(),
            Value::Object(fields) => {
                let fields =
                    fields.iter().map(|(name, value)| (self.text(name, is_plain), self.value(value, is_plain)));
                Value::Object(fields.collect())
            }
            other => other.clone(),
        }
    }
}

impl Template {
    /// Reads a template; `begin` and `end` are the tokens it may want to write around a text.
    pub(super) fn new(source: &str, begin: String, end: String) -> Result<Template, Objection> {
        on_own_stack(|| jinja::check(source)).map_err(Objection).flatten()?;
        Ok(Template { source: source.to_owned(), begin, end, known: Mutex::default() })
    }

    /// Whether the template has a word about tools at all.
    pub(super) fn names_tools(&self) -> bool {
        self.source.contains("tools")
    }

    /// The conversation up to where the model speaks.
    pub(super) fn pieces<'s>(&self, shown: &'s Shown<'_>) -> Result<Vec<Piece<'s>>, PolicyError> {
        Ok(split(&self.text(shown)?, &shown.contents))
    }

    /// The same as a text in which contents are places.
    pub(super) fn text(&self, shown: &Shown<'_>) -> Result<Arc<str>, PolicyError> {
        // Equal conversations but for their contents are written alike.
        let key = json!([shown.messages, shown.tools]).to_string();
        let known = self.known().iter().find(|(other, _)| *other == key).map(|(_, text)| text.clone());
        if let Some(text) = known {
            return Ok(text);
        }
        match on_own_stack(|| self.render(shown)).map_err(Objection).flatten() {
            Ok(text) => Ok(self.keep(key, text)),
            Err(Objection(fact)) => Err(PolicyError::Request(format!("the chat template failed: {fact}"))),
        }
    }

    fn render(&self, shown: &Shown<'_>) -> Result<String, Objection> {
        let (messages, tools) = (shown.messages.as_slice(), shown.tools.as_ref());
        jinja::render(&self.source, &Variables { messages, tools, begin: &self.begin, end: &self.end })
    }

    fn keep(&self, key: String, text: String) -> Arc<str> {
        let text: Arc<str> = text.into();
        let mut known = self.known();
        if known.len() >= MOST_KNOWN {
            known.remove(0);
        }
        known.push((key, text.clone()));
        text
    }

    fn known(&self) -> std::sync::MutexGuard<'_, Vec<(String, Arc<str>)>> {
        // A list of texts is whole whatever happened to another thread that held it.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Puts the contents where their places are.
fn split<'s>(text: &str, contents: &'s [Cow<'_, str>]) -> Vec<Piece<'s>> {
    let mut pieces = Vec::new();
    for part in text.split(OPEN) {
        let placed = part
            .split_once(CLOSE)
            .and_then(|(number, rest)| Some((contents.get(number.parse::<usize>().ok()?)?.as_ref(), rest)));
        let (content, frame) = placed.map_or((None, part), |(content, rest)| (Some(content), rest));
        pieces.extend(content.map(Piece::Content));
        if !frame.is_empty() {
            pieces.push(Piece::Frame(frame.to_owned()));
        }
    }
    pieces
}
