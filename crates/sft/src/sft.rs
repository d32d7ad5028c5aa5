//! Supervised fine-tuning on pairs of prompt and specification, with early stopping on a validation set.
//!
//! A run follows from its settings and seed. A run that was killed resumes from its last checkpoint and ends with the same
//! numbers.

use crate::keep;
use lemon_model::{Example, LanguagePolicy, Objective, OptimiserSettings, Policy, PolicyError, Sequence, StepSettings};
use lemon_policy::checkpoint::{self, Checkpoints, KeepError, to_json};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The settings of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SftSettings {
    /// The seed of the order of pairs.
    pub seed: u64,
    /// Steps at most.
    pub steps: u64,
    /// Pairs in a step.
    pub batch: usize,
    /// Pairs in one pass through the model: the gradient of a step is accumulated over several passes. 0: all.
    pub micro_batch: usize,
    /// The highest learning rate.
    pub learning_rate: f64,
    /// Steps until it is reached.
    pub warm_up: u64,
    /// The share of it at the last step.
    pub final_rate: f64,
    /// The norm above which a gradient is scaled down.
    pub clip_norm: f64,
    /// How weights are moved.
    pub optimiser: OptimiserSettings,
    /// Steps between two evaluations on the validation pairs; a checkpoint follows each.
    #[serde(rename(serialize = "look_every"), alias = "look_every")]
    pub eval_every: u64,
    /// Evaluations without an improvement after which the run stops. 0: never.
    pub patience: u64,
}

impl Default for SftSettings {
    fn default() -> Self {
        SftSettings {
            seed: 0,
            steps: 1_000,
            batch: 32,
            micro_batch: 0,
            learning_rate: 1e-3,
            warm_up: 50,
            final_rate: 0.05,
            clip_norm: 1.0,
            optimiser: OptimiserSettings::default(),
            eval_every: 100,
            patience: 5,
        }
    }
}

impl SftSettings {
    /// The learning rate of a step, from 1: it rises in a line and falls in a cosine.
    pub fn rate(&self, step: u64) -> f64 {
        if step <= self.warm_up {
            return self.learning_rate * step as f64 / self.warm_up.max(1) as f64;
        }
        let way = (step - self.warm_up) as f64 / self.steps.saturating_sub(self.warm_up).max(1) as f64;
        let fallen = 0.5 * (1.0 + (std::f64::consts::PI * way.min(1.0)).cos());
        self.learning_rate * (self.final_rate + (1.0 - self.final_rate) * fallen)
    }
}

/// A pair as tokens: the loss counts those of the specification.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TokenizedPair {
    /// The tokens of the prompt.
    pub prompt: Vec<u32>,
    /// The tokens of the specification, the one that ends it included.
    pub tokens: Vec<u32>,
}

impl TokenizedPair {
    fn sequence(&self) -> Sequence {
        // Without a grammar: the model is to write valid teams by itself.
        Sequence { prompt: self.prompt.clone(), tokens: self.tokens.clone(), grammar: None }
    }
}

/// One line of `metrics.jsonl`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SftMetrics {
    /// The step, from 1.
    pub step: u64,
    /// The mean loss of a token in the step.
    pub loss: f64,
    pub gradient_norm: f64,
    pub learning_rate: f64,
    /// Whether the update was skipped because a number was not finite.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub skipped: bool,
    /// The evaluation after the step, where there was one.
    #[serde(default, rename(serialize = "look"), alias = "look", skip_serializing_if = "Option::is_none")]
    pub eval: Option<SftEval>,
}

/// An evaluation on the validation pairs and tasks.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct SftEval {
    /// The mean loss of a token.
    pub loss: f64,
    /// The teams that were written for validation tasks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probe: Option<Probe>,
}

/// What the teams of a policy earn.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Probe {
    /// The share of valid ones, written without the grammar.
    pub valid: f64,
    /// The mean reward of those written with it.
    pub reward: f64,
    /// The share of right answers.
    pub success: f64,
    /// Mean tokens of a run.
    pub tokens: f64,
}

/// The result of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Learned {
    /// Steps taken.
    pub steps: u64,
    /// The step whose model was kept.
    pub best_step: u64,
    /// Its evaluation.
    pub best: SftEval,
    /// Whether it stopped before all steps were taken.
    pub stopped_early: bool,
    /// Steps whose update was skipped because a number was not finite.
    pub skipped: u64,
}

