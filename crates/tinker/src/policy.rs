//! The model of a server as a policy.

use crate::batch::{Batch, Scores, check_prompt};
use crate::client::{Client, Patience, TinkerKey};
use crate::remote::{RemoteModel, Weights, adam};
use crate::sampler::{COMPLETE, Completion, Sampler};
use crate::settings::{Reduction, TinkerStart};
use crate::wire::{LossInput, LossOutput, ModelInput, SampledText, SamplingParams};
use crate::{ServerName, TinkerError};
use futures::{StreamExt, TryStreamExt, stream};
use lemon_model::{
    Example, Finish, Grammar, OptimiserSettings, Policy, PolicyError, Sample, SampleRequest, SampleSettings, Sequence,
    StepReport, StepSettings, Tokenizer,
};
use lemon_policy::{TrainablePolicy, specification_span};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::future::Future;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;
use tokio::runtime::Runtime;

/// The file of a checkpoint: where the server keeps the weights.
const STATE: &str = "tinker.json";
/// How long the end of this process waits until the server has freed the model's place.
const FAREWELL: Duration = Duration::from_secs(5);

/// A model behind the Tinker API that is sampled and trained.
///
/// Operations block the thread that calls them; the requests run on a thread of their own.
pub struct TinkerPolicy {
    /// `None` only while it is dropped.
    runtime: Option<Runtime>,
    model: Arc<RemoteModel>,
    /// Where texts are sampled, if that is another server.
    sampler: Option<Arc<Sampler>>,
    tokenizer: Tokenizer,
    in_flight: usize,
    optimiser: OptimiserSettings,
    /// Optimiser steps taken.
    steps: u64,
    /// Whether a step may have been taken in part.
    unclear: bool,
    names: Mutex<Names>,
}

/// What was named so far.
#[derive(Default)]
struct Names {
    /// Weights that were saved.
    saved: u64,
    /// The current weights, where they can be sampled already.
    sampler: Option<String>,
    /// The weights that another server has to sample.
    handed_on: Option<String>,
}

/// What a checkpoint says of a model.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    /// Where the server keeps weights and optimiser.
    path: String,
    /// Where it keeps the adapter for other programs, if it was asked to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    adapter: Option<String>,
    base_model: String,
    rank: usize,
    steps: u64,
}

impl TinkerPolicy {
    /// Makes a model with new adapters of a rank on the server.
    ///
    /// # Errors
    /// The server cannot be reached or refuses it, or the files of the model cannot be read.
    pub fn open(
        start: &TinkerStart,
        (rank, seed): (usize, u64),
        key: &TinkerKey,
        patience: Patience,
    ) -> Result<Self, PolicyError> {
        let (tokenizer, limits) = (Tokenizer::load(start.folder())?, start.limits()?);
        let longest = Duration::from_secs(start.timeout_s);
        let client = Client::new((ServerName::Tinker, start.address()?), key, patience, longest)?;
        let sampler = start.sampler.as_ref().map(|it| Sampler::new(it, &start.base_model, patience, longest));
        let sampler = sampler.transpose()?.map(Arc::new);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("lemon-tinker")
            .enable_all()
            .build()
            .map_err(|error| PolicyError::Request(format!("no thread can be had for requests: {error}")))?;
        let (base, reduction) = (start.base_model.clone(), start.reduction);
        let (asked, own) = (sampler.clone(), tokenizer.clone());
        let made = run(&runtime, async move {
            if let Some(sampler) = asked {
                sampler.check(&own).await?;
            }
            RemoteModel::make(client, base, (rank, short(seed)), limits, reduction).await
        });
        let model = match made {
            Ok(model) => Arc::new(model),
            Err(error) => {
                runtime.shutdown_background();
                return Err(error);
            }
        };
        Ok(TinkerPolicy {
            runtime: Some(runtime),
            model,
            sampler,
            tokenizer,
            in_flight: start.in_flight,
            optimiser: OptimiserSettings::default(),
            steps: 0,
            unclear: false,
            names: Mutex::default(),
        })
    }

    /// The vocabulary of the model.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// Tokens that a prompt and its text may have together.
    pub fn positions(&self) -> usize {
        self.model.limits.positions
    }

    /// Whether another server samples the texts, held to the grammars of the requests.
    pub fn is_held_to_grammars(&self) -> bool {
        self.sampler.is_some()
    }

    /// How the server divides the loss of a batch.
    pub fn reduction(&self) -> Reduction {
        self.model.reduction
    }

    /// Saves the weights where other programs can read them, and writes into a folder where the server has them: `tinker.json` names
    /// the adapter as `tinker://MODEL/NAME` beside what training goes on from.
    ///
    /// # Errors
    /// The server fails, or the folder cannot be written.
    pub fn leave(&self, folder: &Path) -> Result<(), PolicyError> {
        self.keep(folder, true)
    }

