//! A head on a language model that estimates what a text is worth at any of its positions: whether it succeeds, and what it costs.
//!
//! Two numbers are read off the hidden state of a position: the log-odds of success, and a cost on whatever scale the caller chose.
//! Head and model are fitted together by regression, or the head alone where the model is frozen. Computed on the CPU.

use crate::api::{StepReport, StepSettings};
use crate::config::ModelConfig;
use crate::files::{ModelFiles, Packed};
use crate::model::Model;
use crate::optimiser::{Gradients, Optimiser, OptimiserSettings};
use crate::parameters::{Learning, Parameters};
use crate::rows::{Cache, Part, Rows};
use crate::tensors::WeightOrigin;
use crate::{PolicyError, Tokenizer, weights};
use candle_core::{DType, Device, Tensor};
use std::path::Path;

/// The tensors of the head, beside those of the model.
const WEIGHT: &str = "value_head.weight";
const BIAS: &str = "value_head.bias";

/// A text and the positions that are read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValueText {
    /// The tokens behind the prompt.
    pub tokens: Vec<u32>,
    /// How many of them are read at each position; 0 reads the prompt alone.
    pub at: Vec<usize>,
}

/// What is known of one position.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ValueTarget {
    /// The probability of success.
    pub success: f64,
    /// The cost.
    pub cost: f64,
    /// What the position counts.
    pub weight: f64,
}

/// A text to learn from: one target for each position.
#[derive(Debug, Clone)]
pub struct ValueExample {
    pub prompt: Vec<u32>,
    pub text: ValueText,
    pub targets: Vec<ValueTarget>,
}

/// What the head says of a position.
#[derive(Debug, Clone, PartialEq)]
pub struct ValueReading {
    /// The log-odds of success.
    pub logit: f64,
    /// The cost.
    pub cost: f64,
    /// The hidden state that both were read off.
    pub state: Vec<f32>,
}

/// A language model with a head of two outputs.
pub struct ValueModel {
    model: Model,
    tokenizer: Tokenizer,
    optimiser: Optimiser,
}

impl ValueModel {
    /// Reads a model from a folder, and its head where the folder has one; a new head says 0 of everything.
    ///
    /// # Errors
    /// As [`LanguagePolicy::load`](crate::LanguagePolicy::load).
    pub fn load(folder: &Path, learning: Learning) -> Result<Self, PolicyError> {
        let files = ModelFiles::Disk(folder);
        Self::make(ModelConfig::load(files)?, Tokenizer::read(files)?, &WeightOrigin::Files(files), learning)
    }

