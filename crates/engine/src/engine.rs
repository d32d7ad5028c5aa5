//! Serving a model: many callers, one model, replies as quick as the machine allows.
//!
//! `prompt → queue → place in the batch → steps → reply`. One thread has the model. At each step all texts that are being
//! written advance by one token and prompts are read in pieces between them; a text that ends makes room for the next one in
//! the queue. Keys and values lie in blocks that texts with the same beginning share.
//!
//! **The same request gets the same reply**, to the bit, whatever else is being written, shared or computed beside it:
//! every row of every operation depends on that row alone.

mod blocks;
mod choose;
mod crew;
mod desk;
mod network;
mod queue;
mod room;
#[cfg(test)]
mod tests;
mod text;
mod ticket;

pub use crate::ops::panels::WeightForm;
pub use crew::Crew;
pub use ticket::Ticket;

use crate::config::ModelConfig;
use crate::folder::{Folder, Packed};
use crate::ops::paged::BLOCK;
use crate::ops::panels;
use crate::parameters::Origin;
use crate::{PolicyError, Tokenizer};
use desk::{Desk, Machine};
use network::Network;
use queue::Queue;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;

/// A model that is being served. Dropping it ends what is being written.
pub struct Engine {
    queue: Arc<Queue>,
    machine: Arc<Machine>,
    tokenizer: Tokenizer,
    gauges: Arc<Gauges>,
    /// Tokens of a prompt and its reply together at most.
    longest: usize,
    thread: Option<JoinHandle<()>>,
}

/// How a model is served.
#[derive(Clone)]
pub struct EngineSettings {
    /// Who computes. Engines that share a crew take turns instead of getting into each other's way.
    pub crew: Arc<Crew>,
    /// How weights are kept.
    pub weights: WeightForm,
    /// Texts that are written at a time.
    pub width: usize,
    /// Tokens whose keys and values are kept, of texts that are being written and of those before. It bounds the memory.
    pub cache_tokens: usize,
    /// Rows of prompts that are read in one step, at least a block; more would hold up the texts that are being written.
    pub chunk: usize,
    /// Requests that may wait.
    pub queue: usize,
    /// Whether texts with the same beginning share what was computed for it. It changes no reply.
    pub share: bool,
}

impl Default for EngineSettings {
    fn default() -> Self {
        EngineSettings {
            crew: Crew::shared(),
            weights: WeightForm::default(),
            width: 64,
            cache_tokens: 16_384,
            chunk: 256,
            queue: 4_096,
            share: true,
        }
    }
}

/// A text to be continued.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// The tokens before the reply.
    pub prompt: Vec<u32>,
    /// Tokens of the reply at most.
    pub max_tokens: usize,
    /// 0 takes the likeliest token each time.
    pub temperature: f32,
    /// Only the likeliest tokens that together have this probability are drawn from.
    pub top_p: f32,
    /// The seed of its draws. Requests with the same seed share their luck: where their distributions are alike, so are their
    /// tokens.
    pub seed: u64,
    /// Texts that end the reply, and are not part of it.
    pub stop: Vec<String>,
    /// Who asks. Callers take turns, so that many requests of one do not hold up the few of another.
    pub caller: u64,
}

impl Request {
    /// The likeliest continuation of a prompt.
    pub fn new(prompt: Vec<u32>, max_tokens: usize) -> Request {
        Request { prompt, max_tokens, temperature: 0.0, top_p: 1.0, seed: 0, stop: Vec::new(), caller: 0 }
    }
}

/// Is told each piece of a reply as it is written. It runs on the thread that has the model: it must not block.
pub type Tell = Box<dyn Fn(&str) + Send>;

/// What became of a request.
#[derive(Debug, Clone, PartialEq)]
pub struct Reply {
    /// The text, without what ended it.
    pub text: String,
    /// The tokens, with what ended it.
    pub tokens: Vec<u32>,
    /// The log-probability of each token by the model itself: at temperature one, before any cut.
    pub logprobs: Vec<f32>,
    /// Why it ended.
    pub finish: Finish,
    /// Tokens that were read and written.
    pub usage: Usage,
}

impl Reply {
    /// How sure the model was: the geometric mean of the probabilities of the tokens.
    pub fn confidence(&self) -> f64 {
        let sum: f64 = self.logprobs.iter().map(|logprob| f64::from(*logprob)).sum();
        (sum / self.logprobs.len().max(1) as f64).exp()
    }
}

