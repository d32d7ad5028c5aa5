//! The team as a picture: every agent a card, every message an arrow, rounds one below the other, each ending in its
//! answer. Stands alone: no scripts, no fonts or images from elsewhere; follows the reader's light or dark setting.

mod card;
mod legend;

use super::layout::{Layout, layout};
use super::markup::escape;
use crate::credit::{Credit, Sign, Worth};
use crate::{AgentSummary, EventKind, Summary, Trace};
use card::{AnswerCard, Card};
use legend::legend;
use std::collections::HashMap;
use std::fmt::Write;

const CARD_WIDTH: f64 = 176.0;
const CARD_HEIGHT: f64 = 64.0;
/// Room between two layers, for the arrows.
const GUTTER: f64 = 62.0;
/// The same where layers lie one below the other.
const GUTTER_DOWN: f64 = 44.0;
/// Room between two cards of a layer.
const GAP: f64 = 12.0;
const MARGIN: f64 = 20.0;
const TITLE_HEIGHT: f64 = 30.0;
const TIP: f64 = 7.0;

/// Colours of the capacity levels, weakest first, told apart by people with any kind of colour vision (after Okabe and
/// Ito). The level's name stands on each card, too.
const LEVELS: [&str; 5] = ["#56b4e9", "#009e73", "#cc79a7", "#e69f00", "#0072b2"];

/// The picture as a complete SVG document.
pub fn svg(trace: &Trace) -> String {
    picture(trace, Direction::Across).svg
}

/// Where the arrows lead.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Direction {
    /// To the right: a picture for a desk.
    Across,
    /// Downwards: a picture for a phone. It stands on a page that has the other one, and takes its style from there.
    Down,
}

/// A picture and how wide it is meant to be.
pub(super) struct Picture {
    pub svg: String,
    pub width: f64,
}

pub(super) fn picture(trace: &Trace, direction: Direction) -> Picture {
    let summary = trace.summary();
    let credit = trace.credit();
    let rounds: Vec<Round> =
        (1..=summary.rounds).map(|round| Round::new(trace, &summary, &credit, round, direction)).collect();
    let titled = rounds.len() > 1;
    let widest = rounds.iter().map(Round::width).fold(0.0, f64::max);
    let legend = legend(&summary, trace, &credit, widest.max(2.0 * CARD_WIDTH));
    let width = widest.max(legend.width) + 2.0 * MARGIN;
    let mut body = String::new();
    let mut y = MARGIN;
    for (number, round) in (1..).zip(&rounds) {
        if titled {
            round_title(&mut body, number, y, width);
            y += TITLE_HEIGHT;
        }
        round.draw(&mut body, y, width);
        y += round.height() + MARGIN;
    }
    let height = y + legend.height;
    let legend = translated(MARGIN, y, "", &legend.body);
    let style = match direction {
        Direction::Across => {
            let worth = if credit.parts.is_empty() { "" } else { include_str!("credit.css") };
            format!("<style>{}{worth}</style>\n", include_str!("graph.css"))
        }
        Direction::Down => String::new(),
    };
    let svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"lemon-graph\" viewBox=\"0 0 {width:.0} {height:.0}\" \
         width=\"{width:.0}\" height=\"{height:.0}\" role=\"img\" aria-label=\"The team of {}\">\n\
         {style}{}<rect class=\"paper\" width=\"100%\" height=\"100%\"/>\n{body}{legend}</svg>\n",
        escape(&trace.header.run_id),
        markers(&credit, direction),
    );
    Picture { svg, width }
}

/// The tips of the arrows. They do not take the colour of their line, so that there is one for each.
fn markers(credit: &Credit, direction: Direction) -> String {
    let name = direction.tip();
    let tips = if credit.parts.is_empty() { &[""][..] } else { &["", "above", "below"] };
    let marker = |class: &&str| {
        let (id, space) = if class.is_empty() { ("", "") } else { ("-", " ") };
        format!(
            "<marker id=\"{name}{id}{class}\" markerUnits=\"userSpaceOnUse\" markerWidth=\"8\" markerHeight=\"8\" \
             refX=\"0.5\" refY=\"4\" orient=\"auto\"><path class=\"tip{space}{class}\" d=\"M0 .5 7.5 4 0 7.5z\"/></marker>"
        )
    };
    format!("<defs>{}</defs>\n", tips.iter().map(marker).collect::<String>())
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

/// The way from one card to another.
struct Arrow<'a> {
    from: usize,
    to: usize,
    passage: Passage,
    /// Who is read by whom, and what that is worth, where somebody measured it.
    worth: Option<(&'a str, &'a str, Worth)>,
}

