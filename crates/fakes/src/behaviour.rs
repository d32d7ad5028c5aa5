//! How a fake endpoint behaves: what it replies, how fast, and when it misbehaves.

use crate::ChatRequest;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The text of every reply that needs one and was given none.
pub(crate) const FAKE_TEXT: &str = "A fake reply, made without a model.";

/// How a fake endpoint behaves. The default replies at once, the same text to every request.
#[derive(Debug, Clone)]
pub struct Behaviour {
    /// How long it waits before a reply begins. Refusals (bad key, bad request) come at once.
    pub latency: Duration,
    /// No reply begins before so many requests were being answered at the same time; faster callers wait for them.
    pub together: usize,
    /// How long each word of a reply takes on top: between the words of a stream, or before a whole reply.
    pub per_token: Duration,
    /// The key a caller must show as `Authorization: Bearer KEY`; without it the answer is 401.
    pub api_key: Option<String>,
    /// The models it claims to serve. A request for any other is served all the same.
    pub models: Vec<String>,
    /// Who owns them, by its own account: servers can be told apart by it.
    pub owned_by: String,
    /// What it replies where no fault is due.
    pub replies: FakeReplies,
    /// When it misbehaves.
    pub faults: Faults,
    /// `false`: a request with a `response_format` is refused with 400.
    pub supports_schema: bool,
    /// `false`: a request with tools is refused with 400.
    pub supports_tools: bool,
    /// Sends a stream in pieces of this many bytes, flushed one by one, so that they end within lines and characters.
    pub split_bytes: Option<usize>,
    /// Whether it keeps the requests it sees. Calls are counted either way.
    pub record: bool,
}

/// What a fake endpoint replies, by request.
#[derive(Clone)]
pub enum FakeReplies {
    /// The function's value. It runs on the server's only thread: it must not block.
    Function(Arc<ReplyFn>),
    /// The n-th reply to the n-th request; the last one from then on.
    Script(Vec<FakeReply>),
}

/// A function from a request to its reply.
pub type ReplyFn = dyn Fn(&ChatRequest) -> FakeReply + Send + Sync;

/// When a fake endpoint misbehaves, whatever its replies are. The first of these that is due wins.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    /// At these requests, numbered from 1.
    pub at: BTreeMap<u64, FakeReply>,
    /// When a request's messages are seen for the first time: every retry succeeds, in whatever order calls arrive.
    pub first_time: Option<FakeReply>,
    /// At every n-th request.
    pub every: Option<(u64, FakeReply)>,
}

/// What a fake endpoint does with one request.
///
/// Every text is cut at the request's `max_tokens` words, with finish reason `length`.
#[derive(Debug, Clone, PartialEq)]
pub enum FakeReply {
    /// A proper reply with this text.
    Text(String),
    /// A proper reply whose text is empty.
    Empty,
    /// A reply with this text and finish reason `length`.
    Truncated(String),
    /// A reply with this text and no token counts.
    NoUsage(String),
    /// A reply with this text and this in place of the token counts.
    WrongUsage(String, Value),
    /// A reply whose list of choices is empty.
    NoChoices,
    /// A reply whose content is `null`.
    NullContent,
    /// A reply that calls a tool that was not offered; its content is `null`.
    ToolCallsInsteadOfText,
    /// A proper reply with this text that calls these tools: names and arguments. A stream has each call in pieces.
    ToolCalls(String, Vec<(String, String)>),
    /// An HTTP status with a body, and perhaps a `Retry-After` header.
    Status {
        /// The status.
        code: u16,
        /// The value of `Retry-After`, as it is.
        retry_after: Option<String>,
        /// The body, as it is, sent as JSON.
        body: String,
    },
    /// The error page of a proxy: this status with HTML.
    HtmlError(u16),
    /// Status 200 and a body that is not JSON (and no event, in a stream).
    Garbage,
    /// A stream with one event in its middle whose JSON is broken; outside streams a body whose JSON is.
    GarbageChunk,
    /// Status 200 and a text of this many bytes; in a stream, in one single event.
    HugeBody(usize),
    /// The request is read and never answered; the connection stays open.
    Hang,
    /// A text of this many times forty words, whatever `max_tokens` says, in a stream with an event for each forty.
    Flood(usize),
    /// A proper reply with these pieces of text, one event of a stream each.
    Pieces(Vec<String>),
    /// A proper reply with this text that says another model wrote it.
    ByModel(String, String),
    /// A proper reply with this text of whose body only this many bytes are sent; then it ends.
    CutAt {
        text: String,
        /// How many bytes.
        bytes: usize,
        /// Whether the connection closes; else the body ends in good order, too early.
        close: bool,
    },
    /// The first half of a proper reply, and then nothing; the connection stays open.
    HangMidStream,
    /// A stream that ends in good order but without finish reason and `[DONE]`; outside streams a connection that
    /// closes before `Content-Length` bytes were sent.
    CutBody,
    /// The first half of a proper reply, and then the connection closes.
    DropMidStream,
    /// The connection closes before a reply begins.
    DropConnection,
}

