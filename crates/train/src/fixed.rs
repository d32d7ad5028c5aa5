//! The best team that is the same for every task: what a trained policy has to beat.

use crate::episode::{Episode, Job};
use crate::evaluate::{HeldOutResult, evaluation, held_out_episodes};
use crate::recipe::Recipe;
use crate::{TrainContext, TrainError};
use lemon_exec::ReplyCache;
use lemon_num::mean_of;
use lemon_rollout::Replies;
use lemon_sft::sft::order;
use lemon_sft::teach::draw;
use lemon_spec::{Agent, Answer, AnswerRule, Language, Next, Share, Spec, render, validate};
use std::sync::Arc;

/// A team that was found by search on training tasks.
#[derive(Debug, Clone, PartialEq)]
pub struct FixedTeam {
    /// Its specification.
    pub text: String,
    /// Worker tokens that the search cost.
    pub tokens: u64,
    /// What it gave on the held-out tasks.
    pub evaluation: HeldOutResult,
}

/// The teams that are searched: one agent, votes of three and five, a solver and a critic that reads its reply or its answer, and
/// two solvers whose answers a third agent reads; each on every capacity. `most` bounds the agents.
pub fn candidates(language: &Language, most: usize) -> Vec<String> {
    let agent = |id: usize, base: &str, capacity: &str, after: &[usize], share: Share| Agent {
        id: format!("a{id}"),
        base: base.to_owned(),
        role: None,
        duty: None,
        capacity: capacity.to_owned(),
        after: after.iter().map(|parent| format!("a{parent}")).collect(),
        share,
        tools: Vec::new(),
    };
    let mut specs = Vec::new();
    for capacity in &language.capacities {
        let mut add = |agents: Vec<Agent>, from: Vec<usize>, by: AnswerRule| {
            let from = from.into_iter().map(|id| format!("a{id}")).collect();
            specs.push(Spec { agents, answer: Answer { from, by }, next: Next::Stop });
        };
        for base in ["solver", "expert"] {
            add(vec![agent(1, base, capacity, &[], Share::Reply)], vec![1], AnswerRule::Last);
        }
        for voters in [3, 5] {
            let agents = (1..=voters).map(|id| agent(id, "solver", capacity, &[], Share::Reply)).collect();
            add(agents, (1..=voters).collect(), AnswerRule::Vote);
        }
        for share in [Share::Reply, Share::Answer] {
            let agents =
                vec![agent(1, "solver", capacity, &[], share), agent(2, "critic", capacity, &[1], Share::Reply)];
            add(agents, vec![2], AnswerRule::Last);
        }
        let solvers = [1, 2].map(|id| agent(id, "solver", capacity, &[], Share::Answer));
        let reader = agent(3, "expert", capacity, &[1, 2], Share::Reply);
        add(solvers.into_iter().chain([reader]).collect(), vec![3], AnswerRule::Last);
    }
    let fits = |spec: &Spec| spec.agents.len() <= most;
    let texts = specs.iter().filter(|spec| fits(spec)).map(|spec| render(spec).text);
    // A language may lack a base role or forbid so many agents.
    texts.filter(|text| validate(text, language).is_ok()).collect()
}

/// Finds the best of these teams on the training tasks by halving, for about `tokens` worker tokens, and evaluates it on the held-out
/// tasks. `None` without teams.
///
/// # Errors
/// A run fails.
pub async fn search_fixed(
    context: &TrainContext<'_>,
    recipe: &Recipe,
    teams: &[String],
    tokens: u64,
) -> Result<Option<FixedTeam>, TrainError> {
    let runner = context.runner(&context.cases, recipe);
    let mut alive: Vec<(String, Vec<f64>)> = teams.iter().map(|text| (text.clone(), Vec::new())).collect();
    let rounds = (alive.len().max(2) as f64).log2().ceil();
    let cases = order(context.cases.len(), recipe.seed, 0);
    let (mut spent, mut next) = (0, 0usize);
    while alive.len() > 1 {
        // Each round of halving gets an equal part. All teams see the same tasks with the same noise.
        let until = spent + (tokens as f64 / rounds) as u64;
        let before = spent;
        while spent < until && next < 64 * cases.len() {
            let case = cases[next % cases.len()]; // A remainder.
            let (seed, memory) = (draw(recipe.seed, &["fixed", &next.to_string()]), Arc::new(ReplyCache::default()));
            let job =
                |(text, _): &(String, Vec<f64>)| Job { case, texts: vec![text.clone()], seed, memory: memory.clone() };
            let runs = runner.run_all(alive.iter().map(job).collect(), Replies::Workers).await?;
            for ((_, rewards), run) in alive.iter_mut().zip(runs) {
                spent += run.spent;
                rewards.extend(run.outcome.map(|outcome| outcome.reward));
            }
            next += 1;
        }
        let mean = |rewards: &[f64]| mean_of(rewards.iter().copied()).unwrap_or(f64::NEG_INFINITY);
        alive.sort_by(|(_, a), (_, b)| mean(b).total_cmp(&mean(a)));
        alive.truncate(alive.len().div_ceil(2));
        if spent == before || context.env.cancel.is_cancelled() {
            break;
        }
    }
    let Some((text, _)) = alive.into_iter().next() else { return Ok(None) };
    let held_out = context.runner(&context.held_out, recipe);
    let mut episodes = held_out_episodes(context.held_out.len(), recipe, recipe.eval.final_seeds);
    let job = |episode: &Episode| Job { texts: vec![text.clone()], ..episode.job() };
    let runs = held_out.run_all(episodes.iter().map(job).collect(), Replies::Workers).await?;
    episodes.iter_mut().zip(runs).for_each(|(episode, run)| episode.run = Some(run));
    let mut evaluation = evaluation(&episodes, &context.held_out, 0.0);
    // Nothing was written in rounds, and every candidate stops after the first.
    evaluation.means.rounds = 1.0;
    Ok(Some(FixedTeam { text, tokens: spent, evaluation }))
}
