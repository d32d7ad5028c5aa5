//! The functions, filters, tests and methods that chat templates use.

use super::value::{Objection, Outcome, Value, objection};
use super::{Arguments, Run};
use std::rc::Rc;

/// The most elements of a range.
const MOST_RANGE: i64 = 100_000;
/// The widest indentation of JSON.
pub(super) const MOST_INDENT: i64 = 16;

/// A function of ours by this name.
pub(super) fn function(name: &str) -> Option<&'static str> {
    ["raise_exception", "strftime_now", "namespace", "range", "dict"].into_iter().find(|known| *known == name)
}

impl<'a> Arguments<'a> {
    pub(super) fn place(&self, place: usize, name: &str) -> Option<&Value<'a>> {
        let named = || self.names.iter().find(|(given, _)| *given == name).map(|(_, value)| value);
        self.places.get(place).or_else(named)
    }

    pub(super) fn text(&self, place: usize, name: &str) -> Outcome<&str> {
        let found = self.place(place, name).and_then(Value::as_text);
        found.ok_or_else(|| Objection(format!("`{name}` has to be a text")))
    }
}

impl<'a> Run<'a> {
    pub(super) fn call_function(&mut self, name: &str, arguments: Arguments<'a>) -> Outcome<Value<'a>> {
        match name {
            // The template fails either way; a message that is no text is replaced.
            "raise_exception" => objection(arguments.text(0, "message").unwrap_or("it objects")),
            "strftime_now" => {
                // A day that never changes: a prompt that depends on when it was made could not be made again.
                let day = [("%Y", "2025"), ("%m", "01"), ("%d", "01"), ("%b", "Jan"), ("%B", "January"), ("%y", "25")];
                let mut text = arguments.text(0, "format")?.to_owned();
                for (field, value) in day {
                    self.budget.memory(2 * text.len() as u64 + 64)?;
                    text = self.replaced(&text, field, value)?;
                }
                self.budget.text(&text)
            }
            "namespace" => self.namespace(arguments),
            "range" => self.range(&arguments),
            _ => {
                let mut entries = Vec::new();
                for (name, value) in arguments.names {
                    entries.push((Rc::from(name), value));
                }
                self.budget.map(entries)
            }
        }
    }

    fn range(&mut self, arguments: &Arguments<'a>) -> Outcome<Value<'a>> {
        let number = |place: usize| arguments.places.get(place).map(|it| it.integer());
        let (start, stop, step) = match (number(0), number(1), number(2)) {
            (Some(Some(stop)), None, None) => (0, stop, 1),
            (Some(Some(start)), Some(Some(stop)), None) => (start, stop, 1),
            (Some(Some(start)), Some(Some(stop)), Some(Some(step))) if step != 0 => (start, stop, step),
            _ => return objection("a range takes one to three whole numbers, the last not zero"),
        };
        let distance = i128::from(stop) - i128::from(start);
        let length = (distance / i128::from(step) + i128::from(distance % i128::from(step) != 0)).max(0);
        // Signs that differ lead away from the end.
        let length = if (distance < 0) == (step < 0) { length } else { 0 };
        if length > i128::from(MOST_RANGE) {
            return objection(format!("a range of {length} numbers; at most {MOST_RANGE} make sense"));
        }
        self.budget.memory(64 * length as u64)?;
        let items = (0..length as i64).map(|place| Value::Int(start.wrapping_add(place.wrapping_mul(step))));
        self.budget.list(items.collect())
    }

    pub(super) fn field(&mut self, subject: &Value<'a>, name: &str) -> Outcome<Value<'a>> {
        self.budget.work(1 + subject.size() / 64)?;
        Ok(match subject {
            Value::Map(map) => map.get(name).cloned().unwrap_or(Value::Undefined),
            Value::Namespace(fields) => fields.borrow().get(name).cloned().unwrap_or(Value::Undefined),
            Value::Loop(turn) => {
                let length = turn.items.items.len();
                let neighbour = |place: Option<usize>| place.and_then(|place| turn.items.items.get(place)).cloned();
                match name {
                    "index" => Value::Int(turn.index as i64 + 1),
                    "index0" => Value::Int(turn.index as i64),
                    "revindex" => Value::Int((length - turn.index) as i64),
                    "revindex0" => Value::Int((length - turn.index) as i64 - 1),
                    "first" => Value::Bool(turn.index == 0),
                    "last" => Value::Bool(turn.index + 1 == length),
                    "length" => Value::Int(length as i64),
                    "previtem" => neighbour(turn.index.checked_sub(1)).unwrap_or(Value::Undefined),
                    "nextitem" => neighbour(turn.index.checked_add(1)).unwrap_or(Value::Undefined),
                    _ => Value::Undefined,
                }
            }
            Value::Undefined => return objection(format!("`{name}` is asked of an undefined value")),
            _ => Value::Undefined,
        })
    }

    pub(super) fn item(&mut self, subject: &Value<'a>, key: &Value<'a>) -> Outcome<Value<'a>> {
        self.budget.work(1 + subject.size() / 64)?;
        match (subject, key) {
            (subject, Value::Text(key)) => self.field(subject, key),
            (Value::List(list), key) => {
                let place = key.integer().and_then(|key| from_end(key, list.items.len()));
                Ok(place.and_then(|place| list.items.get(place)).cloned().unwrap_or(Value::Undefined))
            }
            (Value::Text(text), key) => {
                let length = text.chars().count();
                let place = key.integer().and_then(|key| from_end(key, length));
                match place.and_then(|place| text.chars().nth(place)) {
                    Some(character) => self.budget.text(character.encode_utf8(&mut [0; 4])),
                    None => Ok(Value::Undefined),
                }
            }
            (Value::Undefined, _) => objection("a part of an undefined value is asked for"),
            _ => Ok(Value::Undefined),
        }
    }

    pub(super) fn slice(&mut self, subject: &Value<'a>, bounds: [Option<Value<'a>>; 3]) -> Outcome<Value<'a>> {
        let mut numbers = [None; 3];
        for (number, bound) in numbers.iter_mut().zip(bounds) {
            *number = match bound {
                None | Some(Value::None) => None,
                Some(value) => match value.integer() {
                    Some(whole) => Some(whole),
                    None => return objection("a slice takes whole numbers"),
                },
            };
        }
        self.budget.work(subject.size() / 8)?;
        match subject {
            Value::Undefined | Value::None => self.budget.list(Vec::new()),
            Value::List(list) => {
                let places = sliced(list.items.len(), numbers)?;
                self.budget.memory(64 * list.items.len() as u64)?;
                self.budget.list(places.filter_map(|place| list.items.get(place).cloned()).collect())
            }
            Value::Text(text) => {
                self.budget.memory(5 * text.len() as u64)?;
                let characters: Vec<char> = text.chars().collect();
                let places = sliced(characters.len(), numbers)?;
                let part: String = places.filter_map(|place| characters.get(place)).collect();
                self.budget.text(&part)
            }
            other => objection(format!("{} has no parts", other.kind())),
        }
    }