/// Why a reply ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Finish {
    /// The model ended it.
    Stop,
    /// A stop string came up.
    StopString,
    /// As many tokens as were allowed, or as the model can read.
    Length,
}

/// Tokens that were read and written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Tokens of the prompt.
    pub prompt: usize,
    /// Of these, the ones that had been computed for another text.
    pub reused: usize,
    /// Tokens of the reply, with the one that ended it.
    pub completion: usize,
}

/// Why there is no reply.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ServeError {
    /// Too many requests wait already.
    #[error("the queue is full: {waiting} requests wait; try again later")]
    QueueFull {
        /// How many wait.
        waiting: usize,
    },
    /// The prompt leaves no room for a reply.
    #[error("the prompt has {tokens} tokens, and at most {most} can be read and written together; shorten it")]
    PromptTooLong {
        /// Tokens of the prompt.
        tokens: usize,
        /// Tokens of prompt and reply together at most.
        most: usize,
    },
    /// The request makes no sense.
    #[error("{0}")]
    Request(String),
    /// The model computes no numbers.
    #[error("the model's logits are not numbers; its weights are damaged")]
    NotNumbers,
    /// The engine ended before the reply did.
    #[error("the engine was closed before the reply was complete")]
    Closed,
}

/// What an engine is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Status {
    /// Requests that wait.
    pub waiting: usize,
    /// Texts that are being written.
    pub running: usize,
    /// Tokens of the cache that these texts read.
    pub read_tokens: usize,
    /// Tokens of the cache that hold something.
    pub cached_tokens: usize,
    /// Tokens the cache has room for.
    pub cache_tokens: usize,
}

/// What the thread of the model shows of itself.
#[derive(Default)]
struct Gauges {
    running: AtomicUsize,
    read_tokens: AtomicUsize,
    cached_tokens: AtomicUsize,
    cache_tokens: AtomicUsize,
}

impl Engine {
    /// Serves a model from a folder as on the Hugging Face hub.
    ///
    /// # Errors
    /// A file is missing, cut short, or not what the config says.
    pub fn load(folder: &Path, settings: EngineSettings) -> Result<Engine, PolicyError> {
        Self::read(Folder::Disk(folder), settings)
    }

