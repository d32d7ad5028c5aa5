//! The events of a run and the edges between them.

use lemon_spec::edit::Family;
use lemon_spec::{AnswerRule, Diagnostic, Share};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The version of the trace format written here. Readers refuse a newer one.
pub const VERSION: u32 = 1;

/// The name under which the orchestrator stands in a trace.
pub const ORCHESTRATOR: &str = "orchestrator";

/// Everything on record about a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Trace {
    /// What was run.
    pub header: Header,
    /// What happened, in order.
    pub events: Vec<Event>,
}

/// What was run: known before the first event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// The format, [`VERSION`].
    pub version: u32,
    pub run_id: String,
    /// The task: its id in a file of tasks, or the run's own id.
    pub task_id: String,
    /// The task's text.
    pub question: String,
    /// When the run began, in milliseconds of Unix time.
    pub started_at_ms: u64,
    /// The seed of every random choice.
    pub seed: u64,
    /// The kind of workers: `endpoints`, `scripted`, `replay`.
    pub workers: String,
}

/// One thing that happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Its number in the run, from 1.
    pub id: u32,
    /// Seconds since the run began (time the process was down between a crash and a resume not counted).
    pub t: f64,
    /// The actor: an agent's id, or [`ORCHESTRATOR`].
    pub agent: String,
    /// What it was.
    #[serde(flatten)]
    pub kind: EventKind,
    /// What it cost, counted once: on the event that ends the call.
    #[serde(default, skip_serializing_if = "Spend::is_zero")]
    pub spend: Spend,
    /// What led to it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub edges: Vec<Edge>,
}

/// A link from an earlier event to the one that carries it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Edge {
    /// The earlier event.
    pub src: u32,
    /// How it led here.
    pub kind: EdgeKind,
}

/// How one event led to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EdgeKind {
    /// It made the other happen.
    Cause,
    /// A decision brought an agent into being.
    Spawn,
    /// A message was made of a result, or read by an agent.
    Message,
    /// An agent, having been asked, returned.
    Return,
    /// A result went into the answer.
    Aggregate,
}

