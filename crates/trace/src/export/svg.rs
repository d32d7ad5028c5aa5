//! The team as a picture: every agent a card, every message an arrow, rounds one below the other, each ending in its
//! answer. Stands alone: no scripts, no fonts or images from elsewhere; follows the reader's light or dark setting.

use super::layout::{Layout, layout};
use super::markup::{escape, fit, width};
use crate::{AgentSummary, EventKind, Summary, Trace, text};
use lemon_spec::AnswerRule;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;

const CARD_WIDTH: f64 = 176.0;
const CARD_HEIGHT: f64 = 64.0;
const GHOST_HEIGHT: f64 = 30.0;
/// Room between two layers, for the arrows.
const GUTTER: f64 = 62.0;
/// Room between two cards of a layer.
const GAP: f64 = 12.0;
const MARGIN: f64 = 20.0;
const TITLE_HEIGHT: f64 = 30.0;
const LEGEND_HEIGHT: f64 = 34.0;
const LEGEND_LINE: f64 = 18.0;
const TIP: f64 = 7.0;

/// Colours of the capacity levels, weakest first, told apart by people with any kind of colour vision (after Okabe and
/// Ito). The level's name stands on each card, too.
const LEVELS: [&str; 5] = ["#56b4e9", "#009e73", "#cc79a7", "#e69f00", "#0072b2"];

/// The picture as a complete SVG document.
pub fn svg(trace: &Trace) -> String {
    picture(trace).svg
}

/// A picture and how wide it is meant to be.
pub(super) struct Picture {
    pub svg: String,
    pub width: f64,
}

pub(super) fn picture(trace: &Trace) -> Picture {
    let summary = trace.summary();
    let rounds: Vec<Round> = (1..=summary.rounds).map(|round| Round::new(trace, &summary, round)).collect();
    let titled = rounds.len() > 1;
    let widest = rounds.iter().map(Round::width).fold(0.0, f64::max);
    let legend = legend(&summary, trace, widest.max(2.0 * CARD_WIDTH));
    let width = widest.max(legend.width) + 2.0 * MARGIN;
    let mut body = String::new();
    let mut y = MARGIN;
    for (number, round) in (1..).zip(&rounds) {
        if titled {
            round_title(&mut body, number, y, width);
            y += TITLE_HEIGHT;
        }
        round.draw(&mut body, y);
        y += round.layout.height + MARGIN;
    }
    let height = y + legend.height;
    let legend = translated(MARGIN, y, "", &legend.body);
    let svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"lemon-graph\" viewBox=\"0 0 {width:.0} {height:.0}\" \
         width=\"{width:.0}\" height=\"{height:.0}\" role=\"img\" aria-label=\"The team of {}\">\n\
         <style>{}</style>\n{}<rect class=\"paper\" width=\"100%\" height=\"100%\"/>\n{body}{legend}</svg>\n",
        escape(&trace.header.run_id),
        include_str!("graph.css"),
        concat!(
            "<defs><marker id=\"lemon-tip\" markerUnits=\"userSpaceOnUse\" markerWidth=\"8\" markerHeight=\"8\" ",
            "refX=\"0.5\" refY=\"4\" orient=\"auto\"><path class=\"tip\" d=\"M0 .5 7.5 4 0 7.5z\"/></marker></defs>\n"
        ),
    );
    Picture { svg, width }
}

/// What became of the way from one agent to another.
#[derive(Clone, Copy)]
enum Passage {
    /// The message was read: its tokens.
    Read(u64),
    /// It was held back.
    Withheld,
    /// It was never sent.
    Unsent,
    /// Into the answer; whether this one was chosen.
    Answer(bool),
}

enum Card<'a> {
    /// An agent of an earlier round that is read in this one.
    Ghost(&'a str, u32),
    Agent(&'a AgentSummary),
    Answer(AnswerCard<'a>),
}

#[derive(Default)]
struct AnswerCard<'a> {
    rule: Option<AnswerRule>,
    chosen: Option<&'a str>,
    answer: Option<&'a str>,
    is_final: bool,
}

/// One round: its cards in an order in which every arrow leads from an earlier to a later one.
struct Round<'a> {
    cards: Vec<Card<'a>>,
    arrows: Vec<(usize, usize, Passage)>,
    layout: Layout,
    most_tokens: u64,
}

