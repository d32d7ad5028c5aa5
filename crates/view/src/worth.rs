//! A picture of a team by worth and cost: every agent a card, every reference a line. Stands alone: no scripts, no fonts
//! or images from elsewhere; follows the reader's light or dark setting.
//!
//! The crate that profiles fills in [`TeamWorth`].

mod card;
mod effects;
mod line;

use crate::graph::{Layout, LayoutEdge, columns, layout};
use crate::markup::Markup;
use crate::measure::{width, wrapped};
use crate::svg::{Anchor, Element, TEAM_STYLE, document, element, fixed, group, rect, style, text};
use crate::words::{number, percent};
use card::{Card, WIDTH};
use effects::{Effects, Sign};
use lemon_spec::Plan;
use lemon_spec::edit::{Change, Family};
use line::Line;
use std::collections::BTreeMap;

const MARGIN: f64 = 20.0;
/// Room for lines to bend between two columns.
const BEND: f64 = 56.0;
/// The straight end of a line, with room for its number and without.
const LABELLED_END: f64 = 92.0;
const BARE_END: f64 = 16.0;
/// What the title and the legend need, however small the team.
const LEAST_WIDTH: f64 = 600.0;
const TITLE_HEIGHT: f64 = 66.0;
const TEXT_LINE: f64 = 17.0;

/// The room between two cards of a column.
const GAP: f64 = 14.0;

/// How worth looks, beside what every picture of a team has.
pub(crate) const WORTH_STYLE: &str = include_str!("worth/worth.css");

/// What a team is worth, and each of its decisions.
#[derive(Debug, Clone)]
pub struct TeamWorth<'a> {
    /// The team.
    pub plan: &'a Plan,
    /// Runs of the team as it is.
    pub runs: usize,
    /// Its share of right answers.
    pub success: f64,
    /// The 95 % interval of that share.
    pub interval: [f64; 2],
    /// Mean tokens of a run.
    pub tokens: f64,
    /// Mean tokens of each agent.
    pub agents: &'a BTreeMap<String, f64>,
    /// What each change does.
    pub effects: Vec<DecisionWorth<'a>>,
    /// Everything that could be run was run. `false`: the budget or a cancellation ended it first.
    pub complete: bool,
}

/// What one decision is worth: the team as it is less the team with it changed.
#[derive(Debug, Clone)]
pub struct DecisionWorth<'a> {
    /// What is changed.
    pub change: &'a Change,
    /// The family of the change.
    pub family: Family,
    /// Difference in success; absent: not measured, which is not zero.
    pub effect: Option<f64>,
    /// Its 95 % interval.
    pub interval: Option<[f64; 2]>,
    /// Mean tokens that the decision costs.
    pub tokens: Option<f64>,
    /// What to do, in words.
    pub advice: &'a str,
    /// The advice is to add what the change adds.
    pub is_addition: bool,
}

/// The team as SVG: nodes and edges drawn by what they are worth and what they cost.
///
/// Colours only repeat what the numbers say. What was not measured is dashed, and never looks like zero.
pub fn picture(team: &TeamWorth) -> String {
    Team::new(team).draw(style(&[TEAM_STYLE, WORTH_STYLE].concat())).into_string()
}

/// The same as a piece of a page of the application, whose policy forbids styles inside of a page.
pub fn hosted(team: &TeamWorth) -> String {
    Team::new(team).draw(Markup::default()).into_string()
}

/// Everything to draw: the cards of agents in the order of the run, the answer last.
struct Team<'a> {
    worth: &'a TeamWorth<'a>,
    cards: Vec<Card>,
    lines: Vec<Line>,
    layout: Layout,
}

impl<'a> Team<'a> {
    fn new(worth: &'a TeamWorth<'a>) -> Self {
        let effects = Effects::new(worth);
        let plan = worth.plan;
        let mut cards = Vec::new();
        let mut depths = Vec::new();
        let mut places: BTreeMap<usize, usize> = BTreeMap::new();
        // Of earlier rounds only those that this one reads.
        let read = plan.agents().iter().flat_map(|agent| &agent.parents).chain(plan.answer_from());
        for number in read.filter(|number| **number < plan.earlier()) {
            places.entry(*number).or_insert_with(|| {
                cards.push(Card::earlier(plan.id(*number).unwrap_or_default()));
                depths.push(0);
                cards.len() - 1
            });
        }
        let mut lines = Vec::new();
        for (number, agent) in (plan.earlier()..).zip(plan.agents()) {
            let place = cards.len();
            for parent in &agent.parents {
                let Some(from) = places.get(parent) else { continue };
                lines.push(Line::reference(*from, place, plan.id(*parent).unwrap_or_default(), &agent.id, &effects));
            }
            places.insert(number, place);
            cards.push(Card::agent(agent, worth, &effects));
            depths.push(agent.depth);
        }
        lines.extend(
            plan.answer_from().iter().filter_map(|from| places.get(from)).map(|from| Line::answer(*from, cards.len())),
        );
        depths.push(depths.iter().max().map_or(0, |deepest| deepest + 1));
        cards.push(Card::answer(worth, &effects));
        let heights: Vec<f64> = cards.iter().map(Card::height).collect();
        let edge = |line: &Line| LayoutEdge { from: line.from, to: line.to, bundle: Some(line.class()) };
        let edges: Vec<LayoutEdge> = lines.iter().map(edge).collect();
        let layout = layout(&heights, &columns(&depths), &edges, GAP);
        Team { worth, layout, cards, lines }
    }

