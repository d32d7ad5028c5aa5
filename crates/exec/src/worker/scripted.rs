//! Workers that say what a script says: for tests and demonstrations. No model is called.

use super::{AskError, Reply, Request, Usage, Worker};
use crate::tokens;
use async_trait::async_trait;
use lemon_trace::FailureKind;
use serde::Deserialize;
use std::time::Duration;

/// Rules in order: the first that fits a request answers it.
///
/// ```
/// use lemon_exec::worker::Script;
/// let script = Script::parse(r#"
///     [[reply]]
///     agent = "check*"            # an id, or its beginning and a star
///     contains = "jacket"         # somewhere in the conversation
///     text = "It holds.\nAnswer: 68"
///
///     [[reply]]                   # no condition: every other call
///     text = "Answer: 70"
///     delay_ms = 200
/// "#);
/// assert!(script.is_ok());
/// ```
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Script {
    /// The rules.
    #[serde(default)]
    pub reply: Vec<ScriptRule>,
}

/// One rule of a [`Script`]: conditions, and what is said where all of them hold.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ScriptRule {
    /// The agent's id, or its beginning and a `*`.
    pub agent: Option<String>,
    pub capacity: Option<String>,
    /// A text somewhere in the conversation.
    pub contains: Option<String>,
    /// What is said.
    pub text: Option<String>,
    /// How the call fails instead.
    pub error: Option<FailureKind>,
    /// How long it takes.
    pub delay_ms: u64,
}

/// A script that cannot be used.
#[derive(Debug, Clone, thiserror::Error)]
#[error("the script cannot be read: {0}")]
pub struct ScriptError(String);

impl Script {
    /// Reads a script in TOML.
    ///
    /// # Errors
    /// What is wrong with it, and where.
    pub fn parse(text: &str) -> Result<Self, ScriptError> {
        let script: Script = toml::from_str(text).map_err(|error| ScriptError(error.to_string()))?;
        match script.reply.iter().position(|rule| rule.text.is_some() == rule.error.is_some()) {
            Some(at) => Err(ScriptError(format!("rule {} needs either `text` or `error`, and not both", at + 1))),
            None => Ok(script),
        }
    }
}

impl ScriptRule {
    fn fits(&self, request: &Request) -> bool {
        let agent = |pattern: &String| match pattern.strip_suffix('*') {
            Some(beginning) => request.agent.starts_with(beginning),
            None => request.agent == *pattern,
        };
        let said = |text: &String| request.messages.iter().any(|message| message.content.contains(text.as_str()));
        self.agent.as_ref().is_none_or(agent)
            && self.capacity.as_ref().is_none_or(|capacity| request.capacity == *capacity)
            && self.contains.as_ref().is_none_or(said)
    }
}

/// Workers that follow a [`Script`].
pub struct Scripted {
    script: Script,
}

impl Scripted {
    /// Workers that follow this script.
    pub fn new(script: Script) -> Self {
        Scripted { script }
    }
}

#[async_trait]
impl Worker for Scripted {
    async fn ask(&self, request: &Request) -> Result<Reply, AskError> {
        let Some(rule) = self.script.reply.iter().find(|rule| rule.fits(request)) else {
            let message = format!("the script has no reply for agent `{}`", request.agent);
            return Err(AskError::free(FailureKind::NotRecorded, message));
        };
        tokio::time::sleep(Duration::from_millis(rule.delay_ms)).await;
        if let Some(kind) = rule.error {
            return Err(AskError::free(kind, "the script says so"));
        }
        let text = rule.text.clone().unwrap_or_default();
        let (text, truncated) = match tokens::cut(&text, request.max_tokens) {
            Some(cut) => (cut, true),
            None => (text, false),
        };
        let usage = Usage {
            tokens_in: tokens::count_conversation(&request.messages).min(tokens::at_most(&request.messages)),
            tokens_out: if truncated { request.max_tokens } else { tokens::count(&text) },
            counted: true,
        };
        request.progress.iter().for_each(|progress| progress.tell(&text));
        Ok(Reply {
            text,
            usage,
            model: Some("scripted".into()),
            simulated_s: None,
            confidence: None,
            truncated,
            tool_calls: Vec::new(),
        })
    }
}
