//! A picture of a team by worth and cost: every agent a card, every reference a line. Stands alone: no scripts, no fonts
//! or images from elsewhere; follows the reader's light or dark setting.

mod card;
mod layout;
mod line;
mod markup;
#[cfg(test)]
mod tests;
mod worth;

use crate::profile::{Baseline, Profile};
use card::{Card, WIDTH};
use layout::{Edge, Layout, layout};
use lemon_spec::Plan;
use line::Line;
use markup::{escape, translated, width, wrapped};
use std::collections::BTreeMap;
use std::fmt::Write;
use worth::{Effects, Sign, counted, tenths};

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

/// The team as SVG: nodes and edges drawn by what they are worth and what they cost.
///
/// Colours only repeat what the numbers say. What was not measured is dashed, and never looks like zero.
pub fn picture(plan: &Plan, profile: &Profile) -> String {
    Team::new(plan, profile).draw()
}

/// Everything to draw: the cards of agents in the order of the run, the answer last.
struct Team<'a> {
    baseline: &'a Baseline,
    complete: bool,
    cards: Vec<Card>,
    lines: Vec<Line>,
    layout: Layout,
}

impl<'a> Team<'a> {
    fn new(plan: &Plan, profile: &'a Profile) -> Self {
        let effects = Effects::new(profile);
        let baseline = &profile.baseline;
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
            cards.push(Card::agent(agent, baseline, &effects));
            depths.push(agent.depth);
        }
        lines.extend(
            plan.answer_from().iter().filter_map(|from| places.get(from)).map(|from| Line::answer(*from, cards.len())),
        );
        depths.push(depths.iter().max().map_or(0, |deepest| deepest + 1));
        cards.push(Card::answer(plan, baseline, &effects));
        let heights: Vec<f64> = cards.iter().map(Card::height).collect();
        let edge = |line: &Line| Edge { from: line.from, to: line.to, kind: line.class() };
        let edges: Vec<Edge> = lines.iter().map(edge).collect();
        Team { baseline, complete: profile.complete, layout: layout(&heights, &depths, &edges), cards, lines }
    }

    fn draw(&self) -> String {
        let columns = self.columns();
        let page = (columns.last().map_or(0.0, |last| last + WIDTH) + MARGIN).max(LEAST_WIDTH);
        let top = MARGIN + TITLE_HEIGHT;
        let (legend, legend_height) = legend(page - 2.0 * MARGIN);
        let height = top + self.layout.height + MARGIN + legend_height + MARGIN;
        let mut team = self.draw_lines(&columns);
        for (place, card) in self.cards.iter().enumerate() {
            let (x, y) = self.corner(place, &columns);
            team.push_str(&card.draw(x, y));
        }
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"lemon-worth\" viewBox=\"0 0 {page:.0} {height:.0}\" \
             width=\"{page:.0}\" height=\"{height:.0}\" role=\"img\" aria-label=\"{TITLE}\">\n\
             <title>{TITLE}</title>\n<desc>{}</desc>\n<style>{}</style>\n\
             <rect class=\"paper\" width=\"100%\" height=\"100%\"/>\n",
            escape(&self.description()),
            include_str!("picture/picture.css"),
        );
        svg.push_str(&self.title());
        svg.push_str(&translated(0.0, top, "", &team));
        svg.push_str(&translated(MARGIN, top + self.layout.height + MARGIN, "", &legend));
        svg.push_str("</svg>\n");
        svg
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

    fn title(&self) -> String {
        let mut text = format!("<text class=\"title\" x=\"0\" y=\"14\">{TITLE}</text>");
        let _ = write!(text, "<text class=\"role\" x=\"0\" y=\"34\">{}</text>", escape(&summary(self.baseline)));
        if !self.complete {
            text.push_str(
                "<text class=\"meta\" x=\"0\" y=\"50\">The budget ended before everything was measured.</text>",
            );
        }
        translated(MARGIN, MARGIN, "", &text)
    }

    /// The picture in words.
    fn description(&self) -> String {
        let mut text = format!("{}.", summary(self.baseline));
        for words in self.cards.iter().filter_map(Card::words) {
            let _ = write!(text, " {words}.");
        }
        text
    }
}

const TITLE: &str = "What each decision of the team is worth";

/// The team as it is, in one line.
fn summary(baseline: &Baseline) -> String {
    let [low, high] = baseline.interval;
    format!(
        "{} right (95 % interval {} to {}) · {} tokens a run · {} {}",
        tenths(baseline.success),
        tenths(low),
        tenths(high),
        counted(baseline.tokens),
        counted(baseline.runs as f64),
        if baseline.runs == 1 { "run" } else { "runs" },
    )
}

const NOTE: &str = "Numbers are points of success out of 100, with their 95 % interval. An agent, a line and a duty: \
    success with it less success without it. Another level, share, rule or stop: what that would change.";

/// What colours, lines and numbers mean, within `room`, and how high that is.
fn legend(room: f64) -> (String, f64) {
    let swatch = |sign: Sign| {
        let class = sign.class();
        format!(
            "<g class=\"{class}\"><rect class=\"card\" x=\"1\" y=\"-10\" width=\"18\" height=\"12\" rx=\"3\"/></g>\
             <path class=\"edge {class}\" stroke-width=\"2.5\" d=\"M23-4H41\"/>"
        )
    };
    let bar = "<rect class=\"track\" x=\"1\" y=\"-7\" width=\"40\" height=\"5\" rx=\"2.5\"/>\
               <rect class=\"bar\" x=\"1\" y=\"-7\" width=\"16\" height=\"5\" rx=\"2.5\"/>";
    let thick = "<path class=\"edge unclear\" stroke-width=\"1\" d=\"M1-4H19\"/>\
                 <path class=\"edge unclear\" stroke-width=\"6\" d=\"M23-4H41\"/>";
    let items = [
        (swatch(Sign::Above), "adds to success"),
        (swatch(Sign::Below), "takes from success"),
        (swatch(Sign::Unclear), "unclear: zero is in the interval"),
        (swatch(Sign::Unmeasured), "not measured"),
        (bar.to_owned(), "share of the tokens"),
        (thick.to_owned(), "reading costs few, many tokens"),
    ];
    let (mut x, mut y) = (0.0, 10.0);
    let mut body = String::new();
    for (sign, name) in items {
        let width = 48.0 + width(name, 11.0) + 14.0;
        if x > 0.0 && x + width > room {
            (x, y) = (0.0, y + TEXT_LINE);
        }
        body.push_str(&translated(x, y, "", &format!("{sign}<text class=\"meta\" x=\"48\">{name}</text>")));
        x += width;
    }
    for line in wrapped(NOTE, room, 11.0) {
        y += TEXT_LINE;
        let _ = writeln!(body, "<text class=\"meta\" y=\"{y:.1}\">{}</text>", escape(&line));
    }
    (body, y)
}
