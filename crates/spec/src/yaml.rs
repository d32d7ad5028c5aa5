//! YAML as a small tree with byte spans, safe for text that a model wrote.
//!
//! The events come from `saphyr-parser`, whose event interface does not recurse and refuses flow nesting beyond 255. What
//! the language has no use for (anchors, aliases, tags, further documents, deep nesting, keys that are not text) is
//! refused here, event by event, before it costs anything.

mod offsets;
mod syntax;

use crate::Span;
use crate::diagnostic::{Code, Faults};
use offsets::Offsets;
use saphyr_parser::{Event, Parser, ScalarStyle, Span as CharSpan, StrInput};

/// Nesting that no specification needs: the deepest reference stands at level four.
const MAX_DEPTH: usize = 8;

/// What could be read of a text.
pub(crate) struct Document {
    /// The top value; `None` if the text has none.
    pub(crate) root: Option<Node>,
    /// The text was given up before its end. What is missing after the cut is not a fault of the author.
    pub(crate) cut: bool,
}

/// One value and where it stands.
pub(crate) struct Node {
    pub(crate) span: Span,
    pub(crate) value: Value,
    /// The text was given up in this collection or right after it, so that it may lack something.
    pub(crate) cut: bool,
}

/// The kinds of value.
pub(crate) enum Value {
    /// `~`, `null`, or nothing at all.
    Null,
    /// Any other scalar, as text: the language has no numbers or booleans.
    Text(String),
    /// A sequence.
    List(Vec<Node>),
    /// A mapping.
    Map(Vec<Entry>),
    /// Something that was refused and reported; to be passed over in silence.
    Refused,
}

/// One key of a mapping with its value.
pub(crate) struct Entry {
    pub(crate) key: String,
    pub(crate) key_span: Span,
    pub(crate) value: Node,
}

/// Reads a text of at most `max_values` values.
pub(crate) fn read(text: &str, max_values: usize, faults: &mut Faults) -> Document {
    let reader = Reader {
        text,
        offsets: Offsets::of(text),
        events: Parser::new_from_str(text),
        open: Vec::new(),
        root: None,
        values: 0,
        max_values,
        passed: 0,
        last_text: None,
        faults,
    };
    reader.run()
}

struct Reader<'t, 'f> {
    text: &'t str,
    offsets: Offsets,
    events: Parser<'t, StrInput<'t>>,
    /// The collections that enclose the next event, outermost first.
    open: Vec<Open>,
    root: Option<Node>,
    values: usize,
    max_values: usize,
    /// The end of what the events so far have covered, in bytes.
    passed: usize,
    /// The span of the scalar that was the latest event, if it was one.
    last_text: Option<Span>,
    faults: &'f mut Faults,
}

/// A collection whose end has not been seen.
struct Open {
    /// The first byte.
    start: usize,
    /// It has brackets or braces.
    flow: bool,
    content: Content,
}

enum Content {
    List(Vec<Node>),
    Map { entries: Vec<Entry>, key: Option<Key> },
}

enum Key {
    Text(String, Span),
    /// Reported already; its value is dropped.
    Refused,
}

/// Why reading ends.
enum End {
    /// All of the text was read, or all of the first document.
    Whole,
    /// The rest is unreadable or not worth reading.
    Cut,
}

impl Reader<'_, '_> {
    fn run(mut self) -> Document {
        let cut = loop {
            match self.step() {
                None => {}
                Some(End::Whole) => break false,
                Some(End::Cut) => break true,
            }
        };
        if cut {
            self.close_all();
            self.root.as_mut().map(mark_cut);
        }
        Document { root: self.root, cut }
    }

    fn step(&mut self) -> Option<End> {
        let (event, chars) = match self.events.next_event()? {
            Ok(event) => event,
            Err(error) => {
                let at = self.offsets.byte(error.marker().index());
                self.drop_doubtful_text(at);
                let opened = self.open.iter().rfind(|open| open.flow).map(|open| open.start);
                syntax::report(self.text, at, opened, error.info(), self.faults);
                return Some(End::Cut);
            }
        };
        self.last_text = None;
        match event {
            Event::Nothing | Event::StreamStart | Event::DocumentEnd => None,
            Event::StreamEnd => Some(End::Whole),
            Event::DocumentStart(_) => self.document_start(&chars),
            Event::Alias(_) => {
                let span = self.span(&chars);
                self.refuse(Code::Anchor, span, "aliases are not part of the language", "write the value out");
                self.value(Node { span, value: Value::Refused, cut: false })
            }
            Event::Scalar(text, style, anchor, tag) => {
                self.properties(&chars, anchor, tag.is_some());
                let node = self.scalar(text.into_owned(), style, &chars);
                self.last_text = Some(node.span);
                self.value(node)
            }
            Event::SequenceStart(anchor, tag) => {
                self.properties(&chars, anchor, tag.is_some());
                self.start(&chars, Content::List(Vec::new()))
            }
            Event::MappingStart(anchor, tag) => {
                self.properties(&chars, anchor, tag.is_some());
                self.start(&chars, Content::Map { entries: Vec::new(), key: None })
            }
            Event::SequenceEnd | Event::MappingEnd => self.end(&chars),
        }
    }

