//! Workers in this process: language models that need no endpoint, network or key.
//!
//! `Request → prompt of the model's own form → engine → Reply`. Everything hard is `policy::serve`'s; here a conversation
//! becomes tokens, levels find their engines, and what can go wrong becomes what the executor knows.

mod calibration;
mod model;
mod short;

pub use calibration::Calibration;
pub use model::{CARD, Card, LocalError, LocalModel, PromptForm};
pub use short::{OUT_OF_REACH, is_word_problem};

use async_trait::async_trait;
use lemon_exec::worker::{AgentPrompt, AskError, ChatMessage, FailedCost, Reply, Request, Speaker, Usage, Worker};
use lemon_model::serve::{self, Finish, ServeError, Tell};
use lemon_model::tokenizer::{Message, Role};
use lemon_problems::{doubts, read_answer};
use lemon_trace::FailureKind;
use short::short_prompt;
use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Workers that are models of this process, one for each level; levels may share one.
pub struct Local {
    levels: Vec<LocalModel>,
    said: Mutex<Said>,
}

/// Replies that chance had no part in, and the tokens of all of them and of their prompts.
#[derive(Default)]
struct Said {
    replies: HashMap<Asked, serve::Reply>,
    tokens: usize,
}

/// What was asked without chance: the level, the prompt, and how many tokens the reply may have. The same is said again.
type Asked = (usize, Vec<u32>, usize);

/// Tokens that are kept; then it begins anew. In training and in evaluations many teams ask the same, and most of it soon.
const MOST_KEPT: usize = 1 << 23;

impl Local {
    /// Workers for these levels, weakest first.
    pub fn new(levels: Vec<LocalModel>) -> Local {
        Local { levels, said: Mutex::default() }
    }

    /// What was said to this before.
    fn said(&self, asked: &Asked) -> Option<serve::Reply> {
        lock(&self.said).replies.get(asked).cloned()
    }

    fn keep(&self, asked: Asked, reply: serve::Reply) {
        let tokens = asked.1.len() + reply.tokens.len();
        let mut said = lock(&self.said);
        if said.tokens + tokens > MOST_KEPT {
            *said = Said::default();
        }
        said.tokens += tokens;
        said.replies.insert(asked, reply);
    }
}

/// A panic elsewhere leaves whole replies: nothing else is ever put in.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[async_trait]
impl Worker for Local {
    /// Asks once. Dropping the future ends the reply where it is.
    async fn ask(&self, request: &Request) -> Result<Reply, AskError> {
        let Some(level) = self.levels.get(request.level) else {
            let message = format!("no model serves `{}`", request.capacity);
            return Err(AskError::free(FailureKind::Refused, message));
        };
        let asked = serve::Request {
            prompt: prompt(level, request)?,
            max_tokens: most_tokens(request),
            temperature: temperature(level, request),
            top_p: level.top_p,
            seed: request.seed,
            stop: level.stop.clone(),
            caller: caller(),
        };
        let key = (asked.temperature == 0.0).then(|| (request.level, asked.prompt.clone(), asked.max_tokens));
        if let Some(reply) = key.as_ref().and_then(|key| self.said(key)) {
            request.progress.iter().for_each(|progress| progress.tell(&reply.text));
            return usable(reply, request, level);
        }
        let tell = request.progress.clone().map(|progress| -> Tell { Box::new(move |piece| progress.tell(piece)) });
        let ticket = level.engine.try_submit_told(asked, tell).map_err(|error| failure(&level.name, &error))?;
        let reply = ticket.await.map_err(|error| failure(&level.name, &error))?;
        if let Some(key) = key {
            self.keep(key, reply.clone());
        }
        usable(reply, request, level)
    }

    /// Where nothing is drawn by chance: the prompt, and what the calibration looks at.
    fn cache_key(&self, request: &Request) -> Option<Vec<u8>> {
        let level = self.levels.get(request.level).filter(|level| temperature(level, request) == 0.0)?;
        let prompt = prompt(level, request).ok()?;
        serde_json::to_vec(&(prompt, most_tokens(request), &brief(request).question)).ok()
    }