impl Default for Behaviour {
    fn default() -> Self {
        Behaviour {
            latency: Duration::ZERO,
            together: 0,
            per_token: Duration::ZERO,
            api_key: None,
            models: vec!["fake".to_owned()],
            owned_by: "lemon-fakes".to_owned(),
            replies: FakeReplies::Script(Vec::new()),
            faults: Faults::default(),
            supports_schema: true,
            supports_tools: true,
            split_bytes: None,
            record: true,
        }
    }
}

impl Behaviour {
    /// Replies this text to every request.
    pub fn text(text: impl Into<String>) -> Self {
        Behaviour::script([FakeReply::Text(text.into())])
    }

    /// Replies the n-th of these to the n-th request, and the last one from then on.
    pub fn script(replies: impl IntoIterator<Item = FakeReply>) -> Self {
        Behaviour { replies: FakeReplies::Script(replies.into_iter().collect()), ..Behaviour::default() }
    }

    /// Replies what the function says. It runs on the server's only thread: it must not block.
    pub fn function(reply: impl Fn(&ChatRequest) -> FakeReply + Send + Sync + 'static) -> Self {
        Behaviour { replies: FakeReplies::Function(Arc::new(reply)), ..Behaviour::default() }
    }

    /// Sets [`Behaviour::latency`].
    #[must_use]
    pub fn latency_ms(self, ms: u64) -> Self {
        Behaviour { latency: Duration::from_millis(ms), ..self }
    }

    /// Sets [`Behaviour::together`].
    #[must_use]
    pub fn together(self, requests: usize) -> Self {
        Behaviour { together: requests, ..self }
    }

    /// Sets [`Behaviour::per_token`].
    #[must_use]
    pub fn per_token_ms(self, ms: u64) -> Self {
        Behaviour { per_token: Duration::from_millis(ms), ..self }
    }

    /// Sets [`Behaviour::api_key`].
    #[must_use]
    pub fn api_key(self, key: impl Into<String>) -> Self {
        Behaviour { api_key: Some(key.into()), ..self }
    }

    /// Refuses every request with a `response_format`.
    #[must_use]
    pub fn without_schema(self) -> Self {
        Behaviour { supports_schema: false, ..self }
    }

    /// Refuses every request with tools.
    #[must_use]
    pub fn without_tools(self) -> Self {
        Behaviour { supports_tools: false, ..self }
    }

    /// Sets [`Behaviour::split_bytes`].
    #[must_use]
    pub fn split_bytes(self, bytes: usize) -> Self {
        Behaviour { split_bytes: Some(bytes), ..self }
    }

    /// Keeps no requests, for benchmarks.
    #[must_use]
    pub fn without_record(self) -> Self {
        Behaviour { record: false, ..self }
    }

    /// Adds to [`Faults::at`].
    #[must_use]
    pub fn fault_at(mut self, number: u64, fault: FakeReply) -> Self {
        self.faults.at.insert(number, fault);
        self
    }

    /// Sets [`Faults::first_time`].
    #[must_use]
    pub fn fault_first_time(mut self, fault: FakeReply) -> Self {
        self.faults.first_time = Some(fault);
        self
    }

    /// Sets [`Faults::every`].
    #[must_use]
    pub fn fault_every(mut self, n: u64, fault: FakeReply) -> Self {
        self.faults.every = Some((n, fault));
        self
    }

    /// What happens to this request.
    pub(crate) fn reply(&self, request: &ChatRequest) -> FakeReply {
        if let Some(fault) = self.faults.due(request) {
            return fault.clone();
        }
        match &self.replies {
            FakeReplies::Function(reply) => reply(request),
            FakeReplies::Script(replies) => {
                let index = usize::try_from(request.number.saturating_sub(1)).unwrap_or(usize::MAX);
                let reply = replies.get(index).or(replies.last());
                reply.cloned().unwrap_or_else(|| FakeReply::Text(FAKE_TEXT.to_owned()))
            }
        }
    }
}

impl Faults {
    fn due(&self, request: &ChatRequest) -> Option<&FakeReply> {
        let first_time = || self.first_time.as_ref().filter(|_| request.asked_before == 0);
        let every = || self.every.as_ref().filter(|(n, _)| *n > 0 && request.number.is_multiple_of(*n));
        self.at.get(&request.number).or_else(first_time).or_else(|| every().map(|(_, fault)| fault))
    }
}

impl FakeReply {
    /// A status without a body.
    pub fn status(code: u16) -> Self {
        FakeReply::Status { code, retry_after: None, body: String::new() }
    }

    /// A reply without a text that calls one tool.
    pub fn tool_call(name: &str, arguments: &str) -> Self {
        FakeReply::ToolCalls(String::new(), vec![(name.to_owned(), arguments.to_owned())])
    }

    /// What llama.cpp says while it loads its model.
    pub fn loading() -> Self {
        let body = r#"{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}"#;
        FakeReply::Status { code: 503, retry_after: None, body: body.to_owned() }
    }
}

impl fmt::Debug for FakeReplies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FakeReplies::Function(_) => f.write_str("Function(..)"),
            FakeReplies::Script(replies) => f.debug_tuple("Script").field(replies).finish(),
        }
    }
}
