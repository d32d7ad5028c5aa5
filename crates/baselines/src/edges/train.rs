//! Training: batches of tasks, drawn graphs, rewards, masks.

use super::policy::{DrawnRounds, EdgeDesigner};
use crate::error::BaselineError;
use crate::graph::RoleGraph;
use crate::trials::{ItemBaseline, Trials};
use lemon_num::{Random, logistic};

/// Tasks in a batch.
const BATCH: usize = 4;
/// The share of the edges left that AgentPrune masks each time.
const PRUNED: f64 = 0.25;
/// AgentDropout: tasks in a batch of each stage, the share masked, and how much its own edges count for a silenced agent.
const FIRST_BATCH: usize = 20;
const SECOND_BATCH: usize = 10;
const DROPPED: f64 = 0.10;
const SILENCED_WEIGHT: f64 = 4.0;
const ROUNDS: usize = 2;
/// Passes over the tasks of the variant `+long`.
const LONG: usize = 10;

/// Which of the three methods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EdgeMethod {
    /// Nothing is pruned.
    GptSwarm,
    /// Edges are.
    AgentPrune,
    /// Agents and edges are.
    AgentDropout,
}

/// Learns the edges of a roster of so many agents from the tasks of these trials, which are of one kind.
///
/// # Errors
/// There is no task, or a run failed.
pub async fn learn(
    method: EdgeMethod,
    agents: usize,
    long: bool,
    trials: &mut Trials<'_>,
    seed: u64,
) -> Result<EdgeDesigner, BaselineError> {
    let domain = trials.tasks.first().map(|task| task.domain);
    let domain = domain.ok_or_else(|| BaselineError::Unfit("there is no task to learn from".to_owned()))?;
    let rounds = if method == EdgeMethod::AgentDropout { ROUNDS } else { 1 };
    let mut designer = EdgeDesigner::new(domain, agents, rounds, method == EdgeMethod::GptSwarm);
    let mut random = Random::named(seed, "edges");
    let mut tasks: Vec<usize> = (0..trials.tasks.len()).collect();
    random.shuffle(&mut tasks);
    let passes = if long { LONG } else { 1 };
    let mut stage = Stage { trials, random, tasks, passes, occasion: 0 };
    match method {
        EdgeMethod::GptSwarm => {
            stage.climb(&mut designer, BATCH, None, false, stage_baseline(long, stage.tasks.len())).await?
        }
        EdgeMethod::AgentPrune => {
            let baseline = stage_baseline(long, stage.tasks.len());
            stage.climb(&mut designer, BATCH, Some(PRUNED), false, baseline).await?;
        }
        EdgeMethod::AgentDropout => {
            stage.silence(&mut designer).await?;
            remove_agents(&mut designer);
            let baseline = stage_baseline(long, stage.tasks.len());
            stage.climb(&mut designer, SECOND_BATCH, Some(DROPPED), true, baseline).await?;
        }
    }
    Ok(designer)
}

fn stage_baseline(long: bool, tasks: usize) -> ItemBaseline {
    if long { ItemBaseline::of_items(tasks) } else { ItemBaseline::none() }
}

struct Stage<'a, 'b> {
    trials: &'a mut Trials<'b>,
    random: Random,
    tasks: Vec<usize>,
    passes: usize,
    occasion: u64,
}

impl Stage<'_, '_> {
    /// Draws graphs and climbs; masks this share in the middle and at the end.
    async fn climb(
        &mut self,
        designer: &mut EdgeDesigner,
        batch: usize,
        masked: Option<f64>,
        low_rank: bool,
        mut baseline: ItemBaseline,
    ) -> Result<(), BaselineError> {
        let tasks = self.tasks.clone();
        let batches = self.passes * tasks.len().div_ceil(batch);
        let (mut made, mut passes) = (0, 0);
        while self.trials.goes_on(passes, self.passes) {
            self.occasion += 1;
            for tasks in tasks.chunks(batch) {
                let drawn: Vec<(RoleGraph, DrawnRounds)> =
                    tasks.iter().map(|_| designer.draw(&mut self.random)).collect();
                let graphs: Vec<(usize, RoleGraph)> =
                    tasks.iter().zip(&drawn).map(|(task, (graph, _))| (*task, graph.clone())).collect();
                let scores = self.trials.run_graphs(&graphs, self.occasion).await?;
                let advantages = baseline.advantages(tasks, &self.trials.utilities(&scores));
                let mut gradients = no_gradients(designer);
                for ((_, rounds), advantage) in drawn.iter().zip(&advantages) {
                    designer.add_scores(&mut gradients, rounds, advantage / tasks.len() as f64);
                }
                if low_rank {
                    add_rank_penalty(designer, &mut gradients);
                }
                designer.policies_mut().zip(&gradients).for_each(|(policy, gradient)| policy.climb(gradient));
                made += 1;
                if let Some(share) = masked.filter(|_| made == batches / 2 || made == batches) {
                    designer.policies_mut().filter(|policy| policy.left() > 0).for_each(|policy| policy.prune(share));
                }
            }
            passes += 1;
        }
        Ok(())
    }

