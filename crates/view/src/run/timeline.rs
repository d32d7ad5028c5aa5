//! When each agent worked: a row for each agent, a bar for each call, on one axis of time.

use super::picture::level_colour;
use crate::scale::Scale;
use lemon_trace::{AgentStatus, Event, EventKind, ORCHESTRATOR, Summary, Trace, text};
use std::collections::HashMap;

pub(super) struct Timeline<'a> {
    pub ticks: Vec<TimeTick>,
    pub rows: Vec<Row<'a>>,
}

pub(super) struct TimeTick {
    pub left: String,
    pub label: String,
}

pub(super) struct Row<'a> {
    pub name: &'a str,
    pub bars: Vec<Bar>,
}

pub(super) struct Bar {
    pub class: &'static str,
    pub left: String,
    pub width: String,
    pub colour: Option<&'static str>,
    pub note: String,
}

impl<'a> Timeline<'a> {
    pub(super) fn new(trace: &'a Trace, summary: &'a Summary) -> Timeline<'a> {
        let axis = Axis::new(summary.wall_s);
        let mut bars = bars(&trace.events, summary, &axis);
        let names = std::iter::once(ORCHESTRATOR).chain(summary.agents.iter().map(|agent| agent.id.as_str()));
        // An agent that never worked has a row without bars.
        let rows = names.map(|name| Row { name, bars: bars.remove(name).unwrap_or_default() }).collect();
        Timeline { ticks: axis.ticks(), rows }
    }
}

/// The bars of each row.
fn bars<'a>(events: &'a [Event], summary: &Summary, axis: &Axis) -> HashMap<&'a str, Vec<Bar>> {
    let mut rows: HashMap<&str, Vec<Bar>> = HashMap::new();
    let mut began: HashMap<&str, f64> = HashMap::new();
    let mut marks: HashMap<&str, Vec<Bar>> = HashMap::new();
    for event in events {
        match &event.kind {
            EventKind::Decision { by, .. } => {
                let start = began.remove(ORCHESTRATOR).unwrap_or(event.t);
                rows.entry(ORCHESTRATOR).or_default().push(axis.bar("orchestrator", None, start, event.t, by));
            }
            EventKind::Rejection { failure: Some(failure), .. } => {
                let start = began.remove(ORCHESTRATOR).unwrap_or(event.t);
                let bar = axis.bar("failed", None, start, event.t, failure.kind.as_str());
                rows.entry(ORCHESTRATOR).or_default().push(bar);
            }
            EventKind::Delegate { to, .. } => drop(began.insert(to, event.t)),
            EventKind::Retry { attempt, failure, wait_s, .. } => {
                let note = format!("attempt {attempt} failed: {}; waited {}", failure.kind, text::seconds(*wait_s));
                let mark = axis.bar("retry", None, event.t, event.t + wait_s, &note);
                marks.entry(&event.agent).or_default().push(mark);
            }
            EventKind::Return { status, .. } => {
                if let Some(start) = began.remove(event.agent.as_str()) {
                    let bar = agent_bar(summary, axis, &event.agent, start, event.t, Some(*status));
                    rows.entry(&event.agent).or_default().push(bar);
                }
            }
            EventKind::Resume { .. } => began.clear(),
            _ => {}
        }
    }
    for (agent, start) in began {
        rows.entry(agent).or_default().push(agent_bar(summary, axis, agent, start, summary.wall_s, None));
    }
    // Marks lie on top of bars.
    for (agent, marks) in marks {
        rows.entry(agent).or_default().extend(marks);
    }
    rows
}

fn agent_bar(summary: &Summary, axis: &Axis, id: &str, start: f64, end: f64, status: Option<AgentStatus>) -> Bar {
    let class = status.map_or("running", AgentStatus::as_str);
    let colour = summary.agent(id).map(|agent| level_colour(agent.level));
    let note = format!("{class}, {} from {}", text::seconds(end - start), text::seconds(start));
    axis.bar(class, colour, start, end, &note)
}

/// Seconds to percent of the width.
struct Axis(Scale);

impl Axis {
    fn new(seconds: f64) -> Axis {
        let seconds = if seconds > 0.0 && seconds.is_finite() { seconds } else { 1.0 };
        Axis(Scale::linear((0.0, seconds), (0.0, 100.0)))
    }

    fn ticks(&self) -> Vec<TimeTick> {
        let ticks = self.0.ticks(6.0).into_iter();
        let label = |value: f64, step: f64| {
            let places = if step < 1.0 { (-step.log10()).ceil().clamp(0.0, 9.0) as usize } else { 0 };
            format!("{value:.places$} s")
        };
        ticks.map(|tick| TimeTick { left: format!("{:.3}", tick.at), label: label(tick.value, tick.step) }).collect()
    }

    fn bar(&self, class: &'static str, colour: Option<&'static str>, start: f64, end: f64, note: &str) -> Bar {
        let (left, right) = (self.0.at(start), self.0.at(end));
        let (left, width) = (format!("{left:.3}"), format!("{:.3}", (right - left).max(0.0)));
        Bar { class, left, width, colour, note: note.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_few() {
        let check = |seconds, expected: &[&str]| {
            let labels: Vec<String> = Axis::new(seconds).ticks().into_iter().map(|tick| tick.label).collect();
            assert_eq!(labels, expected);
        };
        check(24.9, &["0 s", "5 s", "10 s", "15 s", "20 s"]);
        check(0.35, &["0.0 s", "0.1 s", "0.2 s", "0.3 s"]);
        check(600.0, &["0 s", "100 s", "200 s", "300 s", "400 s", "500 s", "600 s"]);
        check(0.0, &["0.0 s", "0.2 s", "0.4 s", "0.6 s", "0.8 s", "1.0 s"]);
    }
}
