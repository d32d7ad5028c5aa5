//! A run as one page: opens offline, loads nothing, in light and dark, on a desk and on a phone.
//!
//! Everything in it that came from a model, a task or a file is untrusted text. It reaches the page only through
//! `markup::escape`, never inside a script; the script works on what the page already shows.

mod replies;

use super::credit::credit;
use super::markdown::{COPY_JS, MARKDOWN_CSS, is_short, markdown};
use super::markup::escape;
use super::svg::{Direction, Picture, level_colour, picture};
use super::timeline::timeline;
use crate::{AgentStatus, AgentSummary, Event, EventKind, Failure, Metrics, StopReason, Summary, Trace, text};
use lemon_spec::Diagnostic;
use replies::{is_truncated, messages, replies, why};
use std::fmt::Write;

/// The page.
pub fn html(trace: &Trace) -> String {
    page(trace, None)
}

/// The page with a link to where it belongs, such as the list of runs: its address from where the page lies, and its name.
pub fn html_linked(trace: &Trace, address: &str, name: &str) -> String {
    page(trace, Some((address, name)))
}

fn page(trace: &Trace, link: Option<(&str, &str)>) -> String {
    let summary = trace.summary();
    let title = format!("{} – {}", trace.header.run_id, text::line(&trace.header.question, 80));
    let mut page = head(&title, Script::Own);
    let sections = sections(trace, &summary);
    headline(&mut page, trace, &summary, link);
    navigation(&mut page, &sections);
    page.push_str("<main>\n");
    for (id, title, body) in &sections {
        let _ = write!(page, "<section id=\"{id}\">\n<h2>{title}</h2>\n{body}</section>\n");
    }
    let _ = write!(page, "</main>\n<script>\n{}{COPY_JS}</script>\n</body>\n</html>\n", include_str!("page.js"));
    page
}

/// What a page may run.
#[derive(Clone, Copy)]
pub(super) enum Script {
    /// The script that is written in it.
    Own,
    /// Nothing.
    None,
}

/// A page up to the beginning of its body. It loads nothing.
pub(super) fn head(title: &str, script: Script) -> String {
    let script = match script {
        Script::Own => "script-src 'unsafe-inline'; ",
        Script::None => "",
    };
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; \
         {script}base-uri 'none'; form-action 'none'\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>{}</title>\n<style>\n{}{MARKDOWN_CSS}</style>\n\
         </head>\n<body>\n",
        escape(title),
        include_str!("page.css"),
    )
}

/// The parts of the page: id, title and content.
fn sections(trace: &Trace, summary: &Summary) -> Vec<(&'static str, &'static str, String)> {
    let mut sections = vec![
        ("replies", "Replies", replies(trace, summary)),
        ("team", "Team", team(trace)),
        ("timeline", "Timeline", timeline(trace, summary)),
        ("messages", "Messages", messages(trace)),
        ("costs", "Costs", agent_table(summary)),
    ];
    let measured = trace.credit();
    let title = if measured.parts.is_empty() { "Rewards" } else { "Credit" };
    sections.extend(credit(&measured).map(|credit| ("credit", title, credit)));
    sections.extend([
        ("specification", "Specification", specification(&trace.events)),
        ("metrics", "Metrics", metrics(&trace.metrics(None))),
        ("events", "Events", events(&trace.events)),
    ]);
    sections
}

