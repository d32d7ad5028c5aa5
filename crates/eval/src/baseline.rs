//! Baselines that learn who reads whom before they are scored: a small REINFORCE trainer, apart from the program's own.
//!
//! The public code of AgentPrune, which takes its estimator over from GPTSwarm: between `n` agents that all do the same,
//! an edge is there with probability `σ(θ)`, at first one half. Ten batches of four items draw a graph for each item and
//! run it, together with a final agent that reads all others. The reward is 1 for a right answer; Adam, at a rate of 0.1,
//! climbs the mean of `reward · ∇ log p(graph)`. After batches 5 and 10, a quarter of the edges that are left is pruned,
//! those of the least `θ` first. The edges that survive are the team.
//!
//! AgentDropout learns weights in the same way first, eliminates the agent whose edges weigh least, and then learns and
//! prunes the edges of the others on the same items.
//!
//! Departures, all in favour of the baselines:
//! - [`PASSES`] passes over the items instead of one, each with fresh draws of the workers. Forty rewards of 0 or 1 say
//!   nothing about ten edges: in twelve settings of the simulated world, what one pass had learned was no better on other
//!   items than as many edges at random. Pruning comes at the middle and at the end, as there.
//! - A baseline is taken off the reward, where the public code has none: the item's mean reward in the passes before, in
//!   the first pass the batch's mean. It leaves the expected gradient as it is (but for the factor 3/4 that a run's share
//!   in its own batch's mean costs) and takes the items' difficulty out of its noise.
//! - Edges go forward only. The public code draws both directions and leaves out what would close a circle.
//! - One round: there are no edges between rounds. AgentDropout's first stage draws graphs like its second, instead of
//!   silencing a drawn agent, and its penalty on the rank of the weights is left out.

mod policy;

use crate::method::{Method, TeamSource};
use crate::row::Training;
use crate::trial::{self, Trial, agent, fixed};
use futures::future::try_join_all;
use lemon_num::{Random, seed_of};
use lemon_rollout::{Case, RolloutEnv, RolloutError};
use lemon_spec::{Agent, Answer, AnswerRule, Next, Spec, render};
use lemon_task::Key;
use policy::EdgePolicy;
use tokio_util::sync::CancellationToken;

/// Passes over the items; the papers make one.
const PASSES: usize = 10;
/// Items in a batch.
const BATCH: usize = 4;
/// The share of the edges left that is pruned each time.
const PRUNED: f64 = 0.25;
/// The share of the agents that AgentDropout eliminates.
const DROPPED: f64 = 0.2;

/// Learns the team of [`TeamSource::AgentPrune`] or [`TeamSource::AgentDropout`] from these cases. Both go over them ten times,
/// where the papers do so once, AgentDropout in each of its two stages. The same seed gives the same team. If it is
/// cancelled, the team is what was learned by then.
///
/// # Errors
/// The sandbox failed.
pub async fn learn(
    env: &RolloutEnv,
    method: &Method,
    capacity: Option<&str>,
    cases: &[Case],
    seed: u64,
    cancel: &CancellationToken,
) -> Result<Training, RolloutError> {
    let mut lessons = Lessons { env, cancel, cases, seed, runs: 0, tokens: 0 };
    let mut crowd = Crowd::new(method.number(), capacity, &env.language.capacities, are_programs(cases));
    if method.source() == Some(TeamSource::AgentDropout) {
        let policy = lessons.teach(&crowd, "agents", None).await?;
        crowd.drop_agents(&policy);
    }
    let policy = lessons.teach(&crowd, "edges", Some(PRUNED)).await?;
    let spec = crowd.spec(&policy.kept());
    Ok(Training { method: method.name(), runs: lessons.runs, tokens: lessons.tokens, spec })
}

fn are_programs(cases: &[Case]) -> bool {
    let programs = cases.iter().filter(|case| matches!(case.item.key(), Key::Code { .. })).count();
    2 * programs > cases.len()
}

/// What is learned from, and what that has cost.
struct Lessons<'a> {
    env: &'a RolloutEnv,
    cancel: &'a CancellationToken,
    cases: &'a [Case],
    seed: u64,
    runs: u64,
    tokens: u64,
}

