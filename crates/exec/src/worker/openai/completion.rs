//! What an endpoint's reply says, whole or collected piece by piece, and what it cost.

use super::tool_calls::CallPieces;
use crate::tokens;
use crate::tool::{calls_of, written_out};
use crate::worker::{AskError, FailedCost, Reply, Request, Usage};
use lemon_trace::FailureKind;
use serde::Deserialize;
use serde_json::Value;

/// Bytes of text for each token a reply may have. Few tokens of any vocabulary are longer, and no reply is made of them.
const TEXT_BYTES_PER_TOKEN: u64 = 32;
/// Bytes of text that any reply may have.
const TEXT_SLACK: u64 = 64 * 1024;
/// Bytes on the wire for each token of a stream: an event of its own, with the names of its fields.
const WIRE_BYTES_PER_TOKEN: u64 = 4 * 1024;
/// Bytes of JSON for a byte of text at most (`\u0000`), and some for what stands around it.
const JSON_BYTES_PER_BYTE: u64 = 8;
/// More is never read of a reply.
const MOST_BYTES: u64 = 16 * 1024 * 1024;
/// A token has hardly more bytes on average than this: a report of fewer tokens is not believed.
const MOST_BYTES_PER_TOKEN: u64 = 64;
/// How much of the name of a model is kept.
const MAX_MODEL_CHARS: usize = 200;

/// How much of a reply is read. It follows from `max_tokens`, so that many replies at once have a known size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bounds {
    /// Bytes of text, reasoning included.
    pub(super) text: usize,
    /// Bytes that are held before they are read: a whole body, or one event of a stream.
    pub(super) held: usize,
    /// Bytes of a stream in all.
    pub(super) wire: usize,
}

impl Bounds {
    pub(super) fn of(max_tokens: u64) -> Self {
        let bytes = |count: u64| usize::try_from(count.min(MOST_BYTES)).unwrap_or(usize::MAX);
        let text = max_tokens.saturating_mul(TEXT_BYTES_PER_TOKEN).saturating_add(TEXT_SLACK);
        Bounds {
            text: bytes(text),
            held: bytes(text.saturating_mul(JSON_BYTES_PER_BYTE)),
            wire: bytes(max_tokens.saturating_mul(WIRE_BYTES_PER_TOKEN).saturating_add(16 * TEXT_SLACK)),
        }
    }
}

/// The failure of a reply that is longer than it may be. Its server does not keep to `max_tokens`, or does not speak the
/// protocol.
pub(super) fn too_long(most: usize, what: &str) -> AskError {
    let message = format!("the reply is longer than the {} KiB of {what} that its max_tokens allow", most >> 10);
    AskError::unknown_cost(FailureKind::Malformed, message)
}

/// What a reply says.
#[derive(Debug, Default)]
pub(super) struct Completion {
    pub(super) text: String,
    /// Text that some servers send beside the reply. It costs tokens too.
    reasoning: String,
    pub(super) finish_reason: Option<String>,
    usage: Option<Value>,
    model: Option<String>,
    tool_calls: CallPieces,
    /// The connection broke after the reply had ended and before its usage could come.
    pub(super) broke_off: bool,
}

#[derive(Deserialize)]
pub(super) struct ChatBody {
    #[serde(default)]
    pub(super) choices: Vec<ChatChoice>,
    #[serde(default)]
    usage: Option<Value>,
    #[serde(default)]
    model: Option<String>,
    #[serde(default)]
    pub(super) error: Option<Value>,
}

#[derive(Deserialize)]
pub(super) struct ChatChoice {
    #[serde(alias = "delta", default)]
    message: ChatText,
    #[serde(default)]
    finish_reason: Option<String>,
}

#[derive(Deserialize, Default)]
struct ChatText {
    #[serde(default)]
    content: Option<String>,
    /// A text, under the one name or the other, or both.
    #[serde(default)]
    reasoning_content: Option<Value>,
    #[serde(default)]
    reasoning: Option<Value>,
    #[serde(default)]
    tool_calls: Option<Value>,
}

impl Completion {
    pub(super) fn add(&mut self, body: ChatBody, bounds: &Bounds) -> Result<(), AskError> {
        if let Some(error) = body.error {
            let message = format!("the endpoint reported an error in its reply: {}", error_message(&error));
            return Err(AskError::unknown_cost(FailureKind::ServerError, message));
        }
        if let Some(choice) = body.choices.into_iter().next() {
            let text = choice.message.content.unwrap_or_default();
            let reasoning = [&choice.message.reasoning_content, &choice.message.reasoning];
            let reasoning = reasoning.into_iter().flatten().find_map(Value::as_str).unwrap_or_default();
            if self.text.len() + self.reasoning.len() + text.len() + reasoning.len() > bounds.text {
                return Err(too_long(bounds.text, "text"));
            }
            self.text.push_str(&text);
            self.reasoning.push_str(reasoning);
            choice.message.tool_calls.into_iter().for_each(|calls| self.tool_calls.add(calls));
            if self.text.len() + self.reasoning.len() + self.tool_calls.bytes() > bounds.text {
                return Err(too_long(bounds.text, "text"));
            }
            self.finish_reason = choice.finish_reason.or(self.finish_reason.take());
        }
        self.usage = body.usage.filter(|usage| !usage.is_null()).or(self.usage.take());
        self.model = body.model.map(|model| model.chars().take(MAX_MODEL_CHARS).collect()).or(self.model.take());
        Ok(())
    }

