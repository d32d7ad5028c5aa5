//! Measures training and sampling speed: fused operations against composed ones, side by side in one run.

use crate::config::ModelConfig;
use crate::language::{DeviceChoice, LanguagePolicy};
use crate::ops::{self, Ops};
use crate::parameters::Learning;
use crate::{
    Example, Objective, Policy, PolicyError, SampleRequest, SampleSettings, Sequence, StepSettings, Tokenizer,
};
use serde::Serialize;
use std::time::Instant;

/// A model and a batch to measure with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct BenchShape {
    /// Named after the approximate number of parameters.
    pub name: &'static str,
    /// Hidden width, intermediate width, layers, heads, key heads, vocabulary.
    pub model: [usize; 6],
    /// Texts at a time.
    pub batch: usize,
    /// Tokens of a text.
    pub length: usize,
    /// Whether only adapters are learned.
    pub adapters: bool,
}

/// All shapes.
pub const SHAPES: [BenchShape; 5] = [
    BenchShape { name: "3m", model: [256, 768, 4, 4, 2, 2_048], batch: 4, length: 128, adapters: false },
    // The large worker, with as many lessons as a step has.
    BenchShape { name: "12m", model: [320, 960, 9, 10, 5, 2_048], batch: 512, length: 96, adapters: false },
    BenchShape { name: "42m", model: [512, 1_408, 8, 8, 8, 32_000], batch: 16, length: 512, adapters: false },
    BenchShape { name: "285m", model: [1_024, 2_048, 24, 16, 16, 32_000], batch: 16, length: 512, adapters: false },
    // Qwen2.5-7B.
    BenchShape { name: "7b", model: [3_584, 18_944, 28, 28, 4, 152_064], batch: 4, length: 512, adapters: true },
];

/// One measurement.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Speed {
    pub shape: &'static str,
    /// Parameters of the model.
    pub parameters: u64,
    /// `cpu` or `cuda`.
    pub device: &'static str,
    /// `fused` or `composed`.
    pub ops: &'static str,
    /// Milliseconds of a training step, in the median.
    pub step_ms: f64,
    /// Tokens a second in training.
    pub training: f64,
    /// Tokens a second in sampling a batch; absent if not measured.
    pub writing: Option<f64>,
    /// The loss of the last step: both kinds of operations have to agree on it.
    pub loss: f64,
    /// Milliseconds of forward pass, backward pass and optimiser. They are timed separately, so the device is synchronised
    /// more often than in a step.
    pub parts_ms: [f64; 3],
}

/// Measures one shape with one kind of operations.
///
/// # Errors
/// The device is not there or fails.
pub fn measure(shape: &BenchShape, device: DeviceChoice, fused: bool, steps: usize) -> Result<Speed, PolicyError> {
    let mut policy = policy(shape, device, fused)?;
    let tokens = |text: usize| -> Vec<u32> {
        let vocabulary = shape.model[5] as u64;
        (0..shape.length as u64).map(|at| ((text as u64 * 7_919 + at * at * 31 + at) % vocabulary) as u32).collect()
    };
    let example = |text: usize| {
        let mut all = tokens(text);
        let rest = all.split_off(1);
        let weights = vec![1.0 / (shape.batch * rest.len()) as f32; rest.len()];
        Example {
            sequence: Sequence { prompt: all, tokens: rest, grammar: None },
            objective: Objective::Likelihood { weights },
        }
    };
    let examples: Vec<Example> = (0..shape.batch).map(example).collect();
    // Composed operations keep so many tensors that a whole batch of the larger models does not fit.
    let micro_batch = if fused || shape.model[2] < 16 { 0 } else { shape.batch / 4 };
    let settings = StepSettings { learning_rate: 1e-4, temperature: 1.0, clip_norm: 1.0, micro_batch };
    let mut times = Vec::new();
    let mut loss = 0.0;
    for step in 0..steps + 2 {
        let start = Instant::now();
        loss = policy.update(&examples, &settings)?.loss;
        policy.synchronise()?;
        // The first steps compile kernels and fill caches.
        if step >= 2 {
            times.push(start.elapsed().as_secs_f64());
        }
    }
    let seconds = median(&mut times);
    let writing = if shape.adapters { None } else { Some(writing_speed(&policy, shape)?) };
    Ok(Speed {
        shape: shape.name,
        parameters: policy.config().parameters() as u64,
        device: policy.device(),
        ops: if fused { "fused" } else { "composed" },
        step_ms: seconds * 1e3,
        training: (shape.batch * shape.length) as f64 / seconds,
        writing,
        loss,
        parts_ms: if micro_batch == 0 && !policy.has_learner() {
            policy.step_parts(&examples, 5)?
        } else {
            [f64::NAN; 3]
        },
    })
}

/// The relative error of every fused operation on a device against plain arithmetic on the CPU, by name.
///
/// # Errors
/// The device is not there or fails.
pub fn selfcheck(device: DeviceChoice) -> Result<Vec<(String, f64)>, PolicyError> {
    let (device, dtype) = crate::language::open(device)?;
    let mut errors = Vec::new();
    for dtype in [candle_core::DType::F32, dtype] {
        let checks = ops::selfcheck(&device, dtype)?;
        errors.extend(checks.into_iter().map(|check| (format!("{} {dtype:?}", check.name), check.error)));
    }
    Ok(errors)
}

fn policy(shape: &BenchShape, device: DeviceChoice, fused: bool) -> Result<LanguagePolicy, PolicyError> {
    let [hidden, intermediate, layers, heads, kv_heads, vocabulary] = shape.model;
    let head_dim = hidden / heads;
    let small = ModelConfig::small(vocabulary, hidden, layers, 0);
    let config = ModelConfig { intermediate, heads, kv_heads, head_dim, tied: !shape.adapters, ..small };
    let learning = if shape.adapters { Learning::Adapters(Default::default()) } else { Learning::Everything };
    let mut policy =
        LanguagePolicy::fresh(config, Tokenizer::train(std::iter::empty(), 257, &["<|end|>"])?, 0, device, learning)?;
    if !fused && policy.has_learner() {
        let fact =
            "the GPU kernels of this build have no composed form: measure the fused one alone, or use `--device cpu`";
        return Err(PolicyError::Request(fact.to_owned()));
    }
    if !fused {
        policy.model_mut().ops = Ops::Composed;
    }
    Ok(policy)
}

fn writing_speed(policy: &LanguagePolicy, shape: &BenchShape) -> Result<f64, PolicyError> {
    let request =
        |seed: usize| SampleRequest { prompt: vec![1, 2, 3, 4, 5, 6, 7, 8], grammar: None, seed: seed as u64 };
    let requests: Vec<SampleRequest> = (0..shape.batch).map(request).collect();
    let settings = SampleSettings { most_tokens: 64, ..SampleSettings::default() };
    policy.sample(&requests, &SampleSettings { most_tokens: 2, ..settings })?;
    let start = Instant::now();
    let samples = policy.sample(&requests, &settings)?;
    let written: usize = samples.iter().map(|sample| sample.tokens.len()).sum();
    Ok(written as f64 / start.elapsed().as_secs_f64())
}

fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(f64::NAN)
}
