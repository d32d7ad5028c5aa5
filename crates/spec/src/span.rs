//! Where each field of a specification stands in its source text.

use serde::{Deserialize, Serialize};

/// A half-open range of bytes of the source text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Span {
    /// The first byte.
    pub start: usize,
    /// One past the last byte.
    pub end: usize,
}

/// The spans of a whole specification. `None`: the text leaves the field out and the default holds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spans {
    /// One entry per agent of the specification, in its order.
    pub agents: Vec<AgentSpans>,
    /// The `answer` entry.
    pub answer: Option<AnswerSpans>,
    /// The value of `next`.
    pub next: Option<Span>,
}

/// The spans of one agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentSpans {
    /// The whole entry, from its first key to the end of its last value.
    pub entry: Span,
    /// The value of `id`.
    pub id: Span,
    /// The value of `base`.
    pub base: Span,
    /// The value of `role`.
    pub role: Option<Span>,
    /// The value of `duty`.
    pub duty: Option<Span>,
    /// The value of `capacity`.
    pub capacity: Span,
    /// The whole list of `after`.
    pub after: Option<Span>,
    /// Each reference of `after`.
    pub parents: Vec<Span>,
    /// The value of `share`.
    pub share: Option<Span>,
    /// The whole list of `tools`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Span>,
}

/// The spans of the `answer` entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnswerSpans {
    /// The whole value.
    pub entry: Span,
    /// The whole list of `from`.
    pub from: Option<Span>,
    /// The value of `by`.
    pub by: Option<Span>,
}

/// The name of one field of a specification; agents by their position.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "field", content = "agent", rename_all = "snake_case")]
pub enum Field {
    /// The whole entry of an agent: that it exists at all.
    Agent(usize),
    /// `id`
    Id(usize),
    /// `base`
    Base(usize),
    /// `role`
    Role(usize),
    /// `duty`
    Duty(usize),
    /// `capacity`
    Capacity(usize),
    /// The list `after`.
    After(usize),
    /// `share`
    Share(usize),
    /// The list `tools`.
    Tools(usize),
    /// The list `answer.from`.
    AnswerFrom,
    /// `answer.by`
    AnswerBy,
    /// `next`
    Next,
}

impl Spans {
    /// Where `field` stands, or `None` if the text leaves it out (or has no such agent).
    pub fn get(&self, field: Field) -> Option<Span> {
        let agent = |index: usize| self.agents.get(index);
        match field {
            Field::Agent(index) => agent(index).map(|spans| spans.entry),
            Field::Id(index) => agent(index).map(|spans| spans.id),
            Field::Base(index) => agent(index).map(|spans| spans.base),
            Field::Role(index) => agent(index)?.role,
            Field::Duty(index) => agent(index)?.duty,
            Field::Capacity(index) => agent(index).map(|spans| spans.capacity),
            Field::After(index) => agent(index)?.after,
            Field::Share(index) => agent(index)?.share,
            Field::Tools(index) => agent(index)?.tools,
            Field::AnswerFrom => self.answer.as_ref()?.from,
            Field::AnswerBy => self.answer.as_ref()?.by,
            Field::Next => self.next,
        }
    }

    /// The same; where the text leaves out a list of tools, an empty span at the place where a canonical text has it.
    pub(crate) fn place(&self, field: Field) -> Option<Span> {
        let absent = match field {
            Field::Tools(index) => self.agents.get(index).map(|spans| Span { start: spans.entry.end, ..spans.entry }),
            _ => None,
        };
        self.get(field).or(absent)
    }
}

impl Span {
    /// The length in bytes.
    pub fn len(self) -> usize {
        self.end.saturating_sub(self.start)
    }

    /// Whether it has no bytes.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// The text it covers; empty if `source` is not the text it belongs to.
    pub fn of(self, source: &str) -> &str {
        source.get(self.start..self.end).unwrap_or_default()
    }
}
