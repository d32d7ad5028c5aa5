//! The values of templates, and the budget of a rendering.

use minijinja::machinery::ast;
use serde_json::Value as Json;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::rc::Rc;

/// Steps of one rendering: statements, expressions, and work on long texts and lists. A template of a real model takes a few
/// hundred for each message.
const MOST_STEPS: u64 = 1_000_000;
/// Bytes of all texts and lists that one rendering makes, whether or not it still uses them.
const MOST_BYTES: u64 = 64 << 20;
/// How deep lists and mappings may be nested.
const MOST_DEPTH: u32 = 32;
/// Elements of a list or mapping are counted with this many bytes each.
const ELEMENT: u64 = 64;

/// Why a template failed.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Objection(pub(crate) String);

pub(super) type Outcome<T> = Result<T, Objection>;

pub(super) fn objection<T>(fact: impl Into<String>) -> Outcome<T> {
    Err(Objection(fact.into()))
}

/// The steps and bytes that a rendering may still use. Work is charged before it is done.
pub(super) struct Budget {
    steps: u64,
    bytes: u64,
}

impl Budget {
    pub(super) fn new() -> Self {
        Budget { steps: MOST_STEPS, bytes: MOST_BYTES }
    }

    /// Charges this many steps.
    pub(super) fn work(&mut self, steps: u64) -> Outcome<()> {
        match self.steps.checked_sub(steps) {
            Some(left) => self.steps = left,
            None => return objection(format!("it does not end: more than {MOST_STEPS} steps")),
        }
        Ok(())
    }

    /// Charges this many bytes and the work of writing them.
    pub(super) fn memory(&mut self, bytes: u64) -> Outcome<()> {
        match self.bytes.checked_sub(bytes) {
            Some(left) => self.bytes = left,
            None => return objection(format!("it takes too much memory: more than {MOST_BYTES} bytes")),
        }
        self.work(bytes / 1024)
    }

    pub(super) fn text<'a>(&mut self, text: &str) -> Outcome<Value<'a>> {
        self.memory(text.len() as u64 + ELEMENT)?;
        Ok(Value::Text(text.into()))
    }

    /// Several texts as one.
    pub(super) fn joined<'a>(&mut self, parts: &[&str]) -> Outcome<Value<'a>> {
        // Before they are copied together, and once more for the copy that is kept.
        self.memory(parts.iter().fold(0, |bytes: u64, part| bytes.saturating_add(part.len() as u64)))?;
        self.text(&parts.concat())
    }