/// What an event cost.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Spend {
    /// Prompt tokens.
    pub tokens_in: u64,
    /// Completion tokens.
    pub tokens_out: u64,
    /// Money, by the configured prices.
    #[serde(default)]
    pub usd: f64,
    /// Time it took.
    #[serde(default)]
    pub seconds: f64,
    /// The endpoint did not report usable token counts; these were counted here.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub counted: bool,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum EventKind {
    /// The orchestrator wrote a specification (valid or not: a [`EventKind::Rejection`] follows if not).
    Decision {
        /// The round it is for, from 1.
        round: u32,
        /// Its author: `fixed`, `policy`, `prompted`, `repair`, `fallback`, `guard`.
        by: String,
        /// The model that wrote it, if one did.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        model: Option<String>,
        text: String,
        /// What the orchestrator wrote, where names in it were mended or the guard put another team in its place.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        written: Option<String>,
    },
    /// A specification was refused, or none could be had.
    Rejection {
        round: u32,
        /// Every fault.
        diagnostics: Vec<Diagnostic>,
        /// Why there is no text at all, where that is so.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        failure: Option<Failure>,
    },
    /// An agent came into being.
    Spawn {
        /// Its id.
        to: String,
        round: u32,
        /// The base role.
        base: String,
        role: String,
        capacity: String,
        /// That capacity's position, weakest first from 0.
        level: usize,
        /// The ids of the agents it reads.
        after: Vec<String>,
    },
    /// An agent was given its duty: its call begins.
    Delegate {
        /// The agent.
        to: String,
        duty: String,
        /// Tokens reserved for the call.
        reserved: u64,
    },
    /// One agent's output went to another (or was withheld).
    Message {
        /// The sender.
        from: String,
        /// The reader.
        to: String,
        /// How much of the output.
        share: Share,
        /// The text as the reader saw it.
        content: String,
        /// Its length, counted here.
        tokens: u64,
        /// `false`: withheld at run time, the reader never saw it.
        delivered: bool,
    },
    /// A tool was called.
    ToolCall {
        /// Which.
        tool: String,
        /// With what.
        input: serde_json::Value,
        /// Where an agent asked for the call. Absent where the run itself made it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        call: Option<AgentCall>,
    },
    /// A call of a tool waits for a person, or a person has decided.
    Approval {
        tool: String,
        /// With what.
        input: serde_json::Value,
        /// Which call of the agent.
        call: AgentCall,
        /// What the person said; `None`: nothing yet.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        granted: Option<bool>,
    },
    /// A tool returned.
    ToolResult {
        /// Which.
        tool: String,
        /// With what.
        output: serde_json::Value,
        /// Whether it succeeded.
        ok: bool,
        /// The [`AgentCall::id`] of the call that it ends.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        call: Option<String>,
    },
    /// A call failed and is tried again.
    Retry {
        /// The attempt that failed, from 1.
        attempt: u32,
        /// How.
        failure: Failure,
        /// Seconds until the next attempt.
        wait_s: f64,
    },
    /// An agent ended: with a reply, or otherwise.
    Return {
        /// How it ended.
        status: AgentStatus,
        /// The whole reply, where there is one; what came of it where it was cut off.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reply: Option<String>,
        /// The answer extracted from it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        answer: Option<String>,
        /// Why there is none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        failure: Option<Failure>,
        /// The model that answered.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        model: Option<String>,
        /// How sure it was, from 0 to 1, where it says.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        confidence: Option<f64>,
        /// The reply was cut off at `max_tokens`: it is usable, and not complete.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        truncated: bool,
        /// Attempts made.
        attempts: u32,
        /// The reply came from the reuse cache; nothing was spent.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        reused: bool,
        /// What the reply cost when it was made, where it was reused.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        saved: Option<Spend>,
    },
    /// A limit was met.
    Budget {
        /// Which.
        limit: LimitKind,
        /// What the next call needed at least.
        needed: f64,
        /// What was left.
        left: f64,
    },
    /// One answer was made of several.
    Aggregate {
        round: u32,
        /// The rule that was applied.
        rule: AnswerRule,
        /// What it chose from.
        candidates: Vec<Candidate>,
        /// The agent whose answer it became.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        chosen: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        answer: Option<String>,
    },
    /// The run ended.
    Stop {
        /// Why.
        reason: StopReason,
        /// With what.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        answer: Option<String>,
    },
    /// The run was taken up again after a crash, a stop or a cancellation.
    Resume {
        /// Agents that had finished and are not run again.
        finished: usize,
        /// Tokens reserved by calls whose end was never seen; they count as spent.
        lost_tokens: u64,
    },
    /// The run was graded after its end.
    Score {
        /// Whether its answer is right.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        right: Option<bool>,
        /// Reward channels by name. One that could not be measured is not there.
        rewards: BTreeMap<String, f64>,
    },
    /// What a part of the team was worth, measured by changing it and running what the change can reach.
    Credit {
        /// The kind of part: team, orchestrator, role, agent, turn, message, tool_call, token.
        unit: String,
        /// Which: an agent's id, `a → b` for a message.
        target: String,
        /// The family of the change that measured it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        family: Option<Family>,
        /// That change, in words: a capacity can be changed up and down.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        edit: Option<String>,
        /// Success with it less success without it; absent: not measured, which is not zero.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        effect: Option<f64>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        standard_error: Option<f64>,
        /// Pairs of runs behind it.
        n: u32,
    },
}

/// A call of a tool that an agent asked for: what is needed to take its conversation up again.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct AgentCall {
    /// Its name, unique within the agent: `c2.1` is the first call of the second reply.
    pub id: String,
    /// What the agent wrote beside its calls; on the first call of a reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub said: Option<String>,
    /// US dollars reserved for the call. `None`: it was refused before it was made, and counts as none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usd: Option<f64>,
    /// The other calls that the same reply asks for; on the first one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub more: Vec<NextCall>,
}

/// A call that an agent asked for and that is made later.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NextCall {
    pub tool: String,
    /// With what.
    pub input: serde_json::Value,
}

