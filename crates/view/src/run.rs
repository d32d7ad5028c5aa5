//! A run as one page: opens offline, loads nothing, in light and dark, on a desk and on a phone.
//!
//! The template `run.html` is the page; the modules here say what stands in it. The script works on what the page already
//! shows.

mod costs;
mod credit;
mod index;
pub(crate) mod picture;
mod replies;
mod timeline;
mod tools;

pub use index::{IndexRow, index};
pub use picture::svg;

use crate::app::{Section, waiting};
use crate::markdown::{is_short, markdown};
use crate::markup::{Markup, filters};
use crate::page::{Host, render};
use askama::Template;
use costs::{AgentCost, Share};
use credit::CreditSection;
use lemon_spec::Diagnostic;
use lemon_trace::{AgentStatus, AgentSummary, Event, EventKind, Failure, Metrics, StopReason, Summary, Trace, text};
use picture::{Direction, Picture, picture};
use replies::{Message, Reply, is_truncated, messages, replies, why};
use timeline::Timeline;
use tools::{ToolCall, tool_calls};

/// The page.
pub fn html(trace: &Trace) -> String {
    page(trace, None, Host::FILE)
}

/// The page with a link to where it belongs, such as the list of runs: its address from where the page lies, and its name.
pub fn html_linked(trace: &Trace, address: &str, name: &str) -> String {
    page(trace, Some((address, name)), Host::FILE)
}

/// The page in the application.
pub fn hosted(trace: &Trace) -> String {
    page(trace, Some(("/runs", "All runs")), Host::app(Section::Runs, "run.js"))
}

/// The team as a fragment of a page of the application: across for a desk, down for a phone.
pub fn graph(trace: &Trace) -> String {
    let draw = |TeamPicture { class, width, picture }| {
        format!("<div class=\"graph {class}\" data-style=\"--width:{width}px\">{picture}</div>\n")
    };
    teams(trace, Host::app(Section::Runs, "")).into_iter().map(draw).collect()
}

#[derive(Template)]
#[template(path = "run.html")]
struct RunPage<'a> {
    host: Host,
    /// The run, where the page is one of the application.
    run_id: &'a str,
    is_ended: bool,
    /// Calls that wait for a person, in the application.
    approvals: Markup,
    title: String,
    link: Option<(&'a str, &'a str)>,
    heading: String,
    question: &'a str,
    answer: Answer<'a>,
    reason: String,
    reason_class: &'static str,
    is_cut_off: bool,
    /// The first call that waits for a person.
    waiting: Option<String>,
    failed: Option<FailedAgents<'a>>,
    facts: Vec<Fact>,
    sections: Vec<(&'static str, &'static str)>,
    replies: Vec<Reply<'a>>,
    teams: Vec<TeamPicture>,
    timeline: Timeline<'a>,
    messages: Vec<Message<'a>>,
    tool_calls: Vec<ToolCall<'a>>,
    costs: Vec<AgentCost<'a>>,
    orchestrator: Option<(String, Share)>,
    credit: Option<CreditSection>,
    specification: Vec<SpecificationPart<'a>>,
    metrics: Vec<Fact>,
    event_count: String,
    events: Vec<EventRow<'a>>,
}

const COST_COLUMNS: [(&str, &str); 11] = [
    ("Agent", ""),
    ("Role", ""),
    ("Capacity", ""),
    ("Status", ""),
    ("Tokens", "n"),
    ("Share", ""),
    ("In", "n"),
    ("Out", "n"),
    ("Cost", "n"),
    ("Time", "n"),
    ("Answer", ""),
];

/// A short answer stands large; a longer one is rendered.
pub(crate) enum Answer<'a> {
    None,
    Short(&'a str),
    Long { source: &'a str, rendered: Markup },
}

/// Agents that have no part in the answer.
struct FailedAgents<'a> {
    count: String,
    of: String,
    first: &'a str,
    why: String,
}

struct Fact {
    name: &'static str,
    value: String,
    note: String,
}

struct TeamPicture {
    class: &'static str,
    width: String,
    picture: Markup,
}

