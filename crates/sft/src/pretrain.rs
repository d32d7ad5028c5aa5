//! Pretraining of small workers: language models that solve arithmetic word problems, and check and choose among solutions.
//!
//! `problems → numbered lessons, prefetched → tokens → steps → evaluation on held-out problems → the best model`. A lesson is one
//! training example. Training has two stages. In the first each model learns all tasks from generated replies. In the second it
//! goes on and learns from what the models of the first stage replied ([`PeerReplies`]) to problems they were not trained on. As in
//! [`crate::sft`], a run follows from settings and seed, and a run that was killed resumes.

mod answer;
mod held_out;
mod lesson_stream;
mod prefetch;
mod replies;
pub mod score;
mod size;

pub use answer::{WorkerReply, answer, confidence};
pub use held_out::{HeldOutProblems, PretrainEval};
pub use lesson_stream::{BLOCK, LessonStream, LessonTokens, Made, Sources};
pub use prefetch::Prefetcher;
pub use replies::PeerReplies;
pub use size::{Size, vocabulary};

use crate::keep;
use crate::sft::BEST;
use lemon_model::{Example, LanguagePolicy, OptimiserSettings, Policy, PolicyError, StepSettings};
use lemon_policy::checkpoint::{self, Checkpoints, KeepError, to_json};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The settings of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PretrainSettings {
    /// The seed of the lessons.
    pub seed: u64,
    /// Tokens to learn from, prompts included.
    pub tokens: u64,
    /// Lessons in a step.
    pub batch: usize,
    /// The highest learning rate.
    pub learning_rate: f64,
    /// The share of the tokens until it is reached.
    pub warm_up: f64,
    /// The share of it at the last step.
    pub final_rate: f64,
    /// The norm above which a gradient is scaled down.
    pub clip_norm: f64,
    /// How weights are moved.
    pub optimiser: OptimiserSettings,
    /// Steps between two evaluations; a checkpoint follows each.
    #[serde(rename(serialize = "look_every"), alias = "look_every")]
    pub eval_every: u64,
    /// Evaluations without an improvement after which the run stops. 0: never.
    pub patience: u64,
    /// Workers whose replies it learns from.
    pub peers: Vec<PathBuf>,
}

impl Default for PretrainSettings {
    fn default() -> Self {
        PretrainSettings {
            seed: 0,
            tokens: 100_000_000,
            batch: 512,
            learning_rate: 2.5e-3,
            warm_up: 0.03,
            final_rate: 0.05,
            clip_norm: 1.0,
            optimiser: OptimiserSettings::default(),
            eval_every: 200,
            patience: 0,
            peers: Vec::new(),
        }
    }
}

impl PretrainSettings {
    /// The learning rate after so many tokens: it rises in a line, and falls in one.
    pub fn rate(&self, tokens: u64) -> f64 {
        let way = (tokens as f64 / self.tokens.max(1) as f64).min(1.0);
        if way < self.warm_up {
            return self.learning_rate * way / self.warm_up;
        }
        let fallen = (way - self.warm_up) / (1.0 - self.warm_up).max(f64::MIN_POSITIVE);
        self.learning_rate * (1.0 - (1.0 - self.final_rate) * fallen)
    }
}

/// One line of `metrics.jsonl`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PretrainMetrics {
    /// The step, from 1.
    pub step: u64,
    /// Tokens learned from so far.
    pub tokens: u64,
    /// The mean loss of a token in the step, those of prompts with the weight they have.
    pub loss: f64,
    pub gradient_norm: f64,
    pub learning_rate: f64,
    /// Whether the update was skipped because a number was not finite.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub skipped: bool,
    /// The evaluation after the step, where there was one.
    #[serde(default, rename(serialize = "look"), alias = "look", skip_serializing_if = "Option::is_none")]
    pub eval: Option<PretrainEval>,
}

/// The result of a run, and its state between steps.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Pretrained {
    /// Steps taken.
    pub step: u64,
    /// Tokens learned from.
    pub tokens: u64,
    /// Problems that were dropped because they resemble a test question.
    pub dropped: u64,
    /// The step whose model was kept.
    pub best_step: u64,
    /// Its evaluation.
    pub best: PretrainEval,
    /// Evaluations since.
    pub since_best: u64,
    /// Whether it stopped before all tokens were used.
    pub stopped_early: bool,
    /// Steps whose update was skipped because a number was not finite.
    pub skipped: u64,
}

