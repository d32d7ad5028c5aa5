//! When to stop: reward, success, tokens and reviews of each arm, by difficulty.

use super::panel::{FONT, MARGIN, SMALL, nothing, panel};
use super::{MeanInterval, colour};
use crate::frame::{Frame, labels};
use crate::markup::Markup;
use crate::measure::{fit, width};
use crate::scale::{Scale, formal, large};
use crate::svg::{Anchor, group, line, rect, text};

const PANEL: f64 = 410.0;
const PANEL_HIGH: f64 = 226.0;
/// Inside a panel: where bars begin and end.
const LEFT: f64 = 42.0;
const TOP: f64 = 26.0;
const BOTTOM: f64 = 196.0;
const MOST_BAR: f64 = 22.0;
const LEGEND: f64 = 26.0;

/// The arms at one difficulty.
#[derive(Debug, Clone, PartialEq)]
pub struct StopGroup {
    /// The difficulty.
    pub name: String,
    pub arms: Vec<ArmBars>,
}

/// What an arm came to.
#[derive(Debug, Clone, PartialEq)]
pub struct ArmBars {
    pub arm: String,
    /// Runs, each with a seed of its own.
    pub seeds: usize,
    /// The share of runs that review.
    pub review: MeanInterval,
    pub reward: MeanInterval,
    /// The share of right answers.
    pub success: MeanInterval,
    /// Tokens of a run.
    pub tokens: MeanInterval,
}

/// What a panel shows.
struct Measure {
    name: &'static str,
    value: fn(&ArmBars) -> MeanInterval,
}

const MEASURES: [Measure; 4] = [
    Measure { name: "Share of runs that review", value: |arm| arm.review },
    Measure { name: "Reward", value: |arm| arm.reward },
    Measure { name: "Share of right answers", value: |arm| arm.success },
    Measure { name: "Tokens of a run", value: |arm| arm.tokens },
];

/// A study of stopping; `arms` gives the order of the arms.
pub fn stops(groups: &[StopGroup], arms: &[&str]) -> String {
    const TITLE: &str = "When to go on for another round";
    if arms.is_empty() {
        return nothing(TITLE, "No runs to show.");
    }
    let wide = 2.0 * PANEL + 3.0 * MARGIN;
    let (mut body, under) = legend(arms, wide - 2.0 * MARGIN);
    for (place, measure) in MEASURES.iter().enumerate() {
        let (across, down) = ((place % 2) as f64, (place / 2) as f64);
        let (x, y) = (MARGIN + across * (PANEL + MARGIN), under + down * (PANEL_HIGH + 6.0));
        body.push(group(x, y).child(draw(measure, groups, arms)));
    }
    let seeds = groups.iter().flat_map(|group| &group.arms).map(|arm| arm.seeds);
    let (least, most) = seeds.fold((usize::MAX, 0), |(least, most), seeds| (least.min(seeds), most.max(seeds)));
    let seeds = if least == most { most.to_string() } else { format!("{least} to {most}") };
    let note = format!("Held-out tasks after training, by difficulty. Means over {seeds} seeds with 95 % intervals.");
    panel(TITLE, &note, wide, under + 2.0 * PANEL_HIGH, body)
}

/// The names of arms with their colours, and how high that is.
fn legend(arms: &[&str], room: f64) -> (Markup, f64) {
    let mut body = Markup::default();
    let (mut x, mut y) = (0.0, 0.0);
    for (place, arm) in arms.iter().enumerate() {
        let name = fit(arm, 200.0, FONT);
        let wide = 18.0 + width(&name, FONT) + 18.0;
        if x > 0.0 && x + wide > room {
            (x, y) = (0.0, y + 18.0);
        }
        let left = MARGIN + x;
        body.push(rect("", (left, y), (12.0, 12.0)).attribute("fill", colour(place)));
        body.push(text("", (left + 18.0, y + 10.5), Anchor::Start, &name));
        x += wide;
    }
    (body, y + LEGEND)
}

fn draw(measure: &Measure, groups: &[StopGroup], arms: &[&str]) -> Markup {
    // An arm that was not run at a difficulty has no bar there.
    let value = |group: &StopGroup, arm: &str| {
        group.arms.iter().find(|bars| bars.arm == arm).map(measure.value).unwrap_or_default()
    };
    let all = groups.iter().flat_map(|group| arms.iter().map(move |arm| value(group, arm)));
    let y = Scale::exactly(all.flat_map(MeanInterval::values).chain([0.0]), (BOTTOM, TOP));
    let plot = Frame { left: LEFT, top: TOP, right: PANEL, bottom: BOTTOM };
    let mut body = Markup::from(text("strong", (0.0, 12.0), Anchor::Start, measure.name));
    body.push(plot.rows(&labels(y.ticks(5.0), formal)));
    let wide = (PANEL - LEFT) / groups.len().max(1) as f64;
    let bar = ((wide - 16.0).max(4.0) / arms.len() as f64).min(MOST_BAR);
    for (place, group) in groups.iter().enumerate() {
        let middle = LEFT + wide * (place as f64 + 0.5);
        let first = middle - bar * arms.len() as f64 / 2.0;
        for (at, arm) in arms.iter().enumerate() {
            draw_bar(&mut body, value(group, arm), first + bar * at as f64, bar, &y, (arm, colour(at)));
        }
        body.push(text("small", (middle, BOTTOM + 16.0), Anchor::Middle, &fit(&group.name, wide - 6.0, SMALL)));
    }
    body.push(line("axis", (LEFT, y.at(0.0)), (PANEL, y.at(0.0))));
    body
}

fn draw_bar(body: &mut Markup, value: MeanInterval, left: f64, wide: f64, y: &Scale, (arm, fill): (&str, &str)) {
    let Some(mean) = value.mean else { return };
    let (base, end) = (y.at(0.0), y.at(mean));
    // A zero is a line, so that it does not look like a bar that is missing.
    let high = (base - end).abs().max(1.5);
    let top = if end > base { base } else { base - high };
    let bar = rect("", (left + 1.0, top), ((wide - 2.0).max(1.0), high));
    let tip = if mean.abs() < 100.0 { format!("{mean:.3}") } else { large(mean) };
    body.push(bar.attribute("fill", fill).attribute("opacity", "0.85").title(&format!("{arm}: {tip}")));
    if let Some([low, high]) = value.interval {
        let middle = left + wide / 2.0;
        body.push(line("whisker", (middle, y.at(low)), (middle, y.at(high))));
    }
}
