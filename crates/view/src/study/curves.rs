//! Held-out reward against worker tokens: a line for each arm, with its band and its name at the end.

use super::axis::Axis;
use super::frame::{BOLD, MARGIN, cut, escape, line, nothing, panel, text, width};
use super::{colour, origin};
use crate::study::compare::{ArmSummary, Comparison};
use std::fmt::Write;

const WIDE: f64 = 860.0;
const LEFT: f64 = MARGIN + 46.0;
const TOP: f64 = 10.0;
const LEAST_HIGH: f64 = 320.0;
/// Room under the plot for ticks and the name of the axis.
const UNDER: f64 = 42.0;
const LONGEST_NAME: f64 = 190.0;
/// From one name to the next.
const NAME_STEP: f64 = 17.0;
/// From the end of the plot to the names.
const LEADER: f64 = 22.0;

/// The mean curves of these arms, each as far as all its seeds went. Arms that went nowhere are left out, and named in the
/// note.
pub fn curves(comparison: &Comparison, arms: &[&str]) -> String {
    const TITLE: &str = "Held-out reward against worker tokens";
    let (shown, missing): (Vec<&str>, Vec<&str>) =
        arms.iter().partition(|arm| comparison.arm(arm).is_some_and(|arm| !arm.curve.is_empty()));
    let shown: Vec<&ArmSummary> = shown.iter().filter_map(|arm| comparison.arm(arm)).collect();
    if shown.is_empty() {
        return nothing(TITLE, &format!("{}: no run of these arms has a curve.", origin(comparison)));
    }
    let names: Vec<String> =
        shown.iter().map(|arm| cut(&format!("{} ({})", arm.arm, arm.seeds), LONGEST_NAME, BOLD)).collect();
    let name_room = names.iter().map(|name| width(name, BOLD)).fold(0.0, f64::max);
    let right = WIDE - MARGIN - name_room - LEADER;
    let bottom = TOP + LEAST_HIGH.max(NAME_STEP * shown.len() as f64);
    let points = || shown.iter().flat_map(|arm| &arm.curve);
    let x = Axis::exactly(points().map(|point| point.worker_tokens).chain([0.0]), [LEFT, right]);
    let values =
        points().flat_map(|point| point.reward.mean.into_iter().chain(point.reward.interval.into_iter().flatten()));
    let y = Axis::around(values, [bottom, TOP]);

    let mut body = axes(&x, &y, right, bottom);
    shown.iter().enumerate().for_each(|(place, arm)| body.push_str(&band(arm, colour(place), &x, &y)));
    shown.iter().enumerate().for_each(|(place, arm)| body.push_str(&curve(arm, place, &x, &y)));
    let ends: Vec<(f64, f64)> = shown.iter().filter_map(|arm| end(arm, &x, &y)).collect();
    let spread = apart(&ends.iter().map(|(_, y)| *y).collect::<Vec<_>>(), NAME_STEP, [TOP + 4.0, bottom]);
    for (place, ((name, (from, level)), at)) in names.iter().zip(&ends).zip(&spread).enumerate() {
        let colour = colour(place);
        let _ = write!(
            body,
            "<path class=\"leader\" stroke=\"{colour}\" d=\"M{:.1} {level:.1}L{:.1} {at:.1}\"/>\n\
             <text class=\"strong\" style=\"fill: {colour}\" x=\"{:.1}\" y=\"{:.1}\">{}</text>\n",
            from + 2.0,
            right + LEADER - 4.0,
            right + LEADER,
            at + 4.0,
            escape(name),
        );
    }
    let mut note = format!(
        "{}. Mean over seeds (their number after the name), with 95 % intervals of the mean.",
        origin(comparison)
    );
    if !missing.is_empty() {
        let _ = write!(note, " Without a curve: {}.", missing.join(", "));
    }
    panel(TITLE, &note, WIDE, bottom + UNDER, &body)
}

fn axes(x: &Axis, y: &Axis, right: f64, bottom: f64) -> String {
    let mut body = String::new();
    for (tick, written) in y.ticks(6.0) {
        let at = y.at(tick);
        body.push_str(&line("grid", (LEFT, at), (right, at)));
        body.push_str(&text("tick", LEFT - 7.0, at + 4.0, "end", &written));
    }
    for (tick, written) in x.ticks(6.0) {
        let at = x.at(tick);
        body.push_str(&line("axis", (at, bottom), (at, bottom + 4.0)));
        body.push_str(&text("tick", at, bottom + 17.0, "middle", &written));
    }
    body.push_str(&line("axis", (LEFT, bottom), (right, bottom)));
    body.push_str(&text("tick", right, bottom + 34.0, "end", "worker tokens, rollouts and credit together"));
    body
}

