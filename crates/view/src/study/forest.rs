//! Paired differences in reward from an arm of reference: a row for each arm.

use super::PairedMean;
use super::panel::{BOLD, MARGIN, nothing, panel};
use crate::frame::{Frame, labels};
use crate::markup::Markup;
use crate::measure::{fit, width};
use crate::scale::{Scale, formal};
use crate::svg::{Anchor, circle, line, text};
use crate::words::{NONE, p_value, signed};

const WIDE: f64 = 880.0;
const ROW: f64 = 24.0;
const HEAD: f64 = 22.0;
const UNDER: f64 = 40.0;
const LONGEST_NAME: f64 = 220.0;
/// The columns at the right: pairs, the difference with its interval, and p.
const PAIRS: f64 = 48.0;
const NUMBERS: f64 = 200.0;
const P: f64 = 84.0;

/// An arm against the reference.
#[derive(Debug, Clone, PartialEq)]
pub struct ForestRow {
    pub arm: String,
    /// Pairs of runs.
    pub pairs: usize,
    /// The difference in reward.
    pub reward: PairedMean,
}

/// The arms against this reference, the best first. `origin` says which study it is; `significant` is the corrected p below
/// which a difference is called so.
pub fn forest(origin: &str, reference: &str, arms: &[ForestRow], significant: f64) -> String {
    let title = format!("Reward after training, against {reference}");
    if arms.is_empty() {
        return nothing(&title, &format!("{origin}: there is no other arm to compare with it."));
    }
    let mut arms: Vec<&ForestRow> = arms.iter().collect();
    let mean = |row: &ForestRow| row.reward.estimate.mean.unwrap_or(f64::NEG_INFINITY);
    arms.sort_by(|left, right| mean(right).total_cmp(&mean(left)));

    let names: Vec<String> = arms.iter().map(|row| fit(&row.arm, LONGEST_NAME, BOLD)).collect();
    let name_room = names.iter().map(|name| width(name, BOLD)).fold(40.0, f64::max);
    let (left, right) = (MARGIN + name_room + 14.0, WIDE - MARGIN - PAIRS - NUMBERS - P - 10.0);
    let plot = Frame { left, top: HEAD, right, bottom: HEAD + ROW * arms.len() as f64 };
    let values = arms.iter().flat_map(|row| row.reward.estimate.values());
    let x = Scale::around(values.chain([0.0]), (left, right));

    let mut body = axis(&x, &plot);
    let columns = [(PAIRS + NUMBERS + P, "pairs"), (NUMBERS + P, "difference [95 %]"), (P, "Holm p")];
    for (from_right, name) in columns {
        body.push(text("small", (WIDE - MARGIN - from_right, 12.0), Anchor::Start, name));
    }
    for (place, (arm, name)) in arms.iter().zip(&names).enumerate() {
        row(&mut body, arm, name, HEAD + ROW * (place as f64 + 0.5), &x, left);
    }
    let note = format!(
        "{origin}. Paired by seed at equal worker tokens; the mean difference and its 95 % interval. A filled point: p < {significant} \
         by flipping signs, after Holm's correction for all rows. A hollow one: not significant."
    );
    panel(&title, &note, WIDE, plot.bottom + UNDER, body)
}

fn axis(x: &Scale, plot: &Frame) -> Markup {
    let zero = line("zero", (x.at(0.0), plot.top - 4.0), (x.at(0.0), plot.bottom));
    let below = plot.bottom + 34.0;
    let mut body = plot.columns(&labels(x.ticks(7.0), formal));
    body.push(zero);
    body.push(plot.base());
    body.push(text("tick", (plot.left, below), Anchor::Start, "← worse"));
    body.push(text("tick", (plot.right, below), Anchor::End, "better →"));
    body
}

fn row(body: &mut Markup, arm: &ForestRow, name: &str, y: f64, x: &Scale, left: f64) {
    let difference = &arm.reward;
    let weight = if difference.is_significant { "strong" } else { "" };
    body.push(text(weight, (left - 12.0, y + 4.0), Anchor::End, name));
    let mut column = |from_right: f64, class: &str, content: &str| {
        body.push(text(class, (WIDE - MARGIN - from_right, y + 4.0), Anchor::Start, content));
    };
    column(PAIRS + NUMBERS + P, "small", &arm.pairs.to_string());
    let Some(mean) = difference.estimate.mean else {
        column(NUMBERS + P, "small", "no pair");
        return;
    };
    let numbers = match difference.estimate.interval {
        Some([low, high]) => format!("{} [{}, {}]", signed(mean, 3), signed(low, 3), signed(high, 3)),
        None => format!("{} [one pair]", signed(mean, 3)),
    };
    column(NUMBERS + P, weight, &fit(&numbers, NUMBERS - 6.0, BOLD));
    column(P, weight, &difference.p.map_or_else(|| NONE.to_owned(), p_value));
    let class = match difference.clear_sign() {
        Some(sign) if sign > 0.0 => "above",
        Some(_) => "below",
        None => "unclear",
    };
    if let Some([low, high]) = difference.estimate.interval {
        body.push(line(class, (x.at(low), y), (x.at(high), y)));
    }
    let class = if difference.is_significant { class.to_owned() } else { format!("{class} hollow") };
    body.push(circle(&class, (x.at(mean), y), 4.5));
}