impl<'a> Round<'a> {
    fn new(trace: &'a Trace, summary: &'a Summary, number: u32) -> Self {
        let messages = messages(trace);
        let agents: Vec<&AgentSummary> = summary.agents.iter().filter(|agent| agent.round == number).collect();
        let mut cards: Vec<Card> = Vec::new();
        let mut places: HashMap<&str, usize> = HashMap::new();
        let earlier = |id: &str| summary.agent(id).filter(|agent| agent.round < number);
        let (candidates, answer) = answer_of(trace, summary, number);
        let read = agents.iter().flat_map(|agent| &agent.after).map(String::as_str);
        for ghost in read.chain(candidates.iter().copied()).filter_map(earlier) {
            places.entry(&ghost.id).or_insert_with(|| {
                cards.push(Card::Ghost(&ghost.id, ghost.round));
                cards.len() - 1
            });
        }
        let mut arrows = Vec::new();
        for agent in agents {
            let place = cards.len();
            for parent in &agent.after {
                let passage = messages.get(&(parent, &agent.id)).copied().unwrap_or(Passage::Unsent);
                arrows.extend(places.get(parent.as_str()).map(|from| (*from, place, passage)));
            }
            places.insert(&agent.id, place);
            cards.push(Card::Agent(agent));
        }
        for candidate in candidates {
            let chosen = answer.chosen == Some(candidate);
            arrows.extend(places.get(candidate).map(|from| (*from, cards.len(), Passage::Answer(chosen))));
        }
        cards.push(Card::Answer(answer));
        let heights: Vec<f64> = cards.iter().map(Card::height).collect();
        let edges: Vec<(usize, usize)> = arrows.iter().map(|(from, to, _)| (*from, *to)).collect();
        let most_tokens = messages.values().map(|passage| passage.tokens()).max().unwrap_or(0).max(1);
        Round { layout: layout(&heights, &edges, GAP), cards, arrows, most_tokens }
    }

    fn width(&self) -> f64 {
        left_of(self.layout.layers) - MARGIN - GUTTER
    }

    fn draw(&self, out: &mut String, y: f64) {
        let mut body = String::new();
        // The chosen arrow last, so that none covers it.
        let mut arrows: Vec<_> = self.arrows.iter().zip(&self.layout.lanes).collect();
        arrows.sort_by_key(|((_, _, passage), _)| matches!(passage, Passage::Answer(true)));
        for ((from, to, passage), lanes) in arrows {
            self.draw_arrow(&mut body, *from, *to, *passage, lanes);
        }
        for (card, (layer, top)) in self.cards.iter().zip(&self.layout.boxes) {
            card.draw(&mut body, left_of(*layer), *top);
        }
        out.push_str(&translated(0.0, y, "", &body));
    }

    fn draw_arrow(&self, out: &mut String, from: usize, to: usize, passage: Passage, lanes: &[f64]) {
        let (Some(source), Some(target)) = (self.side(from), self.side(to)) else { return };
        let (mut x, mut y) = (left_of(source.0) + CARD_WIDTH, source.1);
        let mut path = format!("M{x:.1} {y:.1}");
        for (layer, lane) in (source.0 + 1..).zip(lanes) {
            let next = left_of(layer);
            curve(&mut path, (x, y), (next, *lane));
            let _ = write!(path, "H{:.1}", next + CARD_WIDTH);
            (x, y) = (next + CARD_WIDTH, *lane);
        }
        curve(&mut path, (x, y), (left_of(target.0) - TIP, target.1));
        let share = passage.tokens() as f64 / self.most_tokens as f64;
        let width = match passage {
            Passage::Read(_) => 1.0 + 3.0 * share.sqrt(),
            Passage::Answer(true) => 2.5,
            _ => 1.5,
        };
        let class = passage.class();
        let _ = write!(out, "<path class=\"edge {class}\" stroke-width=\"{width:.1}\" d=\"{path}\"");
        out.push_str(" marker-end=\"url(#lemon-tip)\"/>\n");
    }

