//! What a run came to: its answer, its agents and its costs.

use crate::{AgentStatus, Event, EventKind, Failure, FailureKind, ORCHESTRATOR, StopReason, Trace};
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};

/// What a run came to, computed from its events alone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// The answer, once the run has ended with one.
    pub answer: Option<String>,
    /// The agent whose answer it is, where it is one agent's.
    #[serde(skip)]
    pub answered_by: Option<String>,
    /// Why it ended. `None`: it is still running, or crashed.
    pub stop_reason: Option<StopReason>,
    /// Rounds begun.
    pub rounds: u32,
    /// The agents, in the order they came into being.
    pub agents: Vec<AgentSummary>,
    /// Tokens spent.
    pub tokens: Tokens,
    /// Money spent.
    pub usd: f64,
    /// Seconds from the beginning to the last event.
    pub wall_s: f64,
    /// Calls begun to any model, each attempt counted.
    pub calls: u64,
    /// Messages delivered.
    pub messages: u64,
}

/// What became of one agent.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct AgentSummary {
    pub id: String,
    /// The round it belongs to.
    pub round: u32,
    /// The base role.
    pub base: String,
    /// Who it is.
    pub role: String,
    pub capacity: String,
    /// That capacity's position, weakest first from 0.
    pub level: usize,
    /// The ids of the agents it reads.
    pub after: Vec<String>,
    /// What it was told to do. `None`: it was never asked.
    pub duty: Option<String>,
    /// How it ended. `None`: it has not.
    pub status: Option<AgentStatus>,
    pub reply: Option<String>,
    /// The answer extracted from it.
    pub answer: Option<String>,
    /// Why there is none.
    pub failure: Option<Failure>,
    /// The model that answered.
    pub model: Option<String>,
    /// How sure it was, from 0 to 1, where it says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confidence: Option<f64>,
    /// Its reply was cut off at `max_tokens`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
    /// Attempts made.
    pub attempts: u32,
    /// Calls of tools that it made.
    #[serde(default, skip_serializing_if = "no_calls")]
    pub tool_calls: u32,
    /// The reply came from the reuse cache.
    pub reused: bool,
    /// Tokens that the reuse saved: what the reply cost when it was made.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub saved: u64,
    /// Prompt tokens, those of failed attempts included.
    pub tokens_in: u64,
    /// Completion tokens, those of failed attempts included.
    pub tokens_out: u64,
    /// Money.
    pub usd: f64,
    /// When its call began, in seconds of the run; the latest begin if a crash made it begin twice.
    pub started: Option<f64>,
    /// How long its call took, from its begin to its end, retries included; for one still under way, so far.
    pub seconds: f64,
}

/// Tokens by who spent them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Tokens {
    /// Spent on writing specifications.
    pub orchestrator: u64,
    /// Spent by agents, tokens lost in a crash included.
    pub workers: u64,
    /// Both.
    pub total: u64,
    /// Of these, how many went into attempts that failed or were lost in a crash.
    pub failed: u64,
}

impl AgentSummary {
    /// Prompt and completion tokens.
    pub fn tokens(&self) -> u64 {
        self.tokens_in.saturating_add(self.tokens_out)
    }

    /// Forgets how it ended, but not what it cost.
    fn wait(&mut self) {
        (self.status, self.started, self.seconds) = (None, None, 0.0);
        (self.reply, self.answer, self.failure, self.model) = (None, None, None, None);
        self.truncated = false;
    }
}

impl Summary {
    /// Whether the answer was made of a reply that was cut off at `max_tokens`.
    pub fn is_answer_truncated(&self) -> bool {
        self.answer.is_some() && self.answered_by.as_ref().and_then(|id| self.agent(id)).is_some_and(|it| it.truncated)
    }

    /// The agent called `id`.
    pub fn agent(&self, id: &str) -> Option<&AgentSummary> {
        self.agents.iter().find(|agent| agent.id == id)
    }
}

