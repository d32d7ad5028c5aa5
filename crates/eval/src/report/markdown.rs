//! The report for a document.

use super::findings::findings;
use super::tables::{Align, Table, bands, ends, methods, pairs};
use super::words;
use crate::Report;
use lemon_view::markup::markdown as escape;

/// The report as Markdown: set-up, findings, tables.
pub fn markdown(report: &Report) -> String {
    let mut text = format!("# {}\n\n", escape(&words::title(&report.set_up)));
    text.push_str(&format!("{}\n\n", escape(&words::set_up(&report.set_up).join(" · "))));
    for finding in findings(report) {
        text.push_str(&format!("{}\n\n", escape(&finding)));
    }
    section(&mut text, "Methods", methods(&report.methods));
    section(&mut text, "Pairs", pairs(&report.pairs));
    for set in &report.sets {
        // What the columns mean has been said.
        section(&mut text, &escape(&set.set), Table { caption: String::new(), ..methods(&set.methods) });
    }
    section(&mut text, "How the agents worked together, by trace length", bands(&report.methods));
    section(&mut text, "How the runs ended", ends(&report.methods));
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}

fn section(text: &mut String, title: &str, table: Table) {
    if table.rows.is_empty() {
        return;
    }
    text.push_str(&format!("## {title}\n\n"));
    for column in &table.columns {
        text.push_str(&format!("| {} ", column.name));
    }
    text.push_str("|\n");
    for column in &table.columns {
        text.push_str(if column.align == Align::Right { "|---:" } else { "|---" });
    }
    text.push_str("|\n");
    for row in &table.rows {
        for cell in row {
            let note = cell.note.as_ref().map_or_else(String::new, |note| format!(" ({})", escape(note)));
            text.push_str(&format!("| {}{note} ", escape(&cell.text)));
        }
        text.push_str("|\n");
    }
    text.push('\n');
    if !table.caption.is_empty() {
        text.push_str(&format!("{}\n\n", escape(&table.caption)));
    }
}