    /// The layer of a card and the middle of its height.
    fn side(&self, place: usize) -> Option<(usize, f64)> {
        let (layer, top) = self.layout.boxes.get(place)?;
        Some((*layer, top + self.cards.get(place)?.height() / 2.0))
    }
}

/// What went from whom to whom.
fn messages(trace: &Trace) -> HashMap<(&String, &String), Passage> {
    let messages = trace.events.iter().filter_map(|event| match &event.kind {
        EventKind::Message { from, to, tokens, delivered, .. } => {
            Some(((from, to), if *delivered { Passage::Read(*tokens) } else { Passage::Withheld }))
        }
        _ => None,
    });
    messages.collect()
}

/// Whose results the answer of a round was made of, and the answer. Before it is made: of nobody's.
fn answer_of<'a>(trace: &'a Trace, summary: &Summary, number: u32) -> (Vec<&'a str>, AnswerCard<'a>) {
    let is_final = number == summary.rounds;
    let aggregate = trace.events.iter().rev().find_map(|event| match &event.kind {
        EventKind::Aggregate { round, rule, candidates, chosen, answer } if *round == number => {
            let (chosen, answer) = (chosen.as_deref(), answer.as_deref());
            let from: Vec<&str> = candidates.iter().map(|candidate| candidate.agent.as_str()).collect();
            // A judge has read the candidates: what they gave comes in through its verdict.
            let from = match chosen {
                Some(judge) if !from.contains(&judge) => vec![judge],
                _ => from,
            };
            Some((from, AnswerCard { rule: Some(*rule), chosen, answer, is_final }))
        }
        _ => None,
    });
    aggregate.unwrap_or_else(|| (Vec::new(), AnswerCard { is_final, ..AnswerCard::default() }))
}

