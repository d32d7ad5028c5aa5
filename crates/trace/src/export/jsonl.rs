//! A trace as lines of JSON: the header, then one event per line. Can be written as the run goes, searched with line
//! tools, and read back equal.

use crate::{Event, Header, Trace, VERSION};
use serde::Deserialize;
use std::io::{self, Write};

/// Why some text is not a trace.
#[derive(Debug, thiserror::Error)]
pub enum JsonlError {
    /// There is nothing in it.
    #[error("no header: the text is empty")]
    Empty,
    /// The header says a version this reader does not know.
    #[error("line 1: the trace has version {found}; this reader knows versions up to {VERSION}")]
    Newer {
        /// That version.
        found: u32,
    },
    /// A line is not what it should be.
    #[error("line {line}: {source}")]
    Line {
        /// Which, from 1.
        line: usize,
        /// How.
        source: serde_json::Error,
    },
    /// The last line ends in the middle: its writer was interrupted.
    #[error("line {line}: the last line is cut off; the {events} events before it are whole")]
    CutShort {
        /// Which, from 1.
        line: usize,
        /// How many events before it could be read.
        events: usize,
    },
}

/// Writes a trace as lines.
///
/// # Errors
/// Whatever the writer says.
pub fn write_jsonl(trace: &Trace, out: &mut impl Write) -> io::Result<()> {
    serde_json::to_writer(&mut *out, &trace.header)?;
    out.write_all(b"\n")?;
    for event in &trace.events {
        serde_json::to_writer(&mut *out, event)?;
        out.write_all(b"\n")?;
    }
    Ok(())
}

/// Reads lines back into a trace. Blank lines are passed over.
///
/// # Errors
/// The first line that cannot be read, by number; a newer version; a last line that is cut off.
pub fn read_jsonl(text: &str) -> Result<Trace, JsonlError> {
    let mut lines = text.lines().zip(1..).filter(|(text, _)| !text.trim().is_empty()).peekable();
    let (first, line) = lines.next().ok_or(JsonlError::Empty)?;
    let is_last = lines.peek().is_none();
    let fault = |source| fault(source, line, is_last, 0);
    // The version first, by itself: a newer header may have another shape.
    let Versioned { version } = serde_json::from_str(first).map_err(fault)?;
    if version > VERSION {
        return Err(JsonlError::Newer { found: version });
    }
    let header: Header = serde_json::from_str(first).map_err(fault)?;
    let mut events: Vec<Event> = Vec::new();
    while let Some((text, line)) = lines.next() {
        let is_last = lines.peek().is_none();
        events.push(serde_json::from_str(text).map_err(|source| self::fault(source, line, is_last, events.len()))?);
    }
    Ok(Trace { header, events })
}

fn fault(source: serde_json::Error, line: usize, is_last: bool, events: usize) -> JsonlError {
    if is_last && source.is_eof() { JsonlError::CutShort { line, events } } else { JsonlError::Line { line, source } }
}

#[derive(Deserialize)]
struct Versioned {
    version: u32,
}
