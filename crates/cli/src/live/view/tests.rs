use super::*;
use lemon_trace::{Trace, sample};

/// The view of a run after so many of its events, without colours.
fn view(trace: &Trace, events: usize, budget: Budget) -> TeamView {
    console::set_colors_enabled_stderr(false);
    let mut view = TeamView::new(budget);
    trace.events.iter().take(events).for_each(|event| view.note(&trace.header, event));
    view
}

fn frame(trace: &Trace, events: usize, rows: usize, columns: usize, last: bool) -> Vec<String> {
    let view = view(trace, events, Budget { tokens: Some(20_000), ..Budget::default() });
    view.frame(trace.events.get(events.saturating_sub(1)).map_or(0.0, |event| event.t), rows, columns, last)
}

#[test]
fn a_team_at_work() {
    let trace = sample::eight();
    let all = trace.events.len();
    let frames = [2, all / 3, 2 * all / 3, all].map(|events| frame(&trace, events, 24, 80, events == all).join("\n"));
    insta::assert_snapshot!(frames.join("\n\n"));
}

#[test]
fn a_team_larger_than_the_window() {
    let trace = sample::forty();
    insta::assert_snapshot!(frame(&trace, trace.events.len() / 2, 12, 60, false).join("\n"));
}

#[test]
fn a_frame_fits_its_window() {
    for seed in 0..100 {
        let trace = sample::random(seed);
        for events in 0..=trace.events.len() {
            for (rows, columns) in [(24, 80), (7, 30), (1, 1), (60, 200)] {
                let lines = frame(&trace, events, rows, columns, false);
                assert!(lines.len() <= rows.max(8), "{} lines in {rows} rows, seed {seed}", lines.len());
                let widest = lines.iter().map(|line| measure_text_width(line)).max().unwrap_or(0);
                assert!(widest < columns.max(21), "{widest} in {columns} columns, seed {seed}");
                assert!(lines.iter().all(|line| !line.contains('\n')), "one line is one line, seed {seed}");
            }
        }
    }
}

#[test]
fn the_last_frame_shows_all_agents() {
    let trace = sample::forty();
    let text = frame(&trace, trace.events.len(), 10, 80, true).join("\n");
    for agent in trace.summary().agents {
        assert!(text.contains(&agent.id), "no {} in {text}", agent.id);
    }
}

#[test]
fn totals_are_those_of_the_trace() {
    for seed in 0..100 {
        let mut trace = sample::random(seed);
        if let (true, Some(last)) = (seed % 2 == 0, trace.events.last().cloned()) {
            let kind = EventKind::Resume { finished: 0, lost_tokens: 321 };
            trace.events.push(Event { id: last.id + 1, kind, spend: Spend::default(), edges: Vec::new(), ..last });
        }
        let totals = view(&trace, trace.events.len(), Budget::default()).totals();
        let expected = format!("{} tokens", trace.summary().tokens.total);
        assert!(totals.contains(&expected), "{expected} in {totals}, seed {seed}");
    }
}