    fn document_start(&mut self, chars: &CharSpan) -> Option<End> {
        if self.root.is_none() && self.values == 0 {
            return None;
        }
        let span = self.span(chars);
        self.refuse(Code::SecondDocument, span, "a second YAML document begins here", "keep one and delete the rest");
        Some(End::Whole)
    }

    /// Reports an anchor or tag in front of a value; the value itself is read all the same.
    fn properties(&mut self, chars: &CharSpan, anchor: usize, tag: bool) {
        let span = self.span(chars);
        if anchor != 0 {
            self.refuse(Code::Anchor, span, "anchors are not part of the language", "remove the `&name`");
        }
        if tag {
            self.refuse(Code::Tag, span, "tags are not part of the language", "remove the `!tag`");
        }
    }

    fn scalar(&mut self, text: String, style: ScalarStyle, chars: &CharSpan) -> Node {
        let plain = style == ScalarStyle::Plain;
        let span = match style {
            ScalarStyle::Plain if text.is_empty() => self.empty_span(),
            ScalarStyle::Literal | ScalarStyle::Folded => self.block_scalar_span(chars),
            ScalarStyle::SingleQuoted | ScalarStyle::DoubleQuoted => self.quoted_span(chars),
            ScalarStyle::Plain => self.span(chars),
        };
        let value = match text.as_str() {
            "" | "~" | "null" | "Null" | "NULL" if plain => Value::Null,
            _ => Value::Text(text),
        };
        Node { span, value, cut: false }
    }

    /// Where a value that is not there would stand: right after the colon of its key or the dash of its entry.
    fn empty_span(&self) -> Span {
        let rest = self.text.get(self.passed..).unwrap_or_default();
        let mark = rest.len() - rest.trim_ascii_start().len();
        let at = if rest[mark..].starts_with([':', '-']) { self.passed + mark + 1 } else { self.passed };
        Span { start: at, end: at }
    }

    /// The events count what follows the closing quote as part of the scalar.
    fn quoted_span(&self, chars: &CharSpan) -> Span {
        let span = self.span(chars);
        let length = quoted_length(span.of(self.text)).unwrap_or(span.len());
        Span { start: span.start, end: span.start + length }
    }

    /// The events give a block scalar's content; its span here begins with `|` or `>` and ends with its last line.
    fn block_scalar_span(&self, chars: &CharSpan) -> Span {
        let content = self.span(chars);
        let between = self.text.get(self.passed..content.end).unwrap_or_default();
        let header = self.passed + block_scalar_header(between).unwrap_or(0);
        let end = header + self.text.get(header..content.end).unwrap_or_default().trim_end().len();
        Span { start: header, end }
    }

    fn start(&mut self, chars: &CharSpan, content: Content) -> Option<End> {
        let span = self.span(chars);
        // An empty span means that no bracket was read: a block collection, or the pair in `[key: value]`.
        let open = Open { start: span.start, flow: !span.is_empty(), content };
        self.passed = if open.flow { span.start + 1 } else { span.start };
        if self.open.len() == MAX_DEPTH {
            let span = Span { start: span.start, end: self.passed };
            self.refuse(Code::NestedTooDeep, span, "nested too deep", "a specification needs four levels");
            return Some(End::Cut);
        }
        self.open.push(open);
        None
    }

    fn end(&mut self, chars: &CharSpan) -> Option<End> {
        let open = self.open.pop()?;
        let end = if open.flow { self.offsets.byte(chars.start.index()) + 1 } else { self.passed };
        let end = self.text.floor_char_boundary(end).max(open.start);
        self.passed = self.passed.max(end);
        self.value(open.close(end))
    }

