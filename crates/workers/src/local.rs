//! Workers in this process: language models that need no endpoint, network or key.
//!
//! `Request → prompt of the model's own form → engine → Reply`. The engine computes; this module turns a conversation into
//! tokens, finds the model of a capacity, loads it when it is first asked, and turns failures into those the executor knows.

mod calibrate;
mod calibration;
mod lazy;
mod model;
mod short;
mod tools;

pub use calibrate::{CalibrateError, Calibrated, calibrate};
pub use calibration::Calibration;
pub use lazy::LazyModel;
pub use model::{CARD, Card, LocalError, LocalModel, PromptForm};
pub use short::{OUT_OF_REACH, is_word_problem};

pub(crate) use lazy::check;

use async_trait::async_trait;
use lemon_engine::{Completion, CompletionRequest, EngineError, FinishReason, OnText};
use lemon_exec::worker::{AgentPrompt, AskError, ChatMessage, FailedCost, Reply, Request, Speaker, Usage, Worker};
use lemon_model::tokenizer::{Message, Role};
use lemon_problems::{doubts, read_answer};
use lemon_trace::FailureKind;
use short::short_prompt;
use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tools::CallGrammars;

/// Workers that are models of this process, one for each capacity; capacities may share one.
pub struct Local {
    models: Vec<Arc<LazyModel>>,
    cache: Mutex<GreedyCache>,
    grammars: CallGrammars,
}

/// Replies at temperature 0, and the tokens of all of them and of their prompts.
#[derive(Default)]
struct GreedyCache {
    replies: HashMap<GreedyKey, Completion>,
    tokens: usize,
}

/// What determines a reply at temperature 0: the capacity, the prompt, and how many tokens the reply may have.
type GreedyKey = (usize, Vec<u32>, usize);

/// Tokens that the cache holds before it is emptied. In training and in evaluations many teams ask the same within a short time.
const MOST_CACHED: usize = 1 << 23;

impl Local {
    /// Workers for these capacities, weakest first.
    pub fn new(models: Vec<LocalModel>) -> Local {
        Local::lazy(models.into_iter().map(|model| Arc::new(LazyModel::from(model))).collect())
    }

    /// The same for models that are loaded when they are first asked.
    pub fn lazy(models: Vec<Arc<LazyModel>>) -> Local {
        Local { models, cache: Mutex::default(), grammars: CallGrammars::default() }
    }

    fn cached(&self, key: &GreedyKey) -> Option<Completion> {
        lock(&self.cache).replies.get(key).cloned()
    }

    fn keep(&self, key: GreedyKey, reply: Completion) {
        let tokens = key.1.len() + reply.tokens.len();
        let mut cache = lock(&self.cache);
        if cache.tokens + tokens > MOST_CACHED {
            *cache = GreedyCache::default();
        }
        cache.tokens += tokens;
        cache.replies.insert(key, reply);
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
        let Some(model) = self.models.get(request.level) else {
            let message = format!("no model serves `{}`", request.capacity);
            return Err(AskError::free(FailureKind::Refused, message));
        };
        let level = model.ready().await?;
        let asked = CompletionRequest {
            prompt: prompt(level, request)?,
            max_tokens: most_tokens(request),
            temperature: temperature(level, request),
            top_p: level.top_p,
            seed: request.seed,
            stop: level.stop.clone(),
            constraints: Arc::default(),
            caller: caller(),
        };
        let asked = self.grammars.constrain(asked, level.engine.tokenizer(), request);
        let key = (asked.temperature == 0.0).then(|| (request.level, asked.prompt.clone(), asked.max_tokens));
        if let Some(reply) = key.as_ref().and_then(|key| self.cached(key)) {
            request.progress.iter().for_each(|progress| progress.tell(&reply.text));
            return usable(reply, request, level);
        }
        let tell = request.progress.clone().map(|progress| -> OnText { Box::new(move |piece| progress.tell(piece)) });
        let ticket = level.engine.try_submit_streaming(asked, tell).map_err(|error| failure(&level.name, &error))?;
        let reply = ticket.await.map_err(|error| failure(&level.name, &error))?;
        if let Some(key) = key {
            self.keep(key, reply.clone());
        }
        usable(reply, request, level)
    }