impl Trace {
    /// What the run came to so far. Traces that were cut anywhere are fine: what is not on record is `None`.
    pub fn summary(&self) -> Summary {
        let mut tally = Tally::default();
        self.events.iter().for_each(|event| tally.add(event));
        tally.finish()
    }
}

/// The state of going through the events once.
#[derive(Default)]
struct Tally<'a> {
    answer: Option<&'a str>,
    answered_by: Option<&'a str>,
    stop_reason: Option<StopReason>,
    rounds: u32,
    agents: Vec<AgentSummary>,
    places: HashMap<&'a str, usize>,
    tokens: Tokens,
    usd: f64,
    wall_s: f64,
    calls: u64,
    messages: u64,
    /// Agents whose next call goes on with the results of tools: it is not their first.
    continuing: HashSet<&'a str>,
}

impl<'a> Tally<'a> {
    fn add(&mut self, event: &'a Event) {
        self.wall_s = self.wall_s.max(event.t);
        self.spend(event);
        match &event.kind {
            EventKind::Decision { round, .. } => self.rounds = self.rounds.max(*round),
            EventKind::Spawn { to, round, base, role, capacity, level, after } => {
                self.rounds = self.rounds.max(*round);
                let agent = self.agent_or_new(to);
                agent.round = *round;
                agent.base.clone_from(base);
                agent.role.clone_from(role);
                agent.capacity.clone_from(capacity);
                agent.level = *level;
                agent.after.clone_from(after);
            }
            EventKind::Delegate { to, duty, reserved } => self.begin(event.t, to, duty, *reserved),
            // To ask whether a model is loaded is no call to it.
            EventKind::Retry { failure: Failure { kind: FailureKind::Loading, .. }, .. } => {}
            EventKind::Retry { .. } => {
                self.calls += 1;
                if event.agent != ORCHESTRATOR {
                    self.agent_or_new(&event.agent).attempts += 1;
                }
            }
            EventKind::Return { .. } => self.end(event),
            EventKind::Message { delivered, .. } => self.messages += u64::from(*delivered),
            EventKind::Stop { reason, answer } => {
                self.stop_reason = Some(*reason);
                self.answer = answer.as_deref();
            }
            EventKind::Resume { lost_tokens, .. } => self.resume(*lost_tokens),
            EventKind::Aggregate { chosen, .. } => self.answered_by = chosen.as_deref(),
            EventKind::Rejection { .. }
            | EventKind::Score { .. }
            | EventKind::Credit { .. }
            | EventKind::Budget { .. }
            | EventKind::Approval { .. } => {}
            EventKind::ToolCall { call, .. } => {
                if call.is_some() {
                    self.agent_or_new(&event.agent).tool_calls += 1;
                }
            }
            EventKind::ToolResult { call, .. } => {
                if call.is_some() {
                    self.continuing.insert(&event.agent);
                }
            }
        }
    }

    fn spend(&mut self, event: &'a Event) {
        let spend = event.spend;
        self.usd += spend.usd;
        let by_orchestrator = event.agent == ORCHESTRATOR;
        let side = if by_orchestrator { &mut self.tokens.orchestrator } else { &mut self.tokens.workers };
        add(side, spend.tokens());
        if is_failure(&event.kind) {
            add(&mut self.tokens.failed, spend.tokens());
        }
        if !by_orchestrator && !spend.is_zero() {
            let agent = self.agent_or_new(&event.agent);
            add(&mut agent.tokens_in, spend.tokens_in);
            add(&mut agent.tokens_out, spend.tokens_out);
            agent.usd += spend.usd;
        }
    }