    /// Hands a finished value to the collection it belongs to.
    fn value(&mut self, node: Node) -> Option<End> {
        self.passed = self.passed.max(node.span.end);
        self.values += 1;
        if self.values > self.max_values {
            let fact = "more values than a specification within the limits has";
            self.refuse(Code::TooManyValues, node.span, fact, "the rest of the text was not read");
            return Some(End::Cut);
        }
        match self.open.last_mut().map(|open| &mut open.content) {
            None => self.root = Some(node),
            Some(Content::List(items)) => items.push(node),
            Some(Content::Map { entries, key }) => match key.take() {
                Some(Key::Text(key, key_span)) => entries.push(Entry { key, key_span, value: node }),
                Some(Key::Refused) => {}
                None => *key = Some(as_key(node, self.faults)),
            },
        }
        None
    }

    /// Ends every open collection where the text was given up.
    fn close_all(&mut self) {
        while let Some(open) = self.open.pop() {
            let node = open.close(self.passed);
            match self.open.last_mut().map(|open| &mut open.content) {
                None => self.root = Some(node),
                Some(Content::List(items)) => items.push(node),
                Some(Content::Map { entries, key }) => {
                    if let Some(Key::Text(key, key_span)) = key.take() {
                        entries.push(Entry { key, key_span, value: node });
                    }
                }
            }
        }
    }

    /// A plain scalar right before a syntax error may have swallowed the lines in error: `small role` for
    /// `capacity: small` with a badly indented `role:` below. Judging it would raise a false alarm.
    fn drop_doubtful_text(&mut self, error_at: usize) {
        let Some(span) = self.last_text else { return };
        let same_line = !self.text.get(span.end..error_at).unwrap_or_default().contains('\n');
        if !same_line && !span.of(self.text).contains('\n') {
            return;
        }
        match self.open.last_mut().map(|open| &mut open.content) {
            None => self.root = None,
            Some(Content::List(items)) => drop(items.pop()),
            Some(Content::Map { entries, key }) => {
                if key.take().is_none() {
                    entries.pop();
                }
            }
        }
    }

    fn refuse(&mut self, code: Code, span: Span, fact: &str, hint: &str) {
        self.faults.error(code, span, fact, Some(hint.to_owned()));
    }

    fn span(&self, chars: &CharSpan) -> Span {
        let start = self.offsets.byte(chars.start.index());
        Span { start, end: self.offsets.byte(chars.end.index()).max(start) }
    }
}

impl Open {
    fn close(self, end: usize) -> Node {
        let value = match self.content {
            Content::List(items) => Value::List(items),
            Content::Map { entries, .. } => Value::Map(entries),
        };
        Node { span: Span { start: self.start, end: end.max(self.start) }, value, cut: false }
    }
}

/// Marks the collections that the cut fell into: what was read last, and what encloses it. One that had just been closed
/// is among them, because a line with the wrong indentation closes the collection it was meant for.
fn mark_cut(node: &mut Node) {
    node.cut = true;
    let last = match &mut node.value {
        Value::List(items) => items.last_mut(),
        Value::Map(entries) => entries.last_mut().map(|entry| &mut entry.value),
        Value::Null | Value::Text(_) | Value::Refused => None,
    };
    // No deeper than the nesting that is allowed.
    if let Some(last) = last {
        mark_cut(last);
    }
}

fn as_key(node: Node, faults: &mut Faults) -> Key {
    match node.value {
        Value::Text(text) => Key::Text(text, node.span),
        Value::Refused => Key::Refused,
        Value::Null | Value::List(_) | Value::Map(_) => {
            let hint = Some("keys are plain words such as `id`".to_owned());
            faults.error(Code::ComplexKey, node.span, "this key is not a word", hint);
            Key::Refused
        }
    }
}

/// The length of the quoted string that a text begins with.
fn quoted_length(text: &str) -> Option<usize> {
    let mut bytes = text.bytes().enumerate();
    let (_, quote) = bytes.next()?;
    while let Some((at, byte)) = bytes.next() {
        if byte == b'\\' && quote == b'"' {
            bytes.next();
        } else if byte == quote {
            // In single quotes, two of them stand for one.
            if quote == b'\'' && text.as_bytes().get(at + 1) == Some(&quote) {
                bytes.next();
            } else {
                return Some(at + 1);
            }
        }
    }
    None
}

/// Where the `|` or `>` of a block scalar stands in the text between the event before it and its end.
fn block_scalar_header(between: &str) -> Option<usize> {
    let mut in_comment = false;
    let mut after_blank = false;
    for (at, character) in between.char_indices() {
        match character {
            '\n' | '\r' => in_comment = false,
            '#' if after_blank => in_comment = true,
            '|' | '>' if !in_comment => return Some(at),
            _ => {}
        }
        after_blank = character.is_ascii_whitespace();
    }
    None
}
