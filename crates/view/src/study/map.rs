//! Where an arm is better and where it is worse: a table of regimes, coloured by the paired difference.

use super::frame::{BOLD, FONT, MARGIN, SMALL, cut, nothing, panel, text, width};
use crate::study::compare::{Comparison, Difference};
use crate::study::regime::{axes, value_order};
use lemon_eval::report::words::{NONE, signed};
use std::collections::BTreeSet;
use std::fmt::Write;

const CELL: f64 = 122.0;
const ROW: f64 = 40.0;
const HEAD: f64 = 22.0;
const LONGEST_NAME: f64 = 280.0;
const LEAST_WIDE: f64 = 600.0;
/// The colours of no difference and of the largest, for those above and those below. Dark text can be read on all of them.
const ABOVE: [[f64; 3]; 2] = [[232.0, 247.0, 240.0], [98.0, 200.0, 158.0]];
const BELOW: [[f64; 3]; 2] = [[253.0, 240.0, 231.0], [242.0, 150.0, 92.0]];
const UNCLEAR: &str = "#eceef1";

/// Differences in reward from one arm of reference.
#[derive(Debug, Clone, PartialEq)]
pub struct Grid {
    /// What it shows.
    pub title: String,
    /// What the rows are.
    pub rows: Vec<String>,
    /// What the columns are.
    pub columns: Vec<String>,
    /// By row and column. `None`: not run.
    pub cells: Vec<Vec<Option<Difference>>>,
}

impl Grid {
    /// A row for each regime and a column for each arm.
    pub fn of_arms(comparisons: &[&Comparison], reference: &str) -> Grid {
        let mut columns: Vec<String> = Vec::new();
        let against = comparisons.iter().filter_map(|comparison| comparison.against(reference));
        for contrast in against.flat_map(|against| &against.arms) {
            if !columns.contains(&contrast.arm) {
                columns.push(contrast.arm.clone());
            }
        }
        columns.sort_by(|left, right| crate::study::regime::arm_order(left, right));
        let row = |comparison: &&Comparison| columns.iter().map(|arm| reward(comparison, reference, arm)).collect();
        let name = |comparison: &&Comparison| match comparison.regime.as_str() {
            "" => "(no regime)".to_owned(),
            regime => regime.to_owned(),
        };
        Grid {
            title: format!("Reward after training, against {reference}, by regime"),
            rows: comparisons.iter().map(name).collect(),
            cells: comparisons.iter().map(row).collect(),
            columns,
        }
    }

    /// One arm over two axes of regimes: the first down, the second across. Regimes without both are left out; where several
    /// fall together, the first stands for them.
    pub fn of_axes(comparisons: &[&Comparison], reference: &str, arm: &str, down: &str, across: &str) -> Grid {
        let values = |axis: &str| {
            let all = comparisons.iter().filter_map(|comparison| value(&comparison.regime, axis));
            let mut values: Vec<&str> = all.collect::<BTreeSet<_>>().into_iter().collect();
            values.sort_by(|left, right| value_order(left, right));
            values
        };
        let (rows, columns) = (values(down), values(across));
        let cell = |row: &str, column: &str| {
            let is_here = |comparison: &&&Comparison| {
                let regime = &comparison.regime;
                value(regime, down) == Some(row) && value(regime, across) == Some(column)
            };
            comparisons.iter().find(is_here).and_then(|comparison| reward(comparison, reference, arm))
        };
        let name = |axis: &str, values: &[&str]| values.iter().map(|value| format!("{axis}={value}")).collect();
        Grid {
            title: format!("Reward of {arm} after training, against {reference}"),
            cells: rows.iter().map(|row| columns.iter().map(|column| cell(row, column)).collect()).collect(),
            rows: name(down, &rows),
            columns: name(across, &columns),
        }
    }
}

fn value<'a>(regime: &'a str, axis: &str) -> Option<&'a str> {
    axes(regime).into_iter().find(|(name, _)| *name == axis).map(|(_, value)| value)
}