impl Lessons<'_> {
    /// Edge probabilities, learned, and pruned by this share twice.
    async fn teach(&mut self, crowd: &Crowd, stage: &str, pruned: Option<f64>) -> Result<EdgePolicy, RolloutError> {
        let mut policy = EdgePolicy::new(crowd.edges().count());
        if policy.is_empty() || self.cases.is_empty() {
            return Ok(policy);
        }
        let seed = self.seed.to_string();
        let mut random = Random::new(seed_of(&["graphs", stage, &seed]));
        let mut baselines = vec![Mean::default(); self.cases.len()];
        let batches = PASSES * self.cases.len().div_ceil(BATCH);
        let mut batch = 0;
        for pass in 0..PASSES {
            let draws_of_workers = seed_of(&["workers", stage, &seed, &pass.to_string()]);
            for (cases, baselines) in self.cases.chunks(BATCH).zip(baselines.chunks_mut(BATCH)) {
                let graphs: Vec<Vec<bool>> = cases.iter().map(|_| policy.draw(&mut random)).collect();
                let Some(outcomes) = self.run(crowd, cases, &graphs, draws_of_workers).await? else {
                    return Ok(policy);
                };
                policy.learn(&graphs, &advantages(&outcomes, baselines));
                batch += 1;
                if let Some(share) = pruned.filter(|_| batch == batches / 2 || batch == batches) {
                    policy.prune(share);
                }
            }
        }
        Ok(policy)
    }

    /// Runs a graph on each case. `None`: cancelled.
    async fn run(
        &mut self,
        crowd: &Crowd,
        cases: &[Case],
        graphs: &[Vec<bool>],
        seed: u64,
    ) -> Result<Option<Vec<Trial>>, RolloutError> {
        let (env, cancel) = (self.env, self.cancel);
        let runs = cases
            .iter()
            .zip(graphs)
            .map(|(case, graph)| async move { trial::run(env, case, &fixed(crowd.spec(graph)), seed, cancel).await });
        let outcomes = try_join_all(runs).await?;
        for outcome in outcomes.iter().flatten() {
            self.runs += 1;
            self.tokens += outcome.tokens;
        }
        Ok(outcomes.into_iter().collect())
    }
}

#[derive(Clone, Copy, Default)]
struct Mean {
    sum: f64,
    count: f64,
}

/// How much better each run was than the baseline of its item, which is kept up to date. A run whose outcome is unknown has an
/// advantage of 0: it moves no probability.
fn advantages(outcomes: &[Trial], baselines: &mut [Mean]) -> Vec<f64> {
    let reward = |right: bool| f64::from(u8::from(right));
    let known: Vec<f64> = outcomes.iter().filter_map(|outcome| outcome.right.map(reward)).collect();
    let batch_mean = known.iter().sum::<f64>() / known.len().max(1) as f64;
    let advantage = |(outcome, own): (&Trial, &mut Mean)| {
        let Some(reward) = outcome.right.map(reward) else { return 0.0 };
        let baseline = if own.count > 0.0 { own.sum / own.count } else { batch_mean };
        *own = Mean { sum: own.sum + reward, count: own.count + 1.0 };
        reward - baseline
    };
    outcomes.iter().zip(baselines).map(advantage).collect()
}

/// Agents that all do the same, without edges between them, and the one that decides in the end.
struct Crowd {
    agents: Vec<Agent>,
    last: Agent,
}

impl Crowd {
    fn new(number: usize, capacity: Option<&str>, capacities: &[String], code: bool) -> Self {
        let capacity_of = |turn: usize| {
            let turn = turn.checked_rem(capacities.len()).and_then(|at| capacities.get(at)).map(String::as_str);
            capacity.or(turn).unwrap_or_default()
        };
        // A judge is no weaker than those it judges, and who decides on programs has to write one.
        let strongest = capacity_of(number.min(capacities.len()).saturating_sub(1));
        let (base, judge) = if code { ("programmer", "programmer") } else { ("solver", "judge") };
        let agents = (0..number).map(|at| agent(format!("a{}", at + 1), base, capacity_of(at))).collect();
        Crowd { agents, last: agent("decide".to_owned(), judge, strongest) }
    }

    /// Every edge there may be, as positions of reader and read, by reader.
    fn edges(&self) -> impl Iterator<Item = (usize, usize)> {
        (0..self.agents.len()).flat_map(|reader| (0..reader).map(move |read| (reader, read)))
    }

    /// Eliminates those whose edges weigh least; one is always left.
    fn drop_agents(&mut self, policy: &EdgePolicy) {
        let mut weights = vec![0.0; self.agents.len()];
        for ((reader, read), probability) in self.edges().zip(policy.probabilities()) {
            // Both are positions in `agents`.
            weights[reader] += probability;
            weights[read] += probability;
        }
        let dropped = ((DROPPED * weights.len() as f64).round() as usize).max(1).min(weights.len().saturating_sub(1));
        let mut lightest_first: Vec<usize> = (0..weights.len()).collect();
        lightest_first.sort_by(|a, b| weights[*a].total_cmp(&weights[*b]));
        lightest_first.truncate(dropped);
        let mut at = 0..weights.len();
        self.agents.retain(|_| at.next().is_none_or(|at| !lightest_first.contains(&at)));
    }

    /// The team with the edges that are `there`, in the order of [`Crowd::edges`].
    fn spec(&self, there: &[bool]) -> String {
        let mut agents = self.agents.clone();
        let there = self.edges().zip(there).filter(|(_, there)| **there);
        for ((reader, read), _) in there {
            // Both are positions in `agents`.
            agents[reader].after.push(self.agents[read].id.clone());
        }
        let after = agents.iter().map(|agent| agent.id.clone()).collect();
        agents.push(Agent { after, ..self.last.clone() });
        let answer = Answer { from: vec![self.last.id.clone()], by: AnswerRule::Last };
        render(&Spec { agents, answer, next: Next::Stop }).text
    }
}

#[cfg(test)]
mod tests;
