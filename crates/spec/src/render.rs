//! The canonical text of a specification, with the spans of its fields known as it is written.

use crate::{Agent, AgentSpans, Answer, AnswerSpans, Span, Spans, Spec};
use std::fmt::Write;

/// A canonical text and where each field stands in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rendered {
    /// The text. Every field is written out but an empty list of tools; what is inherited stands as `~`.
    pub text: String,
    /// Where each field stands; only empty lists of tools are `None`.
    pub spans: Spans,
}

/// Writes a specification canonically: `parse(render(s)) == s`, and the spans are those parsing finds.
pub fn render(spec: &Spec) -> Rendered {
    let mut writer = Writer::default();
    let mut spans = Spans::default();
    writer.text.push_str(AGENTS);
    writer.text.push_str(if spec.agents.is_empty() { " []\n" } else { "\n" });
    for agent in &spec.agents {
        spans.agents.push(writer.agent(agent));
    }
    spans.answer = Some(writer.answer(&spec.answer));
    writer.text.push_str("next: ");
    spans.next = Some(writer.raw(spec.next.as_str()));
    writer.text.push('\n');
    Rendered { text: writer.text, spans }
}

/// An entry of a list as [`render`] writes it, quoted where that is needed.
pub(crate) fn item(text: &str) -> String {
    let mut writer = Writer::default();
    writer.item(text);
    writer.text
}

/// A text as [`render`] writes it, quoted where that is needed.
pub(crate) fn scalar(text: &str) -> String {
    let mut writer = Writer::default();
    writer.scalar(text);
    writer.text
}

/// What [`render`] begins with, whether there are agents or not.
pub(crate) const AGENTS: &str = "agents:";
/// What [`render`] puts before the first key of an agent's entry.
pub(crate) const ENTRY_PREFIX: &str = "  - ";
/// What [`render`] puts before the tools of an agent that has any.
pub(crate) const TOOLS: &str = "    tools: ";

#[derive(Default)]
struct Writer {
    text: String,
}

impl Writer {
    fn agent(&mut self, agent: &Agent) -> AgentSpans {
        let start = self.text.len() + ENTRY_PREFIX.len();
        let id = self.line("  - id: ", |writer| writer.scalar(&agent.id));
        let base = self.line("    base: ", |writer| writer.scalar(&agent.base));
        let role = self.line("    role: ", |writer| writer.inheritable(agent.role.as_deref()));
        let duty = self.line("    duty: ", |writer| writer.inheritable(agent.duty.as_deref()));
        let capacity = self.line("    capacity: ", |writer| writer.scalar(&agent.capacity));
        let (after, parents) = self.line("    after: ", |writer| writer.list(&agent.after));
        let share = self.line("    share: ", |writer| writer.raw(agent.share.as_str()));
        // Left out where there is none: most agents have none, and most installations.
        let some = (!agent.tools.is_empty()).then_some(&agent.tools);
        let tools = some.map(|tools| self.line(TOOLS, |writer| writer.list(tools).0));
        AgentSpans {
            entry: Span { start, end: tools.unwrap_or(share).end },
            id,
            base,
            role: Some(role),
            duty: Some(duty),
            capacity,
            after: Some(after),
            parents,
            share: Some(share),
            tools,
        }
    }

    fn answer(&mut self, answer: &Answer) -> AnswerSpans {
        self.text.push_str("answer: ");
        let start = self.text.len();
        self.text.push_str("{from: ");
        let (from, _) = self.list(&answer.from);
        self.text.push_str(", by: ");
        let by = self.raw(answer.by.as_str());
        self.text.push('}');
        let entry = Span { start, end: self.text.len() };
        self.text.push('\n');
        AnswerSpans { entry, from: Some(from), by: Some(by) }
    }

    fn line<T>(&mut self, key: &str, value: impl FnOnce(&mut Self) -> T) -> T {
        self.text.push_str(key);
        let written = value(self);
        self.text.push('\n');
        written
    }

    fn list(&mut self, ids: &[String]) -> (Span, Vec<Span>) {
        let start = self.text.len();
        let mut items = Vec::with_capacity(ids.len());
        self.text.push('[');
        for (place, id) in ids.iter().enumerate() {
            self.text.push_str(if place > 0 { ", " } else { "" });
            items.push(self.item(id));
        }
        self.text.push(']');
        (Span { start, end: self.text.len() }, items)
    }

    fn inheritable(&mut self, text: Option<&str>) -> Span {
        match text {
            None => self.raw("~"),
            Some(text) => self.scalar(text),
        }
    }

    fn scalar(&mut self, text: &str) -> Span {
        if is_plain(text) { self.raw(text) } else { self.quoted(text) }
    }

    /// A text in a list, where some characters have a meaning of their own. No id has one of them; the name of a tool may.
    fn item(&mut self, text: &str) -> Span {
        if text.contains([',', '[', ']', '{', '}', ':', '"']) { self.quoted(text) } else { self.scalar(text) }
    }

    fn quoted(&mut self, text: &str) -> Span {
        let start = self.text.len();
        push_quoted(text, &mut self.text);
        Span { start, end: self.text.len() }
    }

    fn raw(&mut self, text: &str) -> Span {
        let start = self.text.len();
        self.text.push_str(text);
        Span { start, end: self.text.len() }
    }
}

/// Words that some YAML reader takes for something else than text, in any case.
pub(crate) const WORDS_WITH_A_MEANING: [&str; 9] = ["null", "true", "false", "yes", "no", "on", "off", "y", "n"];

/// Whether every YAML reader takes the bare text for exactly this string, outside of flow lists.
fn is_plain(text: &str) -> bool {
    text.starts_with(char::is_alphabetic)
        && text.chars().all(is_plain_char)
        && !text.ends_with([' ', ':'])
        && !text.contains(": ")
        && !text.contains(" #")
        && !WORDS_WITH_A_MEANING.iter().any(|word| word.eq_ignore_ascii_case(text))
}

fn is_plain_char(character: char) -> bool {
    character == ' ' || character.is_ascii_graphic() || character.is_alphanumeric()
}

/// A double-quoted YAML string on one line.
fn push_quoted(text: &str, out: &mut String) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            other if is_printable(other) => out.push(other),
            other => push_escaped(other, out),
        }
    }
    out.push('"');
}

fn push_escaped(character: char, out: &mut String) {
    let code = u32::from(character);
    let written = if code <= 0xffff { write!(out, "\\u{code:04X}") } else { write!(out, "\\U{code:08X}") };
    // Writing to a string does not fail.
    written.unwrap_or_default();
}

/// Characters that stand for themselves within quotes. Breaks, invisible and unassigned ones are escaped.
fn is_printable(character: char) -> bool {
    let code = u32::from(character);
    let private_or_none = matches!(code, 0xe000..=0xf8ff | 0xfff0..=0xffff | 0xe0000..) || code & 0xfffe == 0xfffe;
    !character.is_control()
        && !private_or_none
        && !crate::diagnostic::is_invisible(character)
        && (character == ' ' || !character.is_whitespace())
}
