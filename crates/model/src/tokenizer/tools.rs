//! Conversations with tools in a model's own form: its chat template says how tools are told of, and how calls are written.

use super::template::{Shown, Template};
use super::{Message, Role, Tokenizer};
use crate::PolicyError;
use crate::grammar::{Constraint, Grammar};
use serde_json::{Value, json};
use std::fmt::Write;

/// A turn of a conversation with tools.
#[derive(Debug, Clone, PartialEq)]
pub enum Turn {
    /// Text alone.
    Said(Message),
    /// The model asked for calls.
    Called {
        /// What it said beside them.
        content: String,
        calls: Vec<ChatCall>,
    },
    /// What came of a call.
    Result {
        tool: String,
        /// Its result.
        content: String,
    },
}

/// A tool as a template is told of it. Everything in it is text of others.
#[derive(Debug, Clone, PartialEq)]
pub struct ChatTool {
    pub name: String,
    /// What it does.
    pub description: String,
    /// The JSON Schema of its arguments.
    pub parameters: Value,
}

/// A call of a tool.
#[derive(Debug, Clone, PartialEq)]
pub struct ChatCall {
    /// The tool.
    pub name: String,
    /// What it is given: an object.
    pub arguments: Value,
}

/// How a model writes calls, as its template shows: `{"name": …, "arguments": …}`, with a mark before it or without.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallForm {
    /// What stands before a call: `<tool_call>`. Empty for models that write bare JSON.
    pub mark: String,
    /// What stands after a call: `</tool_call>`.
    pub end: String,
    /// The key of the arguments: `arguments`, `parameters`.
    pub arguments: String,
}

/// Names that no tool has.
const OFFERED: &str = "lemon_probe_offered";
const CALLED: &str = "lemon_probe_called";

impl Tokenizer {
    /// How the model writes calls of tools; `None` for a template without them.
    pub fn call_form(&self) -> Option<&CallForm> {
        let found = || self.inner.template.as_ref().and_then(|template| CallForm::of(template, self));
        self.inner.call_form.get_or_init(found).as_ref()
    }

    /// As [`Tokenizer::prompt`], for a conversation with tools. Nothing that a tool, a call or a result says can pose as a turn.
    ///
    /// # Errors
    /// What the template says against these turns, or that there is none.
    pub fn prompt_with_tools(&self, turns: &[Turn], tools: &[ChatTool]) -> Result<Vec<u32>, PolicyError> {
        let Some(template) = &self.inner.template else {
            return Err(PolicyError::Request("the model has no chat template".to_owned()));
        };
        let is_plain = |text: &str| !self.encode(text).iter().any(|token| self.inner.plain.spelling().is_added(*token));
        self.written(template, &Shown::turns(turns, tools, &is_plain))
    }
}

impl CallForm {
    /// Reads it off what the template makes of a call.
    fn of(template: &Template, tokenizer: &Tokenizer) -> Option<CallForm> {
        if !template.names_tools() {
            return None;
        }
        let parameters = json!({ "type": "object", "properties": {} });
        let tools = [ChatTool { name: OFFERED.to_owned(), description: "d".to_owned(), parameters }];
        let said = Turn::Said(Message { role: Role::User, content: "?".to_owned() });
        let call = ChatCall { name: CALLED.to_owned(), arguments: json!({ "k": "v" }) };
        let called = Turn::Called { content: String::new(), calls: vec![call] };
        let result = Turn::Result { tool: CALLED.to_owned(), content: "!".to_owned() };
        let text = |turns: &[Turn]| template.text(&Shown::turns(turns, &tools, &|_| true)).ok();
        let (asked, whole) = (text(std::slice::from_ref(&said))?, text(&[said, called, result])?);
        // The template has to tell of the tool, and of the result: it has the second place.
        if !asked.contains(OFFERED) || !whole.contains(&Shown::place_of(1)) {
            return None;
        }
        let name = whole.find(&format!("\"{CALLED}\""))?;
        let begin = whole.get(..name)?.rfind('{')?;
        let mut values = serde_json::Deserializer::from_str(whole.get(begin..)?).into_iter::<Value>();
        let Value::Object(call) = values.next()?.ok()? else { return None };
        let after = whole.get(begin + values.byte_offset()..)?;
        let keys: Vec<&String> = call.keys().collect();
        let ["name", arguments] = keys.iter().map(|key| key.as_str()).collect::<Vec<_>>()[..] else { return None };
        if call.get("name")? != CALLED || call.get(arguments)? != &json!({ "k": "v" }) {
            return None;
        }
        // Up to where the model speaks both texts are alike.
        let alike = asked.bytes().zip(whole.bytes()).take_while(|(a, b)| a == b).count();
        let mark = whole.get(alike.min(begin)..begin)?.trim().to_owned();
        // A turn ends with one of the tokens that end texts.
        let turn_end = tokenizer.ends().iter().filter_map(|end| tokenizer.inner.trusting.id_to_token(*end));
        let turn_end = turn_end.filter_map(|end| after.find(&end)).min()?;
        let end = after.get(..turn_end)?.trim().to_owned();
        Some(CallForm { mark, end, arguments: arguments.to_owned() })
    }

