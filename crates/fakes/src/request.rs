//! The request as the fake understands it: the part of the protocol its replies depend on.

use serde::{Deserialize, Deserializer};
use serde_json::Value;
use std::hash::{DefaultHasher, Hash, Hasher};

/// A request for a chat completion.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[non_exhaustive]
pub struct ChatRequest {
    /// The how-many-th request it is, from 1.
    #[serde(skip)]
    pub number: u64,
    /// How many earlier requests had the same messages.
    #[serde(skip)]
    pub asked_before: u64,
    /// The model asked for.
    pub model: String,
    /// The conversation.
    pub messages: Vec<SeenMessage>,
    /// Whether the reply is to come as a stream.
    #[serde(default, deserialize_with = "or_default")]
    pub stream: bool,
    /// Whether a stream is to end with the token counts.
    #[serde(default, rename = "stream_options", deserialize_with = "include_usage")]
    pub include_usage: bool,
    /// The older name of the limit on the reply's tokens.
    pub max_tokens: Option<u64>,
    /// The newer name of the limit; it wins.
    pub max_completion_tokens: Option<u64>,
    /// The form the reply is to have.
    pub response_format: Option<Value>,
    /// The tools that the reply may call.
    pub tools: Option<Value>,
}

/// One message of a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Deserialize)]
#[non_exhaustive]
pub struct SeenMessage {
    /// `system`, `user`, `assistant`, …
    pub role: String,
    /// Its text; the texts of all parts where the content is a list.
    #[serde(default, deserialize_with = "content")]
    pub content: String,
    /// The calls of tools that it asks for.
    #[serde(default)]
    pub tool_calls: Option<Value>,
    /// The call whose result it is.
    #[serde(default)]
    pub tool_call_id: Option<String>,
}

impl ChatRequest {
    /// Names the conversation: equal messages have equal keys, whatever else the requests say.
    pub fn key(&self) -> u64 {
        // Made by `new`, this hasher has the same keys in every process, unlike those of a `HashMap`.
        let mut hasher = DefaultHasher::new();
        self.messages.hash(&mut hasher);
        hasher.finish()
    }

    /// How many results of tools it has.
    pub fn results(&self) -> usize {
        self.messages.iter().filter(|message| message.role == "tool").count()
    }

    /// The text of the last message of this role, or the empty text.
    pub fn last(&self, role: &str) -> &str {
        self.messages.iter().rev().find(|message| message.role == role).map_or("", |message| &message.content)
    }

    /// The texts of all messages, one after another, for `contains`.
    pub fn text(&self) -> String {
        self.messages.iter().map(|message| message.content.as_str()).collect::<Vec<_>>().join("\n")
    }

    /// The tokens of the prompt: the words of all messages.
    pub fn prompt_tokens(&self) -> usize {
        self.messages.iter().map(|message| message.content.split_whitespace().count()).sum()
    }

    /// The most tokens the reply may have.
    pub fn limit(&self) -> Option<u64> {
        self.max_completion_tokens.or(self.max_tokens)
    }
}

/// Takes `null` for a field that is left out, as the protocol does.
fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(value: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(value)?.unwrap_or_default())
}

fn include_usage<'de, D: Deserializer<'de>>(value: D) -> Result<bool, D::Error> {
    #[derive(Default, Deserialize)]
    struct StreamOptions {
        #[serde(default)]
        include_usage: bool,
    }
    or_default::<D, StreamOptions>(value).map(|options| options.include_usage)
}

fn content<'de, D: Deserializer<'de>>(value: D) -> Result<String, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Content {
        Text(String),
        Parts(Vec<Part>),
    }
    #[derive(Deserialize)]
    struct Part {
        #[serde(default)]
        text: String,
    }
    Ok(match Option::deserialize(value)? {
        None => String::new(),
        Some(Content::Text(text)) => text,
        Some(Content::Parts(parts)) => parts.into_iter().map(|part| part.text).collect(),
    })
}
