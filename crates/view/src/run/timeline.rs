//! Who worked when: a row for each agent, a bar for each call, on one axis of time.

use super::markup::escape;
use super::svg::level_colour;
use crate::{AgentStatus, Event, EventKind, ORCHESTRATOR, Summary, Trace, text};
use std::collections::HashMap;
use std::fmt::Write;

/// The timeline as HTML.
pub fn timeline(trace: &Trace, summary: &Summary) -> String {
    let axis = Axis::new(summary.wall_s);
    let mut rows = rows(&trace.events, summary, &axis);
    let mut html = String::from("<div class=\"gantt\">\n");
    let _ = write!(html, "<div class=\"row axis\"><span></span><span class=\"track\">");
    for (label, left) in axis.ticks() {
        let _ = write!(html, "<i style=\"left:{left:.3}%\">{label}</i>");
    }
    html.push_str("</span></div>\n");
    let names = std::iter::once(ORCHESTRATOR).chain(summary.agents.iter().map(|agent| agent.id.as_str()));
    for name in names {
        let bars = rows.remove(name).unwrap_or_default();
        let name = escape(name);
        let _ = writeln!(
            html,
            "<div class=\"row\" data-agent=\"{name}\"><span class=\"name\" title=\"{name}\">{name}</span>\
             <span class=\"track\">{bars}</span></div>"
        );
    }
    html.push_str("</div>\n");
    html
}

/// The bars of each row.
fn rows<'a>(events: &'a [Event], summary: &Summary, axis: &Axis) -> HashMap<&'a str, String> {
    let mut rows: HashMap<&str, String> = HashMap::new();
    let mut began: HashMap<&str, f64> = HashMap::new();
    let mut marks: HashMap<&str, String> = HashMap::new();
    for event in events {
        match &event.kind {
            EventKind::Decision { by, .. } => {
                let start = began.remove(ORCHESTRATOR).unwrap_or(event.t);
                rows.entry(ORCHESTRATOR).or_default().push_str(&axis.bar("orchestrator", None, start, event.t, by));
            }
            EventKind::Rejection { failure: Some(failure), .. } => {
                let start = began.remove(ORCHESTRATOR).unwrap_or(event.t);
                let bar = axis.bar("failed", None, start, event.t, failure.kind.as_str());
                rows.entry(ORCHESTRATOR).or_default().push_str(&bar);
            }
            EventKind::Delegate { to, .. } => drop(began.insert(to, event.t)),
            EventKind::Retry { attempt, failure, wait_s, .. } => {
                let note = format!("attempt {attempt} failed: {}; waited {}", failure.kind, text::seconds(*wait_s));
                let mark = axis.bar("retry", None, event.t, event.t + wait_s, &note);
                marks.entry(&event.agent).or_default().push_str(&mark);
            }
            EventKind::Return { status, .. } => {
                if let Some(start) = began.remove(event.agent.as_str()) {
                    let bar = agent_bar(summary, axis, &event.agent, start, event.t, Some(*status));
                    rows.entry(&event.agent).or_default().push_str(&bar);
                }
            }
            EventKind::Resume { .. } => began.clear(),
            _ => {}
        }
    }
    for (agent, start) in began {
        rows.entry(agent).or_default().push_str(&agent_bar(summary, axis, agent, start, summary.wall_s, None));
    }
    // Marks lie on top of bars.
    for (agent, marks) in marks {
        rows.entry(agent).or_default().push_str(&marks);
    }
    rows
}

fn agent_bar(summary: &Summary, axis: &Axis, id: &str, start: f64, end: f64, status: Option<AgentStatus>) -> String {
    let class = status.map_or("running", AgentStatus::as_str);
    let colour = summary.agent(id).map(|agent| level_colour(agent.level));
    let note = format!("{class}, {} from {}", text::seconds(end - start), text::seconds(start));
    axis.bar(class, colour, start, end, &note)
}

/// Seconds to per cent of the width.
struct Axis {
    seconds: f64,
    step: f64,
}

impl Axis {
    fn new(seconds: f64) -> Axis {
        let seconds = if seconds > 0.0 && seconds.is_finite() { seconds } else { 1.0 };
        let power = 10_f64.powf((seconds / 6.0).log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].iter().map(|n| n * power).find(|step| seconds / step <= 6.0);
        Axis { seconds, step: step.unwrap_or(seconds) }
    }

    fn ticks(&self) -> impl Iterator<Item = (String, f64)> {
        let places = if self.step < 1.0 { (-self.step.log10()).ceil().clamp(0.0, 9.0) as usize } else { 0 };
        let ticks = (0..8).map(|n| f64::from(n) * self.step).take_while(|t| *t <= self.seconds);
        ticks.map(move |t| (format!("{t:.places$} s"), self.percent(t)))
    }

    fn percent(&self, t: f64) -> f64 {
        (t / self.seconds * 100.0).clamp(0.0, 100.0)
    }

    fn bar(&self, class: &str, colour: Option<&str>, start: f64, end: f64, note: &str) -> String {
        let (left, width) = (self.percent(start), (self.percent(end) - self.percent(start)).max(0.0));
        let colour = colour.map_or_else(String::new, |colour| format!(";--level:{colour}"));
        let note = escape(note);
        format!("<b class=\"{class}\" style=\"left:{left:.3}%;width:{width:.3}%{colour}\" title=\"{note}\"></b>")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_few() {
        let check = |seconds, expected: &[&str]| {
            let labels: Vec<String> = Axis::new(seconds).ticks().map(|(label, _)| label).collect();
            assert_eq!(labels, expected);
        };
        check(24.9, &["0 s", "5 s", "10 s", "15 s", "20 s"]);
        check(0.35, &["0.0 s", "0.1 s", "0.2 s", "0.3 s"]);
        check(600.0, &["0 s", "100 s", "200 s", "300 s", "400 s", "500 s", "600 s"]);
        check(0.0, &["0.0 s", "0.2 s", "0.4 s", "0.6 s", "0.8 s", "1.0 s"]);
    }
}
