//! A run as one page: opens offline, loads nothing, in light and dark, on a desk and on a phone.
//!
//! Everything in it that came from a model, a task or a file is untrusted text. It reaches the page only through
//! `markup::escape`, never inside a script; the script works on what the page already shows.

use super::credit::credit;
use super::markup::escape;
use super::svg::{Picture, level_colour, picture};
use super::timeline::timeline;
use crate::{AgentSummary, Event, EventKind, Failure, Metrics, StopReason, Summary, Trace, text};
use lemon_spec::Diagnostic;
use std::fmt::Write;

/// The page.
pub fn html(trace: &Trace) -> String {
    let summary = trace.summary();
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; \
         script-src 'unsafe-inline'; base-uri 'none'; form-action 'none'\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>{} – {}</title>\n<style>\n{}</style>\n</head>\n<body>\n",
        escape(&trace.header.run_id),
        escape(&text::line(&trace.header.question, 80)),
        include_str!("page.css"),
    );
    let sections = sections(trace, &summary);
    headline(&mut page, trace, &summary);
    navigation(&mut page, &sections);
    page.push_str("<main>\n");
    for (id, title, body) in &sections {
        let _ = write!(page, "<section id=\"{id}\">\n<h2>{title}</h2>\n{body}</section>\n");
    }
    let _ = write!(page, "</main>\n<script>\n{}</script>\n</body>\n</html>\n", include_str!("page.js"));
    page
}

/// The parts of the page: id, title and content.
fn sections(trace: &Trace, summary: &Summary) -> Vec<(&'static str, &'static str, String)> {
    let mut sections = vec![
        ("team", "Team", team(trace)),
        ("timeline", "Timeline", timeline(trace, summary)),
        ("agents", "Agents", agent_table(summary)),
    ];
    let measured = trace.credit();
    let title = if measured.parts.is_empty() { "Rewards" } else { "Credit" };
    sections.extend(credit(&measured).map(|credit| ("credit", title, credit)));
    sections.extend([
        ("said", "What was said", said(trace, summary)),
        ("specification", "Specification", specification(&trace.events)),
        ("metrics", "Metrics", metrics(&trace.metrics(None))),
        ("events", "Events", events(&trace.events)),
    ]);
    sections
}

fn headline(page: &mut String, trace: &Trace, summary: &Summary) {
    let header = &trace.header;
    let reason = summary.stop_reason.map_or("no end on record", StopReason::as_str);
    let class = if summary.stop_reason == Some(StopReason::Answered) { "good" } else { "odd" };
    let answer = summary
        .answer
        .as_deref()
        .map_or_else(|| "<p class=\"none\">no answer</p>".to_owned(), |answer| format!("<p>{}</p>", escape(answer)));
    let _ = write!(
        page,
        "<header>\n<p class=\"run\"><b>LEMON</b> {}</p>\n<h1>{}</h1>\n\
         <div class=\"answer\">{answer}<span class=\"reason {class}\">{}</span></div>\n<dl class=\"facts\">",
        escape(&text::heading(header)),
        escape(&header.question),
        reason.replace('_', " "),
    );
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

fn navigation(page: &mut String, sections: &[(&str, &str, String)]) {
    page.push_str("<nav><div>");
    for (id, title, _) in sections {
        let _ = write!(page, "<a href=\"#{id}\">{title}</a>");
    }
    page.push_str("</div></nav>\n");
}

fn team(trace: &Trace) -> String {
    let Picture { svg, width } = picture(trace);
    format!(
        "<div class=\"graph\" style=\"--width:{width:.0}px\">{svg}</div>\n<p class=\"hint\">Choose an agent to read what it was told and what it said.</p>\n\
         <aside id=\"detail\" hidden><button type=\"button\" aria-label=\"Close\">×</button><div></div></aside>\n"
    )
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

/// One block for each agent: what it was told, what it read, what it replied.
fn said(trace: &Trace, summary: &Summary) -> String {
    let mut html = String::from(
        "<p class=\"search\"><input type=\"search\" placeholder=\"Search duties, messages and replies\" \
         aria-label=\"Search duties, messages and replies\"><output></output></p>\n",
    );
    for agent in &summary.agents {
        let _ = write!(
            html,
            "<details class=\"agent\" data-agent=\"{}\"><summary><i class=\"dot\" style=\"background:{}\"></i><b>{}</b> \
             <span>{}</span> <small class=\"status {status}\">{status}</small></summary>\n<div class=\"body\">",
            escape(&agent.id),
            level_colour(agent.level),
            escape(&agent.id),
            escape(&agent.role),
            status = text::status(agent),
        );
        agent_facts(&mut html, agent);
        if let Some(duty) = &agent.duty {
            let _ = write!(html, "<h4>Duty</h4><p class=\"text\">{}</p>", escape(duty));
        }
        messages_to(&mut html, trace, &agent.id);
        reply(&mut html, agent);
        html.push_str("</div></details>\n");
    }
    html
}

fn agent_facts(html: &mut String, agent: &AgentSummary) {
    let mut facts = vec![agent.base.clone(), agent.capacity.clone()];
    facts.extend(agent.model.clone());
    facts.push(text::plural(agent.tokens(), "token"));
    facts.push(text::seconds(agent.seconds));
    if agent.usd > 0.0 {
        facts.push(text::usd(agent.usd));
    }
    if agent.attempts > 1 {
        facts.push(text::plural(agent.attempts.into(), "attempt"));
    }
    if agent.reused {
        facts.push("reused".to_owned());
    }
    let _ = write!(html, "<p class=\"meta\">{}</p>", escape(&facts.join(" · ")));
}

fn messages_to(html: &mut String, trace: &Trace, reader: &str) {
    for event in &trace.events {
        let EventKind::Message { from, to, share, content, tokens, delivered } = &event.kind else { continue };
        if to != reader {
            continue;
        }
        let fate = if *delivered { "" } else { " <small class=\"status failed\">withheld</small>" };
        let share = format!("{share:?}").to_lowercase();
        let _ = write!(
            html,
            "<details class=\"message\"><summary>Read from <b>{}</b> <small>its {share}, {}</small>{fate}</summary>\
             <pre>{}</pre></details>",
            escape(from),
            text::plural(*tokens, "token"),
            escape(content)
        );
    }
}

fn reply(html: &mut String, agent: &AgentSummary) {
    if let Some(reply) = &agent.reply {
        let _ = write!(html, "<h4>Reply</h4><pre class=\"reply\">{}</pre>", escape(reply));
    }
    if let Some(answer) = &agent.answer {
        let _ = write!(html, "<h4>Extracted answer</h4><p class=\"text\"><mark>{}</mark></p>", escape(answer));
    }
    if let Some(failure) = &agent.failure {
        let _ = write!(html, "<h4>Failure</h4><p class=\"text\">{}: {}</p>", failure.kind, escape(&failure.message));
    }
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
