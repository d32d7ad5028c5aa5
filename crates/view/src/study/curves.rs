//! Held-out reward against worker tokens: a line for each arm, with its band and its name at the end.

use super::panel::{BOLD, MARGIN, nothing, panel};
use super::{COLOURS, MeanInterval, colour};
use crate::frame::{Frame, labels};
use crate::markup::Markup;
use crate::measure::{fit, width};
use crate::scale::{Scale, formal};
use crate::svg::{Anchor, Path, element, text};

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

/// The mean curve of an arm.
#[derive(Debug, Clone, PartialEq)]
pub struct CurveLine {
    pub arm: String,
    /// Runs, each with a seed of its own.
    pub seeds: usize,
    /// The reward after so many worker tokens, as far as all seeds went.
    pub points: Vec<(f64, MeanInterval)>,
}

/// The curves of these arms. `missing` are arms without a curve; the note names them. `origin` says which study it is.
pub fn curves(origin: &str, arms: &[CurveLine], missing: &[&str]) -> String {
    const TITLE: &str = "Held-out reward against worker tokens";
    if arms.is_empty() {
        return nothing(TITLE, &format!("{origin}: no run of these arms has a curve."));
    }
    let names: Vec<String> =
        arms.iter().map(|arm| fit(&format!("{} ({})", arm.arm, arm.seeds), LONGEST_NAME, BOLD)).collect();
    let name_room = names.iter().map(|name| width(name, BOLD)).fold(0.0, f64::max);
    let right = WIDE - MARGIN - name_room - LEADER;
    let bottom = TOP + LEAST_HIGH.max(NAME_STEP * arms.len() as f64);
    let plot = Frame { left: LEFT, top: TOP, right, bottom };
    let points = || arms.iter().flat_map(|arm| &arm.points);
    let x = Scale::exactly(points().map(|(tokens, _)| *tokens).chain([0.0]), (LEFT, right));
    let y = Scale::around(points().flat_map(|(_, reward)| reward.values()), (bottom, TOP));

    let mut body = axes(&x, &y, &plot);
    body.push(arms.iter().enumerate().filter_map(|(place, arm)| band(arm, colour(place), &x, &y)).collect::<Markup>());
    body.push(arms.iter().enumerate().filter_map(|(place, arm)| curve(arm, place, &x, &y)).collect::<Markup>());
    let ends: Vec<(f64, f64)> = arms.iter().filter_map(|arm| end(arm, &x, &y)).collect();
    let spread = apart(&ends.iter().map(|(_, y)| *y).collect::<Vec<_>>(), NAME_STEP, [TOP + 4.0, bottom]);
    for (place, ((name, (from, level)), at)) in names.iter().zip(&ends).zip(&spread).enumerate() {
        let leader = element("path").class("leader").attribute("stroke", colour(place));
        let way = Path::from((from + 2.0, *level)).line((right + LEADER - 4.0, *at));
        body.push(way.styled(leader));
        let name = text("strong", (right + LEADER, at + 4.0), Anchor::Start, name);
        body.push(name.attribute("style", &format!("fill: {}", colour(place))));
    }
    let mut note = format!("{origin}. Mean over seeds (their number after the name), with 95 % intervals of the mean.");
    if !missing.is_empty() {
        note.push_str(&format!(" Without a curve: {}.", missing.join(", ")));
    }
    panel(TITLE, &note, WIDE, bottom + UNDER, body)
}

fn axes(x: &Scale, y: &Scale, plot: &Frame) -> Markup {
    let name = "worker tokens, rollouts and credit together";
    let mut body = plot.rows(&labels(y.ticks(6.0), formal));
    body.push(plot.axis(&labels(x.ticks(6.0), formal), MARGIN));
    body.push(text("tick", (plot.right, plot.bottom + 34.0), Anchor::End, name));
    body
}

/// The intervals along a curve, where there are any.
fn band(arm: &CurveLine, colour: &str, x: &Scale, y: &Scale) -> Option<Markup> {
    let ends: Vec<(f64, [f64; 2])> =
        arm.points.iter().filter_map(|(tokens, reward)| Some((x.at(*tokens), reward.interval?))).collect();
    let upper = ends.iter().map(|(at, [_, high])| (*at, y.at(*high)));
    let lower = ends.iter().rev().map(|(at, [low, _])| (*at, y.at(*low)));
    let band = element("path").class("band").attribute("fill", colour);
    Some(Path::through(upper.chain(lower))?.close().styled(band).into())
}

fn curve(arm: &CurveLine, place: usize, x: &Scale, y: &Scale) -> Option<Markup> {
    let points = arm.points.iter().filter_map(|(tokens, reward)| Some((x.at(*tokens), y.at(reward.mean?))));
    let line = element("path").class("curve").attribute("stroke", colour(place));
    // Where colours come a second time, lines are dashed.
    let line = if place < COLOURS.len() { line } else { line.attribute("stroke-dasharray", "6 3") };
    Some(Path::through(points)?.styled(line).into())
}

fn end(arm: &CurveLine, x: &Scale, y: &Scale) -> Option<(f64, f64)> {
    let (tokens, reward) = arm.points.last()?;
    Some((x.at(*tokens), y.at(reward.mean?)))
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
