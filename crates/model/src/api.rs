//! The wall: what goes into a policy and what comes out of it, as plain vectors.

use crate::{Grammar, PolicyError};
use serde::{Deserialize, Serialize};

/// Somebody who writes texts with known probabilities and can be taught to write others.
pub trait Policy: Send {
    /// Writes one text for each request. The same seed gives the same text, whatever else is asked for beside it.
    fn sample(&self, requests: &[Request], settings: &SampleSettings) -> Result<Vec<Sample>, PolicyError>;

    /// The log-probability of each token of each sequence, at a temperature, under its grammar.
    fn score(&self, sequences: &[Sequence], temperature: f32) -> Result<Vec<Vec<f32>>, PolicyError>;

    /// One step of the optimiser on the sum of these objectives; whoever wants a mean says so in the weights. A loss or
    /// gradient that is not finite changes nothing and is reported.
    fn update(&mut self, examples: &[Example], settings: &StepSettings) -> Result<StepReport, PolicyError>;
}

/// A text to be written.
#[derive(Debug, Clone)]
pub struct Request {
    /// The tokens before it.
    pub prompt: Vec<u32>,
    /// What may be written; `None`: anything.
    pub grammar: Option<Grammar>,
    /// The seed of its draws.
    pub seed: u64,
}

/// How texts are drawn.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct SampleSettings {
    /// 0 takes the most likely token each time.
    pub temperature: f32,
    /// Only the likeliest tokens that together have this probability are drawn from. Learning needs 1: what the cut leaves
    /// depends on the model, so that a later model cannot say what the cut would have been.
    pub top_p: f32,
    /// Tokens at most.
    pub most_tokens: usize,
}

impl Default for SampleSettings {
    fn default() -> Self {
        SampleSettings { temperature: 1.0, top_p: 1.0, most_tokens: 1_024 }
    }
}

/// A text that was written.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// The text, without the token that ends it.
    pub text: String,
    /// The tokens as they were drawn, the one that ends the text included.
    pub tokens: Vec<u32>,
    /// Where in the text (in bytes) each token ends.
    pub ends: Vec<usize>,
    /// The log-probability of each token under the distribution it was drawn from; 0 for a token that was forced.
    pub logprobs: Vec<f32>,
    /// Whether the grammar left no choice.
    pub forced: Vec<bool>,
    /// How it ended.
    pub finish: Finish,
}

/// How a text ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Finish {
    /// With the token that ends texts.
    Stop,
    /// At the most tokens allowed.
    Length,
}

/// A text whose tokens are known.
#[derive(Debug, Clone)]
pub struct Sequence {
    /// The tokens before it.
    pub prompt: Vec<u32>,
    /// Its tokens, the one that ends it included.
    pub tokens: Vec<u32>,
    /// What might have been written instead; `None`: anything.
    pub grammar: Option<Grammar>,
}

/// A text to learn from.
#[derive(Debug, Clone)]
pub struct Example {
    /// The text.
    pub sequence: Sequence,
    /// What to do with its tokens.
    pub objective: Objective,
}

/// What is to be made smaller, for one text.
#[derive(Debug, Clone, PartialEq)]
pub enum Objective {
    /// −Σ weight · log p(token): supervised learning, and every policy gradient taken where the policy that wrote is still
    /// the policy that learns (weight = advantage).
    Likelihood {
        /// One weight for each token.
        weights: Vec<f32>,
    },
    /// −Σ weight · min(ratio · advantage, clip(ratio, 1−low, 1+high) · advantage), with ratio = p(token) / p_old(token), plus
    /// `kl` times the (k3) divergence from a reference.
    Clipped {
        /// One weight for each token.
        weights: Vec<f32>,
        /// One advantage for each token.
        advantages: Vec<f32>,
        /// The log-probabilities under the policy that wrote.
        old: Vec<f32>,
        /// The log-probabilities under the reference, where there is one.
        reference: Option<Vec<f32>>,
        /// How far a ratio may fall below 1.
        low: f32,
        /// How far it may rise above 1.
        high: f32,
        /// The weight of the divergence.
        kl: f32,
    },
}

/// How to take a step.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct StepSettings {
    /// The learning rate of this step.
    pub learning_rate: f64,
    /// The temperature the texts were drawn at: probabilities are taken at it.
    pub temperature: f32,
    /// The norm above which a gradient is scaled down; 0: never.
    pub clip_norm: f64,
    /// Examples in one pass through the model; 0: all.
    pub micro_batch: usize,
}

/// What a step did.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct StepReport {
    /// The loss, before the step.
    pub loss: f64,
    /// The norm of the gradient, before it was clipped.
    pub gradient_norm: f64,
    /// Tokens that carried a weight and were not forced.
    pub tokens: usize,
    /// Mean entropy of the distributions those tokens were drawn from, in nats.
    pub entropy: f64,
    /// The share of them whose ratio was clipped.
    pub clipped: f64,
    /// Mean divergence (k3) from the old policy.
    pub kl_old: f64,
    /// Mean divergence (k3) from the reference.
    pub kl_reference: f64,
    /// Whether the step was left out because a number was not finite.
    pub skipped: bool,
}
