//! The engine: it checks requests, queues them, and starts and stops the scheduler's thread.

use crate::api::{CompletionRequest, EngineError, EngineSettings, EngineStatus, OnText};
use crate::backend::{Backend, ServedModel};
use crate::batch_runner::BatchRunner;
use crate::gpu::{self, GpuFacts, GpuRunner};
use crate::kernels::paged_attention::BLOCK;
use crate::kernels::panels;
use crate::network::{Batch, Network};
use crate::pending::PendingCompletion;
use crate::queue::RequestQueue;
use crate::scheduler::Scheduler;
use crate::thread_pool::MAX_PHASES;
use lemon_model::{DeviceChoice, ModelConfig, ModelFiles, Packed, PolicyError, Tokenizer, WeightOrigin};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;

/// A model that is being served. Dropping it ends all sequences.
pub struct Engine {
    queue: Arc<RequestQueue>,
    model: ServedModel,
    tokenizer: Tokenizer,
    gauges: Arc<Gauges>,
    /// Tokens of a prompt and its completion together at most.
    longest: usize,
    device: String,
    thread: Option<JoinHandle<()>>,
}

/// Numbers that the scheduler publishes after each step.
#[derive(Default)]
pub(crate) struct Gauges {
    pub(crate) running: AtomicUsize,
    pub(crate) read_tokens: AtomicUsize,
    pub(crate) cached_tokens: AtomicUsize,
    pub(crate) cache_tokens: AtomicUsize,
}

impl Engine {
    /// Serves a model from a folder as on the Hugging Face hub, or from a GGUF file.
    ///
    /// # Errors
    /// A file is missing, cut short, or not what the config says.
    pub fn load(folder: &Path, settings: EngineSettings) -> Result<Engine, PolicyError> {
        Self::read(ModelFiles::Disk(folder), settings)
    }