    /// Reads a model whose files are part of the program.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub fn load_packed(files: Packed, learning: Learning) -> Result<Self, PolicyError> {
        let files = ModelFiles::Packed(files);
        Self::make(ModelConfig::load(files)?, Tokenizer::read(files)?, &WeightOrigin::Files(files), learning)
    }

    /// An untrained model with a new head.
    ///
    /// # Errors
    /// The tokenizer has more tokens than the model.
    pub fn fresh(
        config: ModelConfig,
        tokenizer: Tokenizer,
        seed: u64,
        learning: Learning,
    ) -> Result<Self, PolicyError> {
        Self::make(config, tokenizer, &WeightOrigin::Seed(seed), learning)
    }

    fn make(
        config: ModelConfig,
        tokenizer: Tokenizer,
        origin: &WeightOrigin<'_>,
        learning: Learning,
    ) -> Result<Self, PolicyError> {
        if tokenizer.vocabulary() > config.vocabulary {
            let (tokens, rows) = (tokenizer.vocabulary(), config.vocabulary);
            return Err(PolicyError::Request(format!("the tokenizer has {tokens} tokens, the model {rows}")));
        }
        let mut parameters = Parameters::new(&config, origin, learning, DType::F32, &Device::Cpu)?;
        parameters.add_learned(origin, &[(WEIGHT, &[2, config.hidden]), (BIAS, &[2])], &Device::Cpu)?;
        let model = Model::new(config, parameters, Device::Cpu, DType::F32)?;
        Ok(ValueModel { model, tokenizer, optimiser: Optimiser::new(OptimiserSettings::default()) })
    }

    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    #[cfg(test)]
    pub(crate) fn parameters(&self) -> &Parameters {
        &self.model.parameters
    }

    /// The loss and its gradient, by parameter.
    #[cfg(test)]
    pub(crate) fn loss_and_gradients(
        &self,
        examples: &[ValueExample],
    ) -> Result<(f64, std::collections::BTreeMap<String, Tensor>), PolicyError> {
        let mut gradients = Gradients::default();
        let (loss, _) = self.accumulate(examples, &mut gradients)?;
        Ok((loss, gradients.into_tensors()))
    }

    /// The shape of the model.
    pub fn config(&self) -> &ModelConfig {
        &self.model.config
    }

    /// Writes model and head so that [`Self::load`] can read them; programs that know nothing of the head read the model.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn save(&self, folder: &Path) -> Result<(), PolicyError> {
        std::fs::create_dir_all(folder).map_err(|source| PolicyError::File { path: folder.to_owned(), source })?;
        self.tokenizer.save(folder)?;
        weights::replace(&folder.join("config.json"), self.model.config.to_json("float32").as_bytes())?;
        self.model.parameters.save(folder, DType::F32)
    }

    /// Reads texts that go on from one prompt, which is computed once. One list of readings for each text.
    ///
    /// # Errors
    /// A text is too long, has a token that the model lacks, or a position that it lacks.
    pub fn read(&self, prompt: &[u32], texts: &[ValueText]) -> Result<Vec<Vec<ValueReading>>, PolicyError> {
        let weight = self.model.parameters.values(WEIGHT)?;
        let bias = self.model.parameters.values(BIAS)?;
        let product = |output: usize, state: &[f32]| {
            let row = weight.chunks(state.len().max(1)).nth(output).unwrap_or_default();
            let sum: f64 = row.iter().zip(state).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
            sum + f64::from(bias.get(output).copied().unwrap_or(f32::NAN)) // The head has two outputs.
        };
        let reading = |state: Vec<f32>| ValueReading { logit: product(0, &state), cost: product(1, &state), state };
        let states = states(&self.model, prompt, texts)?;
        Ok(states.into_iter().map(|of_text| of_text.into_iter().map(reading).collect()).collect())
    }

    /// Takes one optimiser step on the sum over all positions of weight · (cross-entropy of success + half the squared error of the
    /// cost). A loss or gradient that is not finite changes nothing and is reported. `temperature` has no meaning here.
    ///
    /// # Errors
    /// An example has another number of targets than positions, or cannot be read.
    pub fn update(&mut self, examples: &[ValueExample], settings: &StepSettings) -> Result<StepReport, PolicyError> {
        let mut gradients = Gradients::default();
        let mut report = StepReport::default();
        let at_once = if settings.micro_batch == 0 { examples.len().max(1) } else { settings.micro_batch };
        for examples in examples.chunks(at_once) {
            let (loss, tokens) = self.accumulate(examples, &mut gradients)?;
            report.loss += loss;
            report.tokens += tokens;
        }
        let norm = gradients.norm()?;
        report.gradient_norm = norm;
        report.skipped = !(norm.is_finite() && report.loss.is_finite());
        if report.tokens > 0 && !report.skipped {
            let clips = settings.clip_norm > 0.0 && norm > settings.clip_norm;
            let scale = if clips { settings.clip_norm / norm } else { 1.0 };
            self.optimiser.step(&self.model.parameters, &gradients, settings.learning_rate, scale)?;
        }
        Ok(report)
    }

    fn accumulate(&self, examples: &[ValueExample], gradients: &mut Gradients) -> Result<(f64, usize), PolicyError> {
        let mut texts = Vec::with_capacity(examples.len());
        for ValueExample { prompt, text, targets } in examples {
            if targets.len() != text.at.len() {
                let fact = format!("{} targets for {} positions", targets.len(), text.at.len());
                return Err(PolicyError::Request(fact));
            }
            check(&self.model.config, prompt, text)?;
            texts.push([prompt.as_slice(), &text.tokens].concat());
        }
        let slices: Vec<&[u32]> = texts.iter().map(Vec::as_slice).collect();
        let (rows, starts) = Rows::of_texts(&slices);
        let picked = |(example, start): (&ValueExample, &usize)| -> Vec<u32> {
            // Rows of a batch are far fewer than u32::MAX; a prompt has a token.
            example.text.at.iter().map(|at| (start + example.prompt.len() + at - 1) as u32).collect()
        };
        let picked: Vec<u32> = examples.iter().zip(&starts).flat_map(picked).collect();
        if picked.is_empty() {
            return Ok((0.0, 0));
        }
        let ops = self.model.ops;
        let states = ops.gather_rows(&self.model.hidden(&rows, None)?, &picked)?;
        let value = |name: &str| self.model.parameters.get(name)?.value(DType::F32);
        let outputs = ops.linear(&states, &value(WEIGHT)?, Some(&value(BIAS)?), false)?;
        // What the loss is to each output is plain arithmetic; the model only has to carry it backwards.
        let (mut loss, mut slopes) = (0.0, Vec::with_capacity(2 * picked.len()));
        let targets = examples.iter().flat_map(|example| &example.targets);
        for (output, target) in outputs.to_vec2::<f32>()?.iter().zip(targets) {
            let [logit, cost] = [0, 1].map(|at| f64::from(output.get(at).copied().unwrap_or(f32::NAN)));
            let soft = logit.max(0.0) + (-logit.abs()).exp().ln_1p();
            let off = cost - target.cost;
            loss += target.weight * (soft - target.success * logit + 0.5 * off * off);
            let slope = [lemon_num::logistic(logit) - target.success, off];
            slopes.extend(slope.map(|slope| (target.weight * slope) as f32));
        }
        let slopes = Tensor::from_vec(slopes, (picked.len(), 2), &self.model.device)?;
        let sum = (outputs * slopes)?.sum_all()?;
        gradients.add(&sum.backward()?, &self.model.parameters)?;
        Ok((loss, picked.len()))
    }
}