/// What can go wrong.
#[derive(Debug, thiserror::Error)]
pub enum SftError {
    /// The policy failed.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// The folder cannot be used.
    #[error(transparent)]
    Keep(#[from] KeepError),
    /// There is nothing to learn from, or nothing to validate with.
    #[error("{0}")]
    Pairs(String),
    /// The probe failed.
    #[error("the teams of the policy could not be run: {0}")]
    Probe(String),
}

/// Where the best model is kept in the folder of a run.
pub const BEST: &str = "best";

/// Fine-tunes a policy on pairs and leaves the best model in `folder`. A run that was killed resumes from its last checkpoint.
/// `probe` runs the model on validation tasks at every evaluation. `watch` sees every step and returns whether to go on.
///
/// # Errors
/// The folder cannot be used, there are no pairs, or the device fails.
pub fn sft(
    policy: &mut LanguagePolicy,
    pairs: &[TokenizedPair],
    validation: &[TokenizedPair],
    settings: &SftSettings,
    folder: &Path,
    mut probe: impl FnMut(&LanguagePolicy) -> Result<Option<Probe>, SftError>,
    mut watch: impl FnMut(&SftMetrics) -> bool,
) -> Result<Learned, SftError> {
    if pairs.is_empty() || validation.is_empty() {
        return Err(SftError::Pairs(
            "expected pairs to learn and pairs to validate with, got none of one of them".to_owned(),
        ));
    }
    policy.set_optimiser(settings.optimiser);
    let begun = [
        ("settings", to_json(settings)?),
        ("lessons", fingerprint(pairs)),
        ("lessons to validate with", fingerprint(validation)),
    ];
    let (checkpoints, mut state) =
        Checkpoints::begin(folder, &begun, |state: &State| state.step, |folder| policy.load_state(folder))?;
    while state.step < settings.steps && !state.stopped_early {
        state.step += 1;
        let mut metrics = learn_once(policy, pairs, settings, state.step)?;
        state.skipped += u64::from(metrics.skipped);
        let is_eval = state.step % settings.eval_every.max(1) == 0 || state.step == settings.steps;
        if is_eval {
            let eval = SftEval { loss: mean_loss(policy, validation)?, probe: probe(policy)? };
            metrics.eval = Some(eval);
            state.eval(eval, settings.patience);
        }
        let is_best = is_eval && state.best_step == state.step;
        keep::step(&checkpoints, policy, &folder.join(BEST), (state.step, &state, &metrics), [is_eval, is_best])?;
        if !watch(&metrics) {
            break;
        }
    }
    Ok(state.learned())
}

/// One step, on the pairs that the seed and the number of the step choose.
fn learn_once(
    policy: &mut LanguagePolicy,
    pairs: &[TokenizedPair],
    settings: &SftSettings,
    step: u64,
) -> Result<SftMetrics, SftError> {
    let chosen = batch(pairs.len(), settings, step);
    let chosen: Vec<&TokenizedPair> = chosen.iter().filter_map(|number| pairs.get(*number)).collect();
    let tokens: usize = chosen.iter().map(|pair| pair.tokens.len()).sum();
    let weight = 1.0 / tokens.max(1) as f32;
    let example = |pair: &&TokenizedPair| Example {
        sequence: pair.sequence(),
        objective: Objective::Likelihood { weights: vec![weight; pair.tokens.len()] },
    };
    let examples: Vec<Example> = chosen.iter().map(example).collect();
    let learning_rate = settings.rate(step);
    let (clip_norm, micro_batch) = (settings.clip_norm, settings.micro_batch);
    let report = policy.update(&examples, &StepSettings { learning_rate, temperature: 1.0, clip_norm, micro_batch })?;
    let (loss, gradient_norm) = (report.loss, report.gradient_norm);
    Ok(SftMetrics { step, loss, gradient_norm, learning_rate, skipped: report.skipped, eval: None })
}

/// The pairs of a step. Every pass through all pairs has an order of its own; passes follow one another without a gap.
fn batch(pairs: usize, settings: &SftSettings, step: u64) -> Vec<usize> {
    let size = settings.batch.max(1);
    let first = (step - 1) as usize * size;
    let mut chosen = Vec::with_capacity(size);
    let mut pass = None;
    for at in first..first + size {
        let number = (at / pairs) as u64;
        if pass.as_ref().is_none_or(|(known, _)| *known != number) {
            pass = Some((number, order(pairs, settings.seed, number)));
        }
        chosen.extend(pass.as_ref().and_then(|(_, order)| order.get(at % pairs)));
    }
    chosen
}

/// The order of one pass: a permutation by seed and number of the pass.
pub fn order(pairs: usize, seed: u64, pass: u64) -> Vec<usize> {
    lemon_num::Random::of_pass(seed, pass).order(pairs)
}

/// The mean loss of a token over all pairs.
pub fn mean_loss(policy: &dyn Policy, pairs: &[TokenizedPair]) -> Result<f64, PolicyError> {
    let sequences: Vec<Sequence> = pairs.iter().map(TokenizedPair::sequence).collect();
    let scores = policy.score(&sequences, 1.0)?;
    let (sum, count) =
        scores.iter().flatten().fold((0.0, 0usize), |(sum, count), it| (sum - f64::from(*it), count + 1));
    Ok(sum / count.max(1) as f64)
}

/// Where a run stands.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
struct State {
    step: u64,
    best_step: u64,
    best: SftEval,
    /// Evaluations since the best.
    since_best: u64,
    stopped_early: bool,
    skipped: u64,
}

fn fingerprint(pairs: &[TokenizedPair]) -> String {
    let tokens =
        pairs.iter().flat_map(|pair| pair.prompt.iter().chain([&u32::MAX]).chain(&pair.tokens).chain([&u32::MAX]));
    checkpoint::fingerprint(pairs.len(), tokens)
}

impl State {
    fn eval(&mut self, eval: SftEval, patience: u64) {
        let is_better = self.best_step == 0 || eval.loss < self.best.loss;
        if is_better {
            (self.best, self.best_step) = (eval, self.step);
        }
        (self.since_best, self.stopped_early) = keep::patience(is_better, self.since_best, patience);
    }

    fn learned(&self) -> Learned {
        Learned {
            steps: self.step,
            best_step: self.best_step,
            best: self.best,
            stopped_early: self.stopped_early,
            skipped: self.skipped,
        }
    }
}

#[cfg(test)]
mod tests;
