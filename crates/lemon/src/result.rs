//! What a run came to, as programs read it.

use lemon_exec::answer;
use lemon_spec::{Diagnostic, Language, validate_round};
use lemon_trace::{AgentSummary, EventKind, Failure, Summary, Tokens, Trace, visible};
use lemon_workers::Capacity;
use serde::Serialize;
use serde_json::{Value, json};

/// The longest part of a failure's message that a warning repeats.
const MESSAGE_CHARS: usize = 160;

/// The result of a run. The field names are an interface: add to them, do not change them.
#[derive(Debug, Serialize)]
pub struct RunResult {
    pub run_id: String,
    pub task_id: String,
    /// The answer as it is voted on and graded: short where the task has a short answer.
    pub answer: Option<String>,
    /// What a person reads: the whole reply of the agent whose answer was taken.
    pub response: Option<String>,
    /// How sure the model was that gave the answer, from 0 to 1, where it says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confidence: Option<f64>,
    /// The answer was made of a reply that was cut off at `max_tokens`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
    /// Why it ended.
    pub stop_reason: Option<&'static str>,
    /// The specification of the first round; `null` if there was none.
    pub spec: Value,
    /// The specifications of all rounds, where there was more than one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rounds: Vec<Value>,
    /// The agents, in the order they came into being.
    pub agents: Vec<AgentResult>,
    /// Tokens, by who spent them.
    pub tokens: Tokens,
    /// `null`: a capacity that was used has no price.
    pub cost_usd: Option<f64>,
    /// Seconds it took.
    pub wall_s: f64,
    /// Calls to models, each attempt counted.
    pub calls: u64,
    /// Why specifications were refused.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub diagnostics: Vec<Diagnostic>,
}

/// What became of one agent.
#[derive(Debug, Serialize)]
pub struct AgentResult {
    pub id: String,
    pub capacity: String,
    /// How it ended.
    pub status: &'static str,
    /// Prompt tokens.
    pub tokens_in: u64,
    /// Completion tokens.
    pub tokens_out: u64,
    /// How long its call took.
    pub seconds: f64,
    /// The round it belongs to.
    pub round: u32,
    /// Its base role.
    pub base: String,
    /// Who it is.
    pub role: String,
    /// The answer in its reply.
    pub answer: Option<String>,
    /// How sure it was, where it says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confidence: Option<f64>,
    /// Its reply was cut off at `max_tokens`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
    /// Attempts made.
    pub attempts: u32,
    /// Whether the reply was on record.
    pub reused: bool,
    /// Why it has no reply.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
    /// All it said, where that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reply: Option<String>,
}

impl RunResult {
    /// Reads the result off a trace.
    pub fn new(trace: &Trace, language: &Language, levels: &[(String, Capacity)]) -> Self {
        let mut specs = specifications(trace, language);
        RunResult {
            spec: specs.first().cloned().unwrap_or_default(),
            rounds: if specs.len() > 1 { std::mem::take(&mut specs) } else { Vec::new() },
            ..RunResult::without_specs(trace, levels)
        }
    }

    /// The same without the specifications, which take longer to read than all the rest.
    pub fn without_specs(trace: &Trace, levels: &[(String, Capacity)]) -> Self {
        let summary = trace.summary();
        let unpriced = |name: &str| !levels.iter().any(|(level, capacity)| level == name && capacity.price.is_some());
        let worked = summary.agents.iter().any(|agent| agent.tokens() > 0 && unpriced(&agent.capacity));
        // A trace does not name the capacity that wrote the team, so where one did, every capacity needs a price.
        let wrote = summary.tokens.orchestrator > 0 && levels.iter().any(|(name, _)| unpriced(name));
        let priced = summary.tokens.total == 0 || !(worked || wrote || levels.is_empty());
        RunResult {
            run_id: trace.header.run_id.clone(),
            task_id: trace.header.task_id.clone(),
            confidence: confidence(trace, &summary.agents),
            response: response(trace, &summary),
            truncated: summary.is_answer_truncated(),
            answer: summary.answer,
            stop_reason: summary.stop_reason.map(|reason| reason.as_str()),
            spec: Value::Null,
            rounds: Vec::new(),
            cost_usd: priced.then_some(summary.usd),
            tokens: summary.tokens,
            wall_s: summary.wall_s,
            calls: summary.calls,
            diagnostics: diagnostics(trace),
            agents: summary
                .agents
                .into_iter()
                .map(|agent| AgentResult {
                    status: agent.status.map_or("unfinished", |status| status.as_str()),
                    id: agent.id,
                    capacity: agent.capacity,
                    tokens_in: agent.tokens_in,
                    tokens_out: agent.tokens_out,
                    seconds: agent.seconds,
                    round: agent.round,
                    base: agent.base,
                    role: agent.role,
                    answer: agent.answer,
                    confidence: agent.confidence,
                    truncated: agent.truncated,
                    attempts: agent.attempts,
                    reused: agent.reused,
                    failure: agent.failure,
                    reply: None,
                })
                .collect(),
        }
    }

