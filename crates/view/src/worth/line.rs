//! Lines: who reads whom, and whose results the answer is made of.

use super::card::WIDTH;
use super::markup::{escape, width};
use super::worth::{Effects, Worth, counted};
use super::{BEND, Team};
use lemon_spec::edit::Change;
use std::collections::BTreeMap;
use std::fmt::Write;

const LABEL_SIZE: f64 = 10.5;
/// The least room between two numbers, one above the other.
const LABEL_ROOM: f64 = 12.0;
/// The room between two lines that end at the same card, where it is high enough.
const PORT: f64 = 17.0;
const TIP: f64 = 8.0;

/// A line from one card to another.
pub struct Line {
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
            let _ = write!(tip, ", {} tokens", counted(tokens));
        }
        for advice in [effect, effects.get(&withheld)].into_iter().flatten().map(|effect| &effect.advice) {
            let _ = write!(tip, "\n{advice}");
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
    pub(super) fn draw_lines(&self, columns: &[f64]) -> String {
        let most_tokens = self.lines.iter().filter_map(|line| line.tokens).fold(0.0, f64::max);
        let ports = self.ports(columns);
        let mut drawn: Vec<(f64, &Line, &Port)> =
            self.lines.iter().zip(&ports).map(|(line, port)| (line.thickness(most_tokens), line, port)).collect();
        // Lines of one kind from one card share their lanes: a thin one shows on top of a thick one.
        drawn.sort_by(|a, b| b.0.total_cmp(&a.0));
        drawn.iter().map(|(thickness, line, port)| self.draw_line(line, port, *thickness, columns)).collect()
    }

    /// One port for each line, spread over the side of its card so that lines cross least.
    fn ports(&self, columns: &[f64]) -> Vec<Port> {
        let mut by_card: BTreeMap<usize, Vec<(f64, usize)>> = BTreeMap::new();
        for (place, line) in self.lines.iter().enumerate() {
            let before = self.bends(line).last().map_or_else(|| self.middle(line.from, columns), |(_, lane)| *lane);
            by_card.entry(line.to).or_default().push((before, place));
        }
        let mut ports: Vec<Port> = self.lines.iter().map(|_| Port { y: 0.0, labelled: false }).collect();
        for (card, mut lines) in by_card {
            lines.sort_by(|a, b| a.0.total_cmp(&b.0));
            let height = self.cards.get(card).map_or(0.0, super::Card::height);
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

    /// The lanes of a line: column and height.
    fn bends(&self, line: &Line) -> Vec<(usize, f64)> {
        let column = |place: usize| self.layout.boxes.get(place).map_or(0, |(column, _)| *column);
        let lane = |column| Some((column, *self.layout.lanes.get(&(line.from, line.class(), column))?));
        (column(line.from) + 1..column(line.to)).filter_map(lane).collect()
    }

    fn middle(&self, place: usize, columns: &[f64]) -> f64 {
        self.corner(place, columns).1 + self.cards.get(place).map_or(0.0, super::Card::height) / 2.0
    }

    fn draw_line(&self, line: &Line, port: &Port, thickness: f64, columns: &[f64]) -> String {
        let (mut x, mut y) = (self.corner(line.from, columns).0 + WIDTH, self.middle(line.from, columns));
        let mut path = format!("M{x:.1} {y:.1}");
        for (column, lane) in self.bends(line) {
            bend(&mut path, x, y, lane);
            (x, y) = (columns.get(column).copied().unwrap_or_default() + WIDTH, lane);
            let _ = write!(path, "H{x:.1}");
        }
        bend(&mut path, x, y, port.y);
        let end = self.corner(line.to, columns).0;
        let _ = write!(path, "H{:.1}", end - TIP);
        let class = line.class();
        let half = 3.0 + thickness / 2.0;
        let mut body = format!(
            "<g class=\"line\"><title>{}</title>\
             <path class=\"edge {class}\" stroke-width=\"{thickness:.1}\" d=\"{path}\"/>\
             <path class=\"tip {class}\" d=\"M{end:.1} {:.1}l{:.1} {:.1}v{:.1}z\"/>",
            escape(&line.tip),
            port.y,
            -TIP - 1.0,
            -half,
            2.0 * half,
        );
        if let Some(label) = line.label().filter(|_| port.labelled) {
            let from = x + BEND;
            let middle = (from + end - TIP) / 2.0;
            let wide = (width(&label, LABEL_SIZE) + 6.0).min(end - TIP - from);
            let _ = write!(
                body,
                "<rect class=\"paper\" x=\"{:.1}\" y=\"{:.1}\" width=\"{wide:.1}\" height=\"{LABEL_ROOM}\"/>\
                 <text class=\"label {class}\" x=\"{middle:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                middle - wide / 2.0,
                port.y - LABEL_ROOM / 2.0,
                port.y + 3.7,
                escape(&label),
            );
        }
        body.push_str("</g>\n");
        body
    }
}

fn bend(path: &mut String, x: f64, y: f64, to: f64) {
    let (middle, end) = (x + BEND / 2.0, x + BEND);
    let _ = write!(path, "C{middle:.1} {y:.1} {middle:.1} {to:.1} {end:.1} {to:.1}");
}
