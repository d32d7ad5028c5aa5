//! The way out: everything this program prints goes through here. What models, endpoints, files and users wrote may hold
//! control sequences; none of them reaches a terminal.

use crate::fault::Fault;
use lemon_trace::visible;
use serde::Serialize;
use std::borrow::Cow;
use std::io::{IsTerminal, Write};

/// Takes the place of the standard macro in this crate: the same, but harmless, and a lost terminal is no panic.
macro_rules! eprintln {
    ($($text:tt)*) => { $crate::say::talk(&format!($($text)*)) };
}

/// Writes a line to standard error.
pub fn talk(line: &str) {
    let shown = harmless(line, console::colors_enabled_stderr());
    // Talk that cannot be heard stops no work.
    let _ = std::io::stderr().lock().write_all(format!("{shown}\n").as_bytes());
}

/// Writes to standard output what people read: tables, texts, and JSON, which stays the same JSON.
///
/// # Errors
/// It cannot be written. A reader that has gone away, as `head` does, is no error.
pub fn print(text: &str) -> Result<u8, Fault> {
    write(&harmless(text, console::colors_enabled()))
}

/// As [`print()`], with a line end.
///
/// # Errors
/// As [`print()`].
pub fn println(text: &str) -> Result<u8, Fault> {
    print(&format!("{text}\n"))
}

/// A value as JSON, over several lines.
///
/// # Errors
/// It has no form in JSON.
pub fn to_json(value: &impl Serialize) -> Result<String, Fault> {
    serde_json::to_string_pretty(value).map_err(|error| Fault::new(format!("the result has no form in JSON: {error}")))
}

/// Writes a value to standard output as JSON, over several lines.
///
/// # Errors
/// As [`to_json`] and [`print()`].
pub fn print_json(value: &impl Serialize) -> Result<u8, Fault> {
    println(&to_json(value)?)
}

/// Writes data to standard output: byte for byte, unless a person sees it on a terminal.
///
/// # Errors
/// As [`print()`].
pub fn print_data(text: &str) -> Result<u8, Fault> {
    match std::io::stdout().is_terminal() {
        true => write(&visible(text)),
        false => write(text),
    }
}

fn write(text: &str) -> Result<u8, Fault> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Fault::new(format!("standard output cannot be written: {error}")))
        }
        _ => Ok(0),
    }
}

/// A text without anything that could harm a terminal. With `colours`, those this program uses stay: they are applied to texts
/// that are harmless already.
pub fn harmless(text: &str, colours: bool) -> Cow<'_, str> {
    if !colours || !text.contains(ESCAPE) {
        return visible(text);
    }
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(ESCAPE) {
        let (before, sequence) = rest.split_at(at);
        shown.push_str(&visible(before));
        let length = colour(sequence).unwrap_or(1);
        let (sequence, after) = sequence.split_at(length);
        match length {
            1 => shown.push_str(&visible(sequence)),
            _ => shown.push_str(sequence),
        }
        rest = after;
    }
    shown.push_str(&visible(rest));
    Cow::Owned(shown)
}

const ESCAPE: char = '\u{1b}';

/// The length of the colour or weight this text begins with: `ESC [ 31 m` and its like. Hidden and blinking text is none of ours.
fn colour(text: &str) -> Option<usize> {
    let parameters = text.strip_prefix("\u{1b}[")?;
    let end = parameters.find(|character: char| !character.is_ascii_digit() && character != ';')?;
    let (parameters, rest) = parameters.split_at(end);
    let ours = |code: &str| !matches!(code.trim_start_matches('0'), "5" | "6" | "8");
    let mut codes = parameters.split(';');
    // After 38 and 48 come the numbers of a colour, whatever they are.
    let known = match codes.next() {
        Some("38" | "48") => true,
        first => first.into_iter().chain(codes).all(ours),
    };
    (rest.starts_with('m') && known && end <= 16).then_some("\u{1b}[".len() + end + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_stay_and_nothing_else_does() {
        let check = |text: &str, expected: &str| assert_eq!(harmless(text, true), expected);
        check("\u{1b}[1m\u{1b}[38;5;9merror\u{1b}[0m: \u{1b}[m", "\u{1b}[1m\u{1b}[38;5;9merror\u{1b}[0m: \u{1b}[m");
        check("\u{1b}[8mhidden", "\\u001b[8mhidden");
        check("\u{1b}[2J\u{1b}]0;x\u{7}\u{1b}", "\\u001b[2J\\u001b]0;x\\u0007\\u001b");
        check("\u{1b}[31;8m", "\\u001b[31;8m");
        check("\u{1b}[31", "\\u001b[31");
        assert_eq!(harmless("\u{1b}[31mred", false), "\\u001b[31mred");
    }
}