    pub(super) fn list<'a>(&mut self, items: Vec<Value<'a>>) -> Outcome<Value<'a>> {
        let depth = self.contain(items.len(), items.iter())?;
        Ok(Value::List(Rc::new(Listed { items, depth })))
    }

    pub(super) fn map<'a>(&mut self, entries: Vec<(Rc<str>, Value<'a>)>) -> Outcome<Value<'a>> {
        let depth = self.contain(entries.len(), entries.iter().map(|(_, value)| value))?;
        Ok(Value::Map(Rc::new(Mapped { entries, depth })))
    }

    /// A value that a template is given. As deep as the reader of JSON admits.
    pub(super) fn given<'a>(&mut self, value: &Json) -> Outcome<Value<'a>> {
        Ok(match value {
            Json::Null => Value::None,
            Json::Bool(truth) => Value::Bool(*truth),
            Json::Number(number) => match (number.as_i64(), number.as_f64()) {
                (Some(whole), _) => Value::Int(whole),
                (None, Some(number)) => Value::Float(number),
                (None, None) => return objection(format!("{number} is too large")),
            },
            Json::String(text) => self.text(text)?,
            Json::Array(items) => {
                let mut given = Vec::with_capacity(items.len());
                for item in items {
                    given.push(self.given(item)?);
                }
                self.list(given)?
            }
            Json::Object(fields) => {
                let mut given = Vec::with_capacity(fields.len());
                for (name, value) in fields {
                    self.memory(name.len() as u64)?;
                    given.push((Rc::from(name.as_str()), self.given(value)?));
                }
                self.map(given)?
            }
        })
    }

    /// Pays for a container. How deep it is bounds every recursion over values, their end included.
    fn contain<'v, 'a: 'v>(&mut self, length: usize, items: impl Iterator<Item = &'v Value<'a>>) -> Outcome<u32> {
        self.memory((length as u64 + 1).saturating_mul(ELEMENT))?;
        self.work(length as u64)?;
        let mut depth = 0;
        for item in items {
            depth = depth.max(item.depth()?);
        }
        if depth >= MOST_DEPTH {
            return objection(format!("its lists are nested more than {MOST_DEPTH} deep"));
        }
        Ok(depth + 1)
    }

    /// Whether two values are equal.
    pub(super) fn equal(&mut self, a: &Value<'_>, b: &Value<'_>) -> Outcome<bool> {
        self.work(1 + a.size() / 64)?;
        Ok(match (a, b) {
            (Value::Text(a), Value::Text(b)) => a == b,
            (Value::Int(a), Value::Int(b)) => a == b,
            (Value::None, Value::None) | (Value::Undefined, Value::Undefined) => true,
            (Value::List(a), Value::List(b)) => {
                if a.items.len() != b.items.len() {
                    return Ok(false);
                }
                for (a, b) in a.items.iter().zip(&b.items) {
                    if !self.equal(a, b)? {
                        return Ok(false);
                    }
                }
                true
            }
            (Value::Map(a), Value::Map(b)) => {
                if a.entries.len() != b.entries.len() {
                    return Ok(false);
                }
                for (key, value) in &a.entries {
                    self.work(b.entries.len() as u64)?;
                    match b.get(key) {
                        Some(other) if self.equal(value, other)? => {}
                        _ => return Ok(false),
                    }
                }
                true
            }
            (a, b) => matches!((a.number(), b.number()), (Some(a), Some(b)) if a == b),
        })
    }

    /// A value as a template writes it.
    pub(super) fn shown(&mut self, value: &Value<'_>) -> Outcome<Rc<str>> {
        let mut text = String::new();
        match value {
            Value::Text(text) => return Ok(text.clone()),
            Value::Undefined => {}
            other => self.write(&mut text, other, Style::Python)?,
        }
        self.memory(text.len() as u64)?;
        Ok(text.into())
    }

    /// A value as JSON.
    pub(super) fn json<'a>(&mut self, value: &Value<'_>, indent: usize) -> Outcome<Value<'a>> {
        let mut text = String::new();
        self.write(&mut text, value, Style::Json { indent, level: 0 })?;
        self.text(&text)
    }

    fn write(&mut self, out: &mut String, value: &Value<'_>, style: Style) -> Outcome<()> {
        // Indentation and quotes; a character may take six bytes.
        self.memory(32 + style.indent() as u64 + value.size().saturating_mul(6))?;
        let python = matches!(style, Style::Python);
        // Writing into a text cannot fail.
        match value {
            Value::Undefined | Value::None => out.push_str(if python { "None" } else { "null" }),
            Value::Bool(true) => out.push_str(if python { "True" } else { "true" }),
            Value::Bool(false) => out.push_str(if python { "False" } else { "false" }),
            Value::Int(number) => drop(write!(out, "{number}")),
            Value::Float(number) => drop(write!(out, "{number:?}")),
            Value::Text(text) if python => drop(write!(out, "'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"))),
            Value::Text(text) => out.push_str(&serde_json::Value::from(&**text).to_string()),
            Value::List(list) => {
                out.push('[');
                for (place, item) in list.items.iter().enumerate() {
                    style.next(out, place);
                    self.write(out, item, style.deeper())?;
                }
                style.close(out, list.items.is_empty(), ']');
            }
            Value::Map(map) => {
                out.push('{');
                for (place, (key, item)) in map.entries.iter().enumerate() {
                    style.next(out, place);
                    self.memory(6 * key.len() as u64)?;
                    self.write(out, &Value::Text(key.clone()), style.deeper())?;
                    out.push_str(": ");
                    self.write(out, item, style.deeper())?;
                }
                style.close(out, map.entries.is_empty(), '}');
            }
            other => return objection(format!("{} cannot be written", other.kind())),
        }
        Ok(())
    }
}

/// How nested values are written.
#[derive(Clone, Copy)]
enum Style {
    Python,
    Json { indent: usize, level: usize },
}

impl Style {
    fn indent(self) -> usize {
        match self {
            Style::Json { indent, level } => indent * level,
            Style::Python => 0,
        }
    }

