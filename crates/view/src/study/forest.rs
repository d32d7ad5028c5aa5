//! Paired differences in reward from an arm of reference: a row for each arm.

use super::axis::Axis;
use super::frame::{BOLD, MARGIN, cut, line, nothing, panel, text, width};
use super::origin;
use crate::study::compare::{Comparison, Contrast, SIGNIFICANT};
use lemon_eval::report::words::{NONE, p_value, signed};
use std::fmt::Write;

const WIDE: f64 = 880.0;
const ROW: f64 = 24.0;
const HEAD: f64 = 22.0;
const UNDER: f64 = 40.0;
const LONGEST_NAME: f64 = 220.0;
/// The columns at the right: pairs, the difference with its interval, and p.
const PAIRS: f64 = 48.0;
const NUMBERS: f64 = 200.0;
const P: f64 = 84.0;

/// The arms against this reference, the best first.
pub fn forest(comparison: &Comparison, reference: &str) -> String {
    let title = format!("Reward after training, against {reference}");
    let Some(against) = comparison.against(reference).filter(|against| !against.arms.is_empty()) else {
        return nothing(&title, &format!("{}: there is no other arm to compare with it.", origin(comparison)));
    };
    let mut arms: Vec<&Contrast> = against.arms.iter().collect();
    let mean = |contrast: &Contrast| contrast.reward.estimate.mean.unwrap_or(f64::NEG_INFINITY);
    arms.sort_by(|left, right| mean(right).total_cmp(&mean(left)));

    let names: Vec<String> = arms.iter().map(|contrast| cut(&contrast.arm, LONGEST_NAME, BOLD)).collect();
    let name_room = names.iter().map(|name| width(name, BOLD)).fold(40.0, f64::max);
    let (left, right) = (MARGIN + name_room + 14.0, WIDE - MARGIN - PAIRS - NUMBERS - P - 10.0);
    let bottom = HEAD + ROW * arms.len() as f64;
    let values = arms.iter().map(|contrast| contrast.reward.estimate);
    let values = values.flat_map(|estimate| estimate.mean.into_iter().chain(estimate.interval.into_iter().flatten()));
    let x = Axis::around(values.chain([0.0]), [left, right]);

    let mut body = axis(&x, [left, right], bottom);
    let columns = [(PAIRS + NUMBERS + P, "pairs"), (NUMBERS + P, "difference [95 %]"), (P, "Holm p")];
    for (from_right, name) in columns {
        body.push_str(&text("small", WIDE - MARGIN - from_right, 12.0, "start", name));
    }
    for (place, (contrast, name)) in arms.iter().zip(&names).enumerate() {
        row(&mut body, contrast, name, HEAD + ROW * (place as f64 + 0.5), &x, left);
    }
    let note = format!(
        "{}. Paired by seed at equal worker tokens; the mean difference and its 95 % interval. A filled point: p < {SIGNIFICANT} \
         by flipping signs, after Holm's correction for all rows. A hollow one: not significant.",
        origin(comparison)
    );
    panel(&title, &note, WIDE, bottom + UNDER, &body)
}

fn axis(x: &Axis, [left, right]: [f64; 2], bottom: f64) -> String {
    let mut body = String::new();
    for (tick, written) in x.ticks(7.0) {
        let at = x.at(tick);
        body.push_str(&line("grid", (at, HEAD), (at, bottom)));
        body.push_str(&text("tick", at, bottom + 17.0, "middle", &written));
    }
    body.push_str(&line("zero", (x.at(0.0), HEAD - 4.0), (x.at(0.0), bottom)));
    body.push_str(&line("axis", (left, bottom), (right, bottom)));
    body.push_str(&text("tick", left, bottom + 34.0, "start", "← worse"));
    body.push_str(&text("tick", right, bottom + 34.0, "end", "better →"));
    body
}

fn row(body: &mut String, contrast: &Contrast, name: &str, y: f64, x: &Axis, left: f64) {
    let difference = &contrast.reward;
    let weight = if difference.is_significant() { "strong" } else { "" };
    body.push_str(&text(weight, left - 12.0, y + 4.0, "end", name));
    let column = |from_right: f64| WIDE - MARGIN - from_right;
    body.push_str(&text("small", column(PAIRS + NUMBERS + P), y + 4.0, "start", &contrast.pairs.to_string()));
    let Some(mean) = difference.estimate.mean else {
        body.push_str(&text("small", column(NUMBERS + P), y + 4.0, "start", "no pair"));
        return;
    };
    let class = match difference.clear_sign() {
        Some(sign) if sign > 0.0 => "above",
        Some(_) => "below",
        None => "unclear",
    };
    if let Some([low, high]) = difference.estimate.interval {
        body.push_str(&line(class, (x.at(low), y), (x.at(high), y)));
    }
    let class = if difference.is_significant() { class.to_owned() } else { format!("{class} hollow") };
    let _ = writeln!(body, "<circle class=\"{class}\" cx=\"{:.1}\" cy=\"{y:.1}\" r=\"4.5\"/>", x.at(mean));
    let numbers = match difference.estimate.interval {
        Some([low, high]) => format!("{} [{}, {}]", signed(mean, 3), signed(low, 3), signed(high, 3)),
        None => format!("{} [one pair]", signed(mean, 3)),
    };
    body.push_str(&text(weight, column(NUMBERS + P), y + 4.0, "start", &cut(&numbers, NUMBERS - 6.0, BOLD)));
    let p = difference.holm.map_or_else(|| NONE.to_owned(), p_value);
    body.push_str(&text(weight, column(P), y + 4.0, "start", &p));
}
