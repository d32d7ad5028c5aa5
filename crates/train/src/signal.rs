//! From rewards and counterfactual differences to an advantage for every token.
//!
//! Every token of a text begins with the advantage of its team ([`base`]). Prefix teams replace it by a baseline that knows what was
//! written before ([`prefix`]). Fields with measured alternatives get an estimate of their own gradient ([`local`]).

mod base;
pub(crate) mod critic;
mod local;
mod prefix;
mod text;

use super::counterfactual::Candidate;
use super::episode::Episode;
use super::recipe::{CreditForm, CreditSettings, Per, Place, Recipe, RewardBaseline, UpdateSettings};
use crate::TrainContext;
use critic::CriticReader;
use lemon_credit::economy::Economy;
use lemon_credit::guard::ValueBaselines;
use lemon_credit::model::{Features, RewardModel};
use lemon_model::{Example, Objective, PolicyError, Sequence};
use lemon_num::mean_of;
use lemon_policy::{PromptEncoder, TrainablePolicy};
use std::collections::BTreeMap;
use text::Text;

/// What signals are made with.
pub(crate) struct Signals<'a> {
    pub policy: &'a dyn TrainablePolicy,
    pub encoder: &'a dyn PromptEncoder,
    /// The policy that the divergence is measured from.
    pub reference: Option<&'a dyn TrainablePolicy>,
    pub credit: &'a CreditSettings,
    pub update: &'a UpdateSettings,
    /// The weight of the local term.
    pub lambda: f64,
    pub temperature: f32,
    /// What is known of the families of edits.
    pub economy: &'a Economy,
    /// The running mean advantage of each value.
    pub values: &'a ValueBaselines,
    /// What earlier steps taught of teams.
    pub critic: &'a RewardModel,
    /// How it reads them.
    pub reader: CriticReader<'a>,
    /// What a nat of entropy is worth.
    pub entropy_price: f64,
}

impl<'a> Signals<'a> {
    /// The most that a token counts for being drawn from another distribution than the one that learns, where that is corrected.
    fn most_ratio(&self) -> Option<f32> {
        self.policy.most_ratio().or(self.update.truncate)
    }

    /// Those of a step, from 1.
    pub fn new(
        context: &TrainContext<'a>,
        policy: &'a dyn TrainablePolicy,
        recipe: &'a Recipe,
        step: u64,
        state: &'a crate::state::State,
    ) -> Self {
        Signals {
            policy,
            encoder: context.encoder,
            reference: context.reference,
            credit: &recipe.credit,
            update: &recipe.update,
            lambda: recipe.credit.lambda.at(step - 1),
            temperature: recipe.rollouts.temperature,
            economy: &state.economy,
            values: &state.values,
            critic: &state.critic,
            reader: CriticReader::new(context, recipe),
            entropy_price: recipe.credit.guard.entropy_price(state.entropy),
        }
    }

    /// The share of a local estimate beside that of the group.
    fn share(&self, weight: f64) -> f64 {
        let lambda = self.lambda * weight;
        if self.credit.replace { 1.0 } else { lambda / (1.0 + lambda) }
    }
}

/// What a policy learns from in a step.
pub(crate) struct Signal {
    pub examples: Vec<Example>,
    /// The advantages of decisions, by value: what the running means are made of.
    pub values: Vec<(String, f64)>,
    /// What the critic learns from the step; empty where nothing asks it.
    pub lessons: Vec<(Features, f64)>,
    /// Tokens that the policy scored to make the examples.
    pub scored: u64,
    /// The mean of what tokens count for being drawn from another distribution, where that is measured.
    pub ratio: Option<f64>,
    /// Where texts are scored again: what sampler and trainer disagree on.
    pub mismatch: Option<Mismatch>,
}

/// How far the log-probabilities of sampling are from those of scoring the same tokens.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Mismatch {
    /// Their mean distance.
    pub gap: f64,
    /// The share of tokens whose two probabilities have a quotient outside of 0.9 to 1.1.
    pub outside: f64,
}

impl Mismatch {
    /// Of the tokens that were chosen; `None`: there are none.
    fn of(gaps: impl Iterator<Item = f64>) -> Option<Mismatch> {
        let gaps: Vec<f64> = gaps.collect();
        let outside = gaps.iter().map(|gap| f64::from(u8::from(!(0.9..=1.1).contains(&gap.exp()))));
        Some(Mismatch { gap: mean_of(gaps.iter().map(|gap| gap.abs()))?, outside: mean_of(outside)? })
    }
}

/// Where a text was written: group, episode and round.
type Written = (usize, usize, usize);

/// A text in which tokens are pushed that were not written.
struct Push {
    sequence: Sequence,
    advantages: Vec<f64>,
    old: Vec<f32>,
}