    pub(super) fn method(&mut self, subject: &Value<'a>, name: &str, arguments: &Arguments<'a>) -> Outcome<Value<'a>> {
        self.budget.work(1 + subject.size() / 8)?;
        match subject {
            Value::Text(text) => self.text_method(text, name, arguments),
            Value::Map(map) => match name {
                "items" => self.pairs(&map.entries),
                "keys" => self.budget.list(map.entries.iter().map(|(key, _)| Value::Text(key.clone())).collect()),
                "values" => self.budget.list(map.entries.iter().map(|(_, value)| value.clone()).collect()),
                "get" => {
                    // All keys are texts: a mapping holds no other key.
                    let key = arguments.place(0, "key").and_then(Value::as_text);
                    let found = key.and_then(|key| map.get(key)).cloned();
                    Ok(found.or_else(|| arguments.place(1, "default").cloned()).unwrap_or(Value::None))
                }
                _ => objection(format!("a mapping has no method `{name}`")),
            },
            Value::Loop(turn) if name == "cycle" && !arguments.places.is_empty() => {
                Ok(arguments.places.get(turn.index % arguments.places.len()).cloned().unwrap_or(Value::Undefined))
            }
            other => objection(format!("{} has no method `{name}`", other.kind())),
        }
    }

    fn pairs(&mut self, entries: &[(Rc<str>, Value<'a>)]) -> Outcome<Value<'a>> {
        let mut pairs = Vec::new();
        for (key, value) in entries {
            pairs.push(self.budget.list(vec![Value::Text(key.clone()), value.clone()])?);
        }
        self.budget.list(pairs)
    }

    pub(super) fn filter(&mut self, name: &str, subject: &Value<'a>, arguments: &Arguments<'a>) -> Outcome<Value<'a>> {
        self.budget.work(1 + subject.size() / 8)?;
        let text = |value: &Value<'a>| value.as_text().map(str::to_owned);
        match name {
            "default" | "d" => {
                let is_missing = match subject {
                    Value::Undefined => true,
                    other => arguments.place(1, "boolean").is_some_and(Value::is_true) && !other.is_true(),
                };
                let default = || arguments.place(0, "default_value").cloned();
                if is_missing { default().map_or_else(|| self.budget.text(""), Ok) } else { Ok(subject.clone()) }
            }
            "length" | "count" => match subject {
                Value::Text(text) => Ok(Value::Int(text.chars().count() as i64)),
                Value::List(list) => Ok(Value::Int(list.items.len() as i64)),
                Value::Map(map) => Ok(Value::Int(map.entries.len() as i64)),
                Value::Undefined => Ok(Value::Int(0)),
                other => objection(format!("{} has no length", other.kind())),
            },
            "tojson" => {
                let indent = arguments.place(0, "indent").and_then(Value::integer).unwrap_or(0).clamp(0, MOST_INDENT);
                self.budget.json(subject, indent as usize)
            }
            "items" | "dictsort" => match subject {
                Value::Map(map) => {
                    let mut entries = map.entries.clone();
                    if name == "dictsort" {
                        entries.sort_by(|(a, _), (b, _)| a.cmp(b));
                    }
                    self.pairs(&entries)
                }
                other => objection(format!("{} has no items", other.kind())),
            },
            "first" | "last" => {
                let items = self.items(subject)?;
                let found = if name == "first" { items.items.first() } else { items.items.last() };
                Ok(found.cloned().unwrap_or(Value::Undefined))
            }
            "list" => self.items(subject).map(Value::List),
            "reverse" => match subject {
                Value::Text(text) => {
                    self.budget.memory(text.len() as u64)?;
                    let reversed: String = text.chars().rev().collect();
                    self.budget.text(&reversed)
                }
                other => {
                    let items = self.items(other)?;
                    self.budget.list(items.items.iter().rev().cloned().collect())
                }
            },
            "join" => {
                let separator = arguments.place(0, "d").and_then(text).unwrap_or_default();
                self.budget.memory(separator.len() as u64)?;
                self.join(subject, &separator)
            }
            "map" => self.map_filter(subject, arguments),
            "select" | "reject" | "selectattr" | "rejectattr" => self.select(name, subject, arguments),
            "int" | "float" | "abs" | "round" => number_filter(name, subject),
            "safe" | "string" | "trim" | "upper" | "lower" | "capitalize" | "title" | "replace" | "indent" => {
                let subject = self.budget.shown(subject)?;
                self.text_filter(name, &subject, arguments)
            }
            _ => objection(format!("filter `{name}` is not known here")),
        }
    }

    fn map_filter(&mut self, subject: &Value<'a>, arguments: &Arguments<'a>) -> Outcome<Value<'a>> {
        let items = self.items(subject)?;
        let attribute = arguments.names.iter().find(|(name, _)| *name == "attribute").map(|(_, value)| value.clone());
        let mut mapped = Vec::new();
        for item in &items.items {
            mapped.push(match &attribute {
                Some(name) => self.item(item, name)?,
                None => {
                    let name = arguments.text(0, "filter")?;
                    let rest =
                        Arguments { places: arguments.places.get(1..).unwrap_or_default().to_vec(), names: Vec::new() };
                    self.deeper(|run| run.filter(name, item, &rest))?
                }
            });
        }
        self.budget.list(mapped)
    }

    fn select(&mut self, name: &str, subject: &Value<'a>, arguments: &Arguments<'a>) -> Outcome<Value<'a>> {
        let items = self.items(subject)?;
        let by_attribute = name.ends_with("attr");
        let attribute = by_attribute.then(|| arguments.places.first().cloned()).flatten();
        let rest = arguments.places.get(usize::from(by_attribute)..).unwrap_or_default();
        let is_selected = name.starts_with("select");
        let mut kept = Vec::new();
        for item in &items.items {
            let value = match &attribute {
                Some(attribute) => self.item(item, attribute)?,
                None => item.clone(),
            };
            let holds = match rest.first().and_then(Value::as_text) {
                None => value.is_true(),
                Some(test) => {
                    let more = Arguments { places: rest.get(1..).unwrap_or_default().to_vec(), names: Vec::new() };
                    self.test(test, &value, &more)?
                }
            };
            if holds == is_selected {
                kept.push(item.clone());
            }
        }
        self.budget.list(kept)
    }

    pub(super) fn test(&mut self, name: &str, subject: &Value<'a>, arguments: &Arguments<'a>) -> Outcome<bool> {
        self.budget.work(1)?;
        let other = || arguments.places.first().cloned().unwrap_or(Value::Undefined);
        use minijinja::machinery::ast::CompareOpKind as Op;
        Ok(match name {
            "defined" => !matches!(subject, Value::Undefined),
            "undefined" => matches!(subject, Value::Undefined),
            "none" => matches!(subject, Value::None),
            "string" => matches!(subject, Value::Text(_)),
            "number" => matches!(subject, Value::Int(_) | Value::Float(_)),
            "integer" => matches!(subject, Value::Int(_)),
            "float" => matches!(subject, Value::Float(_)),
            "boolean" => matches!(subject, Value::Bool(_)),
            "true" => matches!(subject, Value::Bool(true)),
            "false" => matches!(subject, Value::Bool(false)),
            "mapping" => matches!(subject, Value::Map(_)),
            "sequence" => matches!(subject, Value::List(_) | Value::Text(_)),
            "iterable" => matches!(subject, Value::List(_) | Value::Text(_) | Value::Map(_)),
            "callable" => matches!(subject, Value::Macro(_) | Value::Function(_)),
            "odd" => subject.integer().is_some_and(|number| number % 2 != 0),
            "even" => subject.integer().is_some_and(|number| number % 2 == 0),
            "divisibleby" => {
                let by = other().integer().unwrap_or_default();
                subject.integer().and_then(|number| number.checked_rem(by)) == Some(0)
            }
            "startingwith" => {
                subject.as_text().zip(other().as_text()).is_some_and(|(text, part)| text.starts_with(part))
            }
            "endingwith" => subject.as_text().zip(other().as_text()).is_some_and(|(text, part)| text.ends_with(part)),
            "eq" | "equalto" | "==" => self.compare(Op::Eq, subject, &other())?,
            "ne" | "!=" => self.compare(Op::Ne, subject, &other())?,
            "lt" | "lessthan" | "<" => self.compare(Op::Lt, subject, &other())?,
            "le" | "<=" => self.compare(Op::Lte, subject, &other())?,
            "gt" | "greaterthan" | ">" => self.compare(Op::Gt, subject, &other())?,
            "ge" | ">=" => self.compare(Op::Gte, subject, &other())?,
            "in" => self.compare(Op::In, subject, &other())?,
            _ => return objection(format!("test `{name}` is not known here")),
        })
    }
}