    fn deeper(self) -> Style {
        match self {
            Style::Json { indent, level } => Style::Json { indent, level: level + 1 },
            Style::Python => Style::Python,
        }
    }

    fn line(self, out: &mut String) {
        if matches!(self, Style::Json { indent: 1.., .. }) {
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', self.indent()));
        }
    }

    fn next(self, out: &mut String, place: usize) {
        if place > 0 {
            // As Python's `json.dumps`, which the `transformers` library writes with.
            out.push_str(if matches!(self, Style::Json { indent: 1.., .. }) { "," } else { ", " });
        }
        self.deeper().line(out);
    }

    fn close(self, out: &mut String, empty: bool, sign: char) {
        if !empty {
            self.line(out);
        }
        out.push(sign);
    }
}

#[derive(Clone)]
pub(super) enum Value<'a> {
    Undefined,
    None,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(Rc<str>),
    List(Rc<Listed<'a>>),
    Map(Rc<Mapped<'a>>),
    /// Fields that can be set. It never holds another, so that there are no circles.
    Namespace(Rc<RefCell<BTreeMap<&'a str, Value<'a>>>>),
    Macro(&'a ast::Macro<'a>),
    /// One of ours, by its name.
    Function(&'static str),
    Loop(Rc<Turn<'a>>),
}

pub(super) struct Listed<'a> {
    pub(super) items: Vec<Value<'a>>,
    depth: u32,
}

pub(super) struct Mapped<'a> {
    pub(super) entries: Vec<(Rc<str>, Value<'a>)>,
    depth: u32,
}

/// Where a loop is.
pub(super) struct Turn<'a> {
    pub(super) index: usize,
    pub(super) items: Rc<Listed<'a>>,
}

impl<'a> Mapped<'a> {
    pub(super) fn get(&self, key: &str) -> Option<&Value<'a>> {
        // The last of several.
        self.entries.iter().rev().find(|(name, _)| **name == *key).map(|(_, value)| value)
    }
}

impl Value<'_> {
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Value::Undefined => "an undefined value",
            Value::None => "none",
            Value::Bool(_) => "a truth value",
            Value::Int(_) | Value::Float(_) => "a number",
            Value::Text(_) => "a text",
            Value::List(_) => "a list",
            Value::Map(_) => "a mapping",
            Value::Namespace(_) => "a namespace",
            Value::Macro(_) | Value::Function(_) => "a function",
            Value::Loop(_) => "a loop",
        }
    }

    /// How deep it is; what has no depth cannot be part of another value.
    fn depth(&self) -> Outcome<u32> {
        match self {
            Value::List(list) => Ok(list.depth),
            Value::Map(map) => Ok(map.depth),
            Value::Namespace(_) | Value::Macro(_) | Value::Loop(_) => {
                objection(format!("{} cannot be part of another value", self.kind()))
            }
            _ => Ok(0),
        }
    }

    /// Whether it may be a field of a namespace.
    pub(super) fn can_be_field(&self) -> Outcome<()> {
        self.depth().map(drop)
    }

    /// About how much work it is to go through it once, without what is nested in it.
    pub(super) fn size(&self) -> u64 {
        match self {
            Value::Text(text) => text.len() as u64,
            Value::List(list) => 16 * list.items.len() as u64,
            Value::Map(map) => 16 * map.entries.len() as u64,
            _ => 0,
        }
    }

    pub(super) fn is_true(&self) -> bool {
        match self {
            Value::Undefined | Value::None => false,
            Value::Bool(truth) => *truth,
            Value::Int(number) => *number != 0,
            Value::Float(number) => *number != 0.0,
            Value::Text(text) => !text.is_empty(),
            Value::List(list) => !list.items.is_empty(),
            Value::Map(map) => !map.entries.is_empty(),
            _ => true,
        }
    }

    pub(super) fn number(&self) -> Option<f64> {
        match self {
            Value::Bool(truth) => Some(f64::from(u8::from(*truth))),
            Value::Int(number) => Some(*number as f64),
            Value::Float(number) => Some(*number),
            _ => None,
        }
    }

    pub(super) fn integer(&self) -> Option<i64> {
        match self {
            Value::Bool(truth) => Some(i64::from(*truth)),
            Value::Int(number) => Some(*number),
            _ => None,
        }
    }

    pub(super) fn as_text(&self) -> Option<&str> {
        match self {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }
}