/// One of the answers an aggregation chose from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Candidate {
    /// Whose.
    pub agent: String,
    /// The extracted answer.
    pub answer: String,
}

/// How an agent ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AgentStatus {
    /// With a reply.
    Done,
    /// Its call failed for good.
    Failed,
    /// It never ran: a parent failed or a limit was met.
    Skipped,
    /// It was running or waiting when the run was cancelled or ran out of time.
    Cancelled,
}

/// Why a call has no usable reply.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    pub kind: FailureKind,
    /// The fact, without secrets.
    pub message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// The endpoint could not be reached, or the connection broke before a reply began.
    Unreachable,
    /// Nothing, or nothing more, came in time.
    Timeout,
    /// Too many requests (429).
    RateLimited,
    /// The endpoint failed (5xx).
    ServerError,
    /// The endpoint is there and loads its model (503): it is waited for.
    Loading,
    /// The key was refused (401, 403).
    Unauthorized,
    /// The request was refused (other 4xx).
    Refused,
    /// The request was refused because of a part that can be left out (a schema, a temperature); it is tried again without.
    SchemaRefused,
    /// The body ended early.
    CutShort,
    /// The reply is not what the protocol says.
    Malformed,
    /// The reply has no text.
    Empty,
    /// The reply hit the limit on its length before it had any text.
    Truncated,
    /// The cassette has no such call.
    NotRecorded,
    /// A parent failed, and the configuration says to skip.
    ParentFailed,
    /// A limit was met.
    Budget,
    /// The run was cancelled, or its time was up.
    Cancelled,
    /// The agent's program failed: it prints no answer. Its reply is on record.
    Program,
    /// The orchestrator itself failed: its model could not be loaded, or its policy failed.
    Orchestrator,
}

/// The limits a run can meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LimitKind {
    Tokens,
    /// Money.
    Usd,
    Calls,
    /// Wall time.
    Seconds,
}

/// Why a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// The team answered as it was meant to.
    Answered,
    /// The token budget was met; the answer is made of what existed.
    TokenBudget,
    /// The time budget was met; the answer is made of what existed.
    TimeBudget,
    /// The money budget was met; the answer is made of what existed.
    CostBudget,
    /// The call budget was met; the answer is made of what existed.
    CallBudget,
    /// The agents that were to give the answer failed; the answer is made of what the others gave.
    AnswerAgentsFailed,
    /// No agent succeeded.
    AllAgentsFailed,
    /// It was cancelled.
    Cancelled,
    /// A call of a tool waits for a person; the run goes on when it is resumed with the decision.
    Approval,
    /// There was no valid specification.
    Rejected,
    /// The orchestrator itself failed; the answer, if any, is made of what existed.
    OrchestratorFailed,
}

impl Trace {
    /// The calls of tools that wait for a person, as `AGENT/CALL`.
    pub fn waiting_calls(&self) -> Vec<String> {
        let mut waiting = Vec::new();
        for event in &self.events {
            let (EventKind::Approval { call, .. } | EventKind::ToolCall { call: Some(call), .. }) = &event.kind else {
                continue;
            };
            let name = format!("{}/{}", event.agent, call.id);
            waiting.retain(|known| *known != name);
            if matches!(event.kind, EventKind::Approval { granted: None, .. }) {
                waiting.push(name);
            }
        }
        waiting
    }
}

impl Spend {
    /// Nothing spent.
    pub fn is_zero(&self) -> bool {
        *self == Spend::default()
    }

    /// Prompt and completion tokens.
    pub fn tokens(&self) -> u64 {
        self.tokens_in.saturating_add(self.tokens_out)
    }
}

impl std::ops::AddAssign for Spend {
    fn add_assign(&mut self, other: Spend) {
        self.tokens_in = self.tokens_in.saturating_add(other.tokens_in);
        self.tokens_out = self.tokens_out.saturating_add(other.tokens_out);
        self.usd += other.usd;
        self.seconds += other.seconds;
        self.counted |= other.counted;
    }
}
