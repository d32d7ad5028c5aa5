//! Two runs side by side, with what differs marked.

use super::runs::{ListedRun, Row, row};
use super::{Section, state};
use crate::markup::{Markup, filters};
use crate::page::{Host, render};
use crate::run::graph;
use crate::training::teams::marked;
use askama::Template;
use lemon_trace::{AgentDiff, Delta, Presence, Trace, ValueChange, diff, text};

#[derive(Template)]
#[template(path = "app-compare.html")]
struct Page<'a> {
    host: Host,
    same: bool,
    headline: String,
    runs: Vec<Side<'a>>,
    totals: Vec<Total>,
    changes: Vec<Change>,
    agents: Vec<Agent>,
}

struct Side<'a> {
    letter: &'static str,
    id: &'a str,
    heading: String,
    question: Markup,
    answer: Option<Markup>,
    reason: String,
    class: &'static str,
    team: String,
    graph: Markup,
}

struct Total {
    name: String,
    a: String,
    b: String,
    change: String,
    differs: bool,
}

struct Change {
    name: String,
    a: Markup,
    b: Markup,
}

struct Agent {
    id: String,
    presence: &'static str,
    tokens: String,
    is_open: bool,
    changes: Vec<Change>,
}

/// The page of two runs.
pub fn compare(a: &Trace, b: &Trace) -> String {
    let difference = diff(a, b);
    let summaries = [a.summary(), b.summary()];
    let questions = both(Some(&a.header.question), Some(&b.header.question));
    let answers = both(summaries[0].answer.as_deref(), summaries[1].answer.as_deref());
    let sides = [("A", "a", a), ("B", "b", b)].into_iter().zip(&summaries).zip(questions).zip(answers);
    let runs = sides.map(|((((letter, tip, trace), summary), question), answer)| {
        let (reason, class) = state(summary.stop_reason.map(|reason| reason.as_str()), false);
        // The tips of arrows have names, which must differ between the pictures on a page.
        let graph = Markup::trusted(graph(trace).replace("lemon-tip", &format!("lemon-tip-{tip}")));
        Side {
            letter,
            id: &trace.header.run_id,
            heading: text::date(trace.header.started_at_ms),
            question: question.unwrap_or_default(),
            answer,
            reason,
            class,
            team: text::plural(summary.agents.len() as u64, "agent"),
            graph,
        }
    });
    // The answers and the questions stand at the top already.
    let shown_above = |change: &&ValueChange| !["question", "answer"].contains(&change.field.as_str());
    let changes = difference.header.iter().chain(&difference.outcome).filter(shown_above);
    let count = difference.agents.len() as u64;
    let answers =
        if summaries[0].answer == summaries[1].answer { "The answers are the same" } else { "The answers differ" };
    render(&Page {
        host: Host::app(Section::Runs, "base.js"),
        same: difference.is_empty(),
        headline: format!("{answers}; {} differ{}.", text::plural(count, "agent"), if count == 1 { "s" } else { "" }),
        runs: runs.collect(),
        totals: difference.totals.iter().map(total).collect(),
        changes: changes.map(change).collect(),
        agents: difference.agents.iter().map(|agent| self::agent(agent, count)).collect(),
    })
}

/// Two texts, with the words marked that the other does not have.
fn both(a: Option<&str>, b: Option<&str>) -> [Option<Markup>; 2] {
    match (a, b) {
        (Some(a), Some(b)) => {
            let (a, b) = marked(a, b);
            [Some(Markup::trusted(a)), Some(Markup::trusted(b))]
        }
        alone => [alone.0, alone.1].map(|text| text.map(Markup::text)),
    }
}

fn change(change: &ValueChange) -> Change {
    let [a, b] = both(change.a.as_deref(), change.b.as_deref());
    let nothing = || Markup::text("–");
    Change { name: change.field.clone(), a: a.unwrap_or_else(nothing), b: b.unwrap_or_else(nothing) }
}

fn total(delta: &Delta) -> Total {
    let written = |value: f64| match delta.field.as_str() {
        "seconds" => text::seconds(value),
        "usd" => text::usd(value),
        _ => text::count(value as u64),
    };
    let difference = delta.b - delta.a;
    let sign = if difference > 0.0 { "+" } else { "−" };
    let share = 100.0 * difference / delta.a;
    let share = if share.is_finite() { format!(" ({sign}{:.0} %)", share.abs()) } else { String::new() };
    Total {
        name: delta.field.clone(),
        a: written(delta.a),
        b: written(delta.b),
        change: if difference == 0.0 { "=".to_owned() } else { format!("{sign}{}{share}", written(difference.abs())) },
        differs: difference != 0.0 && delta.field != "seconds",
    }
}

fn agent(agent: &AgentDiff, count: u64) -> Agent {
    let presence = match agent.presence {
        Presence::Added => "only in B",
        Presence::Removed => "only in A",
        Presence::Both => "",
    };
    let AgentDiff { tokens, .. } = agent;
    Agent {
        id: agent.id.clone(),
        presence,
        tokens: format!("{} → {} tokens", text::count(tokens.a as u64), text::count(tokens.b as u64)),
        is_open: count <= 6 && agent.presence == Presence::Both,
        changes: agent.spec.iter().chain(&agent.result).map(change).collect(),
    }
}

#[derive(Template)]
#[template(path = "app-choose.html")]
struct ChoosePage<'a> {
    host: Host,
    id: &'a str,
    rows: Vec<Row<'a>>,
}

/// The page on which one chooses what to compare a run with.
pub fn choose(id: &str, runs: &[ListedRun]) -> String {
    let rows = runs.iter().filter(|run| run.id != id).map(row).collect();
    render(&ChoosePage { host: Host::app(Section::Runs, "base.js"), id, rows })
}
