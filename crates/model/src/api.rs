//! The interface of a policy: what goes in and what comes out, as plain vectors.

use crate::{Grammar, PolicyError};
use serde::{Deserialize, Serialize};

/// A trainable distribution over texts.
pub trait Policy: Send {
    /// Samples one text for each request. The same seed gives the same text, whatever else is in the batch.
    fn sample(&self, requests: &[SampleRequest], settings: &SampleSettings) -> Result<Vec<Sample>, PolicyError>;

    /// Samples the rest of texts that begin with known tokens; the samples contain both. The log-probabilities of the known
    /// tokens are not those of the policy in every implementation: score them where they matter.
    ///
    /// # Errors
    /// The policy cannot continue texts, or could not have written such a beginning.
    fn resume(
        &self,
        begun: &[(SampleRequest, Vec<u32>)],
        settings: &SampleSettings,
    ) -> Result<Vec<Sample>, PolicyError> {
        let _ = settings;
        match begun {
            [] => Ok(Vec::new()),
            _ => Err(PolicyError::Request("this policy cannot continue a text that has begun".to_owned())),
        }
    }

    /// The log-probability of each token of each sequence, at a temperature, under its grammar.
    fn score(&self, sequences: &[Sequence], temperature: f32) -> Result<Vec<Vec<f32>>, PolicyError>;

    /// Takes one optimiser step on the sum of these objectives; for a mean, the caller scales the weights. A loss or gradient
    /// that is not finite changes nothing and is reported.
    fn update(&mut self, examples: &[Example], settings: &StepSettings) -> Result<StepReport, PolicyError>;
}

/// A text to sample.
#[derive(Debug, Clone)]
pub struct SampleRequest {
    pub prompt: Vec<u32>,
    /// What may be written; `None`: anything.
    pub grammar: Option<Grammar>,
    /// The noise seed.
    pub seed: u64,
}

/// How texts are sampled.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct SampleSettings {
    /// 0 takes the most likely token each time.
    pub temperature: f32,
    /// Only the likeliest tokens that together have this probability are sampled. Training needs 1: the cut depends on the
    /// model, so a later model cannot reproduce it.
    pub top_p: f32,
    /// Tokens at most.
    pub most_tokens: usize,
}

impl Default for SampleSettings {
    fn default() -> Self {
        SampleSettings { temperature: 1.0, top_p: 1.0, most_tokens: 1_024 }
    }
}

/// A sampled text.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// The text, without the token that ends it.
    pub text: String,
    /// The tokens, including the one that ends the text.
    pub tokens: Vec<u32>,
    /// Where in the text (in bytes) each token ends.
    pub ends: Vec<usize>,
    /// The log-probability of each token under the distribution it was sampled from; 0 for a forced token.
    pub logprobs: Vec<f32>,
    /// Whether the grammar left no choice.
    pub forced: Vec<bool>,
    /// Why it ended.
    pub finish: Finish,
}

/// Why a text ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Finish {
    /// The model wrote the end token.
    Stop,
    /// It reached the maximum number of tokens.
    Length,
}

/// A text with known tokens.
#[derive(Debug, Clone)]
pub struct Sequence {
    pub prompt: Vec<u32>,
    /// Its tokens, including the one that ends it.
    pub tokens: Vec<u32>,
    /// What could have been written instead; `None`: anything.
    pub grammar: Option<Grammar>,
}

/// A training example.
#[derive(Debug, Clone)]
pub struct Example {
    /// The text.
    pub sequence: Sequence,
    /// The loss on its tokens.
    pub objective: Objective,
}

/// The loss of one text.
#[derive(Debug, Clone, PartialEq)]
pub enum Objective {
    /// −Σ weight · log p(token): supervised learning, and the on-policy gradient (weight = advantage).
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
        /// The log-probabilities under the policy that sampled.
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

/// How to take an optimiser step.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct StepSettings {
    /// The learning rate of this step.
    pub learning_rate: f64,
    /// The temperature at which the texts were sampled; probabilities are taken at it.
    pub temperature: f32,
    /// The norm to which larger gradients are scaled down; 0: never.
    pub clip_norm: f64,
    /// Examples in one forward and backward pass; 0: all.
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
    /// Mean entropy of the distributions of those tokens, in nats.
    pub entropy: f64,
    /// The share of them whose ratio was clipped.
    pub clipped: f64,
    /// Mean divergence (k3) from the old policy.
    pub kl_old: f64,
    /// Mean divergence (k3) from the reference.
    pub kl_reference: f64,
    /// Whether the step was skipped because a number was not finite.
    pub skipped: bool,
}