/// What the orchestrator wrote, and why it was refused.
enum SpecificationPart<'a> {
    Draft(Draft<'a>),
    Rejection(Vec<String>),
}

struct Draft<'a> {
    round: u32,
    by: String,
    tokens: String,
    text: &'a str,
    is_rejected: bool,
}

struct EventRow<'a> {
    id: u32,
    t: String,
    agent: &'a str,
    kind: &'static str,
    causes: String,
    tokens: String,
    json: String,
}

fn page(trace: &Trace, link: Option<(&str, &str)>, host: Host) -> String {
    let summary = trace.summary();
    let measured = trace.credit();
    let credit = CreditSection::new(&measured);
    let tool_calls = tool_calls(trace);
    let mut sections =
        vec![("team", "Team"), ("replies", "Replies"), ("timeline", "Timeline"), ("messages", "Messages")];
    sections.extend((!tool_calls.is_empty()).then_some(("tools", "Tools")));
    sections.push(("costs", "Costs"));
    sections.extend(credit.as_ref().map(|credit| ("credit", credit.title)));
    sections.extend([("specification", "Specification"), ("metrics", "Metrics"), ("events", "Events")]);
    let answered = summary.stop_reason == Some(StopReason::Answered);
    render(&RunPage {
        host,
        run_id: &trace.header.run_id,
        is_ended: summary.stop_reason.is_some(),
        approvals: if host.is_file() { Markup::default() } else { waiting(trace) },
        title: format!("{} – {}", trace.header.run_id, text::line(&trace.header.question, 80)),
        link,
        heading: text::heading(&trace.header),
        question: &trace.header.question,
        answer: answer(&summary),
        reason: summary.stop_reason.map_or_else(|| "no end on record".to_owned(), stop_reason),
        reason_class: if answered { "good" } else { "odd" },
        is_cut_off: is_cut_off(trace, &summary),
        waiting: tool_calls.iter().find(|call| call.is_waiting).map(|call| format!("{} → {}", call.agent, call.tool)),
        failed: failed(&summary),
        facts: facts(&summary),
        sections,
        replies: replies(trace, &summary),
        teams: teams(trace, host),
        timeline: Timeline::new(trace, &summary),
        messages: messages(trace),
        tool_calls,
        costs: costs::costs(&summary),
        orchestrator: costs::orchestrator(&summary),
        credit,
        specification: specification(&trace.events),
        metrics: metrics(&trace.metrics(None)),
        event_count: text::plural(trace.events.len() as u64, "event"),
        events: trace.events.iter().map(event_row).collect(),
    })
}

pub(crate) fn answer(summary: &Summary) -> Answer<'_> {
    match summary.answer.as_deref() {
        None => Answer::None,
        Some(answer) if is_short(answer) => Answer::Short(answer),
        Some(answer) => Answer::Long { source: answer, rendered: markdown(answer) },
    }
}

/// A stop reason as words.
pub(crate) fn stop_reason(reason: StopReason) -> String {
    reason.as_str().replace('_', " ")
}

/// Whether the reply that became the answer reached its limit.
pub(crate) fn is_cut_off(trace: &Trace, summary: &Summary) -> bool {
    let chosen = trace.events.iter().rev().find_map(|event| match &event.kind {
        EventKind::Aggregate { chosen, .. } => Some(chosen.as_deref()),
        _ => None,
    });
    let chosen = chosen.flatten().and_then(|id| summary.agent(id));
    summary.answer.is_some() && chosen.is_some_and(is_truncated)
}

fn failed(summary: &Summary) -> Option<FailedAgents<'_>> {
    let has_failed = |agent: &&AgentSummary| {
        matches!(agent.status, Some(AgentStatus::Failed | AgentStatus::Skipped | AgentStatus::Cancelled))
    };
    let failed: Vec<&AgentSummary> = summary.agents.iter().filter(has_failed).collect();
    let first = failed.first()?;
    Some(FailedAgents {
        count: text::count(failed.len() as u64),
        of: text::plural(summary.agents.len() as u64, "agent"),
        first: &first.id,
        why: text::line(&why(first), 200),
    })
}