/// The hidden states of a model at positions of texts that go on from one prompt.
pub(crate) fn states(model: &Model, prompt: &[u32], texts: &[ValueText]) -> Result<Vec<Vec<Vec<f32>>>, PolicyError> {
    texts.iter().try_for_each(|text| check(&model.config, prompt, text))?;
    let longest = texts.iter().map(|text| text.tokens.len()).max().unwrap_or(0);
    let ModelConfig { layers, kv_heads, head_dim, .. } = model.config;
    let length = prompt.len() + longest;
    let mut cache = Cache::new(layers, kv_heads, head_dim, 1, length, model.dtype, &model.device)?;
    let mut go_on = |tokens: &[u32], before: usize| -> Result<Vec<Vec<f32>>, PolicyError> {
        let rows = Rows::of_parts(&[Part { tokens, before, place: 0 }], &cache, &model.device);
        Ok(model.hidden(&rows, Some(&mut cache))?.to_dtype(DType::F32)?.to_vec2()?)
    };
    let end = go_on(prompt, 0)?.pop();
    let mut found = Vec::with_capacity(texts.len());
    for text in texts {
        // What an earlier text left behind the prompt is overwritten, or stands behind what this one sees.
        let states = if text.tokens.is_empty() { Vec::new() } else { go_on(&text.tokens, prompt.len())? };
        let state = |at: &usize| match at.checked_sub(1) {
            None => end.clone(),
            Some(at) => states.get(at).cloned(),
        };
        // `check` has found every position.
        found.push(text.at.iter().filter_map(state).collect());
    }
    Ok(found)
}

fn check(config: &ModelConfig, prompt: &[u32], text: &ValueText) -> Result<(), PolicyError> {
    let length = prompt.len() + text.tokens.len();
    if prompt.is_empty() || length > config.positions {
        let (prompt, most) = (prompt.len(), config.positions);
        let fact = format!("a text of {length} tokens, {prompt} of them prompt; from 1 to {most} can be read");
        return Err(PolicyError::Request(fact));
    }
    if let Some(token) = prompt.iter().chain(&text.tokens).find(|it| **it as usize >= config.vocabulary) {
        return Err(PolicyError::Request(format!("the model has no token {token}")));
    }
    if let Some(at) = text.at.iter().find(|at| **at > text.tokens.len()) {
        let fact = format!("position {at} of a text of {} tokens", text.tokens.len());
        return Err(PolicyError::Request(fact));
    }
    Ok(())
}