/// The examples of a step.
///
/// # Errors
/// The policy cannot score.
pub(crate) fn signal(
    signals: &Signals<'_>,
    groups: &[Vec<Episode>],
    counterfactuals: &[Candidate],
) -> Result<Signal, PolicyError> {
    let Signals { credit, update, .. } = *signals;
    let (mut texts, places, mut scored, mismatch) = texts(signals, groups)?;
    base::advantages(&mut texts, groups, credit);
    if credit.baseline == RewardBaseline::Critic {
        critic::advantages(&mut texts, groups, signals.critic);
    }
    let lessons = match credit.asks_critic() {
        true => critic::lessons(&texts, &places, groups.len(), counterfactuals),
        false => Vec::new(),
    };
    let mut pushes = Vec::new();
    let mut values = Vec::new();
    // Without measurements a step is one of plain GRPO, to the bit.
    if credit.form != CreditForm::None && signals.lambda != 0.0 && !counterfactuals.is_empty() {
        prefix::advantages(&mut texts, &places, counterfactuals, credit);
        let local = local::apply(signals, groups, (&mut texts, &places), counterfactuals)?;
        pushes = local.pushes;
        values = local.values;
        scored += local.scored;
    }
    for text in &mut texts {
        text.guard(signals, &mut values);
        if credit.place == Place::Everywhere {
            text.spread();
        }
    }
    let ratio = signals
        .most_ratio()
        .and_then(|_| mean_of(texts.iter().flat_map(|text| text.ratio.iter().map(|ratio| f64::from(*ratio)))));
    let weights = Weights::new(&texts, update.per);
    let mut examples: Vec<Example> = Vec::with_capacity(texts.len() + pushes.len());
    for text in texts {
        let weight = weights.of(&text);
        let of_tokens = text.scale.iter().zip(&text.ratio).map(|(scale, ratio)| scale * ratio * weight).collect();
        examples.push(example(text.sequence, text.advantages, text.old, of_tokens, update));
    }
    for Push { sequence, advantages, old } in pushes {
        let on = |advantage: &f64| if *advantage == 0.0 { 0.0 } else { weights.mean };
        let of_tokens = advantages.iter().map(on).collect();
        examples.push(example(sequence, advantages, old, of_tokens, update));
    }
    if let Some(reference) = signals.reference {
        add_reference(reference, &mut examples, signals.temperature)?;
    }
    Ok(Signal { examples, values, lessons, scored, ratio, mismatch })
}

/// Texts, where each was written, the tokens that the policy scored for them, and what that showed.
type Texts = (Vec<Text>, BTreeMap<Written, usize>, u64, Option<Mismatch>);

/// The texts of all episodes whose reward is known.
fn texts(signals: &Signals<'_>, groups: &[Vec<Episode>]) -> Result<Texts, PolicyError> {
    let mut texts: Vec<Text> = Vec::new();
    let mut places: BTreeMap<Written, usize> = BTreeMap::new();
    for (group_at, group) in groups.iter().enumerate() {
        for (episode_at, episode) in group.iter().enumerate() {
            let Some(outcome) = episode.run.as_ref().and_then(|run| run.outcome) else { continue };
            for (round_at, round) in episode.rounds.iter().enumerate() {
                let place = (group_at, episode_at, round_at);
                places.insert(place, texts.len());
                let mut text = Text::new(place, round, outcome.reward);
                if let Some(plan) = round.plan.as_ref().filter(|_| signals.credit.asks_critic()) {
                    let (prompt, sample) = (&round.request.prompt, &round.sample);
                    text.read = signals.reader.beginnings(round_at, plan, prompt, &sample.tokens, &sample.ends)?;
                }
                texts.push(text);
            }
        }
    }
    let (mut scored, mut gaps) = (0, Vec::new());
    if !signals.policy.scores_as_it_writes() {
        let sequences: Vec<Sequence> = texts.iter().map(|text| text.sequence.clone()).collect();
        scored = sequences.iter().map(|sequence| sequence.tokens.len() as u64).sum();
        for (text, scores) in texts.iter_mut().zip(signals.policy.score(&sequences, signals.temperature)?) {
            gaps.extend(text.gaps(&scores));
            text.rescore(scores, signals.most_ratio());
        }
    }
    Ok((texts, places, scored, Mismatch::of(gaps.into_iter())))
}

/// What a token counts, by what the sum is divided by.
struct Weights {
    per: Per,
    texts: f32,
    /// The weight of a token of a text of mean length.
    mean: f32,
}

impl Weights {
    fn new(texts: &[Text], per: Per) -> Self {
        // The branches of a tree count together what a text does.
        let count = texts.iter().map(Text::whole).sum::<f32>().max(1.0);
        let tokens = texts.iter().map(Text::chosen).sum::<f32>().max(1.0);
        let mean = match per {
            Per::Token | Per::Text => 1.0 / tokens,
            Per::Rollout => 1.0 / count,
        };
        Weights { per, texts: count, mean }
    }

    fn of(&self, text: &Text) -> f32 {
        match self.per {
            Per::Token | Per::Rollout => self.mean,
            Per::Text => 1.0 / (self.texts * text.chosen().max(1.0)),
        }
    }
}

fn example(
    sequence: Sequence,
    advantages: Vec<f64>,
    old: Vec<f32>,
    weights: Vec<f32>,
    update: &UpdateSettings,
) -> Example {
    let objective = Objective::Clipped {
        weights,
        advantages: advantages.iter().map(|advantage| *advantage as f32).collect(),
        old,
        reference: None,
        low: update.clip_low,
        high: update.clip_high,
        kl: update.kl,
    };
    Example { sequence, objective }
}

fn add_reference(
    reference: &dyn TrainablePolicy,
    examples: &mut [Example],
    temperature: f32,
) -> Result<(), PolicyError> {
    let sequences: Vec<Sequence> = examples.iter().map(|example| example.sequence.clone()).collect();
    for (example, scores) in examples.iter_mut().zip(reference.score(&sequences, temperature)?) {
        if let Objective::Clipped { reference, .. } = &mut example.objective {
            *reference = Some(scores);
        }
    }
    Ok(())
}
