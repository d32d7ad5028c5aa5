//! What is wrong with a text: a stable code, a place, a fact and a hint.

mod explain;
mod words;

use crate::Span;
use serde::{Deserialize, Serialize};
use std::fmt;

pub use explain::explain;
pub(crate) use words::{did_you_mean, is_invisible, list, one_of, quote};

/// One fault or remark.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Diagnostic {
    /// What kind of fault; stable across versions.
    pub code: Code,
    /// Whether it makes the text invalid.
    pub severity: Severity,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// The bytes it is about.
    pub span: Span,
    /// The fact.
    pub message: String,
    /// The cure, where one is known.
    pub hint: Option<String>,
}

/// Whether a diagnostic makes the text invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// It does.
    Error,
    /// It does not.
    Warning,
}

/// Makes [`Code`] and its names in one place, so that the two cannot drift apart.
macro_rules! codes {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// The kinds of fault; serialised in snake case.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[non_exhaustive]
        pub enum Code {
            $($(#[$doc])* #[serde(rename = $name)] $variant,)*
        }

        impl Code {
            /// Every code, in a stable order.
            pub const ALL: &[Code] = &[$(Code::$variant,)*];

            /// The stable name, as serialised.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Code::$variant => $name,)*
                }
            }
        }
    };
}

codes! {
    /// The text has more bytes than allowed; nothing else was looked at.
    TextTooLong = "text_too_long",
    /// The text is not YAML.
    Syntax = "syntax",
    /// An anchor (`&name`) or an alias (`*name`), which the language does not have.
    Anchor = "anchor",
    /// A tag (`!name`), which the language does not have.
    Tag = "tag",
    /// Lists and mappings nested deeper than any specification needs.
    NestedTooDeep = "nested_too_deep",
    /// A second YAML document.
    SecondDocument = "second_document",
    /// More values than any specification within the limits needs.
    TooManyValues = "too_many_values",
    /// A key that is not plain text.
    ComplexKey = "complex_key",
    /// A value of the wrong shape.
    WrongType = "wrong_type",
    /// A key the language does not have at this place.
    UnknownKey = "unknown_key",
    /// A key given twice in one mapping.
    DuplicateKey = "duplicate_key",
    /// A required key left out or empty.
    MissingField = "missing_field",
    /// An id that is not a letter followed by letters, digits, `_` or `-`.
    MalformedId = "malformed_id",
    /// An id that has a meaning of its own.
    ReservedId = "reserved_id",
    /// An id given to two agents.
    DuplicateId = "duplicate_id",
    /// An id that an agent of an earlier round has.
    EarlierId = "earlier_id",
    /// An id longer than allowed.
    IdTooLong = "id_too_long",
    /// A base role the library does not have.
    UnknownBase = "unknown_base",
    /// A capacity that does not exist.
    UnknownCapacity = "unknown_capacity",
    /// A tool that is not configured.
    UnknownTool = "unknown_tool",
    /// A tool given twice to one agent.
    DuplicateTool = "duplicate_tool",
    /// More tools for one agent than allowed.
    TooManyTools = "too_many_tools",
    /// A `share` that does not exist.
    UnknownShare = "unknown_share",
    /// An answer rule that does not exist.
    UnknownRule = "unknown_rule",
    /// A `next` that does not exist.
    UnknownNext = "unknown_next",
    /// A role longer than allowed.
    RoleTooLong = "role_too_long",
    /// A duty longer than allowed.
    DutyTooLong = "duty_too_long",
    /// A control character in a role or duty.
    ControlCharacter = "control_character",
    /// A reference to an agent that comes later.
    LaterReference = "later_reference",
    /// A reference to an agent that does not exist.
    MissingReference = "missing_reference",
    /// A reference given twice in one list.
    DuplicateReference = "duplicate_reference",
    /// A reference that closes a cycle, or an agent's reference to itself.
    Cycle = "cycle",
    /// No agents at all.
    EmptyTeam = "empty_team",
    /// More agents than allowed.
    TooManyAgents = "too_many_agents",
    /// More references in one list than allowed.
    TooManyParents = "too_many_parents",
    /// A longer path than allowed.
    TooDeep = "too_deep",
    /// An answer that names no agent.
    EmptyAnswer = "empty_answer",
    /// An agent that no other agent reads and that is not part of the answer.
    UnreadAgent = "unread_agent",
}

impl fmt::Display for Code {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// Collects diagnostics in any order; [`Faults::finish`] gives them lines and columns and puts them in text order.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    found: Vec<Diagnostic>,
}

impl Faults {
    /// Notes a fault that makes the text invalid.
    pub(crate) fn error(&mut self, code: Code, span: Span, message: impl Into<String>, hint: Option<String>) {
        self.push(Severity::Error, code, span, message.into(), hint);
    }

    /// Notes a remark.
    pub(crate) fn warning(&mut self, code: Code, span: Span, message: impl Into<String>, hint: Option<String>) {
        self.push(Severity::Warning, code, span, message.into(), hint);
    }

    fn push(&mut self, severity: Severity, code: Code, span: Span, message: String, hint: Option<String>) {
        self.found.push(Diagnostic { code, severity, line: 0, column: 0, span, message, hint });
    }

    /// Whether the text is invalid.
    pub(crate) fn any_error(&self) -> bool {
        self.found.iter().any(|diagnostic| diagnostic.severity == Severity::Error)
    }

    /// All that was found, with places, in the order of the text.
    pub(crate) fn finish(mut self, source: &str) -> Vec<Diagnostic> {
        self.found.sort_by_key(|diagnostic| (diagnostic.span.start, diagnostic.span.end));
        let mut place = Place::default();
        for diagnostic in &mut self.found {
            place.advance(source, diagnostic.span.start);
            (diagnostic.line, diagnostic.column) = (place.line + 1, place.column + 1);
        }
        self.found
    }
}

/// The line of the byte at `offset`, from 1.
pub(crate) fn line_of(source: &str, offset: usize) -> usize {
    let mut place = Place::default();
    place.advance(source, offset);
    place.line + 1
}

/// A position that only moves forward, so that all places together cost one pass over the text.
#[derive(Default)]
struct Place {
    offset: usize,
    line: usize,
    column: usize,
}

impl Place {
    fn advance(&mut self, source: &str, offset: usize) {
        let passed = source.get(self.offset..offset.min(source.len())).unwrap_or_default();
        self.line += passed.matches('\n').count();
        self.column = match passed.rfind('\n') {
            // `end` is the position of a one-byte character, so the byte after it begins a character.
            Some(end) => passed[end + 1..].chars().count(),
            None => self.column + passed.chars().count(),
        };
        self.offset += passed.len();
    }
}