    /// AgentDropout's first stage: all edges are there, one agent of each round is silenced.
    async fn silence(&mut self, designer: &mut EdgeDesigner) -> Result<(), BaselineError> {
        let agents = designer.agents();
        let tasks = self.tasks.clone();
        for _ in 0..self.passes {
            self.occasion += 1;
            for tasks in tasks.chunks(FIRST_BATCH) {
                let silenced: Vec<Vec<usize>> = tasks.iter().map(|_| self.silenced(designer)).collect();
                let graphs: Vec<(usize, RoleGraph)> =
                    tasks.iter().zip(&silenced).map(|(task, silenced)| (*task, designer.whole(silenced))).collect();
                let scores = self.trials.run_graphs(&graphs, self.occasion).await?;
                let utilities = self.trials.utilities(&scores);
                let mut gradients = no_gradients(designer);
                for (silenced, utility) in silenced.iter().zip(utilities) {
                    let share = utility.unwrap_or(0.0) / tasks.len() as f64;
                    for ((policy, gradient), agent) in designer.spatial.iter().zip(&mut gradients).zip(silenced) {
                        for (edge, slope) in gradient.iter_mut().enumerate() {
                            let probability = logistic(policy.logit(edge));
                            let touches = edge / agents == *agent || edge % agents == *agent;
                            let score = if touches { -SILENCED_WEIGHT * probability } else { 1.0 - probability };
                            *slope += share * score;
                        }
                    }
                }
                designer.policies_mut().zip(&gradients).for_each(|(policy, gradient)| policy.climb(gradient));
            }
        }
        Ok(())
    }

    /// By round, an agent drawn by the softmax of the sum of its logits.
    fn silenced(&mut self, designer: &EdgeDesigner) -> Vec<usize> {
        let agents = designer.agents();
        let sums = |round: usize| -> Vec<f32> {
            (0..agents).map(|agent| logit_sum(designer, round, agent).0 as f32).collect()
        };
        (0..designer.spatial.len())
            .map(|round| crate::nn::draw(&crate::nn::softmax(&sums(round)), &mut self.random))
            .collect()
    }
}

/// The sum of the spatial logits of an agent's edges, in and out, and how many there are.
fn logit_sum(designer: &EdgeDesigner, round: usize, agent: usize) -> (f64, usize) {
    let agents = designer.agents();
    let others = (0..agents).filter(|other| *other != agent);
    let Some(policy) = designer.spatial.get(round) else { return (0.0, 0) };
    let sum =
        others.flat_map(|other| [agent * agents + other, other * agents + agent]).map(|edge| policy.logit(edge)).sum();
    (sum, 2 * agents.saturating_sub(1))
}

/// Removes from each round the agent whose edges weigh least on average.
fn remove_agents(designer: &mut EdgeDesigner) {
    let agents = designer.agents();
    for round in 0..designer.spatial.len() {
        let mean = |agent: &usize| {
            let (sum, count) = logit_sum(designer, round, *agent);
            sum / count.max(1) as f64
        };
        if let Some(lightest) = (0..agents).min_by(|a, b| mean(a).total_cmp(&mean(b))) {
            designer.remove(round, lightest);
        }
    }
}

fn no_gradients(designer: &EdgeDesigner) -> Vec<Vec<f64>> {
    let edges = designer.agents() * designer.agents();
    vec![vec![0.0; edges]; designer.spatial.len() + designer.temporal.len()]
}

/// Takes off the gradients what lowers the mean nuclear norm of the spatial and of the temporal probabilities.
fn add_rank_penalty(designer: &EdgeDesigner, gradients: &mut [Vec<f64>]) {
    let agents = designer.agents();
    let groups = [(0, &designer.spatial), (designer.spatial.len(), &designer.temporal)];
    for (start, policies) in groups {
        for (policy, gradient) in policies.iter().zip(gradients.iter_mut().skip(start)) {
            let slopes = policy.nuclear_gradient(agents);
            let count = policies.len() as f64;
            gradient.iter_mut().zip(slopes).for_each(|(gradient, slope)| *gradient -= slope / count);
        }
    }
}
