//! The language model as a policy.

use crate::api::{Example, Policy, Sample, SampleRequest, SampleSettings, Sequence, StepReport, StepSettings};
use crate::config::ModelConfig;
use crate::files::{ModelFiles, Packed};
use crate::gpu::{self, Learner};
use crate::model::Model;
use crate::optimiser::{Optimiser, OptimiserSettings};
use crate::parameters::{Learning, Parameters};
use crate::tensors::WeightOrigin;
use crate::value::{self, ValueText};
use crate::weights;
use crate::{PolicyError, Tokenizer, learn, write};
use candle_core::{DType, Device};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Where a model runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DeviceChoice {
    /// On an NVIDIA GPU if there is one and this build can use it, else on the CPU.
    #[default]
    Auto,
    /// On the CPU, in f32.
    Cpu,
    /// On an NVIDIA GPU, in bf16.
    Cuda,
}

/// The number format of saved weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// As they were trained.
    #[default]
    F32,
    /// Half the size; what most models are published in.
    Bf16,
}

/// A language model that samples texts and is trained.
pub struct LanguagePolicy {
    model: Model,
    tokenizer: Tokenizer,
    optimiser: Optimiser,
    /// Where the model is on a GPU: then `model` has the parameters only.
    learner: Option<Mutex<Learner>>,
}

impl LanguagePolicy {
    /// Reads a model from a folder as on the Hugging Face hub: `config.json`, `model.safetensors` (whole or in shards),
    /// `tokenizer.json`; or from a GGUF file.
    ///
    /// # Errors
    /// A file is missing, cut short, or not what the config says; or the device is not there.
    pub fn load(folder: &Path, device: DeviceChoice, learning: Learning) -> Result<Self, PolicyError> {
        Self::read(ModelFiles::Disk(folder), device, learning)
    }

    /// Reads a model whose files are part of the program.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub fn load_packed(files: Packed, device: DeviceChoice, learning: Learning) -> Result<Self, PolicyError> {
        Self::read(ModelFiles::Packed(files), device, learning)
    }

    fn read(folder: ModelFiles<'_>, device: DeviceChoice, learning: Learning) -> Result<Self, PolicyError> {
        let (config, tokenizer) = (ModelConfig::load(folder)?, Tokenizer::read(folder)?);
        Self::make(config, tokenizer, &WeightOrigin::Files(folder), device, learning)
    }

    /// An untrained model.
    ///
    /// # Errors
    /// The device is not there.
    pub fn fresh(
        config: ModelConfig,
        tokenizer: Tokenizer,
        seed: u64,
        device: DeviceChoice,
        learning: Learning,
    ) -> Result<Self, PolicyError> {
        Self::make(config, tokenizer, &WeightOrigin::Seed(seed), device, learning)
    }

    fn make(
        config: ModelConfig,
        tokenizer: Tokenizer,
        origin: &WeightOrigin<'_>,
        device: DeviceChoice,
        learning: Learning,
    ) -> Result<Self, PolicyError> {
        if tokenizer.vocabulary() > config.vocabulary {
            let (tokens, rows) = (tokenizer.vocabulary(), config.vocabulary);
            return Err(PolicyError::Request(format!("the tokenizer has {tokens} tokens, the model {rows}")));
        }
        let gpu = gpu::open(device)?;
        let (device, dtype) = open(if gpu.is_some() { DeviceChoice::Cpu } else { device })?;
        let parameters = Parameters::new(&config, origin, learning, dtype, &device)?;
        let model = Model::new(config, parameters, device, dtype)?;
        let learner = |gpu| Learner::new(&gpu, &model.config, &model.parameters, learning).map(Mutex::new);
        let learner = gpu.map(learner).transpose()?;
        Ok(LanguagePolicy { model, tokenizer, optimiser: Optimiser::new(OptimiserSettings::default()), learner })
    }

    /// The model on a GPU, where it is there.
    fn learner(&self) -> Option<MutexGuard<'_, Learner>> {
        // What a panic left is a model whose steps are whole: the device does each or fails.
        self.learner.as_ref().map(|learner| learner.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Brings the parameters on the CPU up to date.
    fn read_back(&self) -> Result<(), PolicyError> {
        self.learner().map_or(Ok(()), |mut learner| learner.read_back(&self.model.parameters))
    }

    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// The shape of the model.
    pub fn config(&self) -> &ModelConfig {
        &self.model.config
    }

    /// The device: `cpu` or `cuda`.
    pub fn device(&self) -> &'static str {
        if self.learner.is_some() || self.model.device.is_cuda() { "cuda" } else { "cpu" }
    }

    /// Optimiser steps taken so far.
    pub fn steps(&self) -> u64 {
        self.optimiser.steps
    }

    /// Replaces the optimiser's settings.
    pub fn set_optimiser(&mut self, settings: OptimiserSettings) {
        self.optimiser.settings = settings;
    }

    /// Writes the model so that `transformers` and [`Self::load`] can read it. Adapters are merged in.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn save(&self, folder: &Path, precision: Precision) -> Result<(), PolicyError> {
        std::fs::create_dir_all(folder).map_err(|source| PolicyError::File { path: folder.to_owned(), source })?;
        let (dtype, name) = match precision {
            Precision::F32 => (DType::F32, "float32"),
            Precision::Bf16 => (DType::BF16, "bfloat16"),
        };
        self.read_back()?;
        self.tokenizer.save(folder)?;
        weights::replace(&folder.join("config.json"), self.model.config.to_json(name).as_bytes())?;
        self.model.parameters.save(folder, dtype)
    }

    /// Writes the trained parameters without rounding and the optimiser's state, so that training resumes exactly.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn save_state(&self, folder: &Path) -> Result<(), PolicyError> {
        std::fs::create_dir_all(folder).map_err(|source| PolicyError::File { path: folder.to_owned(), source })?;
        self.read_back()?;
        let moments = match self.learner() {
            None => None,
            Some(learner) => Some(learner.moments(&self.model.parameters)?),
        };
        self.optimiser.save(&self.model.parameters, moments.as_ref(), folder)
    }

    /// Reads what [`Self::save_state`] wrote for a model of the same shape.
    ///
    /// # Errors
    /// A file is missing, damaged, or of another model.
    pub fn load_state(&mut self, folder: &Path) -> Result<(), PolicyError> {
        self.optimiser = Optimiser::load(&self.model.parameters, folder, &self.model.device)?;
        match self.learner() {
            None => Ok(()),
            Some(mut learner) => learner.send_state(&self.model.parameters, &self.optimiser.moments),
        }
    }

    /// The logits after each token of a text, to compare another implementation of the same model with.
    ///
    /// # Errors
    /// The device fails.
    pub fn logits(&self, tokens: &[u32]) -> Result<Vec<Vec<f32>>, PolicyError> {
        self.read_back()?;
        let (rows, _) = self.model.rows_of_texts(&[tokens]);
        let logits = self.model.logits(&self.model.hidden(&rows, None)?)?;
        Ok(logits.to_dtype(DType::F32)?.narrow(0, 0, tokens.len())?.to_vec2()?)
    }

    /// The hidden states at positions of a text behind a prompt: what a head reads.
    ///
    /// # Errors
    /// The text cannot be read, or the model is on a GPU, whose kernels keep no states.
    pub fn states(&self, prompt: &[u32], text: &ValueText) -> Result<Vec<Vec<f32>>, PolicyError> {
        if self.device() != "cpu" {
            return Err(PolicyError::Device("hidden states are read on the CPU alone; use `--device cpu`".to_owned()));
        }
        Ok(value::states(&self.model, prompt, std::slice::from_ref(text))?.into_iter().next().unwrap_or_default())
    }

    fn write(&self, begun: &[(&SampleRequest, &[u32])], settings: &SampleSettings) -> Result<Vec<Sample>, PolicyError> {
        match self.learner() {
            None => write::write(&self.model, &self.tokenizer, begun, settings),
            Some(mut learner) => learner.sample(&self.model.parameters, &self.tokenizer, begun, settings),
        }
    }

    /// The milliseconds of the parts of a step, in the median.
    pub(crate) fn step_parts(&mut self, examples: &[Example], times: usize) -> Result<[f64; 3], PolicyError> {
        learn::step_parts(&self.model, &mut self.optimiser, examples, times)
    }

    /// Waits until the device has done all it was asked to.
    pub(crate) fn synchronise(&self) -> Result<(), PolicyError> {
        match self.learner() {
            None => Ok(self.model.device.synchronize()?),
            Some(learner) => learner.wait(),
        }
    }

    /// Whether it is trained by kernels of our own on a GPU.
    pub(crate) fn has_learner(&self) -> bool {
        self.learner.is_some()
    }

    pub(crate) fn model_mut(&mut self) -> &mut Model {
        &mut self.model
    }
}

