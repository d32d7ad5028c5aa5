//! From the YAML tree to a draft: each field read on its own, each shape that does not fit reported.

use crate::diagnostic::{Code, Faults, list, one_of, quote};
use crate::yaml::{Document, Entry, Node, Value};
use crate::{AnswerRule, Language, Next, Share, Span};
use std::str::FromStr;

/// What could be read of a specification; [`crate::check`] decides whether it is a team.
#[derive(Default)]
pub(crate) struct Draft {
    pub(crate) agents: Vec<DraftAgent>,
    /// Where the list of agents stands (or the text begins), for faults of the team as a whole.
    pub(crate) agents_span: Span,
    pub(crate) answer: Option<DraftAnswer>,
    pub(crate) next: Option<Written<Next>>,
    /// Some agents, or their ids, could not be read: a reference that nothing answers to may be right all the same.
    pub(crate) agents_missing: bool,
    /// The text was given up before its end.
    pub(crate) cut: bool,
}

/// A value and where it stands.
pub(crate) struct Written<T> {
    pub(crate) value: T,
    pub(crate) span: Span,
}

#[derive(Default)]
pub(crate) struct DraftAgent {
    pub(crate) entry: Span,
    pub(crate) id: Option<Written<String>>,
    pub(crate) base: Option<Written<String>>,
    pub(crate) role: Option<Written<Option<String>>>,
    pub(crate) duty: Option<Written<Option<String>>>,
    pub(crate) capacity: Option<Written<String>>,
    pub(crate) after: Option<References>,
    pub(crate) share: Option<Written<Share>>,
    pub(crate) tools: Option<References>,
}

pub(crate) struct DraftAnswer {
    pub(crate) entry: Span,
    pub(crate) from: Option<References>,
    pub(crate) by: Option<Written<AnswerRule>>,
}

/// A list of ids or of other names.
pub(crate) struct References {
    pub(crate) span: Span,
    /// `None` where the list stands but says nothing (`~`), or could not be read.
    pub(crate) items: Option<Vec<Written<String>>>,
}

const TOP_KEYS: [&str; 3] = ["agents", "answer", "next"];
const AGENT_KEYS: [&str; 8] = ["id", "base", "role", "duty", "capacity", "after", "share", "tools"];
const ANSWER_KEYS: [&str; 2] = ["from", "by"];

/// Reads the draft of a specification out of a document.
pub(crate) fn parse(document: &Document, language: &Language, faults: &mut Faults) -> Draft {
    let mut draft = Draft { cut: document.cut, agents_missing: document.cut, ..Draft::default() };
    let Some(root) = &document.root else { return draft };
    let entries = match &root.value {
        Value::Map(entries) => entries,
        Value::Null => return draft,
        Value::Refused => return Draft { cut: true, ..draft },
        Value::Text(_) | Value::List(_) => {
            let hint = "a specification is a mapping that begins with `agents:`";
            wrong_type(root, "the specification", "a mapping", Some(hint.to_owned()), faults);
            // Nothing of it can be judged further.
            return Draft { cut: true, ..draft };
        }
    };
    let [agents, answer, next] = fields(entries, TOP_KEYS, faults);
    if let Some(agents) = agents {
        draft.agents_span = agents.key_span;
        let read = Reader { language, faults: &mut *faults }.agents(&agents.value);
        draft.agents_missing |= read.is_none() || agents.value.cut;
        draft.cut |= read.is_none();
        let read = read.unwrap_or_default();
        draft.agents_missing |= read.iter().any(|agent| agent.id.is_none());
        draft.agents = read;
    }
    let mut reader = Reader { language, faults };
    draft.answer = answer.and_then(|answer| reader.answer(&answer.value));
    draft.next = next.and_then(|next| reader.word(&next.value, "next", Code::UnknownNext, &words(Next::ALL)));
    draft
}

struct Reader<'l, 'f> {
    language: &'l Language,
    faults: &'f mut Faults,
}

