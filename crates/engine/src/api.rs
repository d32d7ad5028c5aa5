//! What callers give to an engine and get back: settings, requests, completions, errors, status.

use crate::kernels::panels::WeightForm;
use crate::thread_pool::ThreadPool;
use lemon_model::{Constraint, DeviceChoice};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// How a model is served.
#[derive(Clone)]
pub struct EngineSettings {
    /// Where the model is served. On a GPU, weights and cache are in bf16, [`Self::threads`] and [`Self::weights`] have no
    /// effect, and width, chunk and cache are raised to what is usual there. With [`DeviceChoice::Auto`] a model that the GPU
    /// cannot run is served on the CPU.
    pub device: DeviceChoice,
    /// The threads that compute. Engines that share a pool take turns instead of competing for processors.
    pub threads: Arc<ThreadPool>,
    /// How weights are stored in memory.
    pub weights: WeightForm,
    /// Sequences in the batch at most.
    pub width: usize,
    /// Tokens whose keys and values are kept, of running sequences and of earlier ones. It bounds the memory.
    pub cache_tokens: usize,
    /// Prompt tokens read in one step, at least one block. A larger chunk delays the sequences that are being written.
    pub chunk: usize,
    /// Requests that may wait.
    pub queue: usize,
    /// Whether sequences with the same prefix share its keys and values. It changes no completion.
    pub share: bool,
}

impl Default for EngineSettings {
    fn default() -> Self {
        EngineSettings {
            // The same seed gives the same bytes wherever a default is used.
            device: DeviceChoice::Cpu,
            threads: ThreadPool::shared(),
            weights: WeightForm::default(),
            width: 64,
            cache_tokens: 16_384,
            chunk: 256,
            queue: 4_096,
            share: true,
        }
    }
}

/// A prompt to be continued.
#[derive(Debug, Clone, PartialEq)]
pub struct CompletionRequest {
    /// The tokens to continue.
    pub prompt: Vec<u32>,
    /// Tokens of the completion at most.
    pub max_tokens: usize,
    /// 0 takes the likeliest token each time.
    pub temperature: f32,
    /// Only the likeliest tokens that together have this probability are sampled.
    pub top_p: f32,
    /// The noise seed. Requests with the same seed use common random numbers: where their distributions are alike, so are
    /// their tokens.
    pub seed: u64,
    /// Strings that end the completion and are not part of it.
    pub stop: Vec<String>,
    /// Grammars that hold from where their texts are written. A completion ends with the sentence of the first that holds.
    pub constraints: Arc<[Constraint]>,
    /// Identifies the caller. Callers take turns, so that many requests of one do not delay the few of another.
    pub caller: u64,
}

impl CompletionRequest {
    /// A greedy continuation of a prompt.
    pub fn new(prompt: Vec<u32>, max_tokens: usize) -> CompletionRequest {
        CompletionRequest {
            prompt,
            max_tokens,
            temperature: 0.0,
            top_p: 1.0,
            seed: 0,
            stop: Vec::new(),
            constraints: Arc::default(),
            caller: 0,
        }
    }
}

/// Receives each piece of a completion as it is written. It runs on the scheduler's thread and must not block.
pub type OnText = Box<dyn Fn(&str) + Send>;

/// The continuation of a prompt.
#[derive(Debug, Clone, PartialEq)]
pub struct Completion {
    /// The text, without the token or string that ended it.
    pub text: String,
    /// The tokens, including the one that ended the text.
    pub tokens: Vec<u32>,
    /// The log-probability of each token under the model: at temperature one, before `top_p`, without a grammar. Zero where a
    /// grammar left no choice.
    pub logprobs: Vec<f32>,
    /// Why it ended.
    pub finish: FinishReason,
    /// Tokens that were read and written.
    pub usage: CompletionUsage,
}

impl Completion {
    /// The model's confidence: the geometric mean of the probabilities of the tokens.
    pub fn confidence(&self) -> f64 {
        let sum: f64 = self.logprobs.iter().map(|logprob| f64::from(*logprob)).sum();
        (sum / self.logprobs.len().max(1) as f64).exp()
    }
}

/// Why a completion ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FinishReason {
    /// The model wrote an end token, or a sentence of a grammar is complete.
    Stop,
    /// A stop string was written.
    StopString,
    /// It reached `max_tokens` or the model's context length.
    Length,
}

/// Tokens that were read and written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CompletionUsage {
    /// Tokens of the prompt.
    pub prompt: usize,
    /// Prompt tokens that were found in the prefix cache.
    pub reused: usize,
    /// Tokens of the completion, including the one that ended it.
    pub completion: usize,
}

/// Why there is no completion.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EngineError {
    /// The queue has no place left.
    #[error("the queue is full: {waiting} requests wait; try again later")]
    QueueFull {
        /// Requests that wait.
        waiting: usize,
    },
    /// The prompt leaves no place for a completion.
    #[error("the prompt has {tokens} tokens, and at most {most} can be read and written together; shorten it")]
    PromptTooLong {
        /// Tokens of the prompt.
        tokens: usize,
        /// Tokens of prompt and completion together at most.
        most: usize,
    },
    /// A field of the request is invalid.
    #[error("{0}")]
    Request(String),
    /// A logit is NaN or infinite.
    #[error("the model's logits are not numbers; its weights are damaged")]
    NotNumbers,
    /// The device that computes failed.
    #[error("{0}")]
    Device(String),
    /// The engine was dropped first.
    #[error("the engine was closed before the reply was complete")]
    Closed,
}

/// What an engine is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EngineStatus {
    /// Requests that wait.
    pub waiting: usize,
    /// Sequences in the batch.
    pub running: usize,
    /// Tokens of the cache that the running sequences read.
    pub read_tokens: usize,
    /// Tokens of the cache that hold keys and values.
    pub cached_tokens: usize,
    /// Capacity of the cache in tokens.
    pub cache_tokens: usize,
}