    /// Serves a model whose files are part of the program.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub fn load_packed(files: Packed, settings: EngineSettings) -> Result<Engine, PolicyError> {
        Self::read(ModelFiles::Packed(files), settings)
    }

    fn read(files: ModelFiles<'_>, mut settings: EngineSettings) -> Result<Engine, PolicyError> {
        let config = ModelConfig::load(files)?;
        check(&config, &settings)?;
        // A vocabulary takes about as long to read as the weights, and one thread.
        let (loaded, tokenizer) = std::thread::scope(|scope| {
            let tokenizer = std::thread::Builder::new().spawn_scoped(scope, || Tokenizer::read(files));
            let loaded = Loaded::new(config, &WeightOrigin::Files(files), &mut settings);
            let tokenizer = match tokenizer {
                // A panic was printed when it happened.
                Ok(thread) => {
                    thread.join().unwrap_or_else(|_| Err(PolicyError::Request("the tokenizer failed".into())))
                }
                // Without a thread it is read here.
                Err(_) => Tokenizer::read(files),
            };
            (loaded, tokenizer)
        });
        // Of two faults the one in the vocabulary is told: it is found first where both are in the header.
        let tokenizer = tokenizer?;
        Self::start(loaded?, tokenizer, settings)
    }

    /// Serves an untrained model: for measurements.
    ///
    /// # Errors
    /// The tokenizer has more tokens than the model.
    pub fn fresh(
        config: ModelConfig,
        tokenizer: Tokenizer,
        seed: u64,
        mut settings: EngineSettings,
    ) -> Result<Engine, PolicyError> {
        check(&config, &settings)?;
        let loaded = Loaded::new(config, &WeightOrigin::Seed(seed), &mut settings)?;
        Self::start(loaded, tokenizer, settings)
    }

    fn start(loaded: Loaded, tokenizer: Tokenizer, settings: EngineSettings) -> Result<Engine, PolicyError> {
        let config = match &loaded {
            Loaded::Cpu(network, _) => &network.config,
            Loaded::Gpu(_, facts) => &facts.config,
        };
        if tokenizer.vocabulary() > config.vocabulary {
            let (tokens, rows) = (tokenizer.vocabulary(), config.vocabulary);
            return Err(PolicyError::Request(format!("the tokenizer has {tokens} tokens, the model {rows}")));
        }
        let blocks = settings.cache_tokens / BLOCK;
        let longest = config.positions.min(blocks * BLOCK);
        let device = match &loaded {
            Loaded::Cpu(_, no_gpu) => no_gpu.as_ref().map_or("CPU".to_owned(), |why| format!("CPU; no GPU: {why}")),
            Loaded::Gpu(runner, _) => format!("GPU {}", runner.device_name()),
        };
        let (model, backend) = loaded.serve(&settings, blocks)?;
        let queue = Arc::new(RequestQueue::new(settings.queue));
        let gauges = Arc::new(Gauges { cache_tokens: AtomicUsize::new(blocks * BLOCK), ..Gauges::default() });
        let scheduler = Scheduler::new(backend, tokenizer.clone(), queue.clone(), gauges.clone(), settings, blocks);
        let thread = std::thread::Builder::new().name("engine".to_owned()).spawn(move || scheduler.run());
        let thread = thread.map_err(|error| PolicyError::Request(format!("no thread for the model: {error}")))?;
        Ok(Engine { queue, model, tokenizer, gauges, longest, device, thread: Some(thread) })
    }

    /// What computes: the CPU, with the reason where a GPU could not be used, or the name of the GPU.
    pub fn device(&self) -> &str {
        &self.device
    }

    /// Queues a request and returns at once. Dropping the [`PendingCompletion`] cancels the request, also while its
    /// completion is being written.
    ///
    /// # Errors
    /// The queue is full, or the request cannot be served.
    pub fn try_submit(&self, request: CompletionRequest) -> Result<PendingCompletion, EngineError> {
        self.try_submit_streaming(request, None)
    }

    /// As [`Self::try_submit`]; `on_text` receives each piece of the text as it is written. The pieces, joined, are the
    /// completion's text.
    ///
    /// # Errors
    /// As [`Self::try_submit`].
    pub fn try_submit_streaming(
        &self,
        request: CompletionRequest,
        on_text: Option<OnText>,
    ) -> Result<PendingCompletion, EngineError> {
        let tokens = request.prompt.len();
        if tokens == 0 || request.max_tokens == 0 {
            let fact =
                format!("a prompt and its reply have at least one token each, got {tokens} and {}", request.max_tokens);
            return Err(EngineError::Request(fact));
        }
        if tokens >= self.longest {
            return Err(EngineError::PromptTooLong { tokens, most: self.longest });
        }
        let vocabulary = self.config().vocabulary;
        if let Some(token) = request.prompt.iter().find(|token| **token as usize >= vocabulary) {
            return Err(EngineError::Request(format!("token {token} of the prompt: the model knows {vocabulary}")));
        }
        if !(request.temperature.is_finite() && request.temperature >= 0.0 && request.top_p >= 0.0) {
            let CompletionRequest { temperature, top_p, .. } = request;
            let fact = format!("temperature and top_p must be at least 0, got {temperature} and {top_p}");
            return Err(EngineError::Request(fact));
        }
        let left = self.longest - tokens;
        self.queue.push(CompletionRequest { max_tokens: request.max_tokens.min(left), ..request }, on_text)
    }

    /// The model's tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// The model's shape.
    pub fn config(&self) -> &ModelConfig {
        self.model.config()
    }

    /// Bytes of weights that one step reads. They bound the speed of a single sequence.
    pub fn bytes_per_step(&self) -> usize {
        self.model.bytes_read()
    }

    /// A hash of all weights as they are stored and of the config. Two engines with the same hash and the same tokenizer give
    /// the same completions.
    pub fn fingerprint(&self) -> u64 {
        let figures = self.config().to_json("").into_bytes().into_iter().map(u64::from);
        panels::hash([self.model.fingerprint(), self.longest as u64].into_iter().chain(figures))
    }

    /// Tokens of a prompt and its completion together at most.
    pub fn longest(&self) -> usize {
        self.longest
    }

    /// What the engine is doing, as of its last step.
    pub fn status(&self) -> EngineStatus {
        let read = |gauge: &AtomicUsize| gauge.load(Ordering::Acquire);
        EngineStatus {
            waiting: self.queue.waiting(),
            running: read(&self.gauges.running),
            read_tokens: read(&self.gauges.read_tokens),
            cached_tokens: read(&self.gauges.cached_tokens),
            cache_tokens: read(&self.gauges.cache_tokens),
        }
    }
}

