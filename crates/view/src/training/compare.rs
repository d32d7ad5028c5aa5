//! Two trainings beside each other.

use super::chart::{Figure, Unit, written};
use super::{RunMeans, StepPoint, TrainingReport, curves, ends};
use crate::app::Section;
use crate::markup::filters;
use crate::page::{Host, render};
use crate::words::{NONE, number, percent};
use askama::Template;

#[derive(Template)]
#[template(path = "app-trainings-compare.html")]
struct ComparePage<'a> {
    host: Host,
    names: [&'a str; 2],
    rows: Vec<Row>,
    figures: Vec<Figure>,
}

/// A number of both trainings.
struct Row {
    name: &'static str,
    values: [String; 2],
}

/// The page of two trainings, by the names that addresses have for them.
pub fn compare(names: [&str; 2], reports: [&TrainingReport; 2]) -> String {
    let steps = reports.map(|report| report.steps.as_slice());
    let row = |name, of: fn(&[StepPoint]) -> String| Row { name, values: steps.map(of) };
    let rows = vec![
        row("Steps", |steps| number(ends(steps).1)),
        row("Worker tokens", |steps| steps.last().map_or_else(none, |it| number(it.worker_tokens as f64))),
        row("Right answers, held out", |steps| went(steps, |means| percent(means.success))),
        row("Tokens of a run, held out", |steps| went(steps, |means| number(means.tokens))),
        row("Reward, held out", |steps| went(steps, |means| written(means.reward, Unit::Plain))),
    ];
    let figures = curves::both(steps, ends(steps.into_iter().flatten()));
    render(&ComparePage { host: Host::app(Section::Trainings, "base.js"), names, rows, figures })
}

fn none() -> String {
    NONE.to_owned()
}

/// From the first held-out evaluation to the last.
fn went(steps: &[StepPoint], write: fn(&RunMeans) -> String) -> String {
    let mut means = steps.iter().filter_map(|it| it.held_out.as_ref());
    match (means.next(), means.next_back()) {
        (Some(first), Some(last)) => format!("{} → {}", write(first), write(last)),
        (Some(only), None) => write(only),
        (None, _) => none(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_trainings_stand_beside_each_other() {
        let step = |step: u64, success: f64| {
            let means = RunMeans { runs: 9, success, tokens: 100.0 * step as f64, ..RunMeans::default() };
            StepPoint { step, rollouts: means, held_out: Some(means), ..StepPoint::default() }
        };
        let report = |steps: Vec<StepPoint>| TrainingReport { steps, ..TrainingReport::default() };
        let (a, b) = (report(vec![step(1, 0.5), step(2, 0.75)]), report(vec![step(1, 0.25)]));
        let page = compare(["<a>", "b"], [&a, &b]);
        assert!(page.contains("50 % → 75 %") || page.contains("50.0 % → 75.0 %"), "{page}");
        assert!(page.contains("&lt;a&gt;") && !page.contains("<a>"));
        assert!(page.matches("<svg").count() >= 6, "a chart for each outcome");
        // Neither has a step yet.
        compare(["a", "b"], [&report(Vec::new()), &report(Vec::new())]);
    }
}
