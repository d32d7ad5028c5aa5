//! An evaluation for readers: Markdown for a document, CSV for a spreadsheet, JSON for a script, one page for a browser.
//!
//! None of them computes a statistic: numbers come from the [`Report`], single runs from the [`Evaluation`].

mod csv;
mod data;
pub mod files;
mod findings;
pub mod items;
mod markdown;
mod page;
mod tables;
pub mod words;

pub use self::csv::{csv, quoted};
pub use markdown::markdown;
pub use page::{html, html_with_items, page_of};

#[cfg(doc)]
use crate::Evaluation;
use crate::Report;

/// The report as indented JSON.
pub fn json(report: &Report) -> String {
    // A report has only string keys, so that writing it as JSON cannot fail.
    let mut json = serde_json::to_string_pretty(report).unwrap_or_default();
    json.push('\n');
    json
}