    /// Serves a model whose files are part of the program.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub fn load_packed(files: Packed, settings: EngineSettings) -> Result<Engine, PolicyError> {
        Self::read(Folder::Packed(files), settings)
    }

    fn read(folder: Folder<'_>, settings: EngineSettings) -> Result<Engine, PolicyError> {
        let (config, tokenizer) = (ModelConfig::load(folder)?, Tokenizer::read(folder)?);
        Self::make(config, tokenizer, &Origin::Folder(folder), settings)
    }

    /// Serves a model that knows nothing: to measure with.
    ///
    /// # Errors
    /// The tokenizer has more tokens than the model.
    pub fn fresh(
        config: ModelConfig,
        tokenizer: Tokenizer,
        seed: u64,
        settings: EngineSettings,
    ) -> Result<Engine, PolicyError> {
        Self::make(config, tokenizer, &Origin::Seed(seed), settings)
    }

    fn make(
        config: ModelConfig,
        tokenizer: Tokenizer,
        origin: &Origin<'_>,
        settings: EngineSettings,
    ) -> Result<Engine, PolicyError> {
        if tokenizer.vocabulary() > config.vocabulary {
            let (tokens, rows) = (tokenizer.vocabulary(), config.vocabulary);
            return Err(PolicyError::Request(format!("the tokenizer has {tokens} tokens, the model {rows}")));
        }
        if config.kv_heads == 0 || !config.heads.is_multiple_of(config.kv_heads) || !config.head_dim.is_multiple_of(2) {
            let ModelConfig { heads, kv_heads, head_dim, .. } = config;
            let fact = format!("{heads} heads of width {head_dim} cannot share {kv_heads} key heads evenly");
            return Err(PolicyError::Request(fact));
        }
        let blocks = settings.cache_tokens / BLOCK;
        if blocks < 2 || settings.width == 0 || settings.chunk < BLOCK {
            let fact = format!("an engine needs a cache of at least {} tokens, a width and a chunk", 2 * BLOCK);
            return Err(PolicyError::Request(fact));
        }
        let longest = config.positions.min(blocks * BLOCK);
        let network = Network::new(config, origin, settings.weights)?;
        if network.parts() > crew::MOST_PARTS {
            return Err(PolicyError::Request("the model has more layers than can be served".to_owned()));
        }
        let (rows, threads) = (settings.chunk.saturating_add(settings.width), settings.crew.size());
        let fact = "there is no memory for the cache and the width asked for";
        let machine = Machine::new(network, rows, settings.width, blocks, threads);
        let machine = Arc::new(machine.ok_or_else(|| PolicyError::Request(fact.to_owned()))?);
        let queue = Arc::new(Queue::new(settings.queue));
        let gauges = Arc::new(Gauges { cache_tokens: AtomicUsize::new(blocks * BLOCK), ..Gauges::default() });
        let desk = Desk::new(machine.clone(), tokenizer.clone(), queue.clone(), gauges.clone(), settings, blocks);
        let thread = std::thread::Builder::new().name("engine".to_owned()).spawn(move || desk.run());
        let thread = thread.map_err(|error| PolicyError::Request(format!("no thread for the model: {error}")))?;
        Ok(Engine { queue, machine, tokenizer, gauges, longest, thread: Some(thread) })
    }

    /// Asks for a reply. It never waits: where the queue is full, it says so. Dropping the ticket takes the request back,
    /// also in the middle of its reply.
    ///
    /// # Errors
    /// The queue is full, or the request cannot be served.
    pub fn try_submit(&self, request: Request) -> Result<Ticket, ServeError> {
        self.try_submit_told(request, None)
    }

    /// As [`Self::try_submit`]; `tell` gets each piece of the text as it is written. The pieces, joined, are the reply's text.
    ///
    /// # Errors
    /// As [`Self::try_submit`].
    pub fn try_submit_told(&self, request: Request, tell: Option<Tell>) -> Result<Ticket, ServeError> {
        let tokens = request.prompt.len();
        if tokens == 0 || request.max_tokens == 0 {
            return Err(ServeError::Request("a prompt and its reply have at least one token each".to_owned()));
        }
        if tokens >= self.longest {
            return Err(ServeError::PromptTooLong { tokens, most: self.longest });
        }
        let vocabulary = self.config().vocabulary;
        if let Some(token) = request.prompt.iter().find(|token| **token as usize >= vocabulary) {
            return Err(ServeError::Request(format!("token {token} of the prompt: the model knows {vocabulary}")));
        }
        if !(request.temperature.is_finite() && request.temperature >= 0.0 && request.top_p >= 0.0) {
            let Request { temperature, top_p, .. } = request;
            let fact = format!("a temperature of {temperature} and a top_p of {top_p}: neither may be negative");
            return Err(ServeError::Request(fact));
        }
        let left = self.longest - tokens;
        self.queue.push(Request { max_tokens: request.max_tokens.min(left), ..request }, tell)
    }

    /// Its tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// The shape of its model.
    pub fn config(&self) -> &ModelConfig {
        &self.machine.network.config
    }

    /// Bytes of weights that have to be read for a step: what bounds the speed of a single text.
    pub fn bytes_per_step(&self) -> usize {
        self.machine.network.bytes_read()
    }

    /// A number that follows from all weights, as they are kept, and from the model's figures: two engines with the same one
    /// and the same tokenizer give the same replies.
    pub fn fingerprint(&self) -> u64 {
        let figures = self.config().to_json("").into_bytes().into_iter().map(u64::from);
        panels::mixed([self.machine.network.fingerprint(), self.longest as u64].into_iter().chain(figures))
    }

    /// Tokens of a prompt and its reply together at most.
    pub fn longest(&self) -> usize {
        self.longest
    }

    /// What it is doing, as of its last step.
    pub fn status(&self) -> Status {
        let read = |gauge: &AtomicUsize| gauge.load(Ordering::Acquire);
        Status {
            waiting: self.queue.waiting(),
            running: read(&self.gauges.running),
            read_tokens: read(&self.gauges.read_tokens),
            cached_tokens: read(&self.gauges.cached_tokens),
            cache_tokens: read(&self.gauges.cache_tokens),
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.queue.close();
        // A reply's waker may own the engine, and is woken in the engine's own thread: that one cannot wait for itself.
        let here = std::thread::current().id();
        if let Some(thread) = self.thread.take().filter(|thread| thread.thread().id() != here) {
            // If it panicked, it has said so, and nobody waits for it any more.
            let _ = thread.join();
        }
    }
}
