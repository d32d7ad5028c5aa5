//! How does a policy learn from runs? Reinforcement learning: group-relative rewards, plus counterfactual credit for the tokens
//! of single decisions.
//!
//! One step **samples** several teams for each task of a batch, **runs** them, **credits** single decisions by running edited
//! teams, and **updates** the policy. Every few steps the policy is evaluated on held-out tasks.
//!
//! Where this departs from the paper it follows (LEMON, arXiv 2605.14483):
//!
//! 1. Every decision can be credited, not three kinds: that an agent exists, its duty, its capacity, which agents it reads, what
//!    it shares, how the answer is made, and whether the run goes on. Edits may add as well as simplify.
//! 2. Counterfactuals are not run for every rollout. Those that the reply cache answers are free and always run. Those that cost
//!    worker tokens run only if the recipe allows it and they should tell more than further rollouts
//!    ([`lemon_credit::economy`]).
//! 3. The teams of one task share the noise seed of their workers and every reply that two of them would request.
//! 4. The local term is an all-action policy gradient of the one field. The paper's preference loss is available
//!    ([`recipe::CreditForm::Preference`]) for comparison. [`estimators`] compares every form with the exact gradient of a policy
//!    that is small enough to list all its texts.
//! 5. Advantages are divided by the standard deviation of their group only if the recipe says so.
//! 6. The grammar is part of the policy: probabilities are those of the distribution that a token was drawn from.
//! 7. A run may have several rounds. The decision to stop is credited by running both branches of the same prefix.
//! 8. That an agent exists is credited by the prefix team that ends before it, which is free. It depends only on what was written
//!    before, so that it is a baseline for all that follows.

mod alternatives;
pub mod board;
pub mod build;
pub mod by_recipe;
mod counterfactual;
mod credit;
mod episode;
pub mod estimators;
mod evaluate;
mod fixed;
mod information;
pub mod metrics;
pub mod page;
pub mod recipe;
mod record;
mod result;
mod rollout;
mod sample;
mod signal;
mod state;
pub mod stop;
#[cfg(test)]
mod tests;

pub use evaluate::{HeldOutResult, SetMeans, evaluate_at};
pub use fixed::{FixedTeam, candidates, search_fixed};
pub use result::{End, TrainError, Trained};

use counterfactual::oracle;
use episode::{Episode, EpisodeRunner, Played};
use evaluate::{check_workers, evaluate};
use lemon_model::{Example, PolicyError, StepReport, StepSettings};
use lemon_policy::checkpoint::{Checkpoints, METRICS, TIMING, to_json};
use lemon_policy::{PromptEncoder, TrainablePolicy};
use lemon_rollout::{Case, RolloutEnv};
use metrics::{StepMetrics, Timing};
use recipe::{CriticReads, Recipe};
use record::StepRecord;
use signal::critic::CriticReader;
use signal::{Signal, Signals};
use state::State;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

/// What training works with, beside the policy.
pub struct TrainContext<'a> {
    /// Runs teams.
    pub env: Arc<RolloutEnv>,
    /// Turns tasks and earlier results into prompts of the policy.
    pub encoder: &'a dyn PromptEncoder,
    /// The tasks to train on.
    pub cases: Arc<Vec<Case>>,
    /// The tasks to evaluate on.
    pub held_out: Arc<Vec<Case>>,
    /// The policy that the divergence is measured from, where the recipe asks for one.
    pub reference: Option<&'a dyn TrainablePolicy>,
}