impl Reader<'_, '_> {
    /// `None` if there is no list of agents to speak of.
    fn agents(&mut self, node: &Node) -> Option<Vec<DraftAgent>> {
        match &node.value {
            Value::List(items) => Some(items.iter().map(|item| self.agent(item)).collect()),
            Value::Null => Some(Vec::new()),
            Value::Refused => None,
            Value::Text(_) | Value::Map(_) => {
                let hint = "begin each agent with `- id:`".to_owned();
                wrong_type(node, "`agents`", "a list", Some(hint), self.faults);
                None
            }
        }
    }

    fn agent(&mut self, node: &Node) -> DraftAgent {
        let entries = match &node.value {
            Value::Map(entries) => entries,
            Value::Refused => return DraftAgent { entry: node.span, ..DraftAgent::default() },
            Value::Null | Value::Text(_) | Value::List(_) => {
                let hint = format!("write it with the keys {}", list(AGENT_KEYS));
                wrong_type(node, "an agent", "a mapping", Some(hint), self.faults);
                return DraftAgent { entry: node.span, ..DraftAgent::default() };
            }
        };
        let entry = match (entries.first(), entries.last()) {
            (Some(first), Some(last)) => Span { start: first.key_span.start, end: last.value.span.end },
            _ => node.span,
        };
        let place = entries.first().map_or(node.span, |first| first.key_span);
        let [id, base, role, duty, capacity, after, share, tools] = fields(entries, AGENT_KEYS, self.faults);
        let name = match id.map(|id| &id.value.value) {
            Some(Value::Text(id)) => format!("agent {}", quote(id)),
            _ => "this agent".to_owned(),
        };
        let owner = Owner { name: &name, place: id.map_or(place, |id| id.value.span), cut: node.cut };
        DraftAgent {
            entry,
            id: self.required(id, "id", &owner),
            base: self.required(base, "base", &owner),
            role: role.and_then(|role| self.inheritable(&role.value, "role")),
            duty: duty.and_then(|duty| self.inheritable(&duty.value, "duty")),
            capacity: self.required(capacity, "capacity", &owner),
            after: after.map(|after| self.references(&after.value, "after", "id")),
            share: share.and_then(|it| self.word(&it.value, "share", Code::UnknownShare, &words(Share::ALL))),
            tools: tools.map(|tools| self.references(&tools.value, "tools", "tool")),
        }
    }

    fn answer(&mut self, node: &Node) -> Option<DraftAnswer> {
        let entries = match &node.value {
            Value::Map(entries) => entries,
            Value::Null | Value::Refused => return None,
            Value::Text(_) | Value::List(_) => {
                let hint = "write `answer: {from: [ID], by: last}`".to_owned();
                wrong_type(node, "`answer`", "a mapping", Some(hint), self.faults);
                return None;
            }
        };
        let [from, by] = fields(entries, ANSWER_KEYS, self.faults);
        Some(DraftAnswer {
            entry: node.span,
            from: from.map(|from| self.references(&from.value, "answer.from", "id")),
            by: by.and_then(|by| self.word(&by.value, "answer.by", Code::UnknownRule, &words(AnswerRule::ALL))),
        })
    }

    /// A text that has to be there.
    fn required(&mut self, entry: Option<&Entry>, key: &str, owner: &Owner<'_>) -> Option<Written<String>> {
        let Some(node) = entry.map(|entry| &entry.value) else {
            if !owner.cut {
                self.missing(owner.place, format!("{} has no `{key}`", owner.name), key);
            }
            return None;
        };
        match &node.value {
            Value::Text(text) => Some(Written { value: text.clone(), span: node.span }),
            Value::Null => {
                self.missing(node.span, format!("`{key}` is empty"), key);
                None
            }
            Value::Refused => None,
            Value::List(_) | Value::Map(_) => {
                wrong_type(node, &format!("`{key}`"), "a text", None, self.faults);
                None
            }
        }
    }

    fn missing(&mut self, span: Span, fact: String, key: &str) {
        let hint = match key {
            "base" => format!("one of {}", list(self.language.roles.iter().map(|role| role.name.as_str()))),
            "capacity" => format!("one of {}", list(self.language.capacities.iter().map(String::as_str))),
            _ => "a short name, unique in the team".to_owned(),
        };
        self.faults.error(Code::MissingField, span, fact, Some(hint));
    }