/// What can go wrong.
#[derive(Debug, thiserror::Error)]
pub enum PretrainError {
    /// A model failed.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// The folder cannot be used.
    #[error(transparent)]
    Keep(#[from] KeepError),
    /// The lessons cannot be made.
    #[error("the lessons cannot be made: {0}")]
    Lessons(String),
}

/// Trains a model on the lessons and leaves the best one in `folder/best`. A run that was killed resumes from its last checkpoint.
/// `watch` sees every step and returns whether to go on.
///
/// # Errors
/// The folder cannot be used, or the device fails.
pub fn pretrain(
    policy: &mut LanguagePolicy,
    stream: LessonStream,
    held_out: &HeldOutProblems,
    settings: &PretrainSettings,
    folder: &Path,
    mut watch: impl FnMut(&PretrainMetrics) -> bool,
) -> Result<Pretrained, PretrainError> {
    policy.set_optimiser(settings.optimiser);
    let begun = [
        ("settings", to_json(settings)?),
        ("shape", to_json(policy.config())?),
        ("lessons", fingerprint(&stream.block(0))),
        ("problems to look at", fingerprint(held_out.lessons())),
    ];
    let (checkpoints, mut state) =
        Checkpoints::begin(folder, &begun, |state: &Pretrained| state.step, |folder| policy.load_state(folder))?;
    let threads = std::thread::available_parallelism().map_or(1, |cores| cores.get().saturating_sub(1));
    let lessons = Prefetcher::new(Arc::new(stream), state.step * settings.batch.max(1) as u64, threads);
    let mut lessons = lessons.map_err(|error| PretrainError::Lessons(error.to_string()))?;
    while state.tokens < settings.tokens && !state.stopped_early {
        let mut metrics = learn_once(policy, &mut lessons, settings, &mut state)?;
        let is_eval = state.step.is_multiple_of(settings.eval_every.max(1)) || state.tokens >= settings.tokens;
        if is_eval {
            let eval = held_out.evaluate(policy)?;
            metrics.eval = Some(eval);
            state.eval(eval, settings.patience);
        }
        let is_best = is_eval && state.best_step == state.step;
        keep::step(&checkpoints, policy, &folder.join(BEST), (state.step, &state, &metrics), [is_eval, is_best])?;
        if !watch(&metrics) {
            break;
        }
    }
    Ok(state)
}

/// One step on the next lessons.
fn learn_once(
    policy: &mut LanguagePolicy,
    lessons: &mut Prefetcher,
    settings: &PretrainSettings,
    state: &mut Pretrained,
) -> Result<PretrainMetrics, PretrainError> {
    let batch: Vec<LessonTokens> = lessons.take(settings.batch.max(1)).collect();
    if batch.len() < settings.batch.max(1) {
        return Err(PretrainError::Lessons("a thread that generates them ended early".to_owned()));
    }
    state.step += 1;
    state.tokens += batch.iter().map(|lesson| lesson.tokens.len() as u64).sum::<u64>();
    state.dropped += batch.iter().map(|lesson| lesson.dropped).sum::<u64>();
    let total = batch.iter().map(LessonTokens::weight).sum();
    let examples: Vec<Example> = batch.into_iter().map(|lesson| lesson.example(total)).collect();
    let learning_rate = settings.rate(state.tokens);
    let step = StepSettings { learning_rate, temperature: 1.0, clip_norm: settings.clip_norm, micro_batch: 0 };
    let report = policy.update(&examples, &step)?;
    state.skipped += u64::from(report.skipped);
    Ok(PretrainMetrics {
        step: state.step,
        tokens: state.tokens,
        loss: report.loss,
        gradient_norm: report.gradient_norm,
        learning_rate,
        skipped: report.skipped,
        eval: None,
    })
}

impl Pretrained {
    fn eval(&mut self, eval: PretrainEval, patience: u64) {
        let is_better = eval.right > self.best.right || eval.right == self.best.right && eval.loss < self.best.loss;
        let is_better = self.best_step == 0 || is_better;
        if is_better {
            (self.best, self.best_step) = (eval, self.step);
        }
        (self.since_best, self.stopped_early) = keep::patience(is_better, self.since_best, patience);
    }
}

fn fingerprint(lessons: &[LessonTokens]) -> String {
    let tokens = lessons.iter().flat_map(|lesson| lesson.tokens.iter().chain([&u32::MAX]));
    checkpoint::fingerprint(lessons.len(), tokens)
}

#[cfg(test)]
mod tests;