    fn draw(&self, style: Markup) -> Markup {
        let columns = self.columns();
        let page = (columns.last().map_or(0.0, |last| last + WIDTH) + MARGIN).max(LEAST_WIDTH);
        let top = MARGIN + TITLE_HEIGHT;
        let (legend, legend_height) = legend(page - 2.0 * MARGIN);
        let height = top + self.layout.height + MARGIN + legend_height + MARGIN;
        let cards = self.cards.iter().enumerate().map(|(place, card)| {
            let (x, y) = self.corner(place, &columns);
            card.draw(x, y)
        });
        let paper = element("rect").class("paper").attribute("width", "100%").attribute("height", "100%");
        document("lemon-team lemon-worth", (page, height), TITLE)
            .child(element("title").text(TITLE))
            .child(element("desc").text(&self.description()))
            .child(style)
            .child(paper)
            .child(self.title())
            .child(group(0.0, top).child(self.draw_lines(&columns)).child(cards.collect::<Markup>()))
            .child(group(MARGIN, top + self.layout.height + MARGIN).child(legend))
            .into()
    }

    /// The left side of every column: a gap is wide where a line that ends there has a number.
    fn columns(&self) -> Vec<f64> {
        let mut x = MARGIN;
        let mut columns = Vec::with_capacity(self.layout.layers);
        for layer in 0..self.layout.layers {
            let ends_here = |line: &Line| self.layout.boxes.get(line.to).is_some_and(|(its, _)| *its == layer);
            let labelled = self.lines.iter().any(|line| line.label().is_some() && ends_here(line));
            if layer > 0 {
                x += WIDTH + BEND + if labelled { LABELLED_END } else { BARE_END };
            }
            columns.push(x);
        }
        columns
    }

    /// The left top corner of a card.
    fn corner(&self, place: usize, columns: &[f64]) -> (f64, f64) {
        let (layer, top) = self.layout.boxes.get(place).copied().unwrap_or_default();
        (columns.get(layer).copied().unwrap_or_default(), top)
    }

    fn title(&self) -> Element {
        let title = group(MARGIN, MARGIN).child(text("title", (0.0, 14.0), Anchor::Start, TITLE)).child(text(
            "role",
            (0.0, 34.0),
            Anchor::Start,
            &summary(self.worth),
        ));
        match self.worth.complete {
            true => title,
            false => title.child(text("meta", (0.0, 50.0), Anchor::Start, INCOMPLETE)),
        }
    }

    /// The picture in words.
    fn description(&self) -> String {
        let words = self.cards.iter().filter_map(Card::words).map(|words| format!(" {words}."));
        std::iter::once(format!("{}.", summary(self.worth))).chain(words).collect()
    }
}

const TITLE: &str = "What each decision of the team is worth";
const INCOMPLETE: &str = "The budget ended before everything was measured.";

/// The team as it is, in one line.
fn summary(team: &TeamWorth) -> String {
    let [low, high] = team.interval;
    format!(
        "{} right (95 % interval {} to {}) · {} tokens a run · {} {}",
        percent(team.success),
        percent(low),
        percent(high),
        number(team.tokens),
        number(team.runs as f64),
        if team.runs == 1 { "run" } else { "runs" },
    )
}

const NOTE: &str = "Numbers are points of success out of 100, with their 95 % interval. An agent, a line and a duty: \
    success with it less success without it. Another level, share, rule or stop: what that would change.";

/// What colours, lines and numbers mean, within `room`, and how high that is.
fn legend(room: f64) -> (Markup, f64) {
    let edge = |class: &str, width, way| fixed(&format!("edge {class}"), way).number("stroke-width", width);
    let swatch = |sign: Sign| {
        let card = rect("card", (1.0, -10.0), (18.0, 12.0)).attribute("rx", "3");
        let card = element("g").class(sign.class()).child(card);
        [card, edge(sign.class(), 2.5, "M23-4H41")]
    };
    let bar = |class, long| rect(class, (1.0, -7.0), (long, 5.0)).attribute("rx", "2.5");
    let items = [
        (swatch(Sign::Above), "adds to success"),
        (swatch(Sign::Below), "takes from success"),
        (swatch(Sign::Unclear), "unclear: zero is in the interval"),
        (swatch(Sign::Unmeasured), "not measured"),
        ([bar("track", 40.0), bar("bar", 16.0)], "share of the tokens"),
        ([edge("unclear", 1.0, "M1-4H19"), edge("unclear", 6.0, "M23-4H41")], "reading costs few, many tokens"),
    ];
    let (mut x, mut y) = (0.0, 10.0);
    let mut body = Markup::default();
    for (signs, name) in items {
        let width = 48.0 + width(name, 11.0) + 14.0;
        if x > 0.0 && x + width > room {
            (x, y) = (0.0, y + TEXT_LINE);
        }
        let signs: Markup = signs.into_iter().collect();
        body.push(group(x, y).child(signs).child(text("meta", (48.0, 0.0), Anchor::Start, name)));
        x += width;
    }
    for line in wrapped(NOTE, room, 11.0) {
        y += TEXT_LINE;
        body.push(text("meta", (0.0, y), Anchor::Start, &line));
    }
    (body, y)
}