fn reward(comparison: &Comparison, reference: &str, arm: &str) -> Option<Difference> {
    let contrast = comparison.against(reference)?.arms.iter().find(|contrast| contrast.arm == arm)?;
    contrast.reward.estimate.mean.map(|_| contrast.reward)
}

/// The grid as a figure.
pub fn map(grid: &Grid) -> String {
    if grid.rows.is_empty() || grid.columns.is_empty() {
        return nothing(&grid.title, "No runs to compare.");
    }
    let names: Vec<String> = grid.rows.iter().map(|name| cut(name, LONGEST_NAME, FONT)).collect();
    let left = MARGIN + names.iter().map(|name| width(name, FONT)).fold(0.0, f64::max) + 12.0;
    let wide = (left + CELL * grid.columns.len() as f64 + MARGIN).max(LEAST_WIDE);
    let mut body = String::new();
    for (place, name) in grid.columns.iter().enumerate() {
        let middle = left + CELL * (place as f64 + 0.5);
        body.push_str(&text("strong", middle, 13.0, "middle", &cut(name, CELL - 8.0, BOLD)));
    }
    let strongest = grid.cells.iter().flatten().flatten().filter(|difference| difference.clear_sign().is_some());
    let strongest = strongest.filter_map(|difference| difference.estimate.mean).map(f64::abs).fold(0.0, f64::max);
    for (row, (name, cells)) in names.iter().zip(&grid.cells).enumerate() {
        let top = HEAD + ROW * row as f64;
        body.push_str(&text("", left - 10.0, top + ROW / 2.0 + 4.0, "end", name));
        for (column, difference) in cells.iter().enumerate() {
            draw_cell(&mut body, difference.as_ref(), left + CELL * column as f64, top, strongest);
        }
    }
    let bottom = HEAD + ROW * grid.rows.len() as f64;
    let note = "Paired differences in mean reward and their 95 % intervals; the stronger the colour, the larger. Green: better. \
        Orange: worse. Grey: the interval spans zero, or there is one pair only. *: p < 0.05 by flipping signs, after Holm's \
        correction for the arms of that regime.";
    panel(&grid.title, note, wide, bottom, &body)
}

fn draw_cell(body: &mut String, difference: Option<&Difference>, left: f64, top: f64, strongest: f64) {
    let middle = left + CELL / 2.0;
    let Some((difference, mean)) = difference.and_then(|difference| Some((difference, difference.estimate.mean?)))
    else {
        body.push_str(&text("small", middle, top + ROW / 2.0 + 4.0, "middle", NONE));
        return;
    };
    let share = (mean.abs() / strongest).clamp(0.0, 1.0);
    let fill = match difference.clear_sign() {
        Some(sign) => shade(if sign > 0.0 { ABOVE } else { BELOW }, share),
        None => UNCLEAR.to_owned(),
    };
    let (wide, high) = (CELL - 3.0, ROW - 3.0);
    let _ = writeln!(
        body,
        "<rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{wide:.1}\" height=\"{high:.1}\" rx=\"3\" fill=\"{fill}\"/>"
    );
    let star = if difference.is_significant() { " *" } else { "" };
    let weight = if difference.is_significant() { "strong" } else { "" };
    body.push_str(&text(weight, middle, top + 16.0, "middle", &format!("{}{star}", signed(mean, 3))));
    let interval = difference.estimate.interval;
    let interval = interval.map(|[low, high]| format!("[{}, {}]", signed(low, 3), signed(high, 3)));
    let interval = cut(&interval.unwrap_or_else(|| "one pair".to_owned()), CELL - 6.0, SMALL);
    body.push_str(&text("small", middle, top + 30.0, "middle", &interval));
}

fn shade([from, to]: [[f64; 3]; 2], share: f64) -> String {
    let mixed: Vec<String> =
        from.iter().zip(to).map(|(from, to)| format!("{:02x}", (from + (to - from) * share) as u8)).collect();
    format!("#{}", mixed.concat())
}