/// Trains a policy. Everything is kept in `folder`. Training that was killed resumes from its last checkpoint and ends with the
/// same bits (on the CPU). `watch` sees every step and returns whether to go on.
///
/// # Errors
/// The folder cannot be used, the policy or the store fails, or the workers cannot be reached.
pub async fn train(
    context: &TrainContext<'_>,
    policy: &mut dyn TrainablePolicy,
    recipe: &Recipe,
    folder: &Path,
    mut watch: impl FnMut(&StepMetrics, &Timing) -> bool,
) -> Result<Trained, TrainError> {
    context.check(recipe)?;
    policy.set_optimiser(recipe.update.optimiser);
    let begun = [("settings", to_json(recipe)?), ("tasks", context.fingerprint())];
    let (checkpoints, mut state) =
        Checkpoints::begin(folder, &begun, |state: &State| state.step, |folder| policy.load_state(folder))?;
    if state.before.is_none() {
        let (means, teams) = evaluate(context, policy, recipe, recipe.eval.first_seeds).await?;
        if context.is_cancelled() {
            // An evaluation that was cut short does not count; the resumed run repeats it.
            return Ok(state.trained(context, End::Stopped));
        }
        (state.before, state.first_teams) = (Some(means), teams);
        checkpoints.record(METRICS, &StepMetrics { held_out: Some(means), ..StepMetrics::default() })?;
        checkpoints.save(0, &state, |folder| policy.save_state(folder))?;
    }
    let mut end = state.end(recipe);
    while end.is_none() {
        let taken = step(context, policy, recipe, &mut state).await?;
        let Some((mut metrics, mut timing)) = taken.filter(|_| !context.is_cancelled()) else {
            // A step that was cut short is not saved; the resumed run repeats it.
            end = Some(End::Stopped);
            break;
        };
        let began = Instant::now();
        end = state.end(recipe);
        if end.is_some() {
            let (means, teams) = evaluate(context, policy, recipe, recipe.eval.final_seeds).await?;
            (state.after, state.last_teams) = (Some(means), teams);
            metrics.held_out = state.after;
        } else if recipe.eval.every > 0 && state.step.is_multiple_of(recipe.eval.every) {
            metrics.held_out = Some(evaluate(context, policy, recipe, recipe.eval.seeds).await?.0);
        }
        if metrics.held_out.is_some() && context.is_cancelled() {
            // Without its evaluation the step would not end with the same bytes: the resumed run repeats both.
            state.step -= 1;
            end = Some(End::Stopped);
            break;
        }
        checkpoints.record(METRICS, &metrics)?;
        let goes_on = watch(&metrics, &timing);
        if end.is_some() || !goes_on || state.step.is_multiple_of(recipe.checkpoint_every.max(1)) {
            checkpoints.save(state.step, &state, |folder| policy.save_state(folder))?;
        }
        timing.other = began.elapsed().as_secs_f64();
        checkpoints.record(TIMING, &timing)?;
        if !goes_on {
            end = end.or(Some(End::Stopped));
        }
    }
    Ok(state.trained(context, end.unwrap_or(End::Stopped)))
}

/// One step: sample, run, credit, update. `None`: it was cancelled on the way.
async fn step(
    context: &TrainContext<'_>,
    policy: &mut dyn TrainablePolicy,
    recipe: &Recipe,
    state: &mut State,
) -> Result<Option<(StepMetrics, Timing)>, TrainError> {
    let number = state.step + 1;

    // Sample and run: a second round is written with the results of the first.
    let runner = context.runner(&context.cases, recipe);
    let mut episodes = sample::episodes(&context.cases, recipe, number);
    let played = play(&runner, policy, recipe, &mut episodes, number).await?;
    if context.is_cancelled() {
        return Ok(None);
    }
    check_workers(&episodes, number)?;

    // Credit
    let began = Instant::now();
    let mut groups: Vec<_> = episodes.chunk_by(|one, next| one.group == next.group).map(<[_]>::to_vec).collect();
    let counterfactuals = match recipe.credit.oracle {
        0 => credit::counterfactuals(&runner, policy, &groups, recipe, state, played.spent).await?,
        _ => oracle::measure(&runner, &mut groups, recipe, number).await?,
    };
    let credit_time = began.elapsed();
    if context.is_cancelled() {
        return Ok(None);
    }

    // Update
    let began = Instant::now();
    let signals = Signals::new(context, policy, recipe, number, state);
    let signal = signal::signal(&signals, &groups, &counterfactuals.measured)?;
    let learning_rate = recipe.rate(number, state.worker_tokens());
    let report = update(policy, &signal.examples, recipe, learning_rate)?;
    let (ratio, mismatch) = (signal.ratio, signal.mismatch);
    let policy_tokens = policy_tokens(&episodes, &signal, recipe);
    let times = [credit_time, began.elapsed()];

    let record = StepRecord {
        recipe,
        number,
        learning_rate,
        played,
        counterfactuals,
        policy_tokens,
        report,
        ratio,
        mismatch,
        times,
    };
    state.advance(&record, &signal);
    Ok(Some((record.metrics(&episodes, state.worker_tokens()), record.timing())))
}