    fn has_cache_keys(&self) -> bool {
        self.levels.iter().any(|level| level.form == PromptForm::Short)
    }
}

fn temperature(level: &LocalModel, request: &Request) -> f32 {
    request.temperature.map_or(level.temperature, |temperature| temperature as f32)
}

fn most_tokens(request: &Request) -> usize {
    usize::try_from(request.max_tokens).unwrap_or(usize::MAX)
}

/// What an agent was told; of somebody who only asks a question, what was said last.
fn brief(request: &Request) -> Cow<'_, AgentPrompt> {
    match &request.agent_prompt {
        Some(brief) => Cow::Borrowed(brief.as_ref()),
        None => {
            let said = request.messages.iter().rfind(|message| message.role == Speaker::User);
            let question = said.map_or("", |message| message.content.as_str());
            Cow::Owned(AgentPrompt { question: question.into(), ..AgentPrompt::default() })
        }
    }
}

/// The prompt in the form that the model was taught.
fn prompt(level: &LocalModel, request: &Request) -> Result<Vec<u32>, AskError> {
    let tokenizer = level.engine.tokenizer();
    let refused = |fact: String| AskError::free(FailureKind::Refused, format!("{}: {fact}", level.name));
    match level.form {
        PromptForm::Chat => {
            let messages: Vec<Message> = request.messages.iter().map(message).collect();
            tokenizer.prompt(&messages).map_err(|error| refused(error.to_string()))
        }
        PromptForm::Short => {
            let brief = brief(request);
            if !is_word_problem(&brief.question) {
                return Err(refused(format!("it solves {OUT_OF_REACH}")));
            }
            Ok(tokenizer.encode_plain(&short_prompt(&brief, request.seed)))
        }
    }
}

/// Who asks: a run is a task of its own, and its agents are futures inside it.
fn caller() -> u64 {
    let mut hasher = DefaultHasher::new();
    tokio::task::try_id().hash(&mut hasher);
    hasher.finish()
}

fn message(message: &ChatMessage) -> Message {
    let role = match message.role {
        Speaker::System => Role::System,
        Speaker::User => Role::User,
        Speaker::Assistant => Role::Assistant,
    };
    Message { role, content: message.content.clone() }
}

/// A reply that says something, as the executor wants it.
fn usable(reply: serve::Reply, request: &Request, level: &LocalModel) -> Result<Reply, AskError> {
    let usage =
        Usage { tokens_in: reply.usage.prompt as u64, tokens_out: reply.usage.completion as u64, counted: false };
    let likelihood = reply.confidence();
    let confidence = Some(match &level.calibration {
        // Of a plan nobody knows whether it is right.
        Some(calibration) if read_answer(&reply.text).is_some() => {
            calibration.probability(likelihood, doubts(&brief(request).question, &reply.text))
        }
        _ => likelihood,
    });
    let truncated = reply.finish == Finish::Length;
    if reply.text.trim().is_empty() {
        let (kind, message) = match truncated {
            true => (
                FailureKind::Truncated,
                format!("the reply was cut off at {} tokens before it had text", usage.tokens_out),
            ),
            false => (FailureKind::Empty, "the reply has no text".to_owned()),
        };
        return Err(AskError { cost: FailedCost::Known(usage), ..AskError::free(kind, message) });
    }
    let model = Some(level.name.clone());
    Ok(Reply { text: reply.text, usage, model, simulated_s: None, confidence, truncated })
}

fn failure(name: &str, error: &ServeError) -> AskError {
    let message = format!("{name}: {error}");
    match error {
        ServeError::QueueFull { .. } => {
            AskError { retry_after: Some(Duration::from_secs(1)), ..AskError::free(FailureKind::RateLimited, message) }
        }
        ServeError::PromptTooLong { .. } | ServeError::Request(_) => AskError::free(FailureKind::Refused, message),
        // Nothing is charged for what is computed here, but a model was at work.
        ServeError::NotNumbers | ServeError::Closed => AskError::unknown_cost(FailureKind::Refused, message),
    }
}
