//! Reinforcement learning: group-relative rewards, plus what each single decision was worth, given to the tokens that made it.
//!
//! One step: **write** teams for some tasks, several for each; **run** them; **credit** single decisions by running changed
//! teams; **update** the policy; now and then look at tasks it is not trained on.
//!
//! Where this departs from the paper it follows (LEMON, arXiv 2605.14483):
//!
//! 1. Every decision can be credited, not three kinds: that an agent exists, its duty, its level, whom it reads, what it
//!    shares, how the answer is made, and whether the run goes on; and edits that add as well as edits that simplify.
//! 2. Contrasts are not made for every rollout: what memory can answer is free and always run; what costs worker tokens is
//!    bought only if the recipe says so, where it should tell more than further rollouts ([`lemon_credit::economy`]).
//! 3. The teams of one task share the luck of their workers and every reply that two of them would ask for.
//! 4. The local term is a policy gradient of the one field, with the probability of its other value as a weight. The
//!    paper's preference is there ([`recipe::Form::Preference`]) for comparison.
//! 5. Advantages are not divided by the deviation of their group unless asked to.
//! 6. The grammar is part of the policy: probabilities are those of the distribution a token was drawn from.
//! 7. A run may have several rounds, and the decision to stop is credited by running both branches of the same prefix.
//! 8. That an agent exists is credited by the team that ends before it, not by removing it and keeping those that follow: that is
//!    the other branch of the decision, and it is free. What is left of its entry is measured from there too.

pub mod arena;
pub mod board;
pub mod build;
mod contrast;
mod episode;
pub mod metrics;
pub mod page;
pub mod recipe;
mod signal;
pub mod stop;
#[cfg(test)]
mod tests;

use lemon_policy::checkpoint::{Checkpoints, KeepError, METRICS, TIMING};
use lemon_policy::{Scribe, Student};
use lemon_sft::sft::order;
use lemon_sft::teach::draw;
// Its pages name this crate so.
use crate as train;
use arena::{Arena, Outcome};
use contrast::{Contrasts, contrasts};
use episode::{Episode, Stage};
use lemon_credit::economy::{Economy, Ledger};
use lemon_eval::{Case, EvalError};
use lemon_exec::ReplyCache;
use lemon_model::{PolicyError, StepReport, StepSettings};
use lemon_spec::{Next, Plan};
use metrics::{BeforeAfter, Means, Metrics, Timing};
use recipe::{Form, Recipe};
use serde::{Deserialize, Serialize};
use signal::Signals;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

/// What training stands on.
pub struct Ground<'a> {
    /// Where teams are run.
    pub arena: Arc<Arena>,
    /// Where they are written.
    pub scribe: &'a dyn Scribe,
    /// The tasks to train on.
    pub cases: Arc<Vec<Case>>,
    /// The tasks to look at.
    pub held_out: Arc<Vec<Case>>,
    /// The policy that the divergence is measured from, where the recipe asks for that.
    pub reference: Option<&'a dyn Student>,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Trained {
    /// Steps taken.
    pub steps: u64,
    /// Why it ended.
    pub end: End,
    /// Held-out tasks before the first step.
    pub before: Means,
    /// Held-out tasks after the last.
    pub after: Means,
    /// Worker tokens spent on rollouts.
    pub rollout_tokens: u64,
    /// Worker tokens spent on counterfactuals.
    pub credit_tokens: u64,
    /// Steps that were left out because a number was not finite.
    pub skipped: u64,
    /// Some of the held-out tasks with their teams before and after.
    pub teams: Vec<BeforeAfter>,
}

/// Why training ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// All steps were taken.
    Steps,
    /// The worker tokens were spent.
    WorkerTokens,
    /// Somebody stopped it; it can be taken up again.
    Stopped,
}