/// Writes and runs the episodes of a step; in tree groups the trunks first, then their branches.
async fn play(
    runner: &EpisodeRunner<'_>,
    policy: &dyn TrainablePolicy,
    recipe: &Recipe,
    episodes: &mut Vec<Episode>,
    number: u64,
) -> Result<Played, TrainError> {
    let temperature = recipe.rollouts.temperature;
    if recipe.rollouts.branches < 2 {
        return runner.play(policy, episodes, temperature).await;
    }
    let began = Instant::now();
    runner.first_rounds(policy, episodes, temperature)?;
    let forks = sample::branches(episodes, recipe, number);
    runner.branch(policy, episodes, forks, temperature)?;
    // Branches stand beside their trunks: a stable sort.
    episodes.sort_by_key(|episode| episode.group);
    let sampling = began.elapsed();
    let began = Instant::now();
    let spent = runner.run_written(episodes).await?;
    let running = began.elapsed();
    let later = runner.play(policy, episodes, temperature).await?;
    Ok(Played { sampling: sampling + later.sampling, running: running + later.running, spent: spent + later.spent })
}

/// Tokens that the policy wrote, scored and learned from in a step.
fn policy_tokens(episodes: &[Episode], signal: &Signal, recipe: &Recipe) -> u64 {
    let written: usize = episodes.iter().flat_map(|it| &it.rounds).map(|round| round.sample.tokens.len()).sum();
    let learned: usize = signal.examples.iter().map(|example| example.sequence.tokens.len()).sum();
    written as u64 + signal.scored + learned as u64 * u64::from(recipe.update.epochs.max(1))
}

/// Moves the weights, once for each epoch, and reports the last.
fn update(
    policy: &mut dyn TrainablePolicy,
    examples: &[Example],
    recipe: &Recipe,
    learning_rate: f64,
) -> Result<StepReport, TrainError> {
    let settings = StepSettings {
        learning_rate,
        temperature: recipe.rollouts.temperature,
        clip_norm: recipe.update.clip_norm,
        micro_batch: recipe.update.micro_batch,
    };
    let mut report = StepReport::default();
    for _ in 0..recipe.update.epochs.max(1) {
        report = policy.update(examples, &settings)?;
    }
    Ok(report)
}

impl TrainContext<'_> {
    /// Whether there is something to train on and something to evaluate on.
    fn check(&self, recipe: &Recipe) -> Result<(), TrainError> {
        if recipe.credit.critic_reads == CriticReads::States && self.reference.is_none() {
            let fact = "`credit.critic_reads` is `states`: expected `update.kl` above 0, so that the first model is kept, got 0";
            return Err(TrainError::Policy(PolicyError::Request(fact.to_owned())));
        }
        let (train, held_out) = (self.cases.len(), self.held_out.len());
        match train.min(held_out) {
            0 => Err(TrainError::Tasks { train, held_out }),
            _ => Ok(()),
        }
    }

    fn is_cancelled(&self) -> bool {
        self.env.cancel.is_cancelled()
    }

    fn runner<'s>(&'s self, cases: &'s Arc<Vec<Case>>, recipe: &Recipe) -> EpisodeRunner<'s> {
        let settings = &recipe.rollouts;
        let (rounds, width, reader) = (settings.rounds, settings.width, CriticReader::new(self, recipe));
        EpisodeRunner { env: &self.env, encoder: self.encoder, cases, rounds, width, reader }
    }

    /// Identifies the tasks: a folder of a run can be resumed only with the same ones.
    fn fingerprint(&self) -> String {
        let questions = self.cases.iter().chain(self.held_out.iter()).map(|case| case.item.task.question.as_str());
        let seed = lemon_sft::teach::draw(0, &questions.collect::<Vec<_>>());
        format!("{} and {} tasks, {seed:016x}", self.cases.len(), self.held_out.len())
    }
}
