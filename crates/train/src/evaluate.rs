//! Held-out evaluation: what the policy's teams come to on tasks that it is not trained on.

use crate::episode::Episode;
use crate::metrics::Means;
use crate::recipe::Recipe;
use crate::rollout::Outcome;
use crate::state::shown;
use crate::{TrainContext, TrainError};
use lemon_exec::ReplyCache;
use lemon_policy::TrainablePolicy;
use lemon_rollout::Case;
use lemon_sft::teach::draw;
use lemon_spec::Next;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Runs the policy's teams for all held-out tasks, so many times each. Returns the means, and the texts for the shown tasks.
pub(crate) async fn evaluate(
    context: &TrainContext<'_>,
    policy: &dyn TrainablePolicy,
    recipe: &Recipe,
    seeds: u64,
) -> Result<(Means, Vec<Vec<String>>), TrainError> {
    let episodes = played(context, policy, recipe, recipe.eval.temperature, seeds).await?;
    let first = episodes.get(..context.held_out.len()).unwrap_or(&episodes);
    let teams = shown(first).map(Episode::texts).collect();
    Ok((means(&episodes), teams))
}

/// What held-out tasks gave.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct HeldOutResult {
    /// The temperature that teams were drawn at: 0 takes the likeliest.
    pub temperature: f32,
    /// Means over all runs.
    pub means: Means,
    /// The mean reward of each task, in their order; `None` where no run has a known reward.
    pub items: Vec<Option<f64>>,
    /// By task set; rows of older studies have none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub sets: BTreeMap<String, SetMeans>,
}

/// What the tasks of a set gave.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct SetMeans {
    /// Runs behind them.
    pub runs: usize,
    /// The share of right answers.
    pub success: f64,
    /// A quarter of the prompt tokens of a run, and the tokens of its replies.
    pub weighted_tokens: f64,
}

/// Evaluates a policy on the held-out tasks at a temperature, so many times each, with the noise seeds of the recipe's own
/// evaluations.
///
/// # Errors
/// The policy or a run fails.
pub async fn evaluate_at(
    context: &TrainContext<'_>,
    policy: &dyn TrainablePolicy,
    recipe: &Recipe,
    temperature: f32,
    seeds: u64,
) -> Result<HeldOutResult, TrainError> {
    let episodes = played(context, policy, recipe, temperature, seeds).await?;
    Ok(evaluation(&episodes, &context.held_out, temperature))
}

async fn played(
    context: &TrainContext<'_>,
    policy: &dyn TrainablePolicy,
    recipe: &Recipe,
    temperature: f32,
    seeds: u64,
) -> Result<Vec<Episode>, TrainError> {
    let runner = context.runner(&context.held_out, recipe);
    let mut episodes = held_out_episodes(context.held_out.len(), recipe, seeds);
    runner.play(policy, &mut episodes, temperature).await?;
    if !context.env.cancel.is_cancelled() {
        check_workers(&episodes, 0)?;
    }
    Ok(episodes)
}

/// The episodes of an evaluation, before anything is written for them.
pub(crate) fn held_out_episodes(cases: usize, recipe: &Recipe, seeds: u64) -> Vec<Episode> {
    let mut episodes = Vec::new();
    for seed in 0..seeds.max(1) {
        for case in 0..cases {
            let noise_seed = draw(recipe.seed, &["look", &seed.to_string(), &case.to_string()]);
            episodes.push(Episode::new(case, noise_seed, noise_seed, Arc::new(ReplyCache::default())));
        }
    }
    episodes
}

/// The means of episodes, over all, for each task and for each set.
pub(crate) fn evaluation(episodes: &[Episode], cases: &[Case], temperature: f32) -> HeldOutResult {
    let mut sums = vec![(0.0, 0usize); cases.len()];
    let mut sets: BTreeMap<String, SetMeans> = BTreeMap::new();
    for episode in episodes {
        let outcome = episode.run.as_ref().and_then(|run| run.outcome);
        let (Some(outcome), Some(case)) = (outcome, cases.get(episode.case)) else { continue };
        let (sum, count) = &mut sums[episode.case]; // A position of `cases`.
        (*sum, *count) = (*sum + outcome.reward, *count + 1);
        let set = sets.entry(case.set.to_string()).or_default();
        set.runs += 1;
        let part = 1.0 / set.runs as f64;
        set.success += part * (outcome.success - set.success);
        set.weighted_tokens += part * (outcome.weighted - set.weighted_tokens);
    }
    let items = sums.into_iter().map(|(sum, count)| (count > 0).then(|| sum / count as f64)).collect();
    HeldOutResult { temperature, means: means(episodes), items, sets }
}

/// Fails where the workers of most episodes could not be reached.
pub(crate) fn check_workers(episodes: &[Episode], step: u64) -> Result<(), TrainError> {
    let failures = episodes.iter().filter_map(|episode| episode.run.as_ref()?.failure.as_ref());
    let lost = failures.clone().count();
    match failures.into_iter().next() {
        Some(failure) if 2 * lost > episodes.len() => {
            Err(TrainError::WorkersGone { step, lost, runs: episodes.len(), fact: failure.message.clone() })
        }
        _ => Ok(()),
    }
}

/// Means over the episodes whose outcome is known.
pub(crate) fn means(episodes: &[Episode]) -> Means {
    let known: Vec<(&Episode, Outcome)> =
        episodes.iter().filter_map(|episode| Some((episode, episode.run.as_ref()?.outcome?))).collect();
    let mean = |of: &dyn Fn(&(&Episode, Outcome)) -> f64| known.iter().map(of).sum::<f64>() / known.len().max(1) as f64;
    let agents = |episode: &Episode| episode.run.as_ref().map_or(0, |run| run.summary.agents.len());
    let asks = |episode: &Episode| {
        let first = episode.rounds.first().and_then(|round| round.plan.as_ref());
        f64::from(u8::from(first.is_some_and(|plan| plan.next() == Next::Review)))
    };
    Means {
        runs: known.len(),
        reward: mean(&|(_, outcome)| outcome.reward),
        success: mean(&|(_, outcome)| outcome.success),
        tokens: mean(&|(_, outcome)| outcome.tokens as f64),
        cost: mean(&|(_, outcome)| outcome.cost),
        valid: mean(&|(_, outcome)| outcome.valid),
        agents: mean(&|(episode, _)| agents(episode) as f64),
        rounds: mean(&|(episode, _)| episode.rounds.len() as f64),
        review: mean(&|(episode, _)| asks(episode)),
    }
}
