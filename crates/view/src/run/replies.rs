//! What the agents said, what they were told, and what they read.

use super::picture::level_colour;
use crate::markdown::markdown;
use crate::markup::Markup;
use lemon_trace::{AgentStatus, AgentSummary, EventKind, FailureKind, Summary, Trace, text};

/// Replies of at most so many characters are open from the beginning, in teams of at most so many agents.
const SHORT_REPLY: usize = 800;
const SMALL_TEAM: usize = 8;

/// An agent: its reply, or why it has none; what it was told and what it read.
pub(super) struct Reply<'a> {
    pub id: &'a str,
    pub role: &'a str,
    pub is_open: bool,
    pub colour: &'static str,
    pub status: &'static str,
    pub is_cut_off: bool,
    /// Why it failed. Seen without opening the block.
    pub why: Option<String>,
    /// How its reply begins. Seen while the block is closed.
    pub beginning: Option<String>,
    pub facts: String,
    pub reply: Markup,
    /// The answer, where it is not the whole reply.
    pub answer: Option<&'a str>,
    pub duty: Option<&'a str>,
    /// Whom it read.
    pub read: Option<String>,
}

pub(super) fn replies<'a>(trace: &Trace, summary: &'a Summary) -> Vec<Reply<'a>> {
    let is_small = summary.agents.len() <= SMALL_TEAM;
    let reply = |agent: &'a AgentSummary| {
        let said = agent.reply.as_deref().unwrap_or_default();
        // An answer that is the whole reply is already there.
        let is_apart = |answer: &&str| agent.reply.as_deref().map(str::trim) != Some(answer.trim());
        let has_failed = agent.failure.is_some() || agent.status.is_some_and(|status| status != AgentStatus::Done);
        let beginning = agent.reply.as_deref().map(|reply| text::line(reply, 120)).filter(|line| !line.is_empty());
        Reply {
            id: &agent.id,
            role: &agent.role,
            is_open: is_small && said.chars().nth(SHORT_REPLY).is_none(),
            colour: level_colour(agent.level),
            status: text::status(agent),
            is_cut_off: is_truncated(agent),
            why: has_failed.then(|| why(agent)),
            beginning: beginning.filter(|_| !has_failed),
            facts: facts(agent),
            reply: agent.reply.as_deref().map(markdown).unwrap_or_default(),
            answer: agent.answer.as_deref().filter(is_apart),
            duty: agent.duty.as_deref(),
            read: read(trace, agent),
        }
    };
    summary.agents.iter().map(reply).collect()
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

fn facts(agent: &AgentSummary) -> String {
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
    facts.join(" · ")
}

fn read(trace: &Trace, agent: &AgentSummary) -> Option<String> {
    let messages = trace.events.iter().filter_map(|event| match &event.kind {
        EventKind::Message { from, to, tokens, delivered: true, .. } if *to == agent.id => {
            Some(format!("{from} ({})", text::plural(*tokens, "token")))
        }
        _ => None,
    });
    let read: Vec<String> = messages.collect();
    (!read.is_empty()).then(|| read.join(", "))
}

/// What an agent read, as it read it.
pub(super) struct Message<'a> {
    pub from: &'a str,
    pub to: &'a str,
    pub share: String,
    pub tokens: String,
    pub is_withheld: bool,
    pub content: &'a str,
}

pub(super) fn messages(trace: &Trace) -> Vec<Message<'_>> {
    let messages = trace.events.iter().filter_map(|event| match &event.kind {
        EventKind::Message { from, to, share, content, tokens, delivered } => Some(Message {
            from,
            to,
            share: format!("{share:?}").to_lowercase(),
            tokens: text::plural(*tokens, "token"),
            is_withheld: !delivered,
            content,
        }),
        _ => None,
    });
    messages.collect()
}
