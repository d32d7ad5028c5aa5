//! The list of runs as a page: a line for each, with a link to its own page. Opens offline, loads nothing, runs nothing.

use crate::markup::filters;
use crate::page::{Host, render};
use askama::Template;
use lemon_trace::text;

/// A run in the list.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct IndexRow {
    pub run_id: String,
    /// The task's text.
    pub question: String,
    /// The answer, where it has one.
    pub answer: Option<String>,
    /// How it ended: a stop reason, `running` or `interrupted`.
    pub end: String,
    /// All tokens, once it has ended.
    pub tokens: Option<u64>,
    /// When it began, in milliseconds of Unix time.
    pub started_at_ms: u64,
    /// The address of its page from where the list lies, where there is a page.
    pub page: Option<String>,
}

#[derive(Template)]
#[template(path = "index.html")]
struct IndexPage<'a> {
    host: Host,
    count: String,
    runs: Vec<Listed<'a>>,
}

struct Listed<'a> {
    page: Option<&'a str>,
    question: String,
    answer: Option<String>,
    class: &'static str,
    end: String,
    /// Tokens, date and id.
    rest: String,
}

/// The list, in the order of the rows.
pub fn index(rows: &[IndexRow]) -> String {
    render(&IndexPage {
        host: Host::FILE,
        count: text::plural(rows.len() as u64, "run"),
        runs: rows.iter().map(listed).collect(),
    })
}

fn listed(row: &IndexRow) -> Listed<'_> {
    let tokens = row.tokens.map_or_else(String::new, |tokens| format!(" · {}", text::plural(tokens, "token")));
    let answer = row.answer.as_deref().map(|answer| text::line(answer, 200));
    Listed {
        page: row.page.as_deref(),
        question: text::line(&row.question, 200),
        answer: answer.filter(|answer| !answer.is_empty()),
        class: if row.end == "answered" { "good" } else { "odd" },
        end: row.end.replace('_', " "),
        rest: format!("{tokens} · {} · {}", text::date(row.started_at_ms), row.run_id),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row() -> IndexRow {
        IndexRow {
            run_id: "r-1".into(),
            question: "What is 2 < 3?".into(),
            answer: Some("**yes**\nbecause".into()),
            end: "token_budget".into(),
            tokens: Some(1_234),
            started_at_ms: 1_767_225_600_000,
            page: Some("r-1.html".into()),
        }
    }

    #[test]
    fn a_line_for_each_run() {
        let page = index(&[row(), IndexRow { page: None, answer: None, tokens: None, ..row() }]);
        assert!(page.contains("2 runs, newest first"));
        assert!(page.contains("<a href=\"r-1.html\">What is 2 &lt; 3?</a>"), "{page}");
        assert!(page.contains("<p class=\"task\">What is 2 &lt; 3?</p><p class=\"got none\">no answer</p>"), "{page}");
        assert!(page.contains("token budget</span> · 1,234 tokens · 2026-01-01 00:00 UTC · r-1"), "{page}");
        assert!(!page.contains("<script") && !page.contains("script-src"));
        assert!(index(&[]).contains("0 runs"));
    }

    #[test]
    fn nothing_untrusted_becomes_markup() {
        let bad = "\"><script>alert(1)</script>";
        let page = index(&[IndexRow {
            run_id: bad.into(),
            question: bad.into(),
            answer: Some(bad.into()),
            end: bad.into(),
            page: Some(bad.into()),
            ..row()
        }]);
        assert!(!page.contains("<script") && !page.contains("\">&quot;&gt;<"), "{page}");
        assert_eq!(page.matches("<a ").count(), 1);
    }
}