fn headline(page: &mut String, trace: &Trace, summary: &Summary, link: Option<(&str, &str)>) {
    let header = &trace.header;
    let link = link.map(|(address, name)| format!("<a href=\"{}\">{}</a> ", escape(address), escape(name)));
    let link = link.unwrap_or_default();
    let _ = write!(
        page,
        "<header>\n<p class=\"run\">{link}<b>LEMON</b> {}</p>\n<h1>{}</h1>\n",
        escape(&text::heading(header)),
        escape(&header.question),
    );
    answer(page, summary);
    warnings(page, trace, summary);
    page.push_str("<dl class=\"facts\">");
    let tokens = summary.tokens;
    let share = format!("{} by the orchestrator", text::count(tokens.orchestrator));
    let failed = format!("{} in failed attempts", text::count(tokens.failed));
    for (name, value, note) in [
        ("Tokens", text::count(tokens.total), if tokens.failed > 0 { format!("{share}, {failed}") } else { share }),
        ("Cost", text::usd(summary.usd), String::new()),
        ("Wall time", text::seconds(summary.wall_s), String::new()),
        ("Calls", text::count(summary.calls), text::plural(summary.messages, "message")),
        ("Agents", summary.agents.len().to_string(), text::plural(summary.rounds.into(), "round")),
    ] {
        let _ = write!(page, "<div><dt>{name}</dt><dd>{value}</dd><dd class=\"note\">{note}</dd></div>");
    }
    page.push_str("</dl>\n</header>\n");
}

/// A short answer stands large; a longer one is rendered.
fn answer(page: &mut String, summary: &Summary) {
    let reason = summary.stop_reason.map_or_else(|| "no end on record".to_owned(), stop_reason);
    let class = if summary.stop_reason == Some(StopReason::Answered) { "good" } else { "odd" };
    let reason = format!("<span class=\"reason {class}\">{reason}</span>");
    let Some(answer) = &summary.answer else {
        let _ = writeln!(page, "<div class=\"answer\"><p class=\"none\">no answer</p>{reason}</div>");
        return;
    };
    // The source comes first: the button copies the first one it finds.
    let source = format!("<pre class=\"source\" hidden>{}</pre>", escape(answer));
    let button = "<button type=\"button\" class=\"copy\">Copy</button>";
    let _ = match is_short(answer) {
        true => writeln!(
            page,
            "<div class=\"answer copied\">{source}<p class=\"short\">{}</p>{reason}{button}</div>",
            escape(answer)
        ),
        false => writeln!(
            page,
            "<div class=\"answer long copied\">{source}<p class=\"bar\">{reason}{button}</p>\n{}</div>",
            markdown(answer)
        ),
    };
}

/// A stop reason as words.
pub(super) fn stop_reason(reason: StopReason) -> String {
    reason.as_str().replace('_', " ")
}

/// What a reader of the answer has to know about it: that it was cut off, and which agents have no part in it.
fn warnings(page: &mut String, trace: &Trace, summary: &Summary) {
    let chosen = trace.events.iter().rev().find_map(|event| match &event.kind {
        EventKind::Aggregate { chosen, .. } => Some(chosen.as_deref()),
        _ => None,
    });
    let chosen = chosen.flatten().and_then(|id| summary.agent(id));
    if summary.answer.is_some() && chosen.is_some_and(is_truncated) {
        page.push_str(
            "<p class=\"warning\">The answer is cut off: the reply reached its limit, <code>max_tokens</code>.</p>\n",
        );
    }
    let failed: Vec<&AgentSummary> = summary
        .agents
        .iter()
        .filter(|agent| {
            matches!(agent.status, Some(AgentStatus::Failed | AgentStatus::Skipped | AgentStatus::Cancelled))
        })
        .collect();
    let Some(first) = failed.first() else { return };
    let _ = writeln!(
        page,
        "<p class=\"warning\">{} of {} gave no result. <a href=\"#replies\">{}</a>: {}</p>",
        text::count(failed.len() as u64),
        text::plural(summary.agents.len() as u64, "agent"),
        escape(&first.id),
        escape(&text::line(&why(first), 200)),
    );
}

fn navigation(page: &mut String, sections: &[(&str, &str, String)]) {
    page.push_str("<nav><div>");
    for (id, title, _) in sections {
        let _ = write!(page, "<a href=\"#{id}\">{title}</a>");
    }
    page.push_str("</div></nav>\n");
}