impl Card<'_> {
    fn height(&self) -> f64 {
        match self {
            Card::Ghost(..) => GHOST_HEIGHT,
            _ => CARD_HEIGHT,
        }
    }

    fn draw(&self, out: &mut String, x: f64, y: f64) {
        let frame = format!(
            "<rect class=\"card\" x=\".5\" y=\".5\" width=\"{}\" height=\"{}\" rx=\"6\"/>",
            CARD_WIDTH - 1.0,
            self.height() - 1.0
        );
        let (class, body) = match self {
            Card::Ghost(id, round) => ("ghost".to_owned(), ghost(id, *round)),
            Card::Agent(agent) => (format!("agent {}", text::status(agent)), agent_card(agent)),
            Card::Answer(answer) => ("answer".to_owned(), answer_card(answer)),
        };
        let attributes = match self {
            Card::Agent(agent) => format!(" class=\"{class}\" data-agent=\"{}\"", escape(&agent.id)),
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

fn agent_card(agent: &AgentSummary) -> String {
    let retried = agent.attempts > 1;
    let id = fit(&agent.id, CARD_WIDTH - if retried { 66.0 } else { 44.0 }, 13.6);
    let role = fit(&agent.role, CARD_WIDTH - 28.0, 11.5);
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
fn mark(status: &str) -> &'static str {
    match status {
        "done" => "<path class=\"mark\" d=\"M-4.5 .5-1.5 3.5 4.5-3.5\"/>",
        "failed" => "<path class=\"mark\" d=\"M-3.5-3.5 3.5 3.5M3.5-3.5-3.5 3.5\"/>",
        "skipped" => "<path class=\"mark\" d=\"M-4 0H4\"/>",
        "cancelled" => "<path class=\"mark\" d=\"M-3.5-3.5h7v7h-7z\"/>",
        "running" => "<path class=\"mark\" d=\"M-2.5-4 4 0-2.5 4z\"/>",
        _ => "<circle class=\"mark\" r=\"3.8\"/>",
    }
}

impl Passage {
    fn tokens(self) -> u64 {
        match self {
            Passage::Read(tokens) => tokens,
            _ => 0,
        }
    }

    fn class(self) -> &'static str {
        match self {
            Passage::Read(_) | Passage::Answer(false) => "read",
            Passage::Withheld => "withheld",
            Passage::Unsent => "unsent",
            Passage::Answer(true) => "chosen",
        }
    }
}

fn round_title(out: &mut String, number: u32, y: f64, width: f64) {
    let (baseline, right) = (y + 10.0, width - MARGIN);
    let line = y + 6.0;
    let _ = writeln!(
        out,
        "<text class=\"round\" x=\"{MARGIN}\" y=\"{baseline:.1}\">ROUND {number}</text>\
         <path class=\"rule\" d=\"M{:.1} {line:.1}H{right:.1}\"/>",
        MARGIN + 72.0
    );
}

struct Legend {
    body: String,
    width: f64,
    height: f64,
}

/// What the colours, signs and lines of this picture mean; only what is in it. Breaks lines to stay within `room`.
fn legend(summary: &Summary, trace: &Trace, room: f64) -> Legend {
    let mut items: Vec<(String, String)> = Vec::new();
    let levels: BTreeMap<usize, &str> =
        summary.agents.iter().map(|agent| (agent.level, agent.capacity.as_str())).collect();
    for (level, name) in levels {
        let swatch =
            format!("<rect x=\"3\" y=\"-9\" width=\"10\" height=\"10\" rx=\"2\" fill=\"{}\"/>", level_colour(level));
        items.push((swatch, name.to_owned()));
    }
    for status in ["done", "failed", "skipped", "cancelled", "running", "waiting"] {
        if summary.agents.iter().any(|agent| text::status(agent) == status) {
            let sign = format!("<g class=\"{status}\" transform=\"translate(8 -4)\">{}</g>", mark(status));
            items.push((sign, status.to_owned()));
        }
    }
    let messages = messages(trace);
    let line = |class: &str, width| format!("<path class=\"edge {class}\" stroke-width=\"{width}\" d=\"M0-4H17\"/>");
    if messages.values().any(|passage| matches!(passage, Passage::Read(_))) {
        items.push((line("read", 3), "message (thicker: more tokens)".to_owned()));
    }
    if messages.values().any(|passage| matches!(passage, Passage::Withheld)) {
        items.push((line("withheld", 2), "withheld".to_owned()));
    }
    let (mut x, mut y, mut widest) = (0.0, LEGEND_HEIGHT - MARGIN, 0.0_f64);
    let mut body = String::new();
    for (sign, name) in items {
        let width = 22.0 + width(&name, 11.0).min(260.0) + 16.0;
        if x > 0.0 && x + width > room {
            (x, y) = (0.0, y + LEGEND_LINE);
        }
        let item = format!("{sign}<text class=\"meta\" x=\"22\">{}</text>", fit(&name, 260.0, 11.0));
        body.push_str(&translated(x, y, "", &item));
        x += width;
        widest = widest.max(x);
    }
    Legend { body, width: widest, height: y + MARGIN }
}

pub(super) fn level_colour(level: usize) -> &'static str {
    // The remainder is always a place in the list.
    LEVELS[level % LEVELS.len()]
}

fn left_of(layer: usize) -> f64 {
    MARGIN + layer as f64 * (CARD_WIDTH + GUTTER)
}

fn curve(path: &mut String, from: (f64, f64), to: (f64, f64)) {
    let middle = (from.0 + to.0) / 2.0;
    let _ = write!(path, "C{middle:.1} {:.1} {middle:.1} {:.1} {:.1} {:.1}", from.1, to.1, to.0, to.1);
}

fn translated(x: f64, y: f64, attributes: &str, body: &str) -> String {
    format!("<g{attributes} transform=\"translate({x:.1} {y:.1})\">{body}</g>\n")
}