impl Policy for LanguagePolicy {
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
        match self.learner() {
            None => learn::score(&self.model, sequences, temperature),
            Some(mut learner) => learner.score(sequences, temperature),
        }
    }

    fn update(&mut self, examples: &[Example], settings: &StepSettings) -> Result<StepReport, PolicyError> {
        match &mut self.learner {
            None => learn::update(&self.model, &mut self.optimiser, examples, settings),
            Some(learner) => {
                let learner = learner.get_mut().unwrap_or_else(PoisonError::into_inner);
                learner.update(&mut self.optimiser, examples, settings)
            }
        }
    }
}

/// Opens a device; returns it with the number format that it computes in.
pub(crate) fn open(choice: DeviceChoice) -> Result<(Device, DType), PolicyError> {
    let cuda = || -> candle_core::Result<Device> {
        let device = Device::new_cuda(0)?;
        #[cfg(feature = "cuda")]
        crate::ops::cuda::keep_memory(device.as_cuda_device()?)?;
        Ok(device)
    };
    match choice {
        DeviceChoice::Cpu => Ok((Device::Cpu, DType::F32)),
        DeviceChoice::Auto if !cfg!(feature = "cuda") => Ok((Device::Cpu, DType::F32)),
        // A GPU that cannot be opened counts as none; [`LanguagePolicy::device`] says which device was chosen.
        DeviceChoice::Auto => Ok(cuda().map_or((Device::Cpu, DType::F32), |device| (device, DType::BF16))),
        DeviceChoice::Cuda if !cfg!(feature = "cuda") => {
            let fact = "this build cannot use GPUs; build it with `--features cuda`, or use `--device cpu`";
            Err(PolicyError::Device(fact.to_owned()))
        }
        DeviceChoice::Cuda => match cuda() {
            Ok(device) => Ok((device, DType::BF16)),
            Err(error) => Err(PolicyError::Device(format!("no NVIDIA GPU can be used here: {error}"))),
        },
    }
}