/// One round: its cards in an order in which every arrow leads from an earlier to a later one.
struct Round<'a> {
    cards: Vec<Card<'a>>,
    arrows: Vec<Arrow<'a>>,
    layout: Layout,
    most_tokens: u64,
    direction: Direction,
}

impl<'a> Round<'a> {
    fn new(trace: &'a Trace, summary: &'a Summary, credit: &Credit, number: u32, direction: Direction) -> Self {
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
                let worth =
                    credit.of_message(parent, &agent.id).map(|worth| (parent.as_str(), agent.id.as_str(), worth));
                arrows.extend(places.get(parent.as_str()).map(|from| Arrow { from: *from, to: place, passage, worth }));
            }
            places.insert(&agent.id, place);
            cards.push(Card::Agent(agent, credit.of_agent(&agent.id)));
        }
        for candidate in candidates {
            let passage = Passage::Answer(answer.chosen == Some(candidate));
            let arrow = |from: &usize| Arrow { from: *from, to: cards.len(), passage, worth: None };
            arrows.extend(places.get(candidate).map(arrow));
        }
        cards.push(Card::Answer(answer));
        // How much of its layer a card takes.
        let extent = |card: &Card| if direction == Direction::Across { card.height() } else { CARD_WIDTH };
        let extents: Vec<f64> = cards.iter().map(extent).collect();
        let edges: Vec<(usize, usize)> = arrows.iter().map(|arrow| (arrow.from, arrow.to)).collect();
        let most_tokens = messages.values().map(|passage| passage.tokens()).max().unwrap_or(0).max(1);
        Round { layout: layout(&extents, &edges, GAP), cards, arrows, most_tokens, direction }
    }

    fn width(&self) -> f64 {
        match self.direction {
            Direction::Across => left_of(self.layout.layers) - MARGIN - GUTTER,
            Direction::Down => self.layout.height,
        }
    }

    fn height(&self) -> f64 {
        match self.direction {
            Direction::Across => self.layout.height,
            Direction::Down => top_of(self.layout.layers) - GUTTER_DOWN,
        }
    }

    /// Draws the round at a height of a picture of this width.
    fn draw(&self, out: &mut String, y: f64, width: f64) {
        let mut body = String::new();
        // The chosen arrow last, so that none covers it.
        let mut arrows: Vec<_> = self.arrows.iter().zip(&self.layout.lanes).collect();
        arrows.sort_by_key(|(arrow, _)| matches!(arrow.passage, Passage::Answer(true)));
        for (arrow, lanes) in arrows {
            self.draw_arrow(&mut body, arrow, lanes);
        }
        for (card, (layer, place)) in self.cards.iter().zip(&self.layout.boxes) {
            match self.direction {
                Direction::Across => card.draw(&mut body, left_of(*layer), *place),
                Direction::Down => card.draw(&mut body, *place, top_of(*layer)),
            }
        }
        let x = match self.direction {
            Direction::Across => 0.0,
            Direction::Down => (width - self.width()) / 2.0,
        };
        out.push_str(&translated(x, y, "", &body));
    }

    /// The way of an arrow, through its lanes.
    fn path(&self, source: (usize, f64), target: (usize, f64), height: f64, lanes: &[f64]) -> String {
        let layers = (source.0 + 1..).zip(lanes);
        let mut path;
        match self.direction {
            Direction::Across => {
                let (mut x, mut y) = (left_of(source.0) + CARD_WIDTH, source.1);
                path = format!("M{x:.1} {y:.1}");
                for (layer, lane) in layers {
                    let next = left_of(layer);
                    curve(&mut path, (x, y), (next, *lane));
                    let _ = write!(path, "H{:.1}", next + CARD_WIDTH);
                    (x, y) = (next + CARD_WIDTH, *lane);
                }
                curve(&mut path, (x, y), (left_of(target.0) - TIP, target.1));
            }
            Direction::Down => {
                let (mut x, mut y) = (source.1, top_of(source.0) + height);
                path = format!("M{x:.1} {y:.1}");
                for (layer, lane) in layers {
                    let next = top_of(layer);
                    curve_down(&mut path, (x, y), (*lane, next));
                    let _ = write!(path, "V{:.1}", next + CARD_HEIGHT);
                    (x, y) = (*lane, next + CARD_HEIGHT);
                }
                curve_down(&mut path, (x, y), (target.1, top_of(target.0) - TIP));
            }
        }
        path
    }

    fn draw_arrow(&self, out: &mut String, arrow: &Arrow, lanes: &[f64]) {
        let (Some(source), Some(target)) = (self.side(arrow.from), self.side(arrow.to)) else { return };
        let passage = arrow.passage;
        let height = self.cards.get(arrow.from).map_or(CARD_HEIGHT, Card::height);
        let path = self.path(source, target, height, lanes);
        let share = passage.tokens() as f64 / self.most_tokens as f64;
        let width = match passage {
            Passage::Read(_) => 1.0 + 3.0 * share.sqrt(),
            Passage::Answer(true) => 2.5,
            _ => 1.5,
        };
        let class = passage.class();
        let Some((from, to, worth)) = arrow.worth else {
            let _ = write!(out, "<path class=\"edge {class}\" stroke-width=\"{width:.1}\" d=\"{path}\"");
            let _ = writeln!(out, " marker-end=\"url(#{})\"/>", self.direction.tip());
            return;
        };
        let (sign, words) = (worth.sign().class(), worth.told());
        let tip = if matches!(worth.sign(), Sign::Above | Sign::Below) { format!("-{sign}") } else { String::new() };
        let title = escape(&format!("{from} → {to}: {words}"));
        let _ = write!(out, "<path class=\"edge {class} {sign}\" stroke-width=\"{width:.1}\" d=\"{path}\"");
        let _ = writeln!(out, " marker-end=\"url(#{}{tip})\"><title>{title}</title></path>", self.direction.tip());
    }

    /// The layer of a card and the middle of its place in it.
    fn side(&self, place: usize) -> Option<(usize, f64)> {
        let (layer, begin) = self.layout.boxes.get(place)?;
        let extent = match self.direction {
            Direction::Across => self.cards.get(place)?.height(),
            Direction::Down => CARD_WIDTH,
        };
        Some((*layer, begin + extent / 2.0))
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

impl Direction {
    /// The name of the tips of its arrows: two pictures on a page must not share one.
    fn tip(self) -> &'static str {
        match self {
            Direction::Across => "lemon-tip",
            Direction::Down => "lemon-tip-down",
        }
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

pub(super) fn level_colour(level: usize) -> &'static str {
    // The remainder is always a place in the list.
    LEVELS[level % LEVELS.len()]
}

fn left_of(layer: usize) -> f64 {
    MARGIN + layer as f64 * (CARD_WIDTH + GUTTER)
}

fn top_of(layer: usize) -> f64 {
    layer as f64 * (CARD_HEIGHT + GUTTER_DOWN)
}

fn curve_down(path: &mut String, from: (f64, f64), to: (f64, f64)) {
    let middle = (from.1 + to.1) / 2.0;
    let _ = write!(path, "C{:.1} {middle:.1} {:.1} {middle:.1} {:.1} {:.1}", from.0, to.0, to.0, to.1);
}

fn curve(path: &mut String, from: (f64, f64), to: (f64, f64)) {
    let middle = (from.0 + to.0) / 2.0;
    let _ = write!(path, "C{middle:.1} {:.1} {middle:.1} {:.1} {:.1} {:.1}", from.1, to.1, to.0, to.1);
}

fn translated(x: f64, y: f64, attributes: &str, body: &str) -> String {
    format!("<g{attributes} transform=\"translate({x:.1} {y:.1})\">{body}</g>\n")
}