    /// With all that each agent said.
    pub fn with_replies(mut self, trace: &Trace) -> Self {
        for (agent, summary) in self.agents.iter_mut().zip(trace.summary().agents) {
            agent.reply = summary.reply;
        }
        self
    }

    /// Which agents failed in a run that answered all the same.
    pub fn failures(&self) -> Option<String> {
        let failed: Vec<&AgentResult> = self.agents.iter().filter(|agent| agent.status == "failed").collect();
        if failed.is_empty() || !self.answered() {
            return None;
        }
        let why = |agent: &&AgentResult| match &agent.failure {
            Some(failure) => format!("{} ({}: {})", agent.id, failure.kind, shortened(&failure.message)),
            None => agent.id.clone(),
        };
        let each = failed.iter().map(why).collect::<Vec<_>>().join(", ");
        Some(format!("{} of {} agents failed: {each}", failed.len(), self.agents.len()))
    }

    /// Whether the team answered as it was meant to.
    pub fn answered(&self) -> bool {
        self.stop_reason == Some("answered")
    }
}

/// The beginning of a message, on one line.
fn shortened(message: &str) -> String {
    let line = visible(&message.split_whitespace().collect::<Vec<_>>().join(" ")).into_owned();
    match line.char_indices().nth(MESSAGE_CHARS) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

/// How sure the agent was whose answer was taken.
fn confidence(trace: &Trace, agents: &[AgentSummary]) -> Option<f64> {
    chosen(trace, agents)?.confidence
}

/// The agent whose answer was taken.
fn chosen<'a>(trace: &Trace, agents: &'a [AgentSummary]) -> Option<&'a AgentSummary> {
    let chosen = trace.events.iter().rev().find_map(|event| match &event.kind {
        EventKind::Aggregate { chosen, .. } => Some(chosen.as_deref()),
        _ => None,
    });
    agents.iter().find(|agent| Some(agent.id.as_str()) == chosen.flatten())
}

/// What a person reads: the whole reply of the agent whose answer was taken; the recorded answer where there is no reply.
pub fn response(trace: &Trace, summary: &Summary) -> Option<String> {
    let answer = summary.answer.as_ref()?;
    let reply = chosen(trace, &summary.agents).and_then(|agent| agent.reply.as_deref());
    Some(reply.map_or_else(|| answer.clone(), answer::response))
}

/// The specifications that were run, one per round.
fn specifications(trace: &Trace, language: &Language) -> Vec<Value> {
    let mut ids: Vec<String> = Vec::new();
    let mut specs = Vec::new();
    for event in &trace.events {
        match &event.kind {
            EventKind::Decision { text, .. } => {
                if let Ok(plan) = validate_round(text, language, &ids) {
                    specs.push(json!(plan.spec()));
                }
            }
            EventKind::Spawn { to, .. } if !ids.contains(to) => ids.push(to.clone()),
            _ => {}
        }
    }
    specs
}

fn diagnostics(trace: &Trace) -> Vec<Diagnostic> {
    let refused = trace.events.iter().filter_map(|event| match &event.kind {
        EventKind::Rejection { diagnostics, .. } => Some(diagnostics.clone()),
        _ => None,
    });
    refused.flatten().collect()
}