    /// Optimiser steps taken so far.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Does something on the server.
    fn remote<T: Send + 'static, F>(&self, work: impl FnOnce(Arc<RemoteModel>) -> F) -> Result<T, PolicyError>
    where
        F: Future<Output = Result<T, TinkerError>> + Send + 'static,
    {
        self.model.session.check()?;
        if self.unclear {
            return Err(TinkerError::Broken.into());
        }
        match &self.runtime {
            Some(runtime) => run(runtime, work(self.model.clone())),
            None => Err(crashed()),
        }
    }

    /// Saves the weights on the server, and where they are in a folder.
    fn keep(&self, folder: &Path, with_adapter: bool) -> Result<(), PolicyError> {
        let file = |source| PolicyError::File { path: folder.to_owned(), source };
        std::fs::create_dir_all(folder).map_err(file)?;
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut saved, steps) = (names.saved, self.steps);
        let (path, adapter, last) = self.remote(|model| async move {
            let (path, tried) = model.save(Weights::State { steps }, saved).await?;
            saved += tried;
            if !with_adapter {
                return Ok((path, None, saved));
            }
            let (adapter, tried) = model.save(Weights::Adapter { steps }, saved).await?;
            Ok((path, Some(adapter), saved + tried))
        })?;
        names.saved = last;
        let (base_model, rank) = (self.model.base.clone(), self.model.rank);
        let kept = serde_json::to_string_pretty(&Kept { path, adapter, base_model, rank, steps });
        let text = kept.map_err(|error| PolicyError::Request(error.to_string()))?;
        std::fs::write(folder.join(STATE), text).map_err(file)
    }

    /// The current weights, ready to be sampled. No other weights are ever sampled: they would take the place of these.
    fn sampler(&self) -> Result<String, PolicyError> {
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sampler) = &names.sampler {
            return Ok(sampler.clone());
        }
        let (saved, steps, before) = (names.saved, self.steps, names.handed_on.clone());
        let sampler = self.sampler.clone();
        let elsewhere = sampler.is_some();
        let (name, tried) = self.remote(|model| async move {
            match sampler {
                Some(sampler) => sampler.hand_on(&model, steps, saved, before.as_deref()).await,
                None => model.save(Weights::Sampled, saved).await,
            }
        })?;
        names.saved += tried;
        names.sampler = Some(name.clone());
        names.handed_on = Some(name.clone()).filter(|_| elsewhere);
        Ok(name)
    }

    /// Samples texts, many at a time, each behind its prompt and the tokens that it begins with.
    fn write(&self, begun: &[(&SampleRequest, &[u32])], settings: &SampleSettings) -> Result<Vec<Sample>, PolicyError> {
        let limits = self.model.limits;
        let mut jobs = Vec::with_capacity(begun.len());
        for (request, tokens) in begun {
            if request.grammar.is_some() && self.sampler.is_none() {
                return Err(TinkerError::Data("the Tinker API samples without a grammar".to_owned()).into());
            }
            if request.grammar.is_some() && !tokens.is_empty() {
                let fact = "a sampler cannot continue a text that has begun under a grammar";
                return Err(TinkerError::Data(fact.to_owned()).into());
            }
            let prompt = [&request.prompt, *tokens].concat();
            check_prompt(&prompt, &limits)?;
            let room = settings.most_tokens.saturating_sub(tokens.len()).min(limits.positions - prompt.len());
            jobs.push((prompt, request.grammar.clone(), short(request.seed), room));
        }
        if jobs.is_empty() {
            return Ok(Vec::new());
        }
        let (sampler, ends, in_flight) = (self.sampler()?, self.tokenizer.ends().to_vec(), self.in_flight);
        let (settings, elsewhere) = (*settings, self.sampler.clone());
        let texts = self.remote(|model| async move {
            let one = |(number, (prompt, grammar, seed, room)): (usize, (Vec<u32>, Option<Grammar>, u32, usize))| {
                let (model, sampler, elsewhere, ends) = (&model, &sampler, &elsewhere, &ends);
                async move {
                    if room == 0 {
                        return Ok(SampledText { tokens: Vec::new(), logprobs: Some(Vec::new()) });
                    }
                    if let Some(elsewhere) = elsewhere {
                        let completion = Completion {
                            prompt: &prompt,
                            grammar: grammar.as_ref().map(Grammar::lark),
                            max_tokens: room,
                            temperature: settings.temperature,
                            top_p: settings.top_p,
                            seed,
                            ends,
                        };
                        return elsewhere.complete(sampler, &completion).await;
                    }
                    let params = SamplingParams {
                        max_tokens: room,
                        temperature: settings.temperature,
                        top_p: settings.top_p,
                        seed,
                        stop: ends,
                    };
                    model.sample(sampler, number, ModelInput(prompt), params).await
                }
            };
            // In the order of the requests.
            stream::iter(jobs.into_iter().enumerate()).map(one).buffered(in_flight).try_collect::<Vec<_>>().await
        })?;
        begun.iter().zip(texts).map(|((_, tokens), text)| Ok(self.sample_of(tokens, text)?)).collect()
    }

    /// A text as tokens and bytes.
    fn sample_of(&self, begun: &[u32], text: SampledText) -> Result<Sample, TinkerError> {
        let (server, call) = match self.sampler {
            Some(_) => (ServerName::Sampler, COMPLETE),
            None => (ServerName::Tinker, "asample"),
        };
        let malformed = |fact: String| TinkerError::Malformed { server, call, fact };
        let logprobs = text.logprobs.ok_or_else(|| malformed("a text has no log-probabilities".to_owned()))?;
        if logprobs.len() != text.tokens.len() || !logprobs.iter().all(|number| number.is_finite()) {
            let (numbers, tokens) = (logprobs.len(), text.tokens.len());
            return Err(malformed(format!("expected the log-probabilities of {tokens} tokens, got {numbers} numbers")));
        }
        let logprobs = [vec![0.0; begun.len()], logprobs].concat();
        let tokens = [begun, &text.tokens].concat();
        if let Some(token) = tokens.iter().find(|token| **token as usize >= self.model.limits.vocabulary) {
            return Err(malformed(format!(
                "a text has token {token}; the config.json of the model knows no such token"
            )));
        }
        let (mut bytes, mut ends) = (Vec::new(), Vec::with_capacity(tokens.len()));
        let mut finish = Finish::Length;
        for token in &tokens {
            match self.tokenizer.ends().contains(token) {
                true => finish = Finish::Stop,
                false => bytes.extend_from_slice(self.tokenizer.bytes(*token)),
            }
            ends.push(bytes.len());
        }
        let forced = vec![false; tokens.len()];
        // Models like to write between fences: those tokens are learned from too, and have no place in the text.
        let whole = String::from_utf8_lossy(&bytes);
        let span = specification_span(&whole);
        let ends = ends.into_iter().map(|end: usize| end.saturating_sub(span.start).min(span.len())).collect();
        let text = whole.get(span).unwrap_or_default().to_owned();
        Ok(Sample { text, tokens, ends, logprobs, forced, finish })
    }

    /// What is scored and learned is the model's own distribution, whatever grammar its texts were held to elsewhere.
    fn own<'a, T: Clone>(&self, all: &'a [T], grammar: impl Fn(&mut T) -> &mut Option<Grammar>) -> Cow<'a, [T]> {
        if self.sampler.is_none() {
            return Cow::Borrowed(all);
        }
        let mut all = all.to_vec();
        all.iter_mut().for_each(|it| *grammar(it) = None);
        Cow::Owned(all)
    }

    /// The norm of the gradient of a batch, and the log-probabilities before the step.
    fn step(&mut self, inputs: Vec<LossInput>, learning_rate: f64) -> Result<(Vec<LossOutput>, f64), PolicyError> {
        let adam = adam(&self.optimiser, learning_rate);
        let done = self.remote(|model| async move {
            let mut outputs = Vec::with_capacity(inputs.len());
            for input in &inputs {
                outputs.push(model.forward_backward(input).await?);
            }
            let norm = model.optim_step(adam).await?;
            Ok((outputs, norm.unwrap_or(f64::NAN)))
        });
        // A gradient that was computed stays on the server, and would become part of the next one.
        self.unclear = done.is_err();
        self.names.get_mut().unwrap_or_else(PoisonError::into_inner).sampler = None;
        done
    }
}