    /// The form that models are told of whose template has none.
    pub fn plain() -> CallForm {
        CallForm { mark: "<tool_call>".into(), end: "</tool_call>".into(), arguments: "arguments".into() }
    }

    /// What holds a model to calls of these tools: after the mark, and after `{"name": "TOOL", "arguments": ` for models that
    /// leave the mark out. A reply ends with its first call.
    ///
    /// # Errors
    /// A vocabulary in which text cannot be spelt.
    pub fn constraints(&self, tools: &[ChatTool], tokenizer: &Tokenizer) -> Result<Vec<Constraint>, PolicyError> {
        // A schema that no grammar can be made of is checked by the tool alone.
        let usable = |tool: &ChatTool| {
            let alone = format!("start: %json {}", as_grammar(&tool.parameters, false));
            if Grammar::new(&alone, tokenizer).is_ok() { tool.parameters.clone() } else { Value::Null }
        };
        let schemas: Vec<Value> = tools.iter().map(usable).collect();
        let named = |tool: &ChatTool, line: &str, space: &str| {
            let (name, arguments) = (json!(tool.name), &self.arguments);
            let (begin, next) = if line.is_empty() { ("", space) } else { (line, line) };
            format!("{{{begin}\"name\":{space}{name},{next}\"{arguments}\":{space}")
        };
        let mut constraints = Vec::new();
        if !self.mark.is_empty() && !tools.is_empty() {
            let (mut names, mut rules) = (Vec::new(), String::new());
            for (at, (tool, schema)) in tools.iter().zip(&schemas).enumerate() {
                names.push(format!("call_{at}"));
                let (opening, schema) = (named(tool, "", " "), as_grammar(schema, false));
                // Writing to a string does not fail.
                writeln!(rules, "call_{at}: {} arguments_{at} \"}}\"\narguments_{at}: %json {schema}", json!(opening))
                    .unwrap_or_default();
            }
            let text =
                format!("start: SPACE? call\nSPACE: /[ \\t\\r\\n]{{1,2}}/\ncall: {}\n{rules}", names.join(" | "));
            constraints.push(Constraint { after: self.mark.clone(), grammar: Grammar::new(&text, tokenizer)? });
        }
        for (tool, schema) in tools.iter().zip(&schemas) {
            let on_one_line = format!("start: arguments \"}}\"\narguments: %json {}", as_grammar(schema, false));
            let on_several = format!(
                "start: arguments SPACE? \"}}\"\nSPACE: /{SPREAD}/\narguments: %json {}",
                as_grammar(schema, true)
            );
            let grammars = [Grammar::new(&on_one_line, tokenizer)?, Grammar::new(&on_several, tokenizer)?];
            // On one line, without spaces, and as models for code like to write it.
            for (line, space) in [("", " "), ("", ""), ("\n  ", " "), ("\n    ", " ")] {
                let grammar = grammars[usize::from(!line.is_empty())].clone(); // There are two.
                constraints.push(Constraint { after: named(tool, line, space), grammar });
            }
        }
        Ok(constraints)
    }
}

/// Where a call is written on several lines: what may stand between its parts. A model cannot write spaces for ever.
const SPREAD: &str = "[ \\n]{1,16}";

/// A schema as the grammar reads it: always of an object, with the spaces that models were taught, or `spread` over lines.
fn as_grammar(schema: &Value, spread: bool) -> String {
    let mut schema = schema.as_object().cloned().unwrap_or_default();
    schema.insert("type".to_owned(), json!("object"));
    let spaces = match spread {
        false => {
            json!({ "whitespace_flexible": false, "item_separator": ", ", "key_separator": ": ", "lenient": true })
        }
        true => json!({ "whitespace_pattern": SPREAD, "lenient": true }),
    };
    schema.insert("x-guidance".to_owned(), spaces);
    Value::Object(schema).to_string()
}
