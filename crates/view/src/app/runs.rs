//! The list of runs: searched, filtered, in pages.

use super::{Section, state};
use crate::markup::{filters, fragment};
use crate::page::{Host, render};
use crate::words::number;
use askama::Template;
use lemon_trace::text;

/// The list of runs.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RunsPage {
    /// What was asked for.
    pub filters: RunFilters,
    /// The runs of this page.
    pub runs: Vec<ListedRun>,
    /// Runs that match, on all pages.
    pub total: u64,
    /// Runs on a page.
    pub per_page: u64,
    /// The names of teams that one can filter by.
    pub teams: Vec<String>,
}

/// What the form of the list holds, as text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunFilters {
    /// Words in question, answer or id.
    pub text: String,
    /// How the run ended.
    pub end: String,
    pub team: String,
    /// The first day.
    pub from: String,
    /// The last day.
    pub to: String,
    /// The least tokens.
    pub tokens: String,
    pub order: String,
    /// The page, from 1.
    pub page: u64,
}

/// A run in the list.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ListedRun {
    /// The run.
    pub id: String,
    /// The task's text.
    pub question: String,
    pub answer: Option<String>,
    /// Why it ended.
    pub stop_reason: Option<String>,
    /// A process works on it now.
    pub running: bool,
    /// All tokens, once it has ended.
    pub tokens: Option<u64>,
    /// All money.
    pub usd: Option<f64>,
    /// How long it took.
    pub seconds: Option<f64>,
    /// How many agents it had.
    pub agents: Option<u64>,
    /// The saved team that ran.
    pub team: Option<String>,
    /// When it began, in milliseconds of Unix time.
    pub started_at_ms: u64,
}

impl RunFilters {
    /// Whether every run matches.
    pub fn is_empty(&self) -> bool {
        [&self.text, &self.end, &self.team, &self.from, &self.to, &self.tokens].iter().all(|field| field.is_empty())
    }

    /// The address of a page of the list.
    fn link(&self, page: u64) -> String {
        let fields = [
            ("q", &self.text),
            ("end", &self.end),
            ("team", &self.team),
            ("from", &self.from),
            ("to", &self.to),
            ("tokens", &self.tokens),
            ("order", &self.order),
            ("page", &page.to_string()),
        ];
        let given = fields.iter().filter(|(_, value)| !value.is_empty());
        let pairs: Vec<String> = given.map(|(name, value)| format!("{name}={}", fragment(value))).collect();
        format!("/runs?{}", pairs.join("&"))
    }
}

const ENDS: [(&str, &str); 10] = [
    ("answered", "answered"),
    ("running", "running"),
    ("interrupted", "interrupted"),
    ("approval", "waits for approval"),
    ("budget", "a budget was met"),
    ("cancelled", "cancelled"),
    ("rejected", "no valid team"),
    ("all_agents_failed", "all agents failed"),
    ("answer_agents_failed", "answer agents failed"),
    ("orchestrator_failed", "orchestrator failed"),
];

const ORDERS: [(&str, &str); 4] =
    [("", "newest first"), ("tokens", "most tokens first"), ("cost", "dearest first"), ("time", "longest first")];

#[derive(Template)]
#[template(path = "app-runs.html")]
struct Page<'a> {
    host: Host,
    page: &'a RunsPage,
    ends: &'static [(&'static str, &'static str)],
    orders: &'static [(&'static str, &'static str)],
    found: String,
    rows: Vec<Row<'a>>,
    last_page: Option<u64>,
    previous: Option<String>,
    next: Option<String>,
}

/// A run as words.
pub(super) struct Row<'a> {
    pub id: &'a str,
    pub question: String,
    pub answer: Option<String>,
    pub state: String,
    pub class: &'static str,
    pub rest: String,
    pub tokens: String,
    pub cost: String,
}

/// The page.
pub fn runs(page: &RunsPage) -> String {
    let last = page.total.div_ceil(page.per_page.max(1)).max(1);
    let now = page.filters.page.clamp(1, last);
    let found = match page.filters.is_empty() {
        true => text::plural(page.total, "run"),
        false => format!("{} found", text::plural(page.total, "run")),
    };
    render(&Page {
        host: Host::app(Section::Runs, "runs.js"),
        page,
        ends: &ENDS,
        orders: &ORDERS,
        found,
        rows: page.runs.iter().map(row).collect(),
        last_page: (last > 1).then_some(last),
        previous: (now > 1).then(|| page.filters.link(now - 1)),
        next: (now < last).then(|| page.filters.link(now + 1)),
    })
}

pub(super) fn row(run: &ListedRun) -> Row<'_> {
    let (state, class) = state(run.stop_reason.as_deref(), run.running);
    let mut rest = Vec::new();
    rest.extend(run.team.clone());
    rest.extend(run.agents.map(|agents| text::plural(agents, "agent")));
    rest.extend(run.seconds.map(text::seconds));
    rest.push(text::date(run.started_at_ms));
    rest.push(run.id.clone());
    let answer = run.answer.as_deref().map(|answer| text::line(answer, 240)).filter(|answer| !answer.is_empty());
    Row {
        id: &run.id,
        question: text::line(&run.question, 240),
        answer,
        state,
        class,
        rest: rest.iter().map(|part| format!(" · {part}")).collect(),
        tokens: run.tokens.map_or_else(|| "–".to_owned(), |tokens| format!("{} tok", number(tokens as f64))),
        cost: run.usd.filter(|usd| *usd > 0.0).map_or_else(String::new, text::usd),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_keep_the_filters_and_escape_them() {
        let filters = RunFilters { text: "a&b=\"<c>".into(), end: "answered".into(), page: 2, ..RunFilters::default() };
        let runs: Vec<ListedRun> = (0..3).map(|n| ListedRun { id: format!("r-{n}"), ..ListedRun::default() }).collect();
        let html = super::runs(&RunsPage { filters, runs, total: 100, per_page: 30, teams: Vec::new() });
        assert!(
            html.contains("/runs?q=a%26b%3D%22%3Cc%3E&#38;end=answered")
                || html.contains("/runs?q=a%26b%3D%22%3Cc%3E&amp;end=answered"),
            "{html}"
        );
        assert!(html.contains("page=1") && html.contains("page=3") && html.contains("Page 2 of 4"));
        assert!(html.contains("value=\"a&amp;b=&quot;&lt;c&gt;\""));
        assert!(!html.contains("<c>"));
    }
}