/// What can go wrong. Whatever it is, the last checkpoint stands.
#[derive(Debug, thiserror::Error)]
pub enum TrainError {
    /// The policy failed.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// The folder cannot be used.
    #[error(transparent)]
    Keep(#[from] KeepError),
    /// A run failed.
    #[error(transparent)]
    Eval(#[from] EvalError),
    /// There is nothing to train on, or nothing to look at.
    #[error("{0}")]
    Tasks(String),
    /// The workers are not there.
    #[error("at step {step} {lost} of {runs} runs had no workers: {fact}")]
    WorkersGone {
        /// The step, which was not taken.
        step: u64,
        /// Runs that nobody can tell the outcome of.
        lost: usize,
        /// Runs in all.
        runs: usize,
        /// What one of the workers said.
        fact: String,
    },
}

/// Where training stands.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
struct State {
    step: u64,
    rollout_tokens: u64,
    credit_tokens: u64,
    skipped: u64,
    economy: Economy,
    before: Option<Means>,
    /// Texts of the first policy for the first held-out tasks.
    first_teams: Vec<Vec<String>>,
    after: Option<Means>,
    last_teams: Vec<Vec<String>>,
}

/// Held-out tasks whose teams are shown.
const SHOWN: usize = 12;

/// Trains a student. Everything is kept in `folder`; training that was killed goes on from its last checkpoint and ends with
/// the same bits (on the CPU). `watch` sees every step and says whether to go on.
///
/// # Errors
/// The folder cannot be used, the policy or the store fails, or the workers are gone.
pub async fn train(
    ground: &Ground<'_>,
    student: &mut dyn Student,
    recipe: &Recipe,
    folder: &Path,
    mut watch: impl FnMut(&Metrics, &Timing) -> bool,
) -> Result<Trained, TrainError> {
    if ground.cases.is_empty() || ground.held_out.is_empty() {
        return Err(TrainError::Tasks("there are no tasks to train on, or none to look at".to_owned()));
    }
    student.set_optimiser(recipe.update.optimiser);
    let begun = [("settings", serde_json::to_string(recipe).unwrap_or_default()), ("tasks", fingerprint(ground))];
    let checkpoints = Checkpoints::new(folder, &begun)?;
    let mut state = match checkpoints.resume(|state: &State| state.step)? {
        None => State::default(),
        Some((state, folder)) => {
            student.load_state(&folder)?;
            state
        }
    };
    if state.before.is_none() {
        let (look, teams) = look(ground, student, recipe, recipe.look.first_seeds).await?;
        if ground.arena.cancel.is_cancelled() {
            // Half a look is none; it is taken again when training goes on.
            return Ok(state.trained(ground, End::Stopped));
        }
        (state.before, state.first_teams) = (Some(look), teams);
        checkpoints.record(METRICS, &Metrics { look: Some(look), ..Metrics::default() })?;
        checkpoints.save(0, &state, |folder| student.save_state(folder))?;
    }
    let mut end = state.end(recipe);
    while end.is_none() {
        let (mut metrics, mut timing) = step(ground, student, recipe, &mut state).await?;
        if ground.arena.cancel.is_cancelled() {
            // The step was cut short and is not counted; it is taken again when training goes on.
            end = Some(End::Stopped);
            break;
        }
        let began = Instant::now();
        end = state.end(recipe);
        if end.is_some() {
            let (look, teams) = look(ground, student, recipe, recipe.look.final_seeds).await?;
            (state.after, state.last_teams) = (Some(look), teams);
            metrics.look = state.after;
        } else if recipe.look.every > 0 && state.step.is_multiple_of(recipe.look.every) {
            metrics.look = Some(look(ground, student, recipe, recipe.look.seeds).await?.0);
        }
        if metrics.look.is_some() && ground.arena.cancel.is_cancelled() {
            // Half a look is none, and a step without its look would not end with the same bytes: both are taken again.
            state.step -= 1;
            end = Some(End::Stopped);
            break;
        }
        checkpoints.record(METRICS, &metrics)?;
        let goes_on = watch(&metrics, &timing);
        if end.is_some() || !goes_on || state.step.is_multiple_of(recipe.checkpoint_every.max(1)) {
            checkpoints.save(state.step, &state, |folder| student.save_state(folder))?;
        }
        timing.other = began.elapsed().as_secs_f64();
        checkpoints.record(TIMING, &timing)?;
        if !goes_on {
            end = end.or(Some(End::Stopped));
        }
    }
    let end = end.unwrap_or(End::Stopped);
    Ok(state.trained(ground, end))
}

/// One step: write, run, credit, update.
async fn step(
    ground: &Ground<'_>,
    student: &mut dyn Student,
    recipe: &Recipe,
    state: &mut State,
) -> Result<(Metrics, Timing), TrainError> {
    let number = state.step + 1;
    let (rollouts, credit, update) = (&recipe.rollouts, &recipe.credit, &recipe.update);
    let stage = ground.stage(&ground.cases, recipe);

    let mut episodes = begin(ground, recipe, number);
    let played = stage.play(student, &mut episodes, rollouts.temperature).await?;
    if ground.arena.cancel.is_cancelled() {
        return Ok((Metrics::default(), Timing::default()));
    }
    present(&episodes, number)?;
    let groups: Vec<Vec<Episode>> = episodes.chunks(rollouts.group.max(1)).map(<[Episode]>::to_vec).collect();
    account(&mut state.economy, &groups);

    let began = Instant::now();
    let lambda = credit.lambda.at(number - 1);
    let contrasts = if credit.form != Form::None && lambda != 0.0 {
        // What was not spent may be spent later, but not all at once; what was overspent is made up for.
        // A tenth is kept back for what turns out dearer.
        let cap = 0.9 * credit.economy.cap.max(0.0);
        let earned = cap * (state.rollout_tokens + played.spent) as f64 - state.credit_tokens as f64;
        let allowance = earned.clamp(0.0, 3.0 * cap * played.spent as f64) as u64;
        let seed = draw(recipe.seed, &["credit", &number.to_string()]);
        let spending = (allowance, rollouts.temperature);
        contrasts(&stage, student, &groups, credit, &mut state.economy, spending, seed).await?
    } else {
        Contrasts { measured: Vec::new(), ledger: Ledger::default(), spent: 0 }
    };
    let credited = began.elapsed();
    if ground.arena.cancel.is_cancelled() {
        return Ok((Metrics::default(), Timing::default()));
    }

    let began = Instant::now();
    let signals = Signals {
        student,
        scribe: ground.scribe,
        reference: ground.reference,
        credit,
        update,
        lambda,
        temperature: rollouts.temperature,
        economy: &state.economy,
    };
    let examples = signal::examples(&signals, &groups, &contrasts.measured)?;
    let learning_rate = recipe.rate(number, state.rollout_tokens + state.credit_tokens);
    let step_settings = StepSettings {
        learning_rate,
        temperature: rollouts.temperature,
        clip_norm: update.clip_norm,
        micro_batch: update.micro_batch,
    };
    let mut report = StepReport::default();
    for _ in 0..update.epochs.max(1) {
        report = student.update(&examples, &step_settings)?;
    }
    let updated = began.elapsed();
    // JSON has no word for what is not a number; that the step was left out says it.
    let finite = |value: f64| if value.is_finite() { value } else { 0.0 };

    state.step = number;
    state.rollout_tokens += played.spent;
    state.credit_tokens += contrasts.spent;
    state.skipped += u64::from(report.skipped);
    let means = means(&episodes);
    let nominal = means.tokens * means.runs as f64;
    let metrics = Metrics {
        step: number,
        rollouts: means,
        rollout_tokens: played.spent,
        credit_tokens: contrasts.spent,
        worker_tokens: state.rollout_tokens + state.credit_tokens,
        reused: if nominal > 0.0 { (1.0 - played.spent as f64 / nominal).max(0.0) } else { 0.0 },
        families: contrasts.ledger.reports(),
        lambda,
        learning_rate,
        loss: finite(report.loss),
        gradient_norm: finite(report.gradient_norm),
        entropy: finite(report.entropy),
        clipped: finite(report.clipped),
        kl_old: finite(report.kl_old),
        kl_reference: finite(report.kl_reference),
        unmeasured: episodes.len() - means.runs,
        skipped: report.skipped,
        look: None,
    };
    let timing = Timing {
        step: number,
        sampling: played.sampling.as_secs_f64(),
        running: played.running.as_secs_f64(),
        credit: credited.as_secs_f64(),
        update: updated.as_secs_f64(),
        other: 0.0,
    };
    Ok((metrics, timing))
}

/// The episodes of a step, not yet begun: which tasks, and with which luck.
fn begin(ground: &Ground<'_>, recipe: &Recipe, step: u64) -> Vec<Episode> {
    let settings = &recipe.rollouts;
    let (tasks, group) = (settings.tasks.max(1), settings.group.max(1));
    let mut episodes = Vec::with_capacity(tasks * group);
    let mut pass = None;
    for task in 0..tasks {
        // Passes through all tasks follow one another, each in an order of its own.
        let place = (step - 1) as usize * tasks + task;
        let number = (place / ground.cases.len()) as u64;
        if pass.as_ref().is_none_or(|(known, _)| *known != number) {
            pass = Some((number, order(ground.cases.len(), recipe.seed, number)));
        }
        let chosen = pass.as_ref().and_then(|(_, order)| order.get(place % ground.cases.len())).copied();
        let Some(case) = chosen else { continue };
        let memory = Arc::new(ReplyCache::default());
        for member in 0..group {
            let drawn = |words: &[&str]| {
                let place = [step.to_string(), task.to_string(), member.to_string()];
                let words: Vec<&str> = words.iter().copied().chain(place.iter().map(String::as_str)).collect();
                draw(recipe.seed, &words)
            };
            let (seed, memory) = if settings.shared_draws {
                (draw(recipe.seed, &["luck", &step.to_string(), &task.to_string()]), memory.clone())
            } else {
                (drawn(&["luck"]), Arc::new(ReplyCache::default()))
            };
            episodes.push(Episode::new(case, seed, drawn(&["writer"]), memory));
        }
    }
    episodes
}

/// Whether there were workers for most of the episodes.
fn present(episodes: &[Episode], step: u64) -> Result<(), TrainError> {
    let failures = episodes.iter().filter_map(|episode| episode.run.as_ref()?.failure.as_ref());
    let lost = failures.clone().count();
    match failures.into_iter().next() {
        Some(failure) if 2 * lost > episodes.len() => {
            Err(TrainError::WorkersGone { step, lost, runs: episodes.len(), fact: failure.message.clone() })
        }
        _ => Ok(()),
    }
}

/// Tells the economy what rollouts cost and how their rewards vary.
fn account(economy: &mut Economy, groups: &[Vec<Episode>]) {
    for group in groups {
        let outcomes: Vec<(Outcome, usize)> = group
            .iter()
            .filter_map(|episode| {
                let plans = episode.rounds.iter().filter_map(|round| round.plan.as_ref());
                // For each agent: itself, base, a role of its own, duty, level, what it reads and what it shares; and rule and end.
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

/// What the most likely teams for the held-out tasks come to, and the teams for the first of them.
async fn look(
    ground: &Ground<'_>,
    student: &dyn Student,
    recipe: &Recipe,
    seeds: u64,
) -> Result<(Means, Vec<Vec<String>>), TrainError> {
    let stage = ground.stage(&ground.held_out, recipe);
    let mut episodes = Vec::new();
    for seed in 0..seeds.max(1) {
        for case in 0..ground.held_out.len() {
            let luck = draw(recipe.seed, &["look", &seed.to_string(), &case.to_string()]);
            episodes.push(Episode::new(case, luck, luck, Arc::new(ReplyCache::default())));
        }
    }
    stage.play(student, &mut episodes, recipe.look.temperature).await?;
    if !ground.arena.cancel.is_cancelled() {
        present(&episodes, 0)?;
    }
    // Tasks of all sets, not the first few of the first.
    let every = ground.held_out.len().div_ceil(SHOWN).max(1);
    let teams = episodes.iter().take(ground.held_out.len()).step_by(every).map(Episode::texts).collect();
    Ok((means(&episodes), teams))
}

fn means(episodes: &[Episode]) -> Means {
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

/// A number that other tasks would not have.
fn fingerprint(ground: &Ground<'_>) -> String {
    let questions = ground.cases.iter().chain(ground.held_out.iter()).map(|case| case.item.task.question.as_str());
    let seed = draw(0, &questions.collect::<Vec<_>>());
    format!("{} and {} tasks, {seed:016x}", ground.cases.len(), ground.held_out.len())
}

impl Ground<'_> {
    fn stage<'s>(&'s self, cases: &'s Arc<Vec<Case>>, recipe: &Recipe) -> Stage<'s> {
        let settings = &recipe.rollouts;
        Stage { arena: &self.arena, scribe: self.scribe, cases, rounds: settings.rounds, width: settings.width }
    }
}

impl State {
    /// Whether it is at its end.
    fn end(&self, recipe: &Recipe) -> Option<End> {
        let spent = self.rollout_tokens + self.credit_tokens;
        match recipe.worker_tokens {
            _ if self.step >= recipe.steps => Some(End::Steps),
            Some(most) if spent >= most => Some(End::WorkerTokens),
            _ => None,
        }
    }

    fn trained(&self, ground: &Ground<'_>, end: End) -> Trained {
        let every = ground.held_out.len().div_ceil(SHOWN).max(1);
        let shown = ground.held_out.iter().step_by(every).zip(self.first_teams.iter().zip(&self.last_teams));
        let team = |(case, (before, after)): (&Case, (&Vec<String>, &Vec<String>))| BeforeAfter {
            set: case.set.to_string(),
            question: case.item.task.question.clone(),
            before: before.clone(),
            after: after.clone(),
        };
        Trained {
            steps: self.step,
            end,
            before: self.before.unwrap_or_default(),
            after: self.after.unwrap_or_default(),
            rollout_tokens: self.rollout_tokens,
            credit_tokens: self.credit_tokens,
            skipped: self.skipped,
            teams: shown.map(team).collect(),
        }
    }
}