/// The intervals along a curve, where there are any.
fn band(arm: &ArmSummary, colour: &str, x: &Axis, y: &Axis) -> String {
    let ends = arm.curve.iter().filter_map(|point| Some((x.at(point.worker_tokens), point.reward.interval?)));
    let (mut upper, mut lower) = (String::new(), Vec::new());
    for (at, [low, high]) in ends {
        let _ = write!(upper, "{}{at:.1} {:.1}", if upper.is_empty() { "M" } else { "L" }, y.at(high));
        lower.push((at, y.at(low)));
    }
    if upper.is_empty() {
        return upper;
    }
    for (at, low) in lower.into_iter().rev() {
        let _ = write!(upper, "L{at:.1} {low:.1}");
    }
    format!("<path class=\"band\" fill=\"{colour}\" d=\"{upper}z\"/>\n")
}

fn curve(arm: &ArmSummary, place: usize, x: &Axis, y: &Axis) -> String {
    let mut path = String::new();
    for (tokens, reward) in arm.curve.iter().filter_map(|point| Some((point.worker_tokens, point.reward.mean?))) {
        let _ = write!(path, "{}{:.1} {:.1}", if path.is_empty() { "M" } else { "L" }, x.at(tokens), y.at(reward));
    }
    // Where colours come a second time, lines are dashed.
    let dashes = if place < super::COLOURS.len() { "" } else { " stroke-dasharray=\"6 3\"" };
    format!("<path class=\"curve\" stroke=\"{}\"{dashes} d=\"{path}\"/>\n", colour(place))
}

fn end(arm: &ArmSummary, x: &Axis, y: &Axis) -> Option<(f64, f64)> {
    let last = arm.curve.last()?;
    Some((x.at(last.worker_tokens), y.at(last.reward.mean?)))
}

/// The nearest places to these that are `step` apart, in the same order and between both ends, as far as there is room.
fn apart(places: &[f64], step: f64, [least, most]: [f64; 2]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..places.len()).collect();
    let place = |at: usize| places.get(at).copied().unwrap_or_default();
    order.sort_by(|left, right| place(*left).total_cmp(&place(*right)));
    // Groups that touch share a middle: the mean of where their members would begin it.
    let mut groups: Vec<(f64, usize)> = Vec::new();
    for at in &order {
        let mut group = (place(*at), 1);
        while let Some((start, count)) = groups.pop_if(|(start, count)| *start + step * *count as f64 > group.0) {
            let shifted = group.0 - step * count as f64;
            let all = count + group.1;
            group = ((start * count as f64 + shifted * group.1 as f64) / all as f64, all);
        }
        let highest = most - step * (group.1 - 1) as f64;
        groups.push((group.0.min(highest).max(least), group.1));
    }
    let stacked = groups.iter().flat_map(|(start, count)| (0..*count).map(move |member| start + step * member as f64));
    // Keeping groups at the ends may have pushed them into each other.
    let mut found: Vec<f64> = stacked.collect();
    (1..found.len()).for_each(|at| found[at] = found[at].max(found[at - 1] + step));
    if let Some(over) = found.last().map(|last| last - most).filter(|over| *over > 0.0) {
        let mut limit = found.last().copied().unwrap_or(most) - over;
        for at in (0..found.len()).rev() {
            found[at] = found[at].min(limit);
            limit = found[at] - step;
        }
    }
    let mut back = vec![0.0; places.len()];
    order.iter().zip(found).for_each(|(at, found)| back[*at] = found);
    back
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_move_as_little_as_they_can() {
        let check = |places: &[f64], expected: &[f64]| assert_eq!(apart(places, 10.0, [0.0, 100.0]), expected);
        check(&[], &[]);
        check(&[50.0], &[50.0]);
        check(&[80.0, 20.0], &[80.0, 20.0]);
        check(&[50.0, 50.0], &[45.0, 55.0]);
        check(&[52.0, 50.0, 54.0], &[52.0, 42.0, 62.0]);
        check(&[99.0, 100.0], &[90.0, 100.0]);
        check(&[1.0, 0.0], &[10.0, 0.0]);
    }

    proptest! {
        #[test]
        fn names_never_overlap(places in prop::collection::vec(0.0..300.0, 0..17)) {
            let mut found = apart(&places, 17.0, [0.0, 300.0]);
            found.sort_by(f64::total_cmp);
            prop_assert!(found.windows(2).all(|two| two[1] - two[0] >= 17.0 - 1e-6));
            prop_assert!(found.iter().all(|place| (-1e-6..=300.0 + 1e-6).contains(place)));
        }
    }
}
