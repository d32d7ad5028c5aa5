//! Estimators against the truth: bias and variance of the gradient that a trainer follows, field by field.
//!
//! The policy is an autoregressive table that is small enough to list every text it can write. So the expected reward and its
//! gradient are sums. Teams have made-up rewards: random effects of single decisions and of pairs of decisions, and noise that
//! belongs to the calls of agents. Every estimator runs through the code that training uses. The mean over many groups, less
//! the exact gradient, is its bias.

mod arms;
mod stats;
#[cfg(test)]
mod tests;
pub(crate) mod world;

pub use arms::{ESTIMATORS, Estimator};
pub use stats::{Compared, FieldFigures, Figures};

use crate::counterfactual::Candidate;
use crate::episode::Episode;
use crate::recipe::{Per, Recipe, UpdateSettings};
use crate::signal::critic::CriticReader;
use crate::signal::{Signal, Signals, signal};
use lemon_credit::economy::Economy;
use lemon_credit::guard::ValueBaselines;
use lemon_credit::model::RewardModel;
use lemon_model::{Example, Objective, PolicyError, Sequence};
use lemon_policy::fields::FieldTable;
use stats::Sums;
use world::Lab;

/// How estimators are compared.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LabSettings {
    /// Groups that each estimator sees.
    pub groups: usize,
    /// Texts of a group.
    pub group: usize,
    /// The seed of the policy, of the rewards and of all draws.
    pub seed: u64,
    /// The deviation of the noise of one call.
    pub noise: f64,
}

impl Default for LabSettings {
    fn default() -> Self {
        LabSettings { groups: 20_000, group: 4, seed: 1, noise: 0.2 }
    }
}

/// What a comparison is about.
#[derive(Debug, Clone, PartialEq)]
pub struct LabReport {
    /// Texts that the policy can write.
    pub texts: usize,
    /// The expected reward.
    pub reward: f64,
    /// The fields that have a choice, with the norm of the exact gradient of each.
    pub fields: Vec<(String, f64)>,
    pub estimators: Vec<Compared>,
}

/// Compares the estimators of these names; with none, all.
///
/// # Errors
/// The policy refuses its own texts.
pub fn compare(settings: &LabSettings, names: &[&str]) -> Result<LabReport, PolicyError> {
    let lab = Lab::new(settings)?;
    let truth = Truth::new(&lab)?;
    let critic = lab.critic()?;
    let plain = ESTIMATORS[0]; // The first one is what the others are paired with.
    let mut estimators = Vec::new();
    for estimator in ESTIMATORS.iter().filter(|it| names.is_empty() || names.contains(&it.name)) {
        let mut sums = Sums::new(truth.gradient.len(), settings.groups);
        for number in 0..settings.groups as u64 {
            let (found, runs) = estimate(&lab, &critic, estimator, number)?;
            // The same texts with the same noise: what both have in common cancels.
            let paired = if estimator.is_tree() { None } else { Some(estimate(&lab, &critic, &plain, number)?.0) };
            // The gradient of plain rewards has the exact one as its mean; a test holds that.
            let bias: Vec<f64> = match &paired {
                Some(paired) if estimator.name != plain.name => found.iter().zip(paired).map(|(a, b)| a - b).collect(),
                _ => found.iter().zip(&truth.gradient).map(|(a, b)| a - b).collect(),
            };
            sums.add(&found, &bias, runs);
        }
        estimators.push(sums.compared(estimator, &truth.gradient, &truth.names));
    }
    let norm = |field: &String| {
        let own = truth.gradient.iter().zip(&truth.names).filter(|(_, name)| *name == field);
        (field.clone(), own.map(|(slope, _)| slope * slope).sum::<f64>().sqrt())
    };
    let fields = stats::fields(&truth.gradient, &truth.names).iter().map(norm).collect();
    Ok(LabReport { texts: lab.texts.len(), reward: truth.reward, fields, estimators })
}

/// The expected reward and its gradient, by listing all texts.
struct Truth {
    reward: f64,
    gradient: Vec<f64>,
    /// The field of each parameter.
    names: Vec<String>,
}

impl Truth {
    fn new(lab: &Lab) -> Result<Truth, PolicyError> {
        let reward = expected_reward(lab, &lab.table)?;
        // Σ π(T) · R(T) · ∇ log π(T), as the weights of likelihoods.
        let example = |at: usize| {
            let text = &lab.texts[at]; // A position of `texts`.
            let weight = (text.probability * lab.mean_reward(at)) as f32;
            Example {
                sequence: sequence(lab, at),
                objective: Objective::Likelihood { weights: vec![weight; text.sample.tokens.len()] },
            }
        };
        let examples: Vec<Example> = (0..lab.texts.len()).map(example).collect();
        let gradient = lab.table.gradient(&examples, 1.0)?.into_iter().map(|slope| -slope).collect();
        Ok(Truth { reward, gradient, names: lab.table.fields_of_parameters() })
    }
}

fn sequence(lab: &Lab, at: usize) -> Sequence {
    Sequence { prompt: lab.request.prompt.clone(), tokens: lab.texts[at].sample.tokens.clone(), grammar: None }
}

/// The expected reward of a table's texts.
fn expected_reward(lab: &Lab, table: &FieldTable) -> Result<f64, PolicyError> {
    let texts = table.texts(&lab.request, world::MOST_TEXTS)?;
    Ok(texts.iter().enumerate().map(|(at, text)| text.probability * lab.mean_reward(at)).sum())
}

/// The gradient that an estimator follows for one group, and the counterfactual runs it took.
fn estimate(
    lab: &Lab,
    critic: &RewardModel,
    estimator: &Estimator,
    number: u64,
) -> Result<(Vec<f64>, usize), PolicyError> {
    let mut recipe = Recipe::default();
    recipe.rollouts.group = lab.settings.group;
    recipe.rollouts.decisions = lab.decisions;
    estimator.change(&mut recipe);
    let group = lab.group(&recipe, number)?;
    let candidates = lab.counterfactuals(&group, &recipe.credit, number, estimator.measured);
    let runs = candidates.len();
    let signal = signal_of(lab, critic, &recipe, group, &candidates)?;
    let gradient = lab.table.gradient(&signal.examples, 1.0)?;
    Ok((gradient.into_iter().map(|slope| -slope).collect(), runs))
}

/// What training makes of a group.
fn signal_of(
    lab: &Lab,
    critic: &RewardModel,
    recipe: &Recipe,
    group: Vec<Episode>,
    candidates: &[Candidate],
) -> Result<Signal, PolicyError> {
    let signals = Signals {
        policy: &lab.table,
        encoder: lab,
        reference: None,
        credit: &recipe.credit,
        update: &UpdateSettings { per: Per::Rollout, ..UpdateSettings::default() },
        lambda: recipe.credit.lambda.at(0),
        temperature: 1.0,
        economy: &Economy::default(),
        values: &ValueBaselines::default(),
        critic,
        reader: CriticReader::default(),
        entropy_price: 0.0,
    };
    signal(&signals, &[group], candidates)
}
