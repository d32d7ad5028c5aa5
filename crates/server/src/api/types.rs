//! Requests and responses of OpenAI's protocol, as far as they are read and written. Unknown fields are ignored.

use super::described::{FormatWish, TextWish};
use super::follow::Answered;
use super::wish::LemonWish;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// A request for a chat completion.
#[derive(Debug, Clone, Deserialize, ToSchema)]
pub struct ChatBody {
    /// `lemon`, `lemon/NAME` or `lemon/policy:PATH`.
    #[schema(example = "lemon")]
    pub model: String,
    /// The conversation. It ends with a message of the user.
    #[schema(min_items = 1)]
    pub messages: Vec<ChatTurn>,
    /// Whether the answer comes in pieces, as server-sent events.
    pub stream: Option<bool>,
    /// What a stream has beside the answer.
    pub stream_options: Option<StreamOptions>,
    /// Completion tokens that each reply of an agent may have.
    #[schema(minimum = 1)]
    pub max_tokens: Option<u64>,
    /// The newer name of `max_tokens`.
    #[schema(minimum = 1)]
    pub max_completion_tokens: Option<u64>,
    /// Sampling temperature.
    #[schema(minimum = 0, maximum = 2)]
    pub temperature: Option<f64>,
    /// The seed of every random choice.
    pub seed: Option<i64>,
    /// A text that ends the answer where it occurs in it, or a list of at most four.
    #[schema(value_type = Option<String>)]
    pub stop: Option<StopWord>,
    /// The end user; it goes on record.
    pub user: Option<String>,
    /// Pairs that go on record.
    #[schema(value_type = Option<Object>)]
    pub metadata: Option<Value>,
    /// `{"type": "text"}`, `{"type": "json_object"}` or `{"type": "json_schema", "json_schema": {"schema": …}}`.
    #[schema(value_type = Option<FormatWish>)]
    pub response_format: Option<Value>,
    /// Only 1: a team gives one answer.
    #[schema(minimum = 1, maximum = 1)]
    pub n: Option<u64>,
    /// What only LEMON understands.
    pub lemon: Option<LemonWish>,
    /// Refused unless empty.
    #[schema(ignore)]
    pub tools: Option<Value>,
    /// Refused unless empty.
    #[schema(ignore)]
    pub functions: Option<Value>,
    /// Refused unless empty.
    #[schema(ignore)]
    pub logprobs: Option<Value>,
    /// Refused unless empty.
    #[schema(ignore)]
    pub top_logprobs: Option<Value>,
    /// Refused unless empty.
    #[schema(ignore)]
    pub logit_bias: Option<Value>,
    /// Refused unless empty.
    #[schema(ignore)]
    pub audio: Option<Value>,
}

/// A message of a conversation.
#[derive(Debug, Clone, Deserialize, ToSchema)]
pub struct ChatTurn {
    /// `system`, `developer`, `user` or `assistant`.
    #[schema(example = "user", pattern = "^(system|developer|user|assistant)$")]
    pub role: String,
    /// A text, or a list of parts `{"type": "text", "text": …}`.
    #[schema(
        value_type = String, pattern = "[A-Za-z0-9]",
        example = "Ana has 3 pens and buys 4 more. How many pens does she have?"
    )]
    pub content: Option<Value>,
}

/// What a stream has beside the answer.
#[derive(Debug, Clone, Deserialize, ToSchema)]
pub struct StreamOptions {
    /// Whether a last chunk has the tokens.
    pub include_usage: Option<bool>,
}

/// One text or several.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub enum StopWord {
    /// One.
    One(String),
    /// At most four.
    Many(Vec<String>),
}

/// A chat completion.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct ChatCompletion {
    /// `chatcmpl-` and the name of the run.
    pub id: String,
    /// `chat.completion`.
    pub object: String,
    /// When the request came, in seconds of Unix time.
    pub created: u64,
    /// The model, as the request names it.
    pub model: String,
    /// The one answer.
    pub choices: Vec<Choice>,
    /// Tokens of orchestrator and all agents.
    pub usage: UsageBody,
    /// The run: its name, address, stop reason, answer, confidence, cost, agents and tokens.
    #[schema(value_type = Object)]
    pub lemon: Value,
}

/// An answer.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Choice {
    index: u32,
    message: AnswerMessage,
    logprobs: Option<bool>,
    /// `stop`, or `length` where the reply was cut off at `max_tokens`.
    finish_reason: String,
}

/// The message of an answer.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct AnswerMessage {
    role: String,
    content: String,
    refusal: Option<String>,
}

