//! The cards of the picture: agents, those of earlier rounds, and answers.

use super::{CARD_HEIGHT, CARD_WIDTH, level_colour};
use crate::markup::Markup;
use crate::measure::{fit, width};
use crate::svg::{Anchor, Element, circle, element, fixed, group, rect, text};
use lemon_spec::AnswerRule;
use lemon_trace::credit::Worth;
use lemon_trace::{AgentSummary, text as words};
use std::fmt::Write;

const GHOST_HEIGHT: f64 = 30.0;

pub(super) enum Card<'a> {
    /// An agent of an earlier round that is read in this one.
    Ghost(&'a str, u32),
    /// An agent and what it is worth, where that was measured.
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

    pub fn draw(&self, x: f64, y: f64) -> Markup {
        let frame = rect("card", (0.5, 0.5), (CARD_WIDTH - 1.0, self.height() - 1.0)).attribute("rx", "6");
        let card = element("g");
        match self {
            Card::Ghost(id, round) => ghost(card.class("ghost").moved(x, y).child(frame), id, *round),
            Card::Agent(agent, worth) => {
                let sign = worth.map_or("", |worth| worth.sign().class());
                let class = format!("agent {} {sign}", words::status(agent));
                let card = card.class(class.trim_end()).attribute("data-agent", &agent.id).moved(x, y);
                agent_card(card.child(frame), agent, *worth)
            }
            Card::Answer(answer) => answer_card(card.class("answer").moved(x, y).child(frame), answer),
        }
        .into()
    }
}

/// A text whose end stands at the right edge of a card.
fn at_right(y: f64, content: &str) -> Element {
    text("meta", (CARD_WIDTH - 12.0, y), Anchor::End, content)
}

fn ghost(card: Element, id: &str, round: u32) -> Element {
    let id = fit(id, CARD_WIDTH - 84.0, 12.0);
    card.child(text("id", (14.0, 19.5), Anchor::Start, &id)).child(at_right(19.5, &format!("round {round}")))
}

fn agent_card(card: Element, agent: &AgentSummary, worth: Option<Worth>) -> Element {
    let worth = worth.map(Worth::told);
    // It may be bold: wider than its size says.
    let worth_width = worth.as_ref().map_or(0.0, |worth| width(worth, 12.5) + 8.0);
    let retried = agent.attempts > 1;
    let status = words::status(agent);
    let id = fit(&agent.id, CARD_WIDTH - if retried { 66.0 } else { 44.0 }, 13.6);
    let role = fit(&agent.role, CARD_WIDTH - 28.0 - worth_width, 11.5);
    let cost = match (agent.reused, agent.started) {
        (true, _) => "reused".to_owned(),
        (_, None) => status.to_owned(),
        _ if agent.status.is_none() => format!("running · {}", words::seconds(agent.seconds)),
        _ => format!("{} tok · {}", words::short_count(agent.tokens()), words::seconds(agent.seconds)),
    };
    let stripe = fixed("level", STRIPE).attribute("fill", level_colour(agent.level));
    let mut card = card.title(&tooltip(agent)).child(stripe);
    for (class, y, content) in [("id", 20.5, &id), ("role", 37.0, &role), ("meta", 54.0, &cost)] {
        card = card.child(text(class, (16.0, y), Anchor::Start, content));
    }
    card = card.child(at_right(54.0, &fit(&agent.capacity, 58.0, 11.0)));
    if let Some(worth) = worth {
        card = card.child(text("worth", (CARD_WIDTH - 12.0, 37.0), Anchor::End, &worth));
    }
    if retried {
        let attempts = format!("{}×", agent.attempts);
        card = card.child(text("meta", (CARD_WIDTH - 28.0, 20.5), Anchor::End, &attempts));
    }
    card.child(group(CARD_WIDTH - 18.0, 16.0).child(mark(status)))
}

/// The left edge of a card, with its two rounded corners.
const STRIPE: &str = "M6.5 1H7v62h-.5A5.5 5.5 0 0 1 1 57.5v-51A5.5 5.5 0 0 1 6.5 1z";

fn tooltip(agent: &AgentSummary) -> String {
    let mut tip = format!("{} – {} ({}, {})", agent.id, agent.role, agent.base, agent.capacity);
    if let Some(duty) = &agent.duty {
        tip.push_str(&format!("\n{}", words::clip(duty, 300)));
    }
    match (&agent.answer, &agent.failure) {
        // Writing to a string cannot fail.
        (Some(answer), _) => drop(write!(tip, "\n→ {}", words::line(answer, 200))),
        (None, Some(failure)) => drop(write!(tip, "\n{}: {}", failure.kind, words::line(&failure.message, 200))),
        (None, None) => {}
    }
    tip
}

fn answer_card(card: Element, answer: &AnswerCard) -> Element {
    let title = if answer.is_final { "Answer" } else { "Result" };
    let rule = answer.rule.map_or_else(String::new, |rule| format!("by {}", words::rule(rule)));
    // The first line stands for the answer.
    let shown = answer.answer.map(|answer| fit(&words::line(answer, 400), CARD_WIDTH - 28.0, 13.6));
    let from = answer.chosen.map_or_else(String::new, |id| fit(&format!("from {id}"), CARD_WIDTH - 28.0, 11.0));
    let mut card = card.title(&words::clip(answer.answer.unwrap_or("no answer"), 400));
    for (class, y, content) in
        [("meta", 19.0, title), ("id", 37.5, shown.as_deref().unwrap_or("–")), ("meta", 54.0, &from)]
    {
        card = card.child(text(class, (14.0, y), Anchor::Start, content));
    }
    card.child(at_right(19.0, &rule))
}

/// The sign of a status, about the origin.
pub(super) fn mark(status: &str) -> Element {
    match status {
        "done" => fixed("mark", "M-4.5 .5-1.5 3.5 4.5-3.5"),
        "failed" => fixed("mark", "M-3.5-3.5 3.5 3.5M3.5-3.5-3.5 3.5"),
        "skipped" => fixed("mark", "M-4 0H4"),
        "cancelled" => fixed("mark", "M-3.5-3.5h7v7h-7z"),
        "running" => fixed("mark", "M-2.5-4 4 0-2.5 4z"),
        _ => circle("mark", (0.0, 0.0), 3.8),
    }
}