    /// At temperature 0: the prompt, and what the calibration looks at.
    fn cache_key(&self, request: &Request) -> Option<Vec<u8>> {
        // A model that cannot be loaded and a prompt that cannot be made have no replies to share; `ask` reports them.
        let level = self.models.get(request.level)?.load().ok().filter(|level| temperature(level, request) == 0.0)?;
        let prompt = prompt(level, request).ok()?;
        serde_json::to_vec(&(prompt, most_tokens(request), &agent_prompt(request).question)).ok()
    }

    /// The template of a model that is spoken to by one says how; one without tools is told of them in plain text, here.
    fn calls_tools(&self, level: usize) -> bool {
        self.models.get(level).is_some_and(|model| model.form() == PromptForm::Chat)
    }

    fn has_cache_keys(&self) -> bool {
        self.models.iter().any(|model| model.form() == PromptForm::Short)
    }
}

fn temperature(level: &LocalModel, request: &Request) -> f32 {
    request.temperature.map_or(level.temperature, |temperature| temperature as f32)
}

fn most_tokens(request: &Request) -> usize {
    usize::try_from(request.max_tokens).unwrap_or(usize::MAX)
}

/// What the agent was told; of a request without an agent, the last message of the user.
fn agent_prompt(request: &Request) -> Cow<'_, AgentPrompt> {
    match &request.agent_prompt {
        Some(agent_prompt) => Cow::Borrowed(agent_prompt.as_ref()),
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
            let messages: Vec<Message> = match request.speaks_of_tools() {
                true => match tools::prompt(tokenizer, request) {
                    Some(tokens) => return Ok(tokens),
                    None => tools::written_out(request).iter().map(message).collect(),
                },
                false => request.messages.iter().map(message).collect(),
            };
            tokenizer.prompt(&messages).map_err(|error| refused(error.to_string()))
        }
        PromptForm::Short => {
            let agent_prompt = agent_prompt(request);
            if !is_word_problem(&agent_prompt.question) {
                return Err(refused(format!("it solves {OUT_OF_REACH}")));
            }
            Ok(tokenizer.encode_plain(&short_prompt(&agent_prompt, request.seed)))
        }
    }
}

/// The run that asks: a run is a task of its own, and its agents are futures inside it.
fn caller() -> u64 {
    let mut hasher = DefaultHasher::new();
    tokio::task::try_id().hash(&mut hasher);
    hasher.finish()
}

fn message(message: &ChatMessage) -> Message {
    Message { role: role(message.role), content: message.content.clone() }
}

fn role(speaker: Speaker) -> Role {
    match speaker {
        Speaker::System => Role::System,
        // In plain text a result is something that the model is told.
        Speaker::User | Speaker::Tool => Role::User,
        Speaker::Assistant => Role::Assistant,
    }
}

/// A reply that says something, as the executor wants it.
fn usable(reply: Completion, request: &Request, level: &LocalModel) -> Result<Reply, AskError> {
    let usage =
        Usage { tokens_in: reply.usage.prompt as u64, tokens_out: reply.usage.completion as u64, counted: false };
    let likelihood = reply.confidence();
    let confidence = Some(match &level.calibration {
        // A plan has no answer that could be right.
        Some(calibration) if read_answer(&reply.text).is_some() => {
            calibration.probability(likelihood, doubts(&agent_prompt(request).question, &reply.text))
        }
        _ => likelihood,
    });
    let truncated = reply.finish == FinishReason::Length;
    let (text, tool_calls) = tools::calls(&reply.text, level.engine.tokenizer(), request);
    if text.trim().is_empty() && tool_calls.is_empty() {
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
    Ok(Reply { text, usage, model, simulated_s: None, confidence, truncated, tool_calls })
}

fn failure(name: &str, error: &EngineError) -> AskError {
    let message = format!("{name}: {error}");
    match error {
        EngineError::QueueFull { .. } => {
            AskError { retry_after: Some(Duration::from_secs(1)), ..AskError::free(FailureKind::RateLimited, message) }
        }
        EngineError::PromptTooLong { .. } | EngineError::Request(_) => AskError::free(FailureKind::Refused, message),
        // Nothing is charged for what is computed here, but a model was at work.
        EngineError::NotNumbers | EngineError::Device(_) | EngineError::Closed => {
            AskError::unknown_cost(FailureKind::Refused, message)
        }
    }
}
