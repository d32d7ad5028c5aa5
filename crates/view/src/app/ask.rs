//! The page on which one asks, and the end of a run in it.

use super::{Section, waiting};
use crate::markdown::markdown;
use crate::markup::{Markup, filters};
use crate::page::{Host, render};
use crate::run::{Answer, answer, is_cut_off, stop_reason};
use askama::Template;
use lemon_trace::{StopReason, Trace, text};

/// What one can choose from.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AskPage {
    /// What writes the team where none is chosen, in words.
    pub orchestrator: String,
    /// The capacities, weakest first.
    pub capacities: Vec<CapacityChoice>,
    /// The names of saved teams.
    pub teams: Vec<String>,
    /// Trained orchestrators that can be chosen: the name to send, and the name to show.
    pub policies: Vec<(String, String)>,
    /// Tokens that a run may spend where one says nothing.
    pub budget_tokens: Option<u64>,
    /// Whether capacities have prices, so that a budget in US dollars means something.
    pub has_prices: bool,
    /// What a person should know of the models that answer.
    pub notice: Option<String>,
    /// Questions to begin with.
    pub examples: Vec<String>,
    /// Whether questions can refer to what was said before.
    pub is_chat: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CapacityChoice {
    pub name: String,
    /// The model that serves it.
    pub model: String,
}

#[derive(Template)]
#[template(path = "app-ask.html")]
struct Page<'a> {
    host: Host,
    page: &'a AskPage,
    budget: String,
}

/// The page.
pub fn ask(page: &AskPage) -> String {
    let budget = page.budget_tokens.map_or_else(String::new, |tokens| tokens.to_string());
    render(&Page { host: Host::app(Section::Ask, "ask.js"), page, budget })
}

#[derive(Template)]
#[template(path = "app-ended.html")]
struct Ended<'a> {
    answer: Answer<'a>,
    is_cut_off: bool,
    reason: Option<String>,
    /// Calls that wait for a person.
    waiting: Markup,
    facts: String,
}

/// What a run came to, as a piece of the page: the answer rendered, why it ended, what it cost.
pub fn ended(trace: &Trace) -> String {
    let summary = trace.summary();
    let mut facts = vec![text::plural(summary.tokens.total, "token")];
    if summary.usd > 0.0 {
        facts.push(text::usd(summary.usd));
    }
    facts.push(text::seconds(summary.wall_s));
    facts.push(text::plural(summary.agents.len() as u64, "agent"));
    let odd = summary.stop_reason.filter(|reason| !matches!(reason, StopReason::Answered | StopReason::Approval));
    render(&Ended {
        is_cut_off: is_cut_off(trace, &summary),
        reason: odd.map(stop_reason),
        waiting: waiting(trace),
        answer: match answer(&summary) {
            // On this page short answers are rendered too.
            Answer::Short(text) => Answer::Long { source: text, rendered: markdown(text) },
            answer => answer,
        },
        facts: facts.join(" · "),
    })
}
