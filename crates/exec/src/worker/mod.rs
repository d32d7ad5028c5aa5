//! Workers answer conversations: one trait, with endpoints, scripts and cassettes behind it.

mod by_level;
mod cassette;
mod identity;
mod openai;
mod redact;
mod scripted;
mod sse;

pub use by_level::ByLevel;
pub use cassette::{CassetteError, Recording, Replay, recorded_workers};
pub use identity::Identity;
pub use openai::{ApiKey, Endpoint, OpenAi, http_client, http_client_with, http_error, streamed_text};
pub use redact::{Secrets, mask_url};
pub use scripted::{Script, ScriptError, Scripted};

use crate::code::CodeRunner;
use crate::ledger::Price;
use crate::tool::{OfferedTool, RequestedCall, ToolRunner};
use async_trait::async_trait;
use lemon_spec::Style;
use lemon_trace::{Failure, FailureKind};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// Something that answers a conversation. It neither retries nor keeps accounts: the driver does.
#[async_trait]
pub trait Worker: Send + Sync {
    /// Asks once.
    async fn ask(&self, request: &Request) -> Result<Reply, AskError>;

    /// A narrower cache key than the full request: everything that the reply depends on. A model that sees the task and not
    /// the agent, and that samples nothing, replies the same to two agents; a [`crate::ReplyCache`] makes that call once.
    /// `None`: the full request is the key.
    fn cache_key(&self, _: &Request) -> Option<Vec<u8>> {
        None
    }

    /// Whether it supplies keys for some requests.
    fn has_cache_keys(&self) -> bool {
        false
    }

    /// Whether its replies depend on the other agents of the team: it then gets [`AgentPrompt::team`].
    fn wants_team(&self) -> bool {
        false
    }

    /// Whether the model of this capacity is asked with [`Request::tools`] and replies with [`Reply::tool_calls`]. Any other
    /// is told of tools in plain text.
    fn calls_tools(&self, _level: usize) -> bool {
        false
    }
}

/// One call.
#[derive(Debug, Clone)]
pub struct Request {
    /// The agent that asks. Not sent to an endpoint.
    pub agent: String,
    /// The capacity of the model: a position in [`Backend::levels`].
    pub level: usize,
    /// The name of that capacity.
    pub capacity: String,
    /// The conversation.
    pub messages: Vec<ChatMessage>,
    /// Completion tokens at most.
    pub max_tokens: u64,
    /// Sampling temperature; the endpoint's own where absent.
    pub temperature: Option<f64>,
    /// The seed of this call.
    pub seed: u64,
    /// The JSON Schema the reply should obey, where the endpoint can enforce one.
    pub schema: Option<Arc<serde_json::Value>>,
    /// The tools that the reply may call.
    pub tools: Option<Arc<[OfferedTool]>>,
    /// What the conversation was made of, where an agent of a team is asked. For workers that are no language models; not
    /// sent to an endpoint.
    pub agent_prompt: Option<Arc<AgentPrompt>>,
    /// Receives each piece of the reply as it arrives. Neither sent, hashed nor recorded.
    pub progress: Option<Progress>,
}

impl Request {
    /// Whether the conversation has or may have calls of tools.
    pub fn speaks_of_tools(&self) -> bool {
        let has_calls = |message: &ChatMessage| message.role == Speaker::Tool || !message.tool_calls.is_empty();
        self.tools.is_some() || self.messages.iter().any(has_calls)
    }
}

/// Receives a reply piece by piece while it is being written.
///
/// The pieces of one attempt, joined, are the text of its reply. A failed attempt leaves pieces without a reply; the next
/// attempt begins anew. A reply from a cassette or the reuse cache has no pieces.
#[derive(Clone)]
pub struct Progress(Arc<dyn Fn(&str) + Send + Sync>);

impl Progress {
    /// Calls this function with each piece. It must not block: it runs where the reply is read.
    pub fn new(tell: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Progress(Arc::new(tell))
    }