impl Drop for TinkerPolicy {
    fn drop(&mut self) {
        let Some(runtime) = self.runtime.take() else { return };
        let (model, sampler, (tell, told)) = (self.model.clone(), self.sampler.clone(), mpsc::channel());
        let handed_on = self.names.get_mut().unwrap_or_else(PoisonError::into_inner).handed_on.take();
        runtime.spawn(async move {
            // Whether or not these succeed: the server frees the place itself five minutes later, and an adapter that is left behind is
            // asked for by no one. No one may be waiting any more.
            if let (Some(sampler), Some(name)) = (sampler, handed_on) {
                let _ = sampler.forget(&name).await;
            }
            let _ = tell.send(model.unload().await);
        });
        let _ = told.recv_timeout(FAREWELL);
        // A runtime that is dropped where another one runs would panic.
        runtime.shutdown_background();
    }
}

impl Policy for TinkerPolicy {
    fn sample(&self, requests: &[SampleRequest], settings: &SampleSettings) -> Result<Vec<Sample>, PolicyError> {
        let begun: Vec<(&SampleRequest, &[u32])> = requests.iter().map(|request| (request, [].as_slice())).collect();
        self.write(&begun, settings)
    }

    fn resume(
        &self,
        begun: &[(SampleRequest, Vec<u32>)],
        settings: &SampleSettings,
    ) -> Result<Vec<Sample>, PolicyError> {
        let begun: Vec<(&SampleRequest, &[u32])> =
            begun.iter().map(|(request, tokens)| (request, tokens.as_slice())).collect();
        self.write(&begun, settings)
    }

