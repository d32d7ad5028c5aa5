//! What a counterfactual of each family tells and costs.

use super::axis::large;
use super::frame::{FONT, MARGIN, cut, line, nothing, panel, text};
use super::origin;
use crate::study::compare::{Comparison, FamilySummary};
use lemon_eval::report::words::{NONE, number};
use std::fmt::Write;

const NAME: f64 = 92.0;
const COLUMN: f64 = 146.0;
/// The part of a column that bars may fill; the number stands right of it.
const BARS: f64 = 76.0;
const ROW: f64 = 26.0;
const HEAD: f64 = 40.0;
const BAR: f64 = 11.0;

/// A column of bars.
struct Column {
    name: &'static str,
    under: &'static str,
    value: fn(&FamilySummary) -> Option<f64>,
    written: fn(f64) -> String,
    scale: Scale,
}

#[derive(Clone, Copy, PartialEq)]
enum Scale {
    /// From zero to the largest.
    Largest,
    /// From zero to one.
    Share,
    /// Logarithmic, from one: longer to the left is less, to the right more.
    AroundOne,
}

const COLUMNS: [Column; 5] = [
    Column {
        name: "measured",
        under: "free and bought, all runs",
        value: |family| Some(family.free.saturating_add(family.bought) as f64),
        written: large,
        scale: Scale::Largest,
    },
    Column {
        name: "Var(Δ)",
        under: "of the reward difference",
        value: |family| family.variance.mean,
        written: |value| format!("{value:.3}"),
        scale: Scale::Largest,
    },
    Column {
        name: "exact zeros",
        under: "share of differences",
        value: |family| family.zeros.mean,
        written: |value| format!("{} %", number(100.0 * value)),
        scale: Scale::Share,
    },
    Column {
        name: "worth",
        under: "1: a rollout's, log scale",
        value: |family| family.worth.mean,
        written: |value| if value < 100.0 { format!("{value:.2}") } else { large(value) },
        scale: Scale::AroundOne,
    },
    Column {
        name: "worker tokens",
        under: "of a training run",
        value: |family| family.tokens.mean,
        written: large,
        scale: Scale::Largest,
    },
];

/// The families that an arm bought counterfactuals of.
pub fn economy(comparison: &Comparison, arm: &str) -> String {
    let title = format!("What counterfactuals told and cost: {arm}");
    let Some(summary) = comparison.arm(arm).filter(|summary| !summary.families.is_empty()) else {
        return nothing(&title, &format!("{}: no counterfactual was run.", origin(comparison)));
    };
    let rows: Vec<(&str, &FamilySummary)> =
        summary.families.iter().map(|(family, bought)| (family.as_str(), bought)).collect();
    let bottom = HEAD + ROW * rows.len() as f64;
    let mut body = line("axis", (MARGIN, HEAD - 4.0), (MARGIN + NAME + COLUMN * COLUMNS.len() as f64, HEAD - 4.0));
    for (place, (family, _)) in rows.iter().enumerate() {
        body.push_str(&text("strong", MARGIN, HEAD + ROW * (place as f64 + 0.5) + 4.0, "start", family));
    }
    for (place, column) in COLUMNS.iter().enumerate() {
        column.draw(&mut body, &rows, MARGIN + NAME + COLUMN * place as f64, bottom);
    }
    let note = format!(
        "{}. Means over {} seeds of means over steps. Worth: what one tells about its field against rollouts for the same \
         worker tokens, among those offered for tokens.",
        origin(comparison),
        summary.seeds
    );
    panel(&title, &note, NAME + COLUMN * COLUMNS.len() as f64 + 2.0 * MARGIN, bottom, &body)
}

impl Column {
    fn draw(&self, body: &mut String, rows: &[(&str, &FamilySummary)], left: f64, bottom: f64) {
        body.push_str(&text("strong", left, 12.0, "start", self.name));
        body.push_str(&text("small", left, 27.0, "start", self.under));
        let size = |value: f64| if self.scale == Scale::AroundOne { value.max(1e-9).ln().abs() } else { value };
        let sizes = rows.iter().filter_map(|(_, family)| (self.value)(family)).map(size);
        let most = if self.scale == Scale::Share { 1.0 } else { sizes.fold(0.0, f64::max) };
        let room = if self.scale == Scale::AroundOne { BARS / 2.0 } else { BARS };
        let zero = left + BARS - room;
        for (place, (_, family)) in rows.iter().enumerate() {
            let y = HEAD + ROW * (place as f64 + 0.5);
            let Some(value) = (self.value)(family).filter(|value| value.is_finite()) else {
                body.push_str(&text("small", left + BARS + 6.0, y + 4.0, "start", NONE));
                continue;
            };
            let share = (size(value) / most).clamp(0.0, 1.0);
            let long = room * if share.is_finite() { share } else { 0.0 };
            let (start, class) = match self.scale {
                Scale::AroundOne if value < 1.0 => (zero - long, "below"),
                Scale::AroundOne => (zero, "above"),
                _ => (zero, "bar"),
            };
            let _ = writeln!(
                body,
                "<rect class=\"{class}\" x=\"{start:.1}\" y=\"{:.1}\" width=\"{long:.1}\" height=\"{BAR}\"/>",
                y - BAR / 2.0
            );
            let written = cut(&(self.written)(value), COLUMN - BARS - 10.0, FONT);
            body.push_str(&text("small", left + BARS + 6.0, y + 4.0, "start", &written));
        }
        body.push_str(&line("axis", (zero, HEAD), (zero, bottom)));
    }
}
