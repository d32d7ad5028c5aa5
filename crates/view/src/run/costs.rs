//! What each agent cost: the rows of the table of costs.

use super::picture::level_colour;
use lemon_trace::{AgentSummary, Summary, text};

pub(super) struct AgentCost<'a> {
    pub id: &'a str,
    pub role: &'a str,
    pub level: usize,
    pub colour: &'static str,
    pub capacity: &'a str,
    pub status: &'static str,
    /// How often it was tried, where that is more than once.
    pub attempts: Option<u32>,
    pub is_reused: bool,
    pub tokens: (u64, String),
    pub share: Share,
    /// Tokens in and out, cost and time: what to sort by, and what is shown.
    pub numbers: Vec<(f64, String)>,
    pub outcome: String,
}

/// A part of all tokens, as a bar and a number.
pub(super) struct Share {
    pub value: f64,
    pub width: String,
    pub percent: String,
}

impl Share {
    fn new(tokens: u64, summary: &Summary) -> Share {
        let value = tokens as f64 / summary.tokens.total.max(1) as f64;
        let percent = value * 100.0;
        Share { value, width: format!("{:.1}", percent.clamp(0.0, 100.0)), percent: format!("{percent:.0}") }
    }
}

pub(super) fn costs(summary: &Summary) -> Vec<AgentCost<'_>> {
    summary.agents.iter().map(|agent| cost(agent, summary)).collect()
}

fn cost<'a>(agent: &'a AgentSummary, summary: &Summary) -> AgentCost<'a> {
    let outcome = match (&agent.answer, &agent.failure) {
        (Some(answer), _) => text::line(answer, 60),
        (None, Some(failure)) => failure.kind.as_str().to_owned(),
        (None, None) => String::new(),
    };
    AgentCost {
        id: &agent.id,
        role: &agent.role,
        level: agent.level,
        colour: level_colour(agent.level),
        capacity: &agent.capacity,
        status: text::status(agent),
        attempts: Some(agent.attempts).filter(|attempts| *attempts > 1),
        is_reused: agent.reused,
        tokens: (agent.tokens(), text::count(agent.tokens())),
        share: Share::new(agent.tokens(), summary),
        numbers: vec![
            (agent.tokens_in as f64, text::count(agent.tokens_in)),
            (agent.tokens_out as f64, text::count(agent.tokens_out)),
            (agent.usd, text::usd(agent.usd)),
            (agent.seconds, text::seconds(agent.seconds)),
        ],
        outcome,
    }
}

/// What the orchestrator spent, where it spent anything.
pub(super) fn orchestrator(summary: &Summary) -> Option<(String, Share)> {
    let tokens = summary.tokens.orchestrator;
    (tokens > 0).then(|| (text::count(tokens), Share::new(tokens, summary)))
}