    /// A text that the base role gives where it is null.
    fn inheritable(&mut self, node: &Node, key: &str) -> Option<Written<Option<String>>> {
        match &node.value {
            Value::Text(text) => Some(Written { value: Some(text.clone()), span: node.span }),
            Value::Null => Some(Written { value: None, span: node.span }),
            Value::Refused => None,
            Value::List(_) | Value::Map(_) => {
                let hint = format!("put it in quotes, or write `{key}: ~` to inherit it from the base role");
                wrong_type(node, &format!("`{key}`"), "a text", Some(hint), self.faults);
                None
            }
        }
    }

    /// One of a few words.
    fn word<T: FromStr>(&mut self, node: &Node, key: &str, code: Code, known: &[&str]) -> Option<Written<T>> {
        match &node.value {
            Value::Text(word) => {
                let value = word.parse().ok();
                if value.is_none() {
                    let fact = format!("unknown value {} of `{key}`", quote(word));
                    self.faults.error(code, node.span, fact, Some(one_of(word, known.iter().copied())));
                }
                value.map(|value| Written { value, span: node.span })
            }
            Value::Null | Value::Refused => None,
            Value::List(_) | Value::Map(_) => {
                let hint = format!("one of {}", list(known.iter().copied()));
                wrong_type(node, &format!("`{key}`"), "a word", Some(hint), self.faults);
                None
            }
        }
    }

    /// A list of ids or tools, or a single one. `item` says which.
    fn references(&mut self, node: &Node, key: &str, item: &str) -> References {
        let items = match &node.value {
            Value::List(items) => Some(items.iter().filter_map(|node| self.reference(node, key, item)).collect()),
            Value::Text(id) => Some(vec![Written { value: id.clone(), span: node.span }]),
            Value::Null | Value::Refused => None,
            Value::Map(_) => {
                let hint = format!("write `{key}: [{}]`", item.to_uppercase());
                wrong_type(node, &format!("`{key}`"), &format!("a list of {item}s"), Some(hint), self.faults);
                None
            }
        };
        References { span: node.span, items }
    }

    fn reference(&mut self, node: &Node, key: &str, item: &str) -> Option<Written<String>> {
        match &node.value {
            Value::Text(id) => Some(Written { value: id.clone(), span: node.span }),
            Value::Refused => None,
            Value::Null | Value::List(_) | Value::Map(_) => {
                let expected = if item == "id" { "an id" } else { "the name of a tool" };
                wrong_type(node, &format!("an entry of `{key}`"), expected, None, self.faults);
                None
            }
        }
    }
}

/// The agent a field belongs to, as far as messages need it.
struct Owner<'o> {
    name: &'o str,
    place: Span,
    /// Its text was given up before its end.
    cut: bool,
}

/// The entries of a mapping by key. Of a key given twice the first counts.
pub(crate) fn fields<'n, const N: usize>(
    entries: &'n [Entry],
    known: [&str; N],
    faults: &mut Faults,
) -> [Option<&'n Entry>; N] {
    let mut found = [None; N];
    for entry in entries {
        let Some(position) = known.iter().position(|key| *key == entry.key) else {
            let fact = format!("unknown key {}", quote(&entry.key));
            faults.error(Code::UnknownKey, entry.key_span, fact, Some(one_of(&entry.key, known)));
            continue;
        };
        // `position` comes from `known`, which is as long as `found`.
        match found[position] {
            None => found[position] = Some(entry),
            Some(_) => {
                let fact = format!("key `{}` is given twice", entry.key);
                faults.error(Code::DuplicateKey, entry.key_span, fact, Some("keep one of them".to_owned()));
            }
        }
    }
    found
}

fn wrong_type(node: &Node, what: &str, expected: &str, hint: Option<String>, faults: &mut Faults) {
    let got = match &node.value {
        Value::Null => "empty".to_owned(),
        Value::Text(text) => format!("the text {}", quote(text)),
        Value::List(_) => "a list".to_owned(),
        Value::Map(_) | Value::Refused => "a mapping".to_owned(),
    };
    faults.error(Code::WrongType, node.span, format!("{what} has to be {expected}, but is {got}"), hint);
}

fn words<T: Copy + Into<&'static str>>(all: &[T]) -> Vec<&'static str> {
    all.iter().map(|word| (*word).into()).collect()
}
