//! The panel that a figure stands on.

use crate::markup::Markup;
use crate::measure::{fit, wrapped};
use crate::svg::{Anchor, document, element, group, rect, style, text};

/// Space around everything.
pub(super) const MARGIN: f64 = 20.0;
pub(super) const FONT: f64 = 12.0;
/// As wide as bold text is estimated.
pub(super) const BOLD: f64 = 13.2;
pub(super) const SMALL: f64 = 11.0;
const TITLE: f64 = 15.0;
const LINE: f64 = 16.0;

/// A figure of this width: a title, a note under it, and a body so high.
pub(super) fn panel(title: &str, note: &str, wide: f64, high: f64, body: Markup) -> String {
    let room = wide - 2.0 * MARGIN;
    let notes = wrapped(note, room, FONT);
    let head = MARGIN + 26.0 + LINE * notes.len() as f64;
    let whole = head + high + MARGIN;
    let paper = rect("paper", (0.5, 0.5), (wide - 1.0, whole - 1.0)).attribute("rx", "6");
    let mut svg = document("lemon-study", (wide, whole), title)
        .child(element("title").text(title))
        .child(style(include_str!("figure.css")))
        .child(paper)
        .child(text("title", (MARGIN, MARGIN + 12.0), Anchor::Start, &fit(title, room, TITLE)));
    for (place, line) in notes.iter().enumerate() {
        let y = MARGIN + 31.0 + LINE * place as f64;
        svg = svg.child(text("note", (MARGIN, y), Anchor::Start, &fit(line, room, FONT)));
    }
    Markup::from(svg.child(group(0.0, head).child(body))).into_string()
}

/// A figure without data, which says so.
pub(super) fn nothing(title: &str, why: &str) -> String {
    panel(title, why, 640.0, 0.0, Markup::default())
}
