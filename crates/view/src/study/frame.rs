//! The panel that a figure stands on, and what is drawn with.

pub use lemon_eval::report::markup::{escape, fit, width};
use std::fmt::Write;

/// Space around everything.
pub const MARGIN: f64 = 20.0;
pub const FONT: f64 = 12.0;
/// As wide as bold text is estimated.
pub const BOLD: f64 = 13.2;
pub const SMALL: f64 = 11.0;
const TITLE: f64 = 15.0;
const LINE: f64 = 16.0;
const STYLE: &str = include_str!("figure.css");

/// A figure of this width: a title, a note under it, and a body so high.
pub fn panel(title: &str, note: &str, wide: f64, high: f64, body: &str) -> String {
    let room = wide - 2.0 * MARGIN;
    let notes = wrapped(note, room, FONT);
    let head = MARGIN + 26.0 + LINE * notes.len() as f64;
    let whole = head + high + MARGIN;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"lemon-study\" viewBox=\"0 0 {wide:.0} {whole:.0}\" \
         width=\"{wide:.0}\" height=\"{whole:.0}\" role=\"img\" aria-label=\"{label}\">\n\
         <title>{label}</title>\n<style>\n{STYLE}</style>\n\
         <rect class=\"paper\" x=\"0.5\" y=\"0.5\" width=\"{:.0}\" height=\"{:.0}\" rx=\"6\"/>\n",
        wide - 1.0,
        whole - 1.0,
        label = escape(title),
    );
    svg.push_str(&text("title", MARGIN, MARGIN + 12.0, "start", &cut(title, room, TITLE)));
    for (place, line) in notes.iter().enumerate() {
        svg.push_str(&text("note", MARGIN, MARGIN + 31.0 + LINE * place as f64, "start", line));
    }
    let _ = write!(svg, "<g transform=\"translate(0 {head:.0})\">\n{body}</g>\n</svg>\n");
    svg
}

/// A figure of nothing, which says so.
pub fn nothing(title: &str, why: &str) -> String {
    panel(title, why, 640.0, 0.0, "")
}

/// One line of text, escaped.
pub fn text(class: &str, x: f64, y: f64, anchor: &str, content: &str) -> String {
    let content = escape(content);
    format!("<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{content}</text>\n")
}

/// A straight line.
pub fn line(class: &str, from: (f64, f64), to: (f64, f64)) -> String {
    format!("<path class=\"{class}\" d=\"M{:.1} {:.1}L{:.1} {:.1}\"/>\n", from.0, from.1, to.0, to.1)
}

/// A text on one line, cut to fit. Not escaped.
pub fn cut(text: &str, room: f64, size: f64) -> String {
    fit(&text.split_whitespace().take(100).collect::<Vec<_>>().join(" "), room, size)
}

/// A text broken into lines that fit. Not escaped.
pub fn wrapped(text: &str, room: f64, size: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let word = fit(word, room, size);
        match lines.last_mut() {
            Some(line) if width(line, size) + width(&word, size) + 0.32 * size <= room => {
                line.push(' ');
                line.push_str(&word);
            }
            _ => lines.push(word),
        }
    }
    lines
}
