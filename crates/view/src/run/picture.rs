//! The team as a picture: every agent a card, every message an arrow, rounds one below the other, each ending in its
//! answer. Stands alone: no scripts, no fonts or images from elsewhere; follows the reader's light or dark setting.

mod card;
mod legend;

use crate::graph::{Layout, LayoutEdge, layout, longest_paths};
use crate::markup::Markup;
use crate::svg::{Anchor, Path, TEAM_STYLE, document, element, fixed, group, line, style, text};
use card::{AnswerCard, Card};
use legend::legend;
use lemon_trace::credit::{Credit, Sign, Worth};
use lemon_trace::{AgentSummary, EventKind, Summary, Trace};
use std::collections::HashMap;

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

/// How the picture of a run looks, beside what all teams look like.
pub(crate) const GRAPH_STYLE: &str = include_str!("graph.css");

/// The picture as a complete SVG document.
pub fn svg(trace: &Trace) -> String {
    picture(trace, Direction::Across, true).svg.into_string()
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
    pub svg: Markup,
    pub width: f64,
}

/// The picture; `styled`: with its own style, which a page of the application has already.
pub(super) fn picture(trace: &Trace, direction: Direction, styled: bool) -> Picture {
    let summary = trace.summary();
    let credit = trace.credit();
    let rounds: Vec<Round> =
        (1..=summary.rounds).map(|round| Round::new(trace, &summary, &credit, round, direction)).collect();
    let titled = rounds.len() > 1;
    let widest = rounds.iter().map(Round::width).fold(0.0, f64::max);
    let legend = legend(&summary, trace, &credit, widest.max(2.0 * CARD_WIDTH));
    let width = widest.max(legend.width) + 2.0 * MARGIN;
    let mut body = Markup::default();
    let mut y = MARGIN;
    for (number, round) in (1..).zip(&rounds) {
        if titled {
            round_title(&mut body, number, y, width);
            y += TITLE_HEIGHT;
        }
        body.push(round.draw(y, width));
        y += round.height() + MARGIN;
    }
    let height = y + legend.height;
    let mut svg = document("lemon-team lemon-graph", (width, height), &format!("The team of {}", trace.header.run_id));
    if styled && direction == Direction::Across {
        svg = svg.child(style(&[TEAM_STYLE, GRAPH_STYLE].concat()));
    }
    let paper = element("rect").class("paper").attribute("width", "100%").attribute("height", "100%");
    let svg = svg.child(markers(&credit, direction)).child(paper).child(body);
    let svg = svg.child(group(MARGIN, y).child(legend.body)).into();
    Picture { svg, width }
}

/// The tips of the arrows. They do not take the colour of their line, so that there is one for each.
fn markers(credit: &Credit, direction: Direction) -> Markup {
    let tips = if credit.parts.is_empty() { &[""][..] } else { &["", "above", "below"] };
    let marker = |class: &&str| {
        let tip = element("marker").attribute("id", &direction.tip(class)).attribute("markerUnits", "userSpaceOnUse");
        let tip = tip.attribute("markerWidth", "8").attribute("markerHeight", "8");
        let tip = tip.attribute("refX", "0.5").attribute("refY", "4").attribute("orient", "auto");
        tip.child(fixed(format!("tip {class}").trim_end(), "M0 .5 7.5 4 0 7.5z"))
    };
    element("defs").child(tips.iter().map(marker).collect::<Markup>()).into()
}

/// What became of a message from one agent to another.
#[derive(Clone, Copy)]
enum Passage {
    /// It was read: its tokens.
    Read(u64),
    /// It was held back.
    Withheld,
    /// It was never sent.
    Unsent,
    /// Into the answer; whether this one was chosen.
    Answer(bool),
}