/// A model whose weights were read.
enum Loaded {
    /// The model, and why no GPU serves it where one could have.
    Cpu(Box<Network>, Option<String>),
    Gpu(Box<GpuRunner>, GpuFacts),
}

impl Loaded {
    fn new(
        config: ModelConfig,
        origin: &WeightOrigin<'_>,
        settings: &mut EngineSettings,
    ) -> Result<Loaded, PolicyError> {
        let mut no_gpu = None;
        if settings.device != DeviceChoice::Cpu {
            let asked = settings.clone();
            let loaded = gpu::device().and_then(|device| GpuRunner::new(&device, &config, origin, settings));
            match loaded {
                Ok((runner, facts)) => return Ok(Loaded::Gpu(Box::new(runner), facts)),
                Err(error) if settings.device == DeviceChoice::Cuda => return Err(error),
                // What is wrong with the files is found on the CPU too.
                Err(error) => no_gpu = Some(error.to_string()),
            }
            *settings = asked;
        }
        Ok(Loaded::Cpu(Box::new(Network::new(config, origin, settings.weights)?), no_gpu))
    }

    /// Takes the memory that steps need.
    fn serve(self, settings: &EngineSettings, blocks: usize) -> Result<(ServedModel, Backend), PolicyError> {
        let network = match self {
            Loaded::Gpu(runner, facts) => {
                let batch = Batch::default();
                return Ok((ServedModel::Gpu(facts), Backend::Gpu { runner, batch }));
            }
            Loaded::Cpu(network, _) => *network,
        };
        if network.phases() > MAX_PHASES {
            return Err(PolicyError::Request("the model has more layers than can be served".to_owned()));
        }
        let (rows, threads) = (settings.chunk.saturating_add(settings.width), settings.threads.size());
        let fact = "there is no memory for the cache and the width asked for";
        let runner = BatchRunner::new(network, rows, settings.width, blocks, threads);
        let runner = Arc::new(runner.ok_or_else(|| PolicyError::Request(fact.to_owned()))?);
        Ok((ServedModel::Cpu(runner.clone()), Backend::cpu(runner)))
    }
}

/// Checks a model's shape and settings before weights are read.
fn check(config: &ModelConfig, settings: &EngineSettings) -> Result<(), PolicyError> {
    if config.kv_heads == 0 || !config.heads.is_multiple_of(config.kv_heads) || !config.head_dim.is_multiple_of(2) {
        let ModelConfig { heads, kv_heads, head_dim, .. } = config;
        let fact = format!("{heads} heads of width {head_dim} cannot share {kv_heads} key heads evenly");
        return Err(PolicyError::Request(fact));
    }
    if settings.cache_tokens / BLOCK < 2 || settings.width == 0 || settings.chunk < BLOCK {
        let EngineSettings { cache_tokens, width, chunk, .. } = settings;
        let fact = format!(
            "an engine needs cache_tokens of at least {}, a width of at least 1 and a chunk of at least {BLOCK}; got \
             {cache_tokens}, {width} and {chunk}",
            2 * BLOCK
        );
        return Err(PolicyError::Request(fact));
    }
    Ok(())
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.queue.close();
        // The waker of a completion may own the engine and is woken on the scheduler's thread. A thread cannot join itself.
        let here = std::thread::current().id();
        if let Some(thread) = self.thread.take().filter(|thread| thread.thread().id() != here) {
            // Nothing is lost: a panic was printed when it happened, and every pending completion got `Closed`.
            let _ = thread.join();
        }
    }
}
