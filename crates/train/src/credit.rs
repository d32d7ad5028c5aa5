//! The counterfactuals of a step: how many worker tokens they may cost, and what they measured.

use crate::TrainError;
use crate::counterfactual::{Counterfactuals, counterfactuals as measure};
use crate::episode::{Episode, EpisodeRunner};
use crate::recipe::{CreditForm, Recipe};
use crate::rollout::Outcome;
use crate::state::State;
use lemon_credit::economy::{Economy, FamilyLedger};
use lemon_policy::TrainablePolicy;
use lemon_sft::teach::draw;
use lemon_spec::Plan;

/// The share of the cap that is planned with: the rest is kept for counterfactuals that cost more than expected.
const PLANNED: f64 = 0.9;
/// A step may spend the allowances of at most so many steps.
const MOST_SAVED: f64 = 3.0;

/// Measures the counterfactuals of the step after `state`, whose rollouts cost `rollout_tokens`. None are measured where the
/// recipe gives them no weight.
pub(crate) async fn counterfactuals(
    runner: &EpisodeRunner<'_>,
    policy: &dyn TrainablePolicy,
    groups: &[Vec<Episode>],
    recipe: &Recipe,
    state: &mut State,
    rollout_tokens: u64,
) -> Result<Counterfactuals, TrainError> {
    observe(&mut state.economy, groups);
    let (credit, number) = (&recipe.credit, state.step + 1);
    if credit.form == CreditForm::None || credit.lambda.at(state.step) == 0.0 {
        return Ok(Counterfactuals { measured: Vec::new(), ledger: FamilyLedger::default(), spent: 0 });
    }
    // What earlier steps did not spend may be spent later, and what they overspent is made up for.
    let cap = PLANNED * credit.economy.cap.max(0.0);
    let earned = cap * (state.rollout_tokens + rollout_tokens) as f64 - state.credit_tokens as f64;
    let allowance = earned.clamp(0.0, MOST_SAVED * cap * rollout_tokens as f64) as u64;
    let seed = draw(recipe.seed, &["credit", &number.to_string()]);
    let spending = (allowance, recipe.rollouts.temperature);
    measure(runner, policy, groups, credit, (&mut state.economy, &state.critic), spending, seed).await
}

/// Tells the economy what rollouts cost and how their rewards vary.
fn observe(economy: &mut Economy, groups: &[Vec<Episode>]) {
    for group in groups {
        let outcomes: Vec<(Outcome, usize)> = group
            .iter()
            .filter_map(|episode| {
                let plans = episode.rounds.iter().filter_map(|round| round.plan.as_ref());
                // For each agent: itself, base, its own role if it has one, duty, capacity, what it reads and what it shares.
                // For each round: how the answer is made, and whether the run goes on.
                let roles = |plan: &Plan| plan.spec().agents.iter().filter(|agent| agent.role.is_some()).count();
                let fields: usize = plans.map(|plan| 6 * plan.agents().len() + roles(plan) + 2).sum();
                Some((episode.run.as_ref()?.outcome?, fields))
            })
            .collect();
        let rewards: Vec<f64> = outcomes.iter().map(|(outcome, _)| outcome.reward).collect();
        let costs: Vec<u64> = outcomes.iter().map(|(outcome, _)| outcome.tokens).collect();
        let fields: Vec<usize> = outcomes.iter().map(|(_, fields)| *fields).collect();
        economy.add_group(&rewards, &costs, &fields);
    }
}