    fn score(&self, sequences: &[Sequence], temperature: f32) -> Result<Vec<Vec<f32>>, PolicyError> {
        check_temperature(temperature)?;
        let sequences = self.own(sequences, |sequence| &mut sequence.grammar);
        let sequences = sequences.as_ref();
        let mut scores = Scores::new(sequences, &self.model.limits)?;
        let inputs = std::mem::take(&mut scores.inputs);
        let outputs = self.remote(|model| async move {
            let mut outputs = Vec::with_capacity(inputs.len());
            for input in &inputs {
                outputs.push(model.forward(input).await?);
            }
            Ok(outputs)
        })?;
        Ok(scores.read(sequences, outputs)?)
    }

    fn update(&mut self, examples: &[Example], settings: &StepSettings) -> Result<StepReport, PolicyError> {
        check_temperature(settings.temperature)?;
        if settings.clip_norm > 0.0 {
            let fact = "the Tinker API cannot scale a gradient down: `clip_norm` must be 0";
            return Err(PolicyError::Request(fact.to_owned()));
        }
        let examples = self.own(examples, |example| &mut example.sequence.grammar);
        let examples = examples.as_ref();
        let mut batch = Batch::new(examples, &self.model.limits, self.model.reduction)?;
        let inputs = std::mem::take(&mut batch.inputs);
        if inputs.is_empty() {
            return Ok(StepReport::default());
        }
        let (outputs, norm) = self.step(inputs, settings.learning_rate)?;
        let report = batch.report(examples, outputs).inspect_err(|_| self.unclear = true)?;
        self.steps += 1;
        Ok(StepReport { gradient_norm: norm, ..report })
    }
}

impl TrainablePolicy for TinkerPolicy {
    fn set_optimiser(&mut self, settings: OptimiserSettings) {
        self.optimiser = settings;
    }

    fn save_state(&self, folder: &Path) -> Result<(), PolicyError> {
        self.keep(folder, false)
    }

    fn load_state(&mut self, folder: &Path) -> Result<(), PolicyError> {
        let path = folder.join(STATE);
        let text = std::fs::read(&path).map_err(|source| PolicyError::File { path: path.clone(), source })?;
        let malformed = |fact: String| PolicyError::Malformed { path: path.clone(), fact };
        let kept: Kept = serde_json::from_slice(&text)
            .map_err(|error| malformed(format!("it does not say where a server keeps weights: {error}")))?;
        let Kept { path: weights, base_model, rank, steps, .. } = kept;
        let (base, own) = (&self.model.base, self.model.rank);
        if (&base_model, rank) != (base, own) {
            let fact = format!("it is of `{base_model}` with rank {rank}; expected `{base}` with rank {own}");
            return Err(malformed(fact));
        }
        self.remote(|model| async move { model.load(&weights).await })?;
        self.steps = steps;
        self.names.get_mut().unwrap_or_else(PoisonError::into_inner).sampler = None;
        Ok(())
    }

    fn most_ratio(&self) -> Option<f32> {
        self.sampler.as_ref().map(|sampler| sampler.most_ratio)
    }

    fn scores_as_it_writes(&self) -> bool {
        // Samplers compute apart from the model that learns.
        false
    }
}

/// Does something on another runtime, and waits for it here.
fn run<T: Send + 'static>(
    runtime: &Runtime,
    work: impl Future<Output = Result<T, TinkerError>> + Send + 'static,
) -> Result<T, PolicyError> {
    let (tell, told) = mpsc::channel();
    runtime.spawn(async move {
        // Fails only if the thread below is gone.
        let _ = tell.send(work.await);
    });
    Ok(told.recv().map_err(|_| crashed())??)
}

fn crashed() -> PolicyError {
    PolicyError::Request("the thread of the Tinker client ended".to_owned())
}

fn check_temperature(temperature: f32) -> Result<(), PolicyError> {
    if temperature == 1.0 {
        return Ok(());
    }
    let fact = format!("the Tinker API computes probabilities at a temperature of 1, got {temperature}");
    Err(PolicyError::Request(fact))
}

/// A seed that servers take: they know 31 bits.
fn short(seed: u64) -> u32 {
    ((seed ^ (seed >> 31) ^ (seed >> 62)) & 0x7fff_ffff) as u32
}