fn number_filter<'a>(name: &str, subject: &Value<'a>) -> Outcome<Value<'a>> {
    let read = subject.as_text().and_then(|text| text.trim().parse::<f64>().ok());
    let Some(number) = subject.number().or(read) else {
        return objection(format!("{} is no number", subject.kind()));
    };
    // What is out of bounds becomes the nearest whole number.
    Ok(match (name, subject.integer()) {
        ("int", Some(whole)) => Value::Int(whole),
        ("int", None) => Value::Int(number as i64),
        ("abs", Some(whole)) => Value::Int(whole.saturating_abs()),
        ("abs", None) => Value::Float(number.abs()),
        ("round", _) => Value::Float(number.round()),
        _ => Value::Float(number),
    })
}

/// A place counted from the beginning, or, below zero, from the end.
fn from_end(place: i64, length: usize) -> Option<usize> {
    let place = if place < 0 { i64::try_from(length).ok()?.checked_add(place)? } else { place };
    usize::try_from(place).ok()
}

/// The places of a slice, as in Python.
fn sliced(length: usize, [start, stop, step]: [Option<i64>; 3]) -> Outcome<Box<dyn Iterator<Item = usize>>> {
    let length = length as i64;
    let step = step.unwrap_or(1);
    let clamp = |bound: i64, low: i64, high: i64| {
        let bound = if bound < 0 { bound.saturating_add(length) } else { bound };
        bound.clamp(low, high)
    };
    let width = usize::try_from(step.unsigned_abs()).unwrap_or(usize::MAX);
    match step {
        0 => objection("a slice cannot have steps of zero"),
        1.. => {
            let (start, stop) =
                (start.map_or(0, |it| clamp(it, 0, length)), stop.map_or(length, |it| clamp(it, 0, length)));
            Ok(Box::new((start..stop).step_by(width).map(|place| place as usize)))
        }
        _ => {
            let start = start.map_or(length - 1, |it| clamp(it, -1, length - 1));
            let stop = stop.map_or(-1, |it| clamp(it, -1, length - 1));
            Ok(Box::new((stop + 1..=start).rev().step_by(width).map(|place| place as usize)))
        }
    }
}