/// An arrow from one card to another.
struct Arrow<'a> {
    from: usize,
    to: usize,
    passage: Passage,
    /// The agent that is read, the one that reads it, and what that is worth, where it was measured.
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
        let edge = |arrow: &Arrow| LayoutEdge { from: arrow.from, to: arrow.to, bundle: None };
        let edges: Vec<LayoutEdge> = arrows.iter().map(edge).collect();
        let layers = longest_paths(extents.len(), &edges);
        let most_tokens = messages.values().map(|passage| passage.tokens()).max().unwrap_or(0).max(1);
        Round { layout: layout(&extents, &layers, &edges, GAP), cards, arrows, most_tokens, direction }
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
    fn draw(&self, y: f64, width: f64) -> Markup {
        // The chosen arrow last, so that none covers it.
        let mut arrows: Vec<_> = self.arrows.iter().zip(&self.layout.lanes).collect();
        arrows.sort_by_key(|(arrow, _)| matches!(arrow.passage, Passage::Answer(true)));
        let arrows: Markup = arrows.into_iter().filter_map(|(arrow, lanes)| self.draw_arrow(arrow, lanes)).collect();
        let cards = self.cards.iter().zip(&self.layout.boxes).map(|(card, (layer, place))| match self.direction {
            Direction::Across => card.draw(left_of(*layer), *place),
            Direction::Down => card.draw(*place, top_of(*layer)),
        });
        let x = match self.direction {
            Direction::Across => 0.0,
            Direction::Down => (width - self.width()) / 2.0,
        };
        group(x, y).child(arrows).child(cards.collect::<Markup>()).into()
    }

    /// The way of an arrow, through its lanes.
    fn path(&self, source: (usize, f64), target: (usize, f64), height: f64, lanes: &[f64]) -> Path {
        let layers = (source.0 + 1..).zip(lanes);
        match self.direction {
            Direction::Across => {
                let mut from = (left_of(source.0) + CARD_WIDTH, source.1);
                let mut path = Path::from(from);
                for (layer, lane) in layers {
                    let end = left_of(layer) + CARD_WIDTH;
                    path = curve_across(path, from, (left_of(layer), *lane)).across(end);
                    from = (end, *lane);
                }
                curve_across(path, from, (left_of(target.0) - TIP, target.1))
            }
            Direction::Down => {
                let mut from = (source.1, top_of(source.0) + height);
                let mut path = Path::from(from);
                for (layer, lane) in layers {
                    let end = top_of(layer) + CARD_HEIGHT;
                    path = curve_down(path, from, (*lane, top_of(layer))).down(end);
                    from = (*lane, end);
                }
                curve_down(path, from, (target.1, top_of(target.0) - TIP))
            }
        }
    }

    fn draw_arrow(&self, arrow: &Arrow, lanes: &[f64]) -> Option<Markup> {
        let (source, target) = (self.side(arrow.from)?, self.side(arrow.to)?);
        let passage = arrow.passage;
        let height = self.cards.get(arrow.from).map_or(CARD_HEIGHT, Card::height);
        let share = passage.tokens() as f64 / self.most_tokens as f64;
        let width = match passage {
            Passage::Read(_) => 1.0 + 3.0 * share.sqrt(),
            Passage::Answer(true) => 2.5,
            _ => 1.5,
        };
        let sign = arrow.worth.map_or("", |(_, _, worth)| worth.sign().class());
        let coloured = arrow.worth.is_some_and(|(_, _, worth)| matches!(worth.sign(), Sign::Above | Sign::Below));
        let tip = self.direction.tip(if coloured { sign } else { "" });
        let edge = element("path").class(format!("edge {} {sign}", passage.class()).trim_end());
        let edge = self.path(source, target, height, lanes).styled(edge.number("stroke-width", width));
        let edge = edge.attribute("marker-end", &format!("url(#{tip})"));
        Some(match arrow.worth {
            Some((from, to, worth)) => edge.title(&format!("{from} → {to}: {}", worth.told())).into(),
            None => edge.into(),
        })
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

/// What each agent passed to each other one.
fn messages(trace: &Trace) -> HashMap<(&String, &String), Passage> {
    let messages = trace.events.iter().filter_map(|event| match &event.kind {
        EventKind::Message { from, to, tokens, delivered, .. } => {
            Some(((from, to), if *delivered { Passage::Read(*tokens) } else { Passage::Withheld }))
        }
        _ => None,
    });
    messages.collect()
}

/// The agents whose results the answer of a round was made of, and the answer. Before it is made there are none.
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
    fn tip(self, class: &str) -> String {
        let name = match self {
            Direction::Across => "lemon-tip",
            Direction::Down => "lemon-tip-down",
        };
        if class.is_empty() { name.to_owned() } else { format!("{name}-{class}") }
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

fn round_title(out: &mut Markup, number: u32, y: f64, width: f64) {
    out.push(text("round", (MARGIN, y + 10.0), Anchor::Start, &format!("ROUND {number}")));
    out.push(line("rule", (MARGIN + 72.0, y + 6.0), (width - MARGIN, y + 6.0)));
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

fn curve_down(path: Path, from: (f64, f64), to: (f64, f64)) -> Path {
    let middle = (from.1 + to.1) / 2.0;
    path.curve((from.0, middle), (to.0, middle), to)
}

fn curve_across(path: Path, from: (f64, f64), to: (f64, f64)) -> Path {
    let middle = (from.0 + to.0) / 2.0;
    path.curve((middle, from.1), (middle, to.1), to)
}