fn facts(summary: &Summary) -> Vec<Fact> {
    let tokens = summary.tokens;
    let share = format!("{} by the orchestrator", text::count(tokens.orchestrator));
    let failed = format!("{} in failed attempts", text::count(tokens.failed));
    let by = if tokens.failed > 0 { format!("{share}, {failed}") } else { share };
    let fact = |name, value, note| Fact { name, value, note };
    vec![
        fact("Tokens", text::count(tokens.total), by),
        fact("Cost", text::usd(summary.usd), String::new()),
        fact("Wall time", text::seconds(summary.wall_s), String::new()),
        fact("Calls", text::count(summary.calls), text::plural(summary.messages, "message")),
        fact("Agents", summary.agents.len().to_string(), text::plural(summary.rounds.into(), "round")),
    ]
}

fn teams(trace: &Trace, host: Host) -> Vec<TeamPicture> {
    let draw = |(direction, class)| {
        let Picture { svg, width } = picture(trace, direction, host.is_file());
        TeamPicture { class, width: format!("{width:.0}"), picture: svg }
    };
    [(Direction::Across, "across"), (Direction::Down, "down")].map(draw).into()
}

/// Every text the orchestrator wrote; those that ran are open.
fn specification(events: &[Event]) -> Vec<SpecificationPart<'_>> {
    (0..events.len()).filter_map(|place| specification_part(events, place)).collect()
}

fn specification_part(events: &[Event], place: usize) -> Option<SpecificationPart<'_>> {
    let event = events.get(place)?;
    match &event.kind {
        EventKind::Decision { round, by, model, text, .. } => {
            let model = model.as_deref().map_or_else(String::new, |model| format!(" · {model}"));
            Some(SpecificationPart::Draft(Draft {
                round: *round,
                by: format!("{by}{model}"),
                tokens: text::plural(event.spend.tokens(), "token"),
                text,
                is_rejected: matches!(events.get(place + 1), Some(Event { kind: EventKind::Rejection { .. }, .. })),
            }))
        }
        EventKind::Rejection { diagnostics, failure, .. } => {
            Some(SpecificationPart::Rejection(faults(diagnostics, failure.as_ref())))
        }
        _ => None,
    }
}

fn faults(diagnostics: &[Diagnostic], failure: Option<&Failure>) -> Vec<String> {
    let fault = |fault: &Diagnostic| {
        let hint = fault.hint.as_deref().map_or_else(String::new, |hint| format!(" – {hint}"));
        format!("{}:{} {}{hint}", fault.line, fault.column, fault.message)
    };
    let failure = failure.map(|failure| format!("{}: {}", failure.kind, failure.message));
    diagnostics.iter().map(fault).chain(failure).collect()
}

fn metrics(metrics: &Metrics) -> Vec<Fact> {
    let meaning = |name: &str| match name {
        "parallel speed-up" => "how much faster than all calls one after another",
        "busy time" => "share of the run in which some agent was working",
        "useful agents" => "share of finished agents with a part in the answer",
        "message redundancy" => "share of five-word runs in messages that had been said before",
        "protocol overhead" => "share of tokens spent on coordination: orchestrator, judges, messages read",
        "error amplification" => "how much likelier an agent is wrong for having read something wrong",
        _ => "length of the trace",
    };
    let fact = |(name, value)| Fact { name, value, note: meaning(name).to_owned() };
    text::metrics(metrics).into_iter().map(fact).collect()
}

fn event_row(event: &Event) -> EventRow<'_> {
    let causes: Vec<String> = event.edges.iter().map(|edge| format!("{} {}", edge.kind, edge.src)).collect();
    EventRow {
        id: event.id,
        t: format!("{:.3}", event.t),
        agent: &event.agent,
        kind: event.kind.name(),
        causes: causes.join(", "),
        tokens: if event.spend.tokens() > 0 { text::count(event.spend.tokens()) } else { String::new() },
        // An event has only string keys, so that writing it as JSON cannot fail.
        json: serde_json::to_string_pretty(&event.kind).unwrap_or_default(),
    }
}
