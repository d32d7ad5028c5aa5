//! The cards of the picture: agents, those of earlier rounds, and answers.

use super::{CARD_HEIGHT, CARD_WIDTH, level_colour, translated};
use crate::credit::Worth;
use crate::export::markup::{escape, fit, width};
use crate::{AgentSummary, text};
use lemon_spec::AnswerRule;
use std::fmt::Write;

const GHOST_HEIGHT: f64 = 30.0;

pub(super) enum Card<'a> {
    /// An agent of an earlier round that is read in this one.
    Ghost(&'a str, u32),
    /// An agent and what it is worth, where somebody measured that.
    Agent(&'a AgentSummary, Option<Worth>),
    Answer(AnswerCard<'a>),
}

#[derive(Default)]
pub(super) struct AnswerCard<'a> {
    pub rule: Option<AnswerRule>,
    pub chosen: Option<&'a str>,
    pub answer: Option<&'a str>,
    pub is_final: bool,
}

impl Card<'_> {
    pub fn height(&self) -> f64 {
        match self {
            Card::Ghost(..) => GHOST_HEIGHT,
            _ => CARD_HEIGHT,
        }
    }

    pub fn draw(&self, out: &mut String, x: f64, y: f64) {
        let frame = format!(
            "<rect class=\"card\" x=\".5\" y=\".5\" width=\"{}\" height=\"{}\" rx=\"6\"/>",
            CARD_WIDTH - 1.0,
            self.height() - 1.0
        );
        let (class, body) = match self {
            Card::Ghost(id, round) => ("ghost".to_owned(), ghost(id, *round)),
            Card::Agent(agent, worth) => {
                let worth_class = worth.map_or_else(String::new, |worth| format!(" {}", worth.sign().class()));
                (format!("agent {}{worth_class}", text::status(agent)), agent_card(agent, *worth))
            }
            Card::Answer(answer) => ("answer".to_owned(), answer_card(answer)),
        };
        let attributes = match self {
            Card::Agent(agent, _) => format!(" class=\"{class}\" data-agent=\"{}\"", escape(&agent.id)),
            _ => format!(" class=\"{class}\""),
        };
        out.push_str(&translated(x, y, &attributes, &format!("{frame}{body}")));
    }
}

fn ghost(id: &str, round: u32) -> String {
    let id = fit(id, CARD_WIDTH - 84.0, 12.0);
    let right = CARD_WIDTH - 12.0;
    format!(
        "<text class=\"id\" x=\"14\" y=\"19.5\">{id}</text>\
         <text class=\"meta\" x=\"{right}\" y=\"19.5\" text-anchor=\"end\">round {round}</text>"
    )
}

fn agent_card(agent: &AgentSummary, worth: Option<Worth>) -> String {
    let worth = worth.map(Worth::told);
    // It may be bold: wider than its size says.
    let worth_width = worth.as_ref().map_or(0.0, |worth| width(worth, 12.5) + 8.0);
    let retried = agent.attempts > 1;
    let id = fit(&agent.id, CARD_WIDTH - if retried { 66.0 } else { 44.0 }, 13.6);
    let role = fit(&agent.role, CARD_WIDTH - 28.0 - worth_width, 11.5);
    let capacity = fit(&agent.capacity, 58.0, 11.0);
    let cost = match (agent.reused, agent.started) {
        (true, _) => "reused".to_owned(),
        (_, None) => text::status(agent).to_owned(),
        _ if agent.status.is_none() => format!("running · {}", text::seconds(agent.seconds)),
        _ => format!("{} tok · {}", text::short_count(agent.tokens()), text::seconds(agent.seconds)),
    };
    let mut body = format!("<title>{}</title>", escape(&tooltip(agent)));
    let _ = write!(body, "<path class=\"level\" fill=\"{}\" d=\"{STRIPE}\"/>", level_colour(agent.level));
    let _ = write!(body, "<text class=\"id\" x=\"16\" y=\"20.5\">{id}</text>");
    let _ = write!(body, "<text class=\"role\" x=\"16\" y=\"37\">{role}</text>");
    let _ = write!(body, "<text class=\"meta\" x=\"16\" y=\"54\">{cost}</text>");
    let right = CARD_WIDTH - 12.0;
    let _ = write!(body, "<text class=\"meta\" x=\"{right}\" y=\"54\" text-anchor=\"end\">{capacity}</text>");
    if let Some(worth) = worth {
        let _ = write!(body, "<text class=\"worth\" x=\"{right}\" y=\"37\" text-anchor=\"end\">{worth}</text>");
    }
    if retried {
        let x = CARD_WIDTH - 28.0;
        let _ =
            write!(body, "<text class=\"meta\" x=\"{x}\" y=\"20.5\" text-anchor=\"end\">{}×</text>", agent.attempts);
    }
    let _ = write!(body, "<g transform=\"translate({} 16)\">{}</g>", CARD_WIDTH - 18.0, mark(text::status(agent)));
    body
}

/// The left edge of a card, with its two rounded corners.
const STRIPE: &str = "M6.5 1H7v62h-.5A5.5 5.5 0 0 1 1 57.5v-51A5.5 5.5 0 0 1 6.5 1z";

fn tooltip(agent: &AgentSummary) -> String {
    let mut tip = format!("{} – {} ({}, {})", agent.id, agent.role, agent.base, agent.capacity);
    if let Some(duty) = &agent.duty {
        let _ = write!(tip, "\n{}", text::clip(duty, 300));
    }
    match (&agent.answer, &agent.failure) {
        (Some(answer), _) => drop(write!(tip, "\n→ {}", text::line(answer, 200))),
        (None, Some(failure)) => drop(write!(tip, "\n{}: {}", failure.kind, text::line(&failure.message, 200))),
        (None, None) => {}
    }
    tip
}

fn answer_card(answer: &AnswerCard) -> String {
    let title = if answer.is_final { "Answer" } else { "Result" };
    let rule = answer.rule.map_or_else(String::new, |rule| format!("by {}", text::rule(rule)));
    let shown = answer.answer.map_or_else(|| "–".to_owned(), |answer| fit(answer, CARD_WIDTH - 28.0, 13.6));
    let from = answer.chosen.map_or_else(String::new, |id| fit(&format!("from {id}"), CARD_WIDTH - 28.0, 11.0));
    let right = CARD_WIDTH - 12.0;
    format!(
        "<title>{}</title><text class=\"meta\" x=\"14\" y=\"19\">{title}</text>\
         <text class=\"meta\" x=\"{right}\" y=\"19\" text-anchor=\"end\">{rule}</text>\
         <text class=\"id\" x=\"14\" y=\"37.5\">{shown}</text><text class=\"meta\" x=\"14\" y=\"54\">{from}</text>",
        escape(&text::clip(answer.answer.unwrap_or("no answer"), 400)),
    )
}

/// The sign of a status, about the origin.
pub(super) fn mark(status: &str) -> &'static str {
    match status {
        "done" => "<path class=\"mark\" d=\"M-4.5 .5-1.5 3.5 4.5-3.5\"/>",
        "failed" => "<path class=\"mark\" d=\"M-3.5-3.5 3.5 3.5M3.5-3.5-3.5 3.5\"/>",
        "skipped" => "<path class=\"mark\" d=\"M-4 0H4\"/>",
        "cancelled" => "<path class=\"mark\" d=\"M-3.5-3.5h7v7h-7z\"/>",
        "running" => "<path class=\"mark\" d=\"M-2.5-4 4 0-2.5 4z\"/>",
        _ => "<circle class=\"mark\" r=\"3.8\"/>",
    }
}
