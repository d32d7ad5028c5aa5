//! How a conversation is written: the model's own template, which never sees what the messages say.

use super::Message;
use crate::PolicyError;
use minijinja::value::{Value, ValueKind, from_args};
use minijinja::{Environment, Error, ErrorKind, State, context};

/// A template, ready to be rendered.
pub(super) struct Template {
    environment: Environment<'static>,
    begin: String,
    end: String,
}

/// A part of a conversation.
#[derive(Debug, PartialEq)]
pub(super) enum Piece<'m> {
    /// What the template writes.
    Frame(String),
    /// What a message says.
    Content(&'m str),
}

const NAME: &str = "chat";

/// A message's place in the rendered text, by its number between these. They are of no alphabet, and the messages that
/// could hold them are not rendered.
const OPEN: char = '\u{e0f0}';
const CLOSE: char = '\u{e0f1}';

impl Template {
    /// Reads a template; `begin` and `end` are the tokens it may want to write around a text.
    pub(super) fn new(source: &str, begin: String, end: String) -> Result<Template, Error> {
        let mut environment = Environment::new();
        // As the `transformers` library sets up its own.
        environment.set_trim_blocks(true);
        environment.set_lstrip_blocks(true);
        environment.set_unknown_method_callback(python_method);
        environment.add_function("raise_exception", raise_exception);
        environment.add_function("strftime_now", strftime_now);
        environment.add_template_owned(NAME, source.to_owned())?;
        Ok(Template { environment, begin, end })
    }

    /// The conversation up to where the model speaks.
    pub(super) fn pieces<'m>(&self, messages: &'m [Message]) -> Result<Vec<Piece<'m>>, PolicyError> {
        let shown = messages.iter().enumerate().map(|(number, message)| {
            context! { role => message.role, content => format!("{OPEN}{number}{CLOSE}") }
        });
        let variables = context! {
            messages => shown.collect::<Vec<_>>(),
            add_generation_prompt => true,
            bos_token => self.begin,
            eos_token => self.end,
        };
        let rendered = self.environment.get_template(NAME).and_then(|template| template.render(variables));
        let text = rendered.map_err(|error| PolicyError::Request(format!("the chat template failed: {error:#}")))?;
        Ok(split(&text, messages))
    }
}

/// Puts the messages where their places are.
fn split<'m>(text: &str, messages: &'m [Message]) -> Vec<Piece<'m>> {
    let mut pieces = Vec::new();
    for part in text.split(OPEN) {
        let placed = part
            .split_once(CLOSE)
            .and_then(|(number, rest)| Some((messages.get(number.parse::<usize>().ok()?)?.content.as_str(), rest)));
        let (content, frame) = placed.map_or((None, part), |(content, rest)| (Some(content), rest));
        pieces.extend(content.map(Piece::Content));
        if !frame.is_empty() {
            pieces.push(Piece::Frame(frame.to_owned()));
        }
    }
    pieces
}

fn raise_exception(fact: String) -> Result<String, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, fact))
}

/// A day that never changes: a prompt that depends on when it was made could not be made again.
fn strftime_now(format: String) -> String {
    let day = [("%Y", "2025"), ("%m", "01"), ("%d", "01"), ("%b", "Jan"), ("%B", "January"), ("%y", "25")];
    day.iter().fold(format, |text, (field, value)| text.replace(field, value))
}

/// The methods of Python's strings and mappings that templates use.
fn python_method(state: &State, value: &Value, method: &str, arguments: &[Value]) -> Result<Value, Error> {
    match value.kind() {
        ValueKind::String => string_method(value.as_str().unwrap_or_default(), method, arguments),
        ValueKind::Map => mapping_method(state, value, method, arguments),
        _ => Err(ErrorKind::UnknownMethod.into()),
    }
}

fn string_method(text: &str, method: &str, arguments: &[Value]) -> Result<Value, Error> {
    let trimmed = |left: bool, right: bool| -> Result<Value, Error> {
        let (characters,): (Option<String>,) = from_args(arguments)?;
        let strip = |it: char| characters.as_ref().map_or(it.is_whitespace(), |characters| characters.contains(it));
        let text = if left { text.trim_start_matches(strip) } else { text };
        Ok(Value::from(if right { text.trim_end_matches(strip) } else { text }))
    };
    let one = || -> Result<&str, Error> { from_args::<(&str,)>(arguments).map(|(one,)| one) };
    match method {
        "strip" => trimmed(true, true),
        "lstrip" => trimmed(true, false),
        "rstrip" => trimmed(false, true),
        "startswith" => Ok(Value::from(text.starts_with(one()?))),
        "endswith" => Ok(Value::from(text.ends_with(one()?))),
        "upper" => Ok(Value::from(text.to_uppercase())),
        "lower" => Ok(Value::from(text.to_lowercase())),
        "split" => Ok(text.split(one()?).map(Value::from).collect()),
        "replace" => {
            let (old, new): (&str, &str) = from_args(arguments)?;
            Ok(Value::from(text.replace(old, new)))
        }
        _ => Err(ErrorKind::UnknownMethod.into()),
    }
}

fn mapping_method(state: &State, mapping: &Value, method: &str, arguments: &[Value]) -> Result<Value, Error> {
    match method {
        "items" => state.apply_filter("items", std::slice::from_ref(mapping)),
        "get" => {
            let (key, default): (Value, Option<Value>) = from_args(arguments)?;
            let found = mapping.get_item(&key)?;
            Ok(if found.is_undefined() { default.unwrap_or(Value::from(())) } else { found })
        }
        _ => Err(ErrorKind::UnknownMethod.into()),
    }
}