/// Twice: across for a desk, down for a phone; the style shows one.
fn team(trace: &Trace) -> String {
    let mut html = String::new();
    for (direction, class) in [(Direction::Across, "across"), (Direction::Down, "down")] {
        let Picture { svg, width } = picture(trace, direction);
        let _ = writeln!(html, "<div class=\"graph {class}\" style=\"--width:{width:.0}px\">{svg}</div>");
    }
    html.push_str(
        "<p class=\"hint\">Choose an agent to read what it was told and what it said.</p>\n\
         <aside id=\"detail\" hidden><button type=\"button\" aria-label=\"Close\">×</button><div></div></aside>\n",
    );
    html
}

fn agent_table(summary: &Summary) -> String {
    let mut html = String::from("<div class=\"scroll\"><table class=\"sortable\">\n<thead><tr>");
    for (name, class) in [
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
    ] {
        let _ = write!(html, "<th scope=\"col\" class=\"{class}\"><button type=\"button\">{name}</button></th>");
    }
    html.push_str("</tr></thead>\n<tbody>\n");
    let total = summary.tokens.total.max(1) as f64;
    for agent in &summary.agents {
        agent_row(&mut html, agent, agent.tokens() as f64 / total);
    }
    html.push_str("</tbody>\n");
    let tokens = summary.tokens;
    if tokens.orchestrator > 0 {
        let share = tokens.orchestrator as f64 / total * 100.0;
        let _ = writeln!(
            html,
            "<tfoot><tr><td>orchestrator</td><td></td><td></td><td></td><td class=\"n\">{}</td>\
             <td>{}</td><td></td><td></td><td></td><td></td><td></td></tr></tfoot>",
            text::count(tokens.orchestrator),
            meter(share)
        );
    }
    html.push_str("</table></div>\n");
    html
}

fn agent_row(html: &mut String, agent: &AgentSummary, share: f64) {
    let status = text::status(agent);
    let retried = if agent.attempts > 1 { format!(" <small>{}×</small>", agent.attempts) } else { String::new() };
    let reused = if agent.reused { " <small>reused</small>" } else { "" };
    let outcome = match (&agent.answer, &agent.failure) {
        (Some(answer), _) => escape(&text::line(answer, 60)),
        (None, Some(failure)) => escape(failure.kind.as_str()),
        (None, None) => String::new(),
    };
    let id = escape(&agent.id);
    let _ = write!(
        html,
        "<tr data-agent=\"{id}\"><td><button type=\"button\" class=\"link\">{id}</button></td><td>{}</td>\
         <td data-v=\"{}\"><i class=\"dot\" style=\"background:{}\"></i>{}</td>\
         <td class=\"status {status}\">{status}{retried}{reused}</td>",
        escape(&agent.role),
        agent.level,
        level_colour(agent.level),
        escape(&agent.capacity),
    );
    let number = |value: f64, shown: String| format!("<td class=\"n\" data-v=\"{value}\">{shown}</td>");
    html.push_str(&number(agent.tokens() as f64, text::count(agent.tokens())));
    let _ = write!(html, "<td data-v=\"{share}\">{}</td>", meter(share * 100.0));
    html.push_str(&number(agent.tokens_in as f64, text::count(agent.tokens_in)));
    html.push_str(&number(agent.tokens_out as f64, text::count(agent.tokens_out)));
    html.push_str(&number(agent.usd, text::usd(agent.usd)));
    html.push_str(&number(agent.seconds, text::seconds(agent.seconds)));
    let _ = writeln!(html, "<td class=\"outcome\">{outcome}</td></tr>");
}

fn meter(percent: f64) -> String {
    let width = percent.clamp(0.0, 100.0);
    format!(
        "<span class=\"meter\"><i style=\"width:{width:.1}%\"></i></span><span class=\"percent\">{percent:.0} %</span>"
    )
}

