//! A model that is trained on a GPU.

use crate::PolicyError;
use crate::api::{Example, Sample, SampleRequest, SampleSettings, Sequence, StepReport, StepSettings};
use crate::config::ModelConfig;
use crate::gpu::{failed, write};
use crate::gpu_tensors as tensors;
use crate::grammar::Mask;
use crate::learn::Totals;
use crate::optimiser::Optimiser;
use crate::parameters::{Learning, Parameters};
use crate::tokenizer::Tokenizer;
use candle_core::Tensor;
use lemon_gpu::{
    AdamStep, ChosenToken, Device, GpuError, Kept, Model, ModelSettings, ModelShape, Numbers, Scored, TrainBatch,
    TrainGroup, TrainLearning, TrainSettings, TrainText, Trainer,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Rows of a pass at most, and the share of the free memory that they may take.
const ROWS: usize = 16_384;
const ROWS_SHARE: f64 = 0.5;
/// Rows of logits at once: fewer for large vocabularies.
const HEAD_NUMBERS: usize = 4_096 * 152_064;
/// When texts are sampled: rows of a step, texts at a time, tokens in the cache, and its share of the free memory.
const STEP_ROWS: usize = 8_192;
const TEXTS: usize = 512;
const CACHE_TOKENS: usize = 1 << 20;
const CACHE_SHARE: f64 = 0.7;

/// Writes rows of a tensor from a first one on.
type Write<'w> = dyn FnMut(lemon_gpu::Tensor, usize, &[f32]) -> Result<(), GpuError> + 'w;

/// Sends all tensors: matrices row by row, the vectors that are stacked in one at once.
fn send(parameters: &Parameters, shape: &ModelShape, write: &mut Write<'_>) -> Result<(), PolicyError> {
    for (tensor, rows, width) in shape.tensors() {
        let mut vector = Vec::new();
        let mut first = 0;
        for name in tensors::names(tensor) {
            let values = parameters.values(&name)?;
            if rows == 1 {
                vector.extend(values);
            } else {
                write(tensor, first, &values).map_err(failed)?;
                first += values.len() / width;
            }
        }
        if rows == 1 {
            write(tensor, 0, &vector).map_err(failed)?;
        }
    }
    Ok(())
}

/// Takes the numbers of a parameter.
type Take<'t> = dyn FnMut(&candle_core::Var, Tensor) -> Result<(), PolicyError> + 't;

/// A model on a GPU: one copy is trained, another samples.
pub(crate) struct Learner {
    device: Arc<Device>,
    trainer: Trainer,
    server: Option<Model>,
    /// Whether the other copy, and the parameters on the CPU, are what was trained last.
    server_is_current: bool,
    host_is_current: bool,
    /// Whether anything is learned.
    learns: bool,
    config: ModelConfig,
}

impl Learner {
    /// Takes memory and sends the parameters.
    pub(crate) fn new(
        device: &Arc<Device>,
        config: &ModelConfig,
        parameters: &Parameters,
        learning: Learning,
    ) -> Result<Self, PolicyError> {
        let shape = tensors::shape(config);
        let learns = learning != Learning::Nothing;
        let learning = match learning {
            Learning::Everything => TrainLearning::Everything,
            Learning::Adapters(lora) => TrainLearning::Adapters { rank: lora.rank, alpha: lora.alpha as f32 },
            // An adapter that stays zero costs little memory; scoring and sampling need no more.
            Learning::Nothing => TrainLearning::Adapters { rank: 8, alpha: 8.0 },
        };
        let weights: usize = shape.tensors().iter().map(|(_, rows, width)| rows * width).sum();
        let kept = weights * if learning == TrainLearning::Everything { 18 } else { 2 };
        let free = device.free_memory().map_err(failed)?.saturating_sub(kept + 4 * weights);
        let fitting = (free as f64 * ROWS_SHARE) as usize / Trainer::bytes_of_row(&shape);
        let settings = TrainSettings {
            rows: ROWS.min(fitting).max(1_024),
            head_rows: (HEAD_NUMBERS / shape.vocabulary.max(1)).clamp(256, 8_192),
            positions: config.positions.min(ROWS),
            learning,
        };
        let mut trainer = Trainer::new(device, shape.clone(), settings).map_err(failed)?;
        send(parameters, &shape, &mut |tensor, first, values| trainer.write(tensor, first, values))?;
        let device = device.clone();
        let mut learner = Learner {
            device,
            trainer,
            server: None,
            server_is_current: false,
            host_is_current: true,
            learns,
            config: config.clone(),
        };
        if parameters.lora().is_some() {
            learner.send_adapters(parameters)?;
        }
        Ok(learner)
    }

    fn send_adapters(&mut self, parameters: &Parameters) -> Result<(), PolicyError> {
        for matrix in self.trainer.adapters() {
            let values = parameters.values(&tensors::adapter_name(&matrix))?;
            self.trainer.write_adapter(matrix, &values).map_err(failed)?;
        }
        Ok(())
    }

    /// The copy that samples, with the weights as they are now.
    fn serve(&mut self, parameters: &Parameters) -> Result<&mut Model, PolicyError> {
        if self.server.is_none() {
            let shape = self.trainer.shape().clone();
            let weights: usize = shape.tensors().iter().map(|(_, rows, width)| rows * width).sum();
            let scratch = (STEP_ROWS + TEXTS) * (shape.hidden * 10 + shape.intermediate * 6 + 16_384)
                + TEXTS * shape.vocabulary * 4;
            let free = self.device.free_memory().map_err(failed)?.saturating_sub(4 * weights + scratch + (512 << 20));
            let of_token = 4 * shape.layers * shape.kv_heads * shape.head_dim;
            let tokens = ((free as f64 * CACHE_SHARE) as usize / of_token.max(1)).min(CACHE_TOKENS);
            let settings = ModelSettings {
                rows: STEP_ROWS + TEXTS,
                draws: TEXTS,
                pages: (tokens / lemon_gpu::PAGE).max(1),
                positions: self.config.positions.min(tokens.max(lemon_gpu::PAGE)),
                graphs: true,
                tuning: true,
                numbers: Numbers::default(),
            };
            let mut server = Model::new(&self.device, shape.clone(), settings).map_err(failed)?;
            send(parameters, &shape, &mut |tensor, first, values| server.write(tensor, first, values))?;
            self.server = Some(server);
            self.server_is_current = false;
        }
        match &mut self.server {
            None => Err(PolicyError::Request("expected a model that samples, found none".to_owned())),
            Some(server) => {
                if !self.server_is_current {
                    server.follow(&self.trainer).map_err(failed)?;
                    self.server_is_current = true;
                }
                Ok(server)
            }
        }
    }

    pub(crate) fn sample(
        &mut self,
        parameters: &Parameters,
        tokenizer: &Tokenizer,
        begun: &[(&SampleRequest, &[u32])],
        settings: &SampleSettings,
    ) -> Result<Vec<Sample>, PolicyError> {
        let positions = self.config.positions;
        let server = self.serve(parameters)?;
        write::write(server, positions, tokenizer, begun, settings, (STEP_ROWS, TEXTS))
    }

    /// The log-probability of each token of each sequence; 0 for tokens that were forced.
    pub(crate) fn score(&mut self, sequences: &[Sequence], temperature: f32) -> Result<Vec<Vec<f32>>, PolicyError> {
        let all: Vec<&Sequence> = sequences.iter().collect();
        let mut scores: Vec<Vec<f32>> = all.iter().map(|sequence| vec![0.0; sequence.tokens.len()]).collect();
        for range in self.passes(&all, 0) {
            let pass = Pass::new(&self.config, &all[range.clone()])?;
            if pass.places.is_empty() {
                continue;
            }
            let scored = self.trainer.score(&pass.batch, temperature).map_err(failed)?;
            for ((sequence, token), scored) in pass.places.iter().zip(scored) {
                scores[range.start + sequence][*token] = scored.logprob;
            }
        }
        Ok(scores)
    }

    /// One step on the sum of the objectives.
    pub(crate) fn update(
        &mut self,
        optimiser: &mut Optimiser,
        examples: &[Example],
        settings: &StepSettings,
    ) -> Result<StepReport, PolicyError> {
        if optimiser.settings.muon.is_some() {
            let fact = "Muon runs on the CPU only: train with AdamW, or with `--device cpu`";
            return Err(PolicyError::Request(fact.to_owned()));
        }
        for example in examples {
            example.objective.check(example.sequence.tokens.len())?;
        }
        let mut totals = Totals::default();
        let all: Vec<&Sequence> = examples.iter().map(|example| &example.sequence).collect();
        for range in self.passes(&all, settings.micro_batch) {
            let pass = Pass::new(&self.config, &all[range.clone()])?;
            if pass.places.is_empty() {
                continue;
            }
            // What the loss is to each log-probability is plain arithmetic; the model only has to carry it backwards.
            let mut slopes = |first: usize, scored: &[Scored]| -> Vec<f32> {
                let places = pass.places.iter().skip(first);
                let slope = |((sequence, token), scored): (&(usize, usize), &Scored)| {
                    let term = examples[range.start + sequence].objective.term(*token, scored.logprob);
                    totals.add(&term, scored.entropy);
                    term.slope as f32
                };
                places.zip(scored).map(slope).collect()
            };
            self.trainer.accumulate(&pass.batch, settings.temperature, &mut slopes).map_err(failed)?;
        }
        let norm = self.trainer.gradient_norm().map_err(failed)?;
        let mut report = totals.report();
        report.gradient_norm = norm;
        if !(norm.is_finite() && report.loss.is_finite()) {
            self.trainer.forget().map_err(failed)?;
            report.skipped = true;
            return Ok(report);
        }
        if report.tokens > 0 {
            let clips = settings.clip_norm > 0.0 && norm > settings.clip_norm;
            optimiser.steps += 1;
            let with = &optimiser.settings;
            let step = AdamStep {
                rate: settings.learning_rate,
                beta1: with.beta1,
                beta2: with.beta2,
                epsilon: with.epsilon,
                weight_decay: with.weight_decay,
                step: optimiser.steps,
                scale: if clips { settings.clip_norm / norm } else { 1.0 },
            };
            self.trainer.step(&step).map_err(failed)?;
            (self.server_is_current, self.host_is_current) = (false, false);
        } else {
            self.trainer.forget().map_err(failed)?;
        }
        Ok(report)
    }

    /// Waits until the device has done all it was asked to.
    pub(crate) fn wait(&self) -> Result<(), PolicyError> {
        self.trainer.wait().map_err(failed)
    }

    /// The sequences of each pass: at most so many, where that is not 0, and no more rows than there is memory for.
    fn passes(&self, sequences: &[&Sequence], at_most: usize) -> Vec<std::ops::Range<usize>> {
        let most_rows = self.trainer.settings().rows;
        let at_most = if at_most == 0 { usize::MAX } else { at_most };
        let mut passes = Vec::new();
        let (mut start, mut rows, mut known) = (0, 0, None);
        for (at, sequence) in sequences.iter().enumerate() {
            let prompt = sequence.prompt.as_slice();
            // A prompt that the sequence before has is computed once.
            let shared = known == Some(prompt);
            let more = sequence.tokens.len() + if shared { 1 } else { prompt.len() };
            if at > start && (rows + more > most_rows || at - start >= at_most) {
                passes.push(start..at);
                (start, rows) = (at, 0);
            }
            rows += if at == start { sequence.tokens.len() + prompt.len() } else { more };
            known = Some(prompt);
        }
        if start < sequences.len() {
            passes.push(start..sequences.len());
        }
        passes
    }

    /// Brings the parameters on the CPU up to date.
    pub(crate) fn read_back(&mut self, parameters: &Parameters) -> Result<(), PolicyError> {
        if self.host_is_current {
            return Ok(());
        }
        self.each_trained(parameters, Kept::Values, &mut |var, values| Ok(var.set(&values)?))?;
        self.host_is_current = true;
        Ok(())
    }

    /// The means of gradients, and of their squares, by parameter.
    pub(crate) fn moments(&self, parameters: &Parameters) -> Result<BTreeMap<String, (Tensor, Tensor)>, PolicyError> {
        let mut means = Vec::new();
        self.each_trained(parameters, Kept::Means, &mut |_, values| {
            means.push(values);
            Ok(())
        })?;
        let mut squares = Vec::new();
        self.each_trained(parameters, Kept::Squares, &mut |_, values| {
            squares.push(values);
            Ok(())
        })?;
        let names = self.trained_names().into_iter().flat_map(|(_, names)| names);
        Ok(names.zip(means.into_iter().zip(squares)).collect())
    }

    /// Sends the parameters of the CPU and the optimiser's means to the device.
    pub(crate) fn send_state(
        &mut self,
        parameters: &Parameters,
        moments: &BTreeMap<String, (Tensor, Tensor)>,
    ) -> Result<(), PolicyError> {
        let flat = |tensor: &Tensor| -> Result<Vec<f32>, PolicyError> { Ok(tensor.flatten_all()?.to_vec1::<f32>()?) };
        for (place, names) in self.trained_names() {
            let mut kept: [Vec<f32>; 3] = Default::default();
            for name in &names {
                let values = parameters.values(name)?;
                let zeros = vec![0.0; values.len()];
                let (means, squares) = match moments.get(name) {
                    None => (zeros.clone(), zeros),
                    Some((means, squares)) => (flat(means)?, flat(squares)?),
                };
                for (all, part) in kept.iter_mut().zip([values, means, squares]) {
                    all.extend(part);
                }
            }
            let [values, means, squares] = kept;
            for (kept, values) in [(Kept::Means, means), (Kept::Squares, squares)] {
                let written = match place {
                    Place::Tensor(tensor) => self.trainer.write_kept(kept, tensor, &values),
                    Place::Adapter(matrix) => self.trainer.write_kept_adapter(kept, matrix, &values),
                };
                written.map_err(failed)?;
            }
            match place {
                Place::Tensor(tensor) => self.trainer.write(tensor, 0, &values).map_err(failed)?,
                Place::Adapter(matrix) => self.trainer.write_adapter(matrix, &values).map_err(failed)?,
            }
        }
        (self.server_is_current, self.host_is_current) = (false, true);
        Ok(())
    }

    /// What is trained, and the names of the parameters that it is made of.
    fn trained_names(&self) -> Vec<(Place, Vec<String>)> {
        if !self.learns {
            return Vec::new();
        }
        match self.trainer.settings().learning {
            TrainLearning::Everything => {
                let tensors = self.trainer.shape().tensors();
                tensors.into_iter().map(|(tensor, ..)| (Place::Tensor(tensor), tensors::names(tensor))).collect()
            }
            TrainLearning::Adapters { .. } => {
                let place = |matrix| (Place::Adapter(matrix), vec![tensors::adapter_name(&matrix)]);
                self.trainer.adapters().into_iter().map(place).collect()
            }
        }
    }

    /// Reads something of everything that is trained, by parameter.
    fn each_trained(&self, parameters: &Parameters, kept: Kept, take: &mut Take<'_>) -> Result<(), PolicyError> {
        for (place, names) in self.trained_names() {
            let values = match place {
                Place::Tensor(tensor) => self.trainer.read(kept, tensor),
                Place::Adapter(matrix) => self.trainer.read_adapter(kept, matrix),
            };
            let mut rest = values.map_err(failed)?;
            for name in names {
                let Some(var) = parameters.var(&name) else { continue };
                let later = rest.split_off(var.elem_count().min(rest.len()));
                take(var, Tensor::from_vec(rest, var.shape(), var.device())?)?;
                rest = later;
            }
        }
        Ok(())
    }
}

#[derive(Clone, Copy)]
enum Place {
    Tensor(lemon_gpu::Tensor),
    Adapter(lemon_gpu::AdapterMatrix),
}

/// Sequences as the device takes them.
struct Pass {
    batch: TrainBatch,
    /// Of each choice: its sequence and its token.
    places: Vec<(usize, usize)>,
}

impl Pass {
    fn new(config: &ModelConfig, sequences: &[&Sequence]) -> Result<Pass, PolicyError> {
        let mut pass = Pass { batch: TrainBatch::default(), places: Vec::new() };
        let words = config.vocabulary.div_ceil(32);
        let mut at = 0;
        while let Some(first) = sequences.get(at) {
            if first.prompt.is_empty() {
                return Err(PolicyError::Request("a sequence without a prompt cannot be read".to_owned()));
            }
            let alike = sequences[at..].iter().take_while(|other| other.prompt == first.prompt).count();
            // The last token of the prompt belongs to each text: what was chosen first was chosen after it.
            let shared = if alike > 1 { first.prompt.len() - 1 } else { 0 };
            let mut group = TrainGroup { shared: first.prompt[..shared].to_vec(), texts: Vec::new() };
            for (number, sequence) in sequences.iter().enumerate().skip(at).take(alike) {
                let own = &sequence.prompt[shared..];
                // The last token predicts nothing.
                let read = &sequence.tokens[..sequence.tokens.len().saturating_sub(1)];
                let mut text = TrainText { tokens: [own, read].concat(), choices: Vec::new() };
                let masks: Vec<Option<Option<Mask>>> = match &sequence.grammar {
                    None => sequence.tokens.iter().map(|_| Some(None)).collect(),
                    Some(grammar) => {
                        grammar.choices(&sequence.tokens)?.into_iter().map(|mask| mask.map(Some)).collect()
                    }
                };
                for (token, mask) in masks.into_iter().enumerate() {
                    let Some(mask) = mask else { continue };
                    let mask = mask.map(|mask| {
                        let number = pass.batch.masks.len() / words;
                        pass.batch.masks.extend(mask.words().iter().take(words));
                        pass.batch.masks.resize((number + 1) * words, 0);
                        number as u32
                    });
                    let after = (own.len() + token - 1) as u32;
                    text.choices.push(ChosenToken { after, token: sequence.tokens[token], mask });
                    pass.places.push((number, token));
                }
                group.texts.push(text);
            }
            pass.batch.groups.push(group);
            at += alike;
        }
        Ok(pass)
    }
}