    fn begin(&mut self, t: f64, id: &'a str, duty: &str, reserved: u64) {
        // Nothing is reserved for what the cache serves: that is no call.
        let calls = u32::from(reserved > 0);
        self.calls += u64::from(calls);
        if id == ORCHESTRATOR {
            return;
        }
        let goes_on = self.continuing.remove(id);
        let agent = self.agent_or_new(id);
        // The next call after results of tools is no further attempt at the first.
        if goes_on && agent.started.is_some() {
            return;
        }
        agent.wait();
        agent.duty = Some(duty.to_owned());
        agent.started = Some(t);
        agent.attempts += calls;
    }

    fn end(&mut self, event: &'a Event) {
        let EventKind::Return { status, reply, answer, failure, model, confidence, truncated, attempts, reused, saved } =
            &event.kind
        else {
            return;
        };
        let agent = self.agent_or_new(&event.agent);
        agent.status = Some(*status);
        agent.reply.clone_from(reply);
        agent.answer.clone_from(answer);
        agent.failure.clone_from(failure);
        agent.model.clone_from(model);
        agent.confidence = *confidence;
        agent.truncated = *truncated;
        // One that was cut off says it made none; one that a crash made begin twice knows of its last life only.
        agent.attempts = agent.attempts.max(*attempts);
        agent.reused = *reused;
        agent.saved = saved.map_or(0, |saved| saved.tokens());
        agent.seconds = agent.started.map_or(event.spend.seconds, |started| between(started, event.t));
    }

    /// A run that is taken up again has not ended, whatever an earlier stop said. Who was running waits again, and after
    /// a stop every agent that is not done.
    fn resume(&mut self, lost_tokens: u64) {
        let stopped = self.stop_reason.take().is_some();
        self.continuing.clear();
        (self.answer, self.answered_by) = (None, None);
        add(&mut self.tokens.workers, lost_tokens);
        add(&mut self.tokens.failed, lost_tokens);
        let waits = |agent: &&mut AgentSummary| match agent.status {
            None => true,
            Some(status) => stopped && status != AgentStatus::Done,
        };
        self.agents.iter_mut().filter(waits).for_each(AgentSummary::wait);
    }

    /// The agent's entry; one whose spawn is not on record gets an empty one, so that its tokens are not lost.
    fn agent_or_new(&mut self, id: &'a str) -> &mut AgentSummary {
        let place = *self.places.entry(id).or_insert_with(|| {
            self.agents.push(AgentSummary { id: id.to_owned(), ..AgentSummary::default() });
            self.agents.len() - 1
        });
        // Every place on record is that of an entry pushed above, and none is ever removed.
        &mut self.agents[place]
    }

    fn finish(mut self) -> Summary {
        for agent in &mut self.agents {
            if let (None, Some(started)) = (agent.status, agent.started) {
                agent.seconds = between(started, self.wall_s);
            }
        }
        self.tokens.total = self.tokens.orchestrator.saturating_add(self.tokens.workers);
        Summary {
            answer: self.answer.map(str::to_owned),
            answered_by: self.answered_by.map(str::to_owned),
            stop_reason: self.stop_reason,
            rounds: self.rounds,
            agents: self.agents,
            tokens: self.tokens,
            usd: self.usd,
            wall_s: self.wall_s,
            calls: self.calls,
            messages: self.messages,
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the form serde asks for")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the form serde asks for")]
fn no_calls(number: &u32) -> bool {
    *number == 0
}

/// Adds without ever overflowing: a trace read from a file may say anything.
fn add(sum: &mut u64, more: u64) {
    *sum = sum.saturating_add(more);
}

/// The seconds from one time to another, in whole microseconds as times are.
fn between(start: f64, end: f64) -> f64 {
    let micros = ((end - start) * 1e6).round();
    if micros.is_finite() { micros.max(0.0) / 1e6 } else { 0.0 }
}

/// Whether what an event cost bought nothing.
fn is_failure(kind: &EventKind) -> bool {
    match kind {
        EventKind::Retry { .. } | EventKind::Rejection { .. } => true,
        EventKind::Return { status, .. } => *status != AgentStatus::Done,
        _ => false,
    }
}
