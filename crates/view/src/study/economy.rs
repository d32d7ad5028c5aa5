//! What a counterfactual of each family tells and costs.

use super::panel::{FONT, MARGIN, nothing, panel};
use crate::markup::Markup;
use crate::measure::fit;
use crate::scale::large;
use crate::svg::{Anchor, line, rect, text};
use crate::words::{NONE, number};

const NAME: f64 = 92.0;
const COLUMN: f64 = 146.0;
/// The part of a column that bars may fill; the number stands right of it.
const BARS: f64 = 76.0;
const ROW: f64 = 26.0;
const HEAD: f64 = 40.0;
const BAR: f64 = 11.0;

/// What the counterfactuals of one family told and cost. `None`: not measured.
#[derive(Debug, Clone, PartialEq)]
pub struct FamilyBar {
    pub family: &'static str,
    /// Counterfactuals, free and purchased, over all runs.
    pub measured: u64,
    /// The variance of the reward difference.
    pub variance: Option<f64>,
    /// The share of differences that are exactly zero.
    pub zeros: Option<f64>,
    /// What one tells per token; 1 is what a rollout tells.
    pub worth: Option<f64>,
    /// Worker tokens of a training run.
    pub tokens: Option<f64>,
}

/// A column of bars.
struct Column {
    name: &'static str,
    under: &'static str,
    value: fn(&FamilyBar) -> Option<f64>,
    written: fn(f64) -> String,
    scale: BarScale,
}

#[derive(Clone, Copy, PartialEq)]
enum BarScale {
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
        under: "free and purchased, all runs",
        value: |family| Some(family.measured as f64),
        written: large,
        scale: BarScale::Largest,
    },
    Column {
        name: "Var(Δ)",
        under: "of the reward difference",
        value: |family| family.variance,
        written: |value| format!("{value:.3}"),
        scale: BarScale::Largest,
    },
    Column {
        name: "exact zeros",
        under: "share of differences",
        value: |family| family.zeros,
        written: |value| format!("{} %", number(100.0 * value)),
        scale: BarScale::Share,
    },
    Column {
        name: "worth",
        under: "1: a rollout's, log scale",
        value: |family| family.worth,
        written: |value| if value < 100.0 { format!("{value:.2}") } else { large(value) },
        scale: BarScale::AroundOne,
    },
    Column {
        name: "worker tokens",
        under: "of a training run",
        value: |family| family.tokens,
        written: large,
        scale: BarScale::Largest,
    },
];

/// The families whose counterfactuals an arm ran, with so many seeds. `origin` says which study it is.
pub fn economy(origin: &str, arm: &str, seeds: usize, families: &[FamilyBar]) -> String {
    let title = format!("What counterfactuals told and cost: {arm}");
    if families.is_empty() {
        return nothing(&title, &format!("{origin}: no counterfactual was run."));
    }
    let bottom = HEAD + ROW * families.len() as f64;
    let right = MARGIN + NAME + COLUMN * COLUMNS.len() as f64;
    let mut body = Markup::from(line("axis", (MARGIN, HEAD - 4.0), (right, HEAD - 4.0)));
    for (place, family) in families.iter().enumerate() {
        let y = HEAD + ROW * (place as f64 + 0.5) + 4.0;
        body.push(text("strong", (MARGIN, y), Anchor::Start, family.family));
    }
    for (place, column) in COLUMNS.iter().enumerate() {
        body.push(column.draw(families, MARGIN + NAME + COLUMN * place as f64, bottom));
    }
    let note = format!(
        "{origin}. Means over {seeds} seeds of means over steps. Worth: what one tells about its field against rollouts for the \
         same worker tokens, among those offered for tokens."
    );
    panel(&title, &note, right + MARGIN, bottom, body)
}

impl Column {
    fn draw(&self, families: &[FamilyBar], left: f64, bottom: f64) -> Markup {
        let mut body = Markup::from(text("strong", (left, 12.0), Anchor::Start, self.name));
        body.push(text("small", (left, 27.0), Anchor::Start, self.under));
        let size = |value: f64| if self.scale == BarScale::AroundOne { value.max(1e-9).ln().abs() } else { value };
        let sizes = families.iter().filter_map(self.value).map(size);
        let most = if self.scale == BarScale::Share { 1.0 } else { sizes.fold(0.0, f64::max) };
        let room = if self.scale == BarScale::AroundOne { BARS / 2.0 } else { BARS };
        let zero = left + BARS - room;
        for (place, family) in families.iter().enumerate() {
            let y = HEAD + ROW * (place as f64 + 0.5);
            let mut number = |content: &str| {
                body.push(text("small", (left + BARS + 6.0, y + 4.0), Anchor::Start, content));
            };
            let Some(value) = (self.value)(family).filter(|value| value.is_finite()) else {
                number(NONE);
                continue;
            };
            number(&fit(&(self.written)(value), COLUMN - BARS - 10.0, FONT));
            let share = (size(value) / most).clamp(0.0, 1.0);
            let long = room * if share.is_finite() { share } else { 0.0 };
            let (start, class) = match self.scale {
                BarScale::AroundOne if value < 1.0 => (zero - long, "below"),
                BarScale::AroundOne => (zero, "above"),
                _ => (zero, "bar"),
            };
            body.push(rect(class, (start, y - BAR / 2.0), (long, BAR)));
        }
        body.push(line("axis", (zero, HEAD), (zero, bottom)));
        body
    }
}
