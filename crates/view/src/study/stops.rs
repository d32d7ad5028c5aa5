//! When to stop: reward, success, tokens and reviews of each arm, by difficulty.

use super::axis::{Axis, large};
use super::colour;
use super::frame::{FONT, MARGIN, SMALL, cut, line, nothing, panel, text, width};
use crate::study::compare::{ArmSummary, Comparison, Estimate};
use crate::study::regime::{arm_order, axes};
use std::fmt::Write;

const PANEL: f64 = 410.0;
const PANEL_HIGH: f64 = 226.0;
/// Inside a panel: where bars begin and end.
const LEFT: f64 = 42.0;
const TOP: f64 = 26.0;
const BOTTOM: f64 = 196.0;
const MOST_BAR: f64 = 22.0;
const LEGEND: f64 = 26.0;

/// What a panel shows.
struct Measure {
    name: &'static str,
    value: fn(&ArmSummary) -> Estimate,
}

const MEASURES: [Measure; 4] = [
    Measure { name: "Share of runs that review", value: |arm| arm.review },
    Measure { name: "Reward", value: |arm| arm.reward },
    Measure { name: "Share of right answers", value: |arm| arm.success },
    Measure { name: "Tokens of a run", value: |arm| arm.tokens },
];

/// The arms of a study of stopping; each comparison is a difficulty.
pub fn stops(comparisons: &[&Comparison]) -> String {
    const TITLE: &str = "When to go on for another round";
    let mut arms: Vec<&str> =
        comparisons.iter().flat_map(|comparison| &comparison.arms).map(|arm| arm.arm.as_str()).collect();
    arms.sort_by(|left, right| arm_order(left, right));
    arms.dedup();
    if arms.is_empty() {
        return nothing(TITLE, "No runs to show.");
    }
    let wide = 2.0 * PANEL + 3.0 * MARGIN;
    let (mut body, under) = legend(&arms, wide - 2.0 * MARGIN);
    for (place, measure) in MEASURES.iter().enumerate() {
        let (across, down) = ((place % 2) as f64, (place / 2) as f64);
        let (x, y) = (MARGIN + across * (PANEL + MARGIN), under + down * (PANEL_HIGH + 6.0));
        let _ = write!(body, "<g transform=\"translate({x:.1} {y:.1})\">\n{}</g>\n", draw(measure, comparisons, &arms));
    }
    let seeds = comparisons.iter().flat_map(|comparison| &comparison.arms).map(|arm| arm.seeds);
    let (least, most) = seeds.fold((usize::MAX, 0), |(least, most), seeds| (least.min(seeds), most.max(seeds)));
    let seeds = if least == most { most.to_string() } else { format!("{least} to {most}") };
    let note = format!("Held-out tasks after training, by difficulty. Means over {seeds} seeds with 95 % intervals.");
    panel(TITLE, &note, wide, under + 2.0 * PANEL_HIGH, &body)
}

/// The names of arms with their colours, and how high that is.
fn legend(arms: &[&str], room: f64) -> (String, f64) {
    let mut body = String::new();
    let (mut x, mut y) = (0.0, 0.0);
    for (place, arm) in arms.iter().enumerate() {
        let name = cut(arm, 200.0, FONT);
        let wide = 18.0 + width(&name, FONT) + 18.0;
        if x > 0.0 && x + wide > room {
            (x, y) = (0.0, y + 18.0);
        }
        let (left, fill) = (MARGIN + x, colour(place));
        let _ = writeln!(body, "<rect x=\"{left:.1}\" y=\"{y:.1}\" width=\"12\" height=\"12\" fill=\"{fill}\"/>");
        body.push_str(&text("", left + 18.0, y + 10.5, "start", &name));
        x += wide;
    }
    (body, y + LEGEND)
}

fn draw(measure: &Measure, comparisons: &[&Comparison], arms: &[&str]) -> String {
    let value = |comparison: &Comparison, arm: &str| comparison.arm(arm).map(measure.value).unwrap_or_default();
    let all = comparisons.iter().flat_map(|comparison| arms.iter().map(move |arm| value(comparison, arm)));
    let ends = all.flat_map(|estimate| estimate.mean.into_iter().chain(estimate.interval.into_iter().flatten()));
    let y = Axis::exactly(ends.chain([0.0]), [BOTTOM, TOP]);
    let mut body = text("strong", 0.0, 12.0, "start", measure.name);
    for (tick, written) in y.ticks(5.0) {
        let at = y.at(tick);
        body.push_str(&line("grid", (LEFT, at), (PANEL, at)));
        body.push_str(&text("tick", LEFT - 6.0, at + 4.0, "end", &written));
    }
    let group = (PANEL - LEFT) / comparisons.len().max(1) as f64;
    let bar = ((group - 16.0).max(4.0) / arms.len() as f64).min(MOST_BAR);
    for (place, comparison) in comparisons.iter().enumerate() {
        let middle = LEFT + group * (place as f64 + 0.5);
        let first = middle - bar * arms.len() as f64 / 2.0;
        for (at, arm) in arms.iter().enumerate() {
            draw_bar(&mut body, value(comparison, arm), first + bar * at as f64, bar, &y, (arm, colour(at)));
        }
        let name = cut(&name(comparison), group - 6.0, SMALL);
        body.push_str(&text("small", middle, BOTTOM + 16.0, "middle", &name));
    }
    body.push_str(&line("axis", (LEFT, y.at(0.0)), (PANEL, y.at(0.0))));
    body
}

fn draw_bar(body: &mut String, estimate: Estimate, left: f64, wide: f64, y: &Axis, (arm, fill): (&str, &str)) {
    let Some(mean) = estimate.mean else { return };
    let (base, end) = (y.at(0.0), y.at(mean));
    // None at all is a line, so that it does not look like a bar that is missing.
    let high = (base - end).abs().max(1.5);
    let tip = super::frame::escape(&format!(
        "{arm}: {}",
        if mean.abs() < 100.0 { format!("{mean:.3}") } else { large(mean) }
    ));
    let _ = writeln!(
        body,
        "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{high:.1}\" fill=\"{fill}\" opacity=\"0.85\">\
         <title>{tip}</title></rect>",
        left + 1.0,
        if end > base { base } else { base - high },
        (wide - 2.0).max(1.0),
    );
    if let Some([low, high]) = estimate.interval {
        let middle = left + wide / 2.0;
        body.push_str(&line("whisker", (middle, y.at(low)), (middle, y.at(high))));
    }
}

/// The value of a regime with one axis, or all of it.
fn name(comparison: &Comparison) -> String {
    match (axes(&comparison.regime).as_slice(), comparison.regime.as_str()) {
        (_, "") => "all".to_owned(),
        ([(_, value)], _) => (*value).to_owned(),
        (_, regime) => regime.to_owned(),
    }
}
