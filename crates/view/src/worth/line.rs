//! Lines: which agent reads which, and the results that the answer is made of.

use super::card::{Card, WIDTH};
use super::effects::{Effects, Worth};
use super::{BEND, Team};
use crate::markup::Markup;
use crate::measure::width;
use crate::svg::{Anchor, Path, element, rect, text};
use crate::words::number;
use lemon_spec::edit::Change;
use std::collections::BTreeMap;

const LABEL_SIZE: f64 = 10.5;
/// The least room between two numbers, one above the other.
const LABEL_ROOM: f64 = 12.0;
/// The room between two lines that end at the same card, where it is high enough.
const PORT: f64 = 17.0;
const TIP: f64 = 8.0;

/// A line from one card to another.
pub(super) struct Line {
    pub from: usize,
    pub to: usize,
    /// What reading is worth; `None` for a line into the answer, which is no decision of its own.
    worth: Option<Worth>,
    /// What reading costs.
    tokens: Option<f64>,
    tip: String,
}

impl Line {
    pub fn reference(from: usize, to: usize, parent: &str, agent: &str, effects: &Effects) -> Line {
        let change = Change::DeleteReference { agent: agent.to_owned(), parent: parent.to_owned() };
        let withheld = Change::WithholdMessage { from: parent.to_owned(), to: agent.to_owned() };
        let effect = effects.get(&change);
        let worth = effects.worth(&change);
        let tokens = effect.and_then(|effect| effect.tokens).filter(|tokens| tokens.is_finite());
        let points = worth.points().map_or_else(|| "not measured".to_owned(), |points| format!("{points} points"));
        let mut tip = format!("{agent} reads {parent}: {points}");
        if let Some(tokens) = tokens {
            tip.push_str(&format!(", {} tokens", number(tokens)));
        }
        for advice in [effect, effects.get(&withheld)].into_iter().flatten().map(|effect| &effect.advice) {
            tip.push_str(&format!("\n{advice}"));
        }
        Line { from, to, worth: Some(worth), tokens, tip }
    }

    pub fn answer(from: usize, to: usize) -> Line {
        Line { from, to, worth: None, tokens: None, tip: "becomes part of the answer".to_owned() }
    }

    /// The number on the line.
    pub fn label(&self) -> Option<String> {
        self.worth.and_then(Worth::points)
    }

    pub fn class(&self) -> &'static str {
        self.worth.map_or("chosen", |worth| worth.sign().class())
    }

    /// How thick it is: its area grows with its tokens.
    fn thickness(&self, most_tokens: f64) -> f64 {
        match (self.worth, self.tokens) {
            (None, _) => 2.0,
            (_, Some(tokens)) if tokens > 0.0 => 1.2 + 4.8 * (tokens / most_tokens).min(1.0).sqrt(),
            _ => 1.2,
        }
    }
}

/// Where a line ends, and whether there is room for its number.
struct Port {
    y: f64,
    labelled: bool,
}

impl Team<'_> {
    pub(super) fn draw_lines(&self, columns: &[f64]) -> Markup {
        let most_tokens = self.lines.iter().filter_map(|line| line.tokens).fold(0.0, f64::max);
        let ports = self.ports(columns);
        let mut drawn: Vec<(f64, usize, &Line, &Port)> = self
            .lines
            .iter()
            .zip(&ports)
            .enumerate()
            .map(|(place, (line, port))| (line.thickness(most_tokens), place, line, port))
            .collect();
        // Lines of one kind from one card share their lanes: a thin one shows on top of a thick one.
        drawn.sort_by(|a, b| b.0.total_cmp(&a.0));
        let drawn = drawn.into_iter();
        drawn.map(|(thickness, place, line, port)| self.draw_line(line, place, port, thickness, columns)).collect()
    }

    /// One port for each line, spread over the side of its card so that lines cross least.
    fn ports(&self, columns: &[f64]) -> Vec<Port> {
        let mut by_card: BTreeMap<usize, Vec<(f64, usize)>> = BTreeMap::new();
        for (place, line) in self.lines.iter().enumerate() {
            let before =
                self.bends(line, place).last().map_or_else(|| self.middle(line.from, columns), |(_, lane)| *lane);
            by_card.entry(line.to).or_default().push((before, place));
        }
        let mut ports: Vec<Port> = self.lines.iter().map(|_| Port { y: 0.0, labelled: false }).collect();
        for (card, mut lines) in by_card {
            lines.sort_by(|a, b| a.0.total_cmp(&b.0));
            let height = self.cards.get(card).map_or(0.0, Card::height);
            let gaps = lines.len().saturating_sub(1) as f64;
            let step = PORT.min((height - 24.0) / gaps.max(1.0));
            let mut y = self.middle(card, columns) - step * gaps / 2.0;
            let mut last = f64::NEG_INFINITY;
            for (_, place) in lines {
                let labelled = y - last >= LABEL_ROOM;
                last = if labelled { y } else { last };
                if let Some(port) = ports.get_mut(place) {
                    *port = Port { y, labelled };
                }
                y += step;
            }
        }
        ports
    }

    /// The lanes of a line, by its place among the lines: column and height.
    fn bends(&self, line: &Line, place: usize) -> Vec<(usize, f64)> {
        let first = self.layout.boxes.get(line.from).map_or(0, |(column, _)| column + 1);
        // Every line has its lanes; a line to the next column has none.
        let lanes = self.layout.lanes.get(place).map(Vec::as_slice).unwrap_or_default();
        (first..).zip(lanes.iter().copied()).collect()
    }

    fn middle(&self, place: usize, columns: &[f64]) -> f64 {
        self.corner(place, columns).1 + self.cards.get(place).map_or(0.0, Card::height) / 2.0
    }

    fn draw_line(&self, line: &Line, place: usize, port: &Port, thickness: f64, columns: &[f64]) -> Markup {
        let mut from = (self.corner(line.from, columns).0 + WIDTH, self.middle(line.from, columns));
        let mut path = Path::from(from);
        for (column, lane) in self.bends(line, place) {
            let end = columns.get(column).copied().unwrap_or_default() + WIDTH;
            path = bend(path, from, lane).across(end);
            from = (end, lane);
        }
        let end = self.corner(line.to, columns).0;
        let path = bend(path, from, port.y).across(end - TIP);
        let class = line.class();
        let half = 3.0 + thickness / 2.0;
        let back = end - TIP - 1.0;
        let tip = Path::from((end, port.y)).line((back, port.y - half)).line((back, port.y + half)).close();
        let edge = element("path").class(&format!("edge {class}")).number("stroke-width", thickness);
        let drawn = element("g").class("line").title(&line.tip);
        let drawn = drawn.child(path.styled(edge)).child(tip.element(&format!("tip {class}")));
        let Some(label) = line.label().filter(|_| port.labelled) else { return drawn.into() };
        let start = from.0 + BEND;
        let middle = (start + end - TIP) / 2.0;
        let wide = (width(&label, LABEL_SIZE) + 6.0).min(end - TIP - start);
        let paper = rect("paper", (middle - wide / 2.0, port.y - LABEL_ROOM / 2.0), (wide, LABEL_ROOM));
        let label = text(&format!("label {class}"), (middle, port.y + 3.7), Anchor::Middle, &label);
        drawn.child(paper).child(label).into()
    }
}

fn bend(path: Path, (x, y): (f64, f64), to: f64) -> Path {
    let (middle, end) = (x + BEND / 2.0, x + BEND);
    path.curve((middle, y), (middle, to), (end, to))
}