impl Choice {
    /// The one answer.
    pub fn new(content: String, finish_reason: &str) -> Self {
        let message = AnswerMessage { role: "assistant".to_owned(), content, refusal: None };
        Choice { index: 0, message, logprobs: None, finish_reason: finish_reason.to_owned() }
    }
}

/// Tokens.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct UsageBody {
    prompt_tokens: u64,
    completion_tokens: u64,
    total_tokens: u64,
}

impl UsageBody {
    /// Those of a run.
    pub fn of(outcome: &Answered) -> Self {
        let (prompt_tokens, completion_tokens) = outcome.usage;
        UsageBody { prompt_tokens, completion_tokens, total_tokens: prompt_tokens + completion_tokens }
    }
}

/// The models.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct ModelList {
    /// `list`.
    pub object: String,
    /// The models.
    pub data: Vec<ModelObject>,
}

/// A model.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct ModelObject {
    /// Its name.
    pub id: String,
    /// `model`.
    pub object: String,
    /// When its file was changed, in seconds of Unix time.
    pub created: u64,
    /// `lemon`.
    pub owned_by: String,
}

/// Why a request was not served.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct ErrorBody {
    /// What is wrong.
    pub error: ErrorObject,
}

/// What is wrong.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct ErrorObject {
    /// What was expected, what was found, and what to do.
    pub message: String,
    /// The kind: `invalid_request_error`, `rate_limit_error`, `insufficient_quota`, `server_error`.
    pub r#type: String,
    /// The field at fault.
    pub param: Option<String>,
    /// A name for programs.
    pub code: Option<String>,
}

/// A request for a response.
#[derive(Debug, Clone, Deserialize, ToSchema)]
pub struct ResponsesRequest {
    /// `lemon`, `lemon/NAME` or `lemon/policy:PATH`.
    #[schema(example = "lemon")]
    pub model: String,
    /// A text, or a list of messages. It ends with one of the user.
    #[schema(
        value_type = String, pattern = "[A-Za-z0-9]",
        example = "Ana has 3 pens and buys 4 more. How many pens does she have?"
    )]
    pub input: Value,
    /// Standing instructions.
    pub instructions: Option<String>,
    /// Whether the answer comes in pieces, as server-sent events.
    pub stream: Option<bool>,
    /// Completion tokens that each reply of an agent may have.
    #[schema(minimum = 1)]
    pub max_output_tokens: Option<u64>,
    /// Sampling temperature.
    #[schema(minimum = 0, maximum = 2)]
    pub temperature: Option<f64>,
    /// The seed of every random choice.
    pub seed: Option<i64>,
    /// The end user; it goes on record.
    pub user: Option<String>,
    /// Pairs that go on record.
    #[schema(value_type = Option<Object>)]
    pub metadata: Option<Value>,
    /// `{"format": {"type": "text"}}`, or a format with `json_object` or `json_schema`.
    #[schema(value_type = Option<TextWish>)]
    pub text: Option<Value>,
    /// What only LEMON understands.
    pub lemon: Option<LemonWish>,
    /// Refused unless empty.
    #[schema(ignore)]
    pub tools: Option<Value>,
    /// Refused unless empty.
    #[schema(ignore)]
    pub previous_response_id: Option<Value>,
    /// Refused unless empty.
    #[schema(ignore)]
    pub conversation: Option<Value>,
    /// Refused unless empty.
    #[schema(ignore)]
    pub background: Option<Value>,
}

/// A response.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct ResponseBody {
    /// `resp_` and the name of the run.
    pub id: String,
    /// `response`.
    pub object: String,
    /// When the request came, in seconds of Unix time.
    pub created_at: u64,
    /// `in_progress`, `completed` or `incomplete`.
    pub status: String,
    /// The model, as the request names it.
    pub model: String,
    /// The message with the answer.
    #[schema(value_type = Vec<Object>)]
    pub output: Value,
    /// Tokens of orchestrator and all agents.
    #[schema(value_type = Option<Object>)]
    pub usage: Value,
    /// `null`.
    #[schema(value_type = Option<Object>)]
    pub error: Value,
    /// Why it is not complete.
    #[schema(value_type = Option<Object>)]
    pub incomplete_details: Value,
    /// Those of the request.
    pub instructions: Option<String>,
    /// Those of the request.
    #[schema(value_type = Option<Object>)]
    pub metadata: Value,
    /// Tools are not supported.
    pub parallel_tool_calls: bool,
    /// `none`.
    pub tool_choice: String,
    /// None.
    #[schema(value_type = Vec<Object>)]
    pub tools: Value,
    /// That of the request.
    pub temperature: Option<f64>,
    /// The run.
    #[schema(value_type = Option<Object>)]
    pub lemon: Value,
}