    /// Passes a piece on.
    pub fn tell(&self, piece: &str) {
        if !piece.is_empty() {
            (self.0)(piece);
        }
    }
}

impl fmt::Debug for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Progress(..)")
    }
}

/// What an agent's conversation was made of.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AgentPrompt {
    /// The task.
    pub question: Arc<str>,
    /// The base role.
    pub base: String,
    /// The agent's role.
    pub role: String,
    /// What it must do.
    pub duty: String,
    /// What it reads, in order.
    pub readings: Vec<Arc<str>>,
    /// The agents of all rounds so far, for a worker that asks for them ([`Worker::wants_team`]).
    pub team: Option<Arc<Vec<TeamMember>>>,
}

/// An agent of a team, as a worker sees it that serves several agents from one pool of recorded replies.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TeamMember {
    pub id: String,
    /// Its base role.
    pub base: String,
    /// Its capacity: a position in [`Backend::levels`].
    pub level: usize,
    /// The agents it reads: positions in the team.
    pub parents: Vec<usize>,
    /// Its round, from 1.
    pub round: u32,
    /// The seed of its call.
    pub seed: u64,
}

impl AgentPrompt {
    /// Whether the duty asks for the answer alone.
    pub fn asks_for_answer_alone(&self) -> bool {
        let duty = self.duty.to_lowercase();
        ["only the answer", "the answer alone", "without working", "without explanation", "no explanation"]
            .iter()
            .any(|phrase| duty.contains(phrase))
    }
}

/// One message of a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ChatMessage {
    /// The speaker.
    pub role: Speaker,
    /// The text.
    pub content: String,
    /// The calls of tools that the model asked for beside it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<RequestedCall>,
    /// The call whose result it is, by its id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
}

/// The speaker of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Speaker {
    /// Standing instructions.
    System,
    /// The question.
    User,
    /// The model.
    Assistant,
    Tool,
}

impl ChatMessage {
    /// Standing instructions.
    pub fn system(content: impl Into<String>) -> Self {
        ChatMessage::of(Speaker::System, content.into())
    }

    /// A question.
    pub fn user(content: impl Into<String>) -> Self {
        ChatMessage::of(Speaker::User, content.into())
    }

    /// A reply.
    pub fn assistant(content: impl Into<String>) -> Self {
        ChatMessage::of(Speaker::Assistant, content.into())
    }

    /// A reply that asks for calls.
    pub fn calling(content: impl Into<String>, tool_calls: Vec<RequestedCall>) -> Self {
        ChatMessage { tool_calls, ..ChatMessage::assistant(content) }
    }

    /// The result of a call.
    pub fn result(call: impl Into<String>, content: impl Into<String>) -> Self {
        ChatMessage { tool_call_id: Some(call.into()), ..ChatMessage::of(Speaker::Tool, content.into()) }
    }

    fn of(role: Speaker, content: String) -> Self {
        ChatMessage { role, content, tool_calls: Vec::new(), tool_call_id: None }
    }
}

/// A usable reply: not empty, or with calls of tools, and complete unless it says that it is not.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Reply {
    pub text: String,
    /// What it cost.
    pub usage: Usage,
    /// The model that answered, as the endpoint names it.
    pub model: Option<String>,
    /// The seconds it took in a simulated world, whose clock then runs instead of ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub simulated_s: Option<f64>,
    /// How sure the model was, from 0 to 1, where it says: the geometric mean of the probabilities of its tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confidence: Option<f64>,
    /// It was cut off at `max_tokens`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
    /// The calls of tools that it asks for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<RequestedCall>,
}

/// Tokens of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Usage {
    /// Prompt tokens.
    pub tokens_in: u64,
    /// Completion tokens.
    pub tokens_out: u64,
    /// Counted here, because the endpoint reported nothing usable.
    #[serde(default)]
    pub counted: bool,
}

