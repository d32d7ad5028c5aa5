//! Where an arm is better and where it is worse: a table of regimes, coloured by the paired difference.

use super::PairedMean;
use super::panel::{BOLD, FONT, MARGIN, SMALL, nothing, panel};
use crate::markup::Markup;
use crate::measure::{fit, width};
use crate::svg::{Anchor, rect, text};
use crate::words::{NONE, signed};

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
    pub rows: Vec<String>,
    pub columns: Vec<String>,
    /// By row and column. `None`: not run.
    pub cells: Vec<Vec<Option<PairedMean>>>,
}

/// The grid as a figure.
pub fn map(grid: &Grid) -> String {
    if grid.rows.is_empty() || grid.columns.is_empty() {
        return nothing(&grid.title, "No runs to compare.");
    }
    let names: Vec<String> = grid.rows.iter().map(|name| fit(name, LONGEST_NAME, FONT)).collect();
    let left = MARGIN + names.iter().map(|name| width(name, FONT)).fold(0.0, f64::max) + 12.0;
    let wide = (left + CELL * grid.columns.len() as f64 + MARGIN).max(LEAST_WIDE);
    let mut body = Markup::default();
    for (place, name) in grid.columns.iter().enumerate() {
        let middle = left + CELL * (place as f64 + 0.5);
        body.push(text("strong", (middle, 13.0), Anchor::Middle, &fit(name, CELL - 8.0, BOLD)));
    }
    let strongest = grid.cells.iter().flatten().flatten().filter(|difference| difference.clear_sign().is_some());
    let strongest = strongest.filter_map(|difference| difference.estimate.mean).map(f64::abs).fold(0.0, f64::max);
    for (row, (name, cells)) in names.iter().zip(&grid.cells).enumerate() {
        let top = HEAD + ROW * row as f64;
        body.push(text("", (left - 10.0, top + ROW / 2.0 + 4.0), Anchor::End, name));
        for (column, difference) in cells.iter().enumerate() {
            draw_cell(&mut body, difference.as_ref(), left + CELL * column as f64, top, strongest);
        }
    }
    let bottom = HEAD + ROW * grid.rows.len() as f64;
    let note = "Paired differences in mean reward and their 95 % intervals; the stronger the colour, the larger. Green: better. \
        Orange: worse. Grey: the interval spans zero, or there is one pair only. *: p < 0.05 by flipping signs, after Holm's \
        correction for the arms of that regime.";
    panel(&grid.title, note, wide, bottom, body)
}

fn draw_cell(body: &mut Markup, difference: Option<&PairedMean>, left: f64, top: f64, strongest: f64) {
    let middle = left + CELL / 2.0;
    let Some((difference, mean)) = difference.and_then(|difference| Some((difference, difference.estimate.mean?)))
    else {
        body.push(text("small", (middle, top + ROW / 2.0 + 4.0), Anchor::Middle, NONE));
        return;
    };
    let share = (mean.abs() / strongest).clamp(0.0, 1.0);
    let fill = match difference.clear_sign() {
        Some(sign) => shade(if sign > 0.0 { ABOVE } else { BELOW }, share),
        None => UNCLEAR.to_owned(),
    };
    let cell = rect("", (left, top), (CELL - 3.0, ROW - 3.0));
    body.push(cell.attribute("rx", "3").attribute("fill", &fill));
    let (star, weight) = if difference.is_significant { (" *", "strong") } else { ("", "") };
    body.push(text(weight, (middle, top + 16.0), Anchor::Middle, &format!("{}{star}", signed(mean, 3))));
    let interval = difference.estimate.interval;
    let interval = interval.map(|[low, high]| format!("[{}, {}]", signed(low, 3), signed(high, 3)));
    let interval = fit(&interval.unwrap_or_else(|| "one pair".to_owned()), CELL - 6.0, SMALL);
    body.push(text("small", (middle, top + 30.0), Anchor::Middle, &interval));
}

fn shade([from, to]: [[f64; 3]; 2], share: f64) -> String {
    let mixed: Vec<String> =
        from.iter().zip(to).map(|(from, to)| format!("{:02x}", (from + (to - from) * share) as u8)).collect();
    format!("#{}", mixed.concat())
}
