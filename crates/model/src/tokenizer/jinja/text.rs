//! The methods and filters of texts.

use super::builtins::MOST_INDENT;
use super::value::{Outcome, Value, objection};
use super::{Arguments, Run};

impl<'a> Run<'a> {
    /// A text with all occurrences of another replaced, paid before it is made.
    pub(super) fn replaced(&mut self, text: &str, old: &str, new: &str) -> Outcome<String> {
        self.budget.work((text.len() as u64) / 16)?;
        let times = text.matches(old).count() as u64;
        self.budget.memory((text.len() as u64).saturating_add(times.saturating_mul(new.len() as u64)))?;
        Ok(text.replace(old, new))
    }

    pub(super) fn text_method(&mut self, text: &str, name: &str, arguments: &Arguments<'a>) -> Outcome<Value<'a>> {
        let strip = |left: bool, right: bool| {
            let characters = arguments.place(0, "chars").and_then(Value::as_text);
            let is_cut = |it: char| characters.map_or(it.is_whitespace(), |characters| characters.contains(it));
            let text = if left { text.trim_start_matches(is_cut) } else { text };
            if right { text.trim_end_matches(is_cut) } else { text }
        };
        // A set of characters is searched for each character.
        let searched = arguments.place(0, "chars").map_or(0, Value::size);
        self.budget.work((text.len() as u64).saturating_mul(searched) / 64)?;
        match name {
            "strip" => self.budget.text(strip(true, true)),
            "lstrip" => self.budget.text(strip(true, false)),
            "rstrip" => self.budget.text(strip(false, true)),
            "startswith" => self.any_of(arguments, |part| text.starts_with(part)),
            "endswith" => self.any_of(arguments, |part| text.ends_with(part)),
            "removeprefix" => self.budget.text(text.strip_prefix(arguments.text(0, "prefix")?).unwrap_or(text)),
            "removesuffix" => self.budget.text(text.strip_suffix(arguments.text(0, "suffix")?).unwrap_or(text)),
            "upper" | "lower" | "title" | "capitalize" => self.text_filter(name, text, arguments),
            "find" => {
                let found = text.find(arguments.text(0, "part")?);
                let place = found.map(|at| text.get(..at).unwrap_or_default().chars().count() as i64);
                Ok(Value::Int(place.unwrap_or(-1)))
            }
            "count" => Ok(Value::Int(text.matches(arguments.text(0, "part")?).count() as i64)),
            "split" => self.split(text, arguments),
            "splitlines" => {
                let mut lines = Vec::new();
                for line in text.lines() {
                    lines.push(self.budget.text(line)?);
                }
                self.budget.list(lines)
            }
            "join" => match arguments.place(0, "list") {
                Some(list) => self.join(list, text),
                None => objection("`join` takes a list"),
            },
            "replace" => {
                let text = self.replaced(text, arguments.text(0, "old")?, arguments.text(1, "new")?)?;
                self.budget.text(&text)
            }
            _ => objection(format!("a text has no method `{name}`")),
        }
    }

    fn any_of(&mut self, arguments: &Arguments<'a>, holds: impl Fn(&str) -> bool) -> Outcome<Value<'a>> {
        match arguments.place(0, "part") {
            Some(Value::Text(part)) => Ok(Value::Bool(holds(part))),
            Some(Value::List(parts)) => {
                self.budget.work(parts.items.len() as u64)?;
                Ok(Value::Bool(parts.items.iter().filter_map(Value::as_text).any(holds)))
            }
            _ => objection("a text was expected"),
        }
    }

    fn split(&mut self, text: &str, arguments: &Arguments<'a>) -> Outcome<Value<'a>> {
        let most = arguments.place(1, "maxsplit").and_then(Value::integer).and_then(|most| usize::try_from(most).ok());
        let most = most.map_or(usize::MAX, |most| most.saturating_add(1));
        let mut parts = Vec::new();
        match arguments.place(0, "sep") {
            None | Some(Value::None) => {
                for part in text.split_whitespace() {
                    parts.push(self.budget.text(part)?);
                }
            }
            Some(Value::Text(separator)) if !separator.is_empty() => {
                for part in text.splitn(most, &**separator) {
                    parts.push(self.budget.text(part)?);
                }
            }
            Some(_) => return objection("a text is split at a text"),
        }
        self.budget.list(parts)
    }

    pub(super) fn join(&mut self, list: &Value<'a>, separator: &str) -> Outcome<Value<'a>> {
        let items = self.items(list)?;
        let mut text = String::new();
        for (place, item) in items.items.iter().enumerate() {
            let item = self.budget.shown(item)?;
            self.budget.memory((separator.len() + item.len()) as u64)?;
            if place > 0 {
                text.push_str(separator);
            }
            text.push_str(&item);
        }
        self.budget.text(&text)
    }

    pub(super) fn text_filter(&mut self, name: &str, text: &str, arguments: &Arguments<'a>) -> Outcome<Value<'a>> {
        // A character may become up to three others.
        self.budget.memory(4 * text.len() as u64)?;
        match name {
            "trim" => match arguments.place(0, "chars") {
                Some(_) => self.text_method(text, "strip", arguments),
                None => self.budget.text(text.trim()),
            },
            "upper" => self.budget.text(&text.to_uppercase()),
            "lower" => self.budget.text(&text.to_lowercase()),
            "capitalize" | "title" => {
                let mut changed = String::new();
                let mut is_first = true;
                for character in text.chars() {
                    match is_first {
                        true => changed.extend(character.to_uppercase()),
                        false => changed.extend(character.to_lowercase()),
                    }
                    is_first = name == "title" && !character.is_alphanumeric();
                }
                self.budget.text(&changed)
            }
            "replace" => {
                let text = self.replaced(text, arguments.text(0, "old")?, arguments.text(1, "new")?)?;
                self.budget.text(&text)
            }
            "indent" => {
                let width = arguments.place(0, "width").and_then(Value::integer).unwrap_or(4).clamp(0, MOST_INDENT);
                let indented = self.replaced(text, "\n", &format!("\n{}", " ".repeat(width as usize)))?;
                self.budget.text(&indented)
            }
            _ => self.budget.text(text),
        }
    }
}