/// A call without a usable reply.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AskError {
    /// What went wrong.
    pub failure: Failure,
    /// What it cost all the same.
    pub cost: FailedCost,
    /// How long the endpoint wants to be left alone.
    #[serde(default)]
    pub retry_after: Option<Duration>,
    /// What came of the reply, where something did.
    #[serde(default)]
    pub partial: Option<String>,
}

/// What a failed call cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailedCost {
    /// Nothing: it was refused before a model saw it.
    Nothing,
    /// This much.
    Known(Usage),
    /// Unknown: it counts as all that was reserved.
    Unknown,
}

impl AskError {
    /// A failure that cost nothing.
    pub fn free(kind: FailureKind, message: impl Into<String>) -> Self {
        AskError {
            failure: Failure { kind, message: message.into() },
            cost: FailedCost::Nothing,
            retry_after: None,
            partial: None,
        }
    }

    /// A failure of unknown cost.
    pub fn unknown_cost(kind: FailureKind, message: impl Into<String>) -> Self {
        AskError { cost: FailedCost::Unknown, ..AskError::free(kind, message) }
    }

    /// Whether the same call may succeed later.
    pub fn worth_retrying(&self) -> bool {
        match self.failure.kind {
            FailureKind::Unreachable
            | FailureKind::Timeout
            | FailureKind::RateLimited
            | FailureKind::ServerError
            | FailureKind::Loading
            | FailureKind::CutShort
            | FailureKind::Malformed
            | FailureKind::Empty
            | FailureKind::SchemaRefused => true,
            // The same request would meet the same end.
            FailureKind::Unauthorized
            | FailureKind::Refused
            | FailureKind::Truncated
            | FailureKind::NotRecorded
            | FailureKind::ParentFailed
            | FailureKind::Budget
            | FailureKind::Cancelled
            | FailureKind::Program
            | FailureKind::Orchestrator => false,
        }
    }
}

/// The workers of an installation and what is known of each capacity.
#[derive(Clone)]
pub struct Backend {
    /// Answers the calls.
    pub worker: Arc<dyn Worker>,
    /// What kind of worker that is: `endpoints`, `scripted`, `replay`.
    pub name: String,
    /// The capacities, weakest first, as in [`lemon_spec::Language::capacities`].
    pub levels: Vec<Level>,
    /// The clock of a run.
    pub clock: Clock,
    /// Runs the programs that agents write; without one, no code is run.
    pub code: Option<Arc<dyn CodeRunner>>,
    /// Runs the tools that agents call; without one, agents have none.
    pub tools: Option<Arc<dyn ToolRunner>>,
}

/// The clock of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Clock {
    /// That of this machine.
    #[default]
    Real,
    /// That of a simulated world: an event comes as soon as its causes allow, and a reply takes the time it says.
    Simulated,
}

/// One capacity: the model behind it.
#[derive(Debug, Clone)]
pub struct Level {
    /// Its name in specifications.
    pub name: String,
    /// Everything about the model behind it that determines a reply, for the reuse key.
    pub identity: Identity,
    /// What it costs.
    pub price: Price,
    /// Calls at a time, over all runs.
    pub gate: Arc<Semaphore>,
    /// Completion tokens at most.
    pub max_tokens: u64,
    /// Completion tokens at most of what its style does not shorten: code, texts, and replies that are no answers.
    pub long_tokens: u64,
    /// Sampling temperature.
    pub temperature: Option<f64>,
    /// How its agents are asked to reply; as their roles say where absent.
    pub style: Option<Style>,
}

impl Level {
    /// A capacity without price or temperature, with the defaults of a configuration that says nothing.
    pub fn new(name: impl Into<String>) -> Self {
        let name = name.into();
        Level {
            identity: name.clone().into(),
            name,
            price: Price::default(),
            gate: Arc::new(Semaphore::new(32)),
            max_tokens: 1024,
            long_tokens: 1024,
            temperature: None,
            style: None,
        }
    }

    /// Bounds every reply, whatever its style.
    pub fn limit_replies(&mut self, tokens: u64) {
        (self.max_tokens, self.long_tokens) = (tokens, tokens);
    }
}
