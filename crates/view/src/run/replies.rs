//! What the agents said, what they were told, and what they read.

use super::super::markdown::markdown;
use super::super::markup::escape;
use super::super::svg::level_colour;
use crate::{AgentStatus, AgentSummary, EventKind, FailureKind, Summary, Trace, text};
use std::fmt::Write;

/// Replies of at most so many characters are open from the beginning, in teams of at most so many agents.
const SHORT_REPLY: usize = 800;
const SMALL_TEAM: usize = 8;

/// One block for each agent: its reply, or why it has none; what it was told and what it read.
pub(super) fn replies(trace: &Trace, summary: &Summary) -> String {
    if summary.agents.is_empty() {
        return "<p class=\"hint\">No agent was asked.</p>\n".to_owned();
    }
    let mut html = String::from(
        "<p class=\"search\"><input type=\"search\" placeholder=\"Search replies, duties and messages\" \
         aria-label=\"Search replies, duties and messages\"><output></output></p>\n",
    );
    for agent in &summary.agents {
        let said = agent.reply.as_deref().unwrap_or_default();
        let is_open = said.chars().nth(SHORT_REPLY).is_none() && summary.agents.len() <= SMALL_TEAM;
        let status = text::status(agent);
        let truncated = if is_truncated(agent) { " <small class=\"status failed\">cut off</small>" } else { "" };
        let _ = write!(
            html,
            "<details class=\"agent\" data-agent=\"{}\"{}><summary><i class=\"dot\" style=\"background:{}\"></i><b>{}</b> \
             <span>{}</span> <small class=\"status {status}\">{status}</small>{truncated}{}</summary>\n<div class=\"body\">",
            escape(&agent.id),
            if is_open { " open" } else { "" },
            level_colour(agent.level),
            escape(&agent.id),
            escape(&agent.role),
            outline(agent),
        );
        facts(&mut html, agent);
        reply(&mut html, agent);
        told(&mut html, trace, agent);
        html.push_str("</div></details>\n");
    }
    html
}

/// What can be seen of a block that is closed: why the agent failed, or how its reply begins.
fn outline(agent: &AgentSummary) -> String {
    if agent.failure.is_some() || agent.status.is_some_and(|status| status != AgentStatus::Done) {
        return format!("<span class=\"why\">{}</span>", escape(&why(agent)));
    }
    match agent.reply.as_deref().map(|reply| text::line(reply, 120)) {
        Some(line) if !line.is_empty() => format!("<span class=\"begins\">{}</span>", escape(&line)),
        _ => String::new(),
    }
}

/// Why an agent has no result, or only a part of one.
pub(super) fn why(agent: &AgentSummary) -> String {
    match &agent.failure {
        Some(failure) if failure.message.is_empty() => words(failure.kind),
        Some(failure) => format!("{}: {}", words(failure.kind), failure.message),
        None => format!("{}, and no reason is on record", text::status(agent)),
    }
}

fn words(kind: FailureKind) -> String {
    kind.as_str().replace('_', " ")
}

/// Whether the reply ended because it reached its limit.
pub(super) fn is_truncated(agent: &AgentSummary) -> bool {
    agent.truncated || agent.failure.as_ref().is_some_and(|failure| failure.kind == FailureKind::Truncated)
}

fn facts(html: &mut String, agent: &AgentSummary) {
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

fn reply(html: &mut String, agent: &AgentSummary) {
    if let Some(reply) = &agent.reply {
        html.push_str(&markdown(reply));
    }
    // An answer that is the whole reply is already there.
    let is_apart = |answer: &&String| agent.reply.as_deref().map(str::trim) != Some(answer.trim());
    if let Some(answer) = agent.answer.as_ref().filter(is_apart) {
        let _ = write!(html, "<h4>Answer taken from it</h4><p class=\"text\"><mark>{}</mark></p>", escape(answer));
    }
}

fn told(html: &mut String, trace: &Trace, agent: &AgentSummary) {
    if let Some(duty) = &agent.duty {
        let _ = write!(html, "<h4>Duty</h4><p class=\"text\">{}</p>", escape(duty));
    }
    let read: Vec<String> = trace
        .events
        .iter()
        .filter_map(|event| match &event.kind {
            EventKind::Message { from, to, tokens, delivered: true, .. } if *to == agent.id => {
                Some(format!("{from} ({})", text::plural(*tokens, "token")))
            }
            _ => None,
        })
        .collect();
    if !read.is_empty() {
        let _ = write!(html, "<h4>Read</h4><p class=\"text\">{}</p>", escape(&read.join(", ")));
    }
}

/// What each agent read, as it read it.
pub(super) fn messages(trace: &Trace) -> String {
    let mut html = String::new();
    for event in &trace.events {
        let EventKind::Message { from, to, share, content, tokens, delivered } = &event.kind else { continue };
        let fate = if *delivered { "" } else { " <small class=\"status failed\">withheld</small>" };
        let share = format!("{share:?}").to_lowercase();
        let _ = writeln!(
            html,
            "<details class=\"message\"><summary><b>{}</b> → <b>{}</b> <small>its {share}, {}</small>{fate}</summary>\
             <pre>{}</pre></details>",
            escape(from),
            escape(to),
            text::plural(*tokens, "token"),
            escape(content)
        );
    }
    match html.is_empty() {
        true => "<p class=\"hint\">No agent read another.</p>\n".to_owned(),
        false => html,
    }
}