    pub(super) fn into_reply(self, request: &Request) -> Result<Reply, AskError> {
        let usage = self.usage(request);
        let fail = |kind, message: &str| AskError { cost: FailedCost::Known(usage), ..AskError::free(kind, message) };
        let truncated = self.is_truncated();
        let (mut text, mut tool_calls) = (self.text, Vec::new());
        let was_offered = request.tools.as_deref();
        let calls_unoffered = was_offered.is_none() && !self.tool_calls.is_empty();
        if let Some(offered) = was_offered {
            tool_calls = self.tool_calls.named(offered);
            // Some servers leave the calls of their model in its text.
            if tool_calls.is_empty() {
                (text, tool_calls) = calls_of(&text, offered, request);
            }
        }
        if text.trim().is_empty() && tool_calls.is_empty() {
            return Err(match (truncated, calls_unoffered) {
                (true, _) => {
                    let message = format!("the reply was cut off at {} tokens before it had text", request.max_tokens);
                    fail(FailureKind::Truncated, &message)
                }
                (false, true) => {
                    fail(FailureKind::Malformed, "the reply calls tools that were not offered and has no text")
                }
                (false, false) => fail(FailureKind::Empty, "the reply has no text"),
            });
        }
        Ok(Reply { text, usage, model: self.model, simulated_s: None, confidence: None, truncated, tool_calls })
    }

    fn is_truncated(&self) -> bool {
        self.finish_reason.as_deref() == Some("length")
    }

    /// The endpoint's own count where it is possible, ours where it is missing or cannot be true. A prompt has no more
    /// tokens than bytes and template; a reply no more than it was allowed, unless its text shows it; neither has a token
    /// for a long piece of text only.
    ///
    /// Where our count would be a guess, all that was reserved counts.
    fn usage(&self, request: &Request) -> Usage {
        let messages = written_out(request);
        let prompt_bytes: u64 = messages.iter().map(|message| message.content.len() as u64).sum();
        let most_in = prompt_bytes + 64 * messages.len() as u64 + 1024;
        let least_in = (prompt_bytes / MOST_BYTES_PER_TOKEN).max(1);
        // Calls that were not asked for are no reply.
        let calls = if request.tools.is_some() { self.tool_calls.text() } else { String::new() };
        let text_bytes = (self.text.len() + calls.len()) as u64;
        let least_out = (text_bytes / MOST_BYTES_PER_TOKEN).max(u64::from(text_bytes > 0));
        let most_out = request.max_tokens.max(text_bytes);
        match self.reported() {
            Some((tokens_in, tokens_out))
                if (least_in..=most_in).contains(&tokens_in) && (least_out..=most_out).contains(&tokens_out) =>
            {
                Usage { tokens_in, tokens_out, counted: false }
            }
            // Who can tell what a model did that says nothing, or what would have been reported?
            _ if self.broke_off || text_bytes == 0 => reserved(request),
            _ => counted(request, &(self.text.clone() + &calls), &self.reasoning, self.is_truncated()),
        }
    }

    fn reported(&self) -> Option<(u64, u64)> {
        let count = |key| self.usage.as_ref()?.get(key)?.as_u64();
        Some((count("prompt_tokens")?, count("completion_tokens")?))
    }
}

/// Usage counted here, within what the call was allowed. A reply cut off at its limit has as many tokens as that.
fn counted(request: &Request, text: &str, reasoning: &str, truncated: bool) -> Usage {
    let written = if truncated { request.max_tokens } else { tokens::count(text) + tokens::count(reasoning) };
    let messages = written_out(request);
    Usage {
        tokens_in: tokens::count_conversation(&messages).min(tokens::at_most(&messages)),
        tokens_out: written.min(request.max_tokens),
        counted: true,
    }
}

/// All that was reserved for a call.
fn reserved(request: &Request) -> Usage {
    Usage { tokens_in: tokens::at_most(&written_out(request)), tokens_out: request.max_tokens, counted: true }
}

pub(super) fn error_message(error: &Value) -> String {
    let message = error.get("message").and_then(Value::as_str).or(error.as_str());
    message.map_or_else(|| error.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_of_a_reply_follows_from_its_tokens() {
        let Bounds { text, held, wire } = Bounds::of(1024);
        assert_eq!((text, held, wire), (96 << 10, 768 << 10, 5 << 20));
        assert_eq!(Bounds::of(u64::MAX), Bounds { text: 16 << 20, held: 16 << 20, wire: 16 << 20 });
    }
}