/// Every text the orchestrator wrote; those that ran are open.
fn specification(events: &[Event]) -> String {
    let mut html = String::new();
    for (place, event) in events.iter().enumerate() {
        match &event.kind {
            EventKind::Decision { round, by, model, text, .. } => {
                let model = model.as_deref().map_or_else(String::new, |model| format!(" · {}", escape(model)));
                let rejected = matches!(events.get(place + 1), Some(Event { kind: EventKind::Rejection { .. }, .. }));
                let _ = writeln!(
                    html,
                    "<details{}><summary>Round {round} <small>{}{model} · {}</small></summary><pre>{}</pre></details>",
                    if rejected { "" } else { " open" },
                    escape(by),
                    text::plural(event.spend.tokens(), "token"),
                    escape(text)
                );
            }
            EventKind::Rejection { diagnostics, failure, .. } => rejection(&mut html, diagnostics, failure.as_ref()),
            _ => {}
        }
    }
    html
}

fn rejection(html: &mut String, diagnostics: &[Diagnostic], failure: Option<&Failure>) {
    html.push_str("<p class=\"faults\">Rejected</p><ul class=\"faults\">");
    for fault in diagnostics {
        let hint = fault.hint.as_deref().map_or_else(String::new, |hint| format!(" – {}", escape(hint)));
        let _ = write!(html, "<li>{}:{} {}{hint}</li>", fault.line, fault.column, escape(&fault.message));
    }
    if let Some(failure) = failure {
        let _ = write!(html, "<li>{}: {}</li>", failure.kind, escape(&failure.message));
    }
    html.push_str("</ul>\n");
}

fn metrics(metrics: &Metrics) -> String {
    let meaning = |name: &str| match name {
        "parallel speed-up" => "how much faster than all calls one after another",
        "busy time" => "share of the run in which some agent was working",
        "useful agents" => "share of finished agents with a part in the answer",
        "message redundancy" => "share of five-word runs in messages that had been said before",
        "protocol overhead" => "share of tokens spent on coordination: orchestrator, judges, messages read",
        "error amplification" => "how much likelier an agent is wrong for having read something wrong",
        _ => "length of the trace",
    };
    let mut html = String::from("<dl class=\"metrics\">");
    for (name, value) in text::metrics(metrics) {
        let _ = write!(html, "<div><dt>{name}</dt><dd>{value}</dd><dd class=\"note\">{}</dd></div>", meaning(name));
    }
    html.push_str("</dl>\n");
    html
}

fn events(events: &[Event]) -> String {
    let mut html = format!(
        "<details><summary>{}</summary>\n<div class=\"scroll\"><table class=\"events\">\n",
        text::plural(events.len() as u64, "event")
    );
    html.push_str(
        "<thead><tr><th class=\"n\">#</th><th class=\"n\">t</th><th>who</th><th>what</th><th>because of</th>",
    );
    html.push_str("<th class=\"n\">tokens</th><th>all of it</th></tr></thead>\n<tbody>\n");
    for event in events {
        let causes: Vec<String> = event.edges.iter().map(|edge| format!("{} {}", edge.kind, edge.src)).collect();
        let tokens = if event.spend.tokens() > 0 { text::count(event.spend.tokens()) } else { String::new() };
        // An event has only string keys, so that writing it as JSON cannot fail.
        let json = serde_json::to_string_pretty(&event.kind).unwrap_or_default();
        let _ = writeln!(
            html,
            "<tr><td class=\"n\">{}</td><td class=\"n\">{:.3}</td><td>{}</td><td>{}</td><td>{}</td><td class=\"n\">{tokens}</td>\
             <td><details><summary>show</summary><pre>{}</pre></details></td></tr>",
            event.id,
            event.t,
            escape(&event.agent),
            event.kind.name(),
            causes.join(", "),
            escape(&json)
        );
    }
    html.push_str("</tbody></table></div></details>\n");
    html
}
