//! Training: batches of tasks, drawn graphs, rewards, masks.

use super::policy::{DrawnRounds, EdgeDesigner, EdgePolicy};
use crate::error::BaselineError;
use crate::graph::RoleGraph;
use crate::linear::Svd;
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
/// The distance of the logits from the mask that costs nothing.
const DISTANCE: f64 = 0.1;
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
            designer.forget();
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
        penalised: bool,
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
                if penalised {
                    let (_, slopes) = penalty(designer);
                    let all = gradients.iter_mut().flatten().zip(slopes.iter().flatten());
                    all.for_each(|(gradient, slope)| *gradient -= slope);
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

    /// AgentDropout's first stage: every edge that goes on in the roster's order is there, one agent of each round is silenced. What
    /// is climbed is no probability of what was drawn: each agent adds the logarithms of `σ` of its edges, or four times those of
    /// `1 − σ` if it was silenced. So an edge, which has two agents, is in the sum twice.
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
                            *slope +=
                                share * silenced_score(policy.logit(edge), (edge / agents, edge % agents), *agent);
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

/// The sum of the spatial logits of an agent's edges, in and out, and how many there are. Those against the roster's order stay 0.
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

/// What an edge, as sender and reader, adds to the slope of the first stage's sum where this agent is silenced.
fn silenced_score(logit: f64, (from, to): (usize, usize), silenced: usize) -> f64 {
    let probability = logistic(logit);
    match from < to {
        // Only edges that go on in the roster's order are there.
        false => 0.0,
        true if from == silenced || to == silenced => (1.0 - probability) - SILENCED_WEIGHT * probability,
        true => 2.0 * (1.0 - probability),
    }
}

/// The second stage's penalty and its slopes, by policy: the nuclear norm of the logits and their distance from the mask they
/// began with, less δ where it is more; each the mean over rounds, of spatial and of temporal logits.
fn penalty(designer: &EdgeDesigner) -> (f64, Vec<Vec<f64>>) {
    let agents = designer.agents();
    let mut slopes = no_gradients(designer);
    let (spatial, temporal) = slopes.split_at_mut(designer.spatial.len());
    let mut sum = 0.0;
    for (policies, slopes, loops) in [(&designer.spatial, spatial, 0.0), (&designer.temporal, temporal, 1.0)] {
        let share = 1.0 / policies.len().max(1) as f64;
        let away = |policy: &EdgePolicy| -> Vec<f64> {
            let begun = (0..agents * agents).map(|edge| if edge / agents == edge % agents { loops } else { 1.0 });
            policy.logits().iter().zip(begun).map(|(logit, begun)| logit - begun).collect()
        };
        let length = |away: &[f64]| away.iter().map(|x| x * x).sum::<f64>().sqrt();
        let distance = share * policies.iter().map(|policy| length(&away(policy))).sum::<f64>();
        sum += (distance - DISTANCE).max(0.0);
        for (policy, slopes) in policies.iter().zip(slopes) {
            let (factors, away) = (Svd::of(&policy.logits(), agents), away(policy));
            sum += share * factors.s.iter().sum::<f64>();
            let pull = if distance > DISTANCE { 1.0 / length(&away).max(1e-12) } else { 0.0 };
            let both = factors.polar().into_iter().zip(away).map(|(rank, away)| rank + away * pull);
            slopes.iter_mut().zip(both).for_each(|(slope, both)| *slope = share * both);
        }
    }
    (sum, slopes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cards::Domain;

    /// Climbs at random, so that no two logits are alike.
    fn moved() -> EdgeDesigner {
        let mut designer = EdgeDesigner::new(Domain::Math, 4, 2, false);
        let mut random = Random::new(5);
        for _ in 0..4 {
            let gradient: Vec<f64> = (0..16).map(|_| random.normal()).collect();
            designer.policies_mut().for_each(|policy| policy.climb(&gradient));
        }
        designer
    }

    /// The designer with one logit moved.
    fn with(designer: &EdgeDesigner, kind: &str, edge: usize, by: f64) -> EdgeDesigner {
        let mut text = serde_json::to_value(designer).unwrap();
        let logit = &mut text[kind][0]["edges"][edge]["logit"];
        *logit = (logit.as_f64().unwrap() + by).into();
        serde_json::from_value(text).unwrap()
    }

    #[test]
    fn slopes_of_the_penalty_are_difference_quotients() {
        let designer = moved();
        let (_, slopes) = penalty(&designer);
        for (kind, slopes) in [("spatial", &slopes[0]), ("temporal", &slopes[2])] {
            assert_eq!(slopes.len(), 16);
            for (edge, slope) in slopes.iter().enumerate() {
                let at = |by: f64| penalty(&with(&designer, kind, edge, by)).0;
                let quotient = (at(1e-6) - at(-1e-6)) / 2e-6;
                assert!((slope - quotient).abs() < 1e-6, "{kind} {edge}: {slope} is not {quotient}");
            }
        }
    }

    #[test]
    fn slopes_of_the_first_stage_are_difference_quotients() {
        let logits: Vec<f64> = (0..16).map(|edge| (f64::from(edge) * 0.7).sin()).collect();
        let silenced = 1;
        // Agent by agent, as the public code adds them.
        let sum = |logits: &[f64]| -> f64 {
            let log = |agent: usize, edge: usize| match agent == silenced {
                true => SILENCED_WEIGHT * (1.0 - logistic(logits[edge])).ln(),
                false => logistic(logits[edge]).ln(),
            };
            let pairs = |agent: usize| {
                (0..4).filter(move |other| *other != agent).map(move |other| agent.min(other) * 4 + agent.max(other))
            };
            (0..4).flat_map(|agent| pairs(agent).map(move |edge| log(agent, edge))).sum()
        };
        for edge in 0..16 {
            let at = |by: f64| {
                let mut logits = logits.clone();
                logits[edge] += by;
                sum(&logits)
            };
            let quotient = (at(1e-6) - at(-1e-6)) / 2e-6;
            let slope = silenced_score(logits[edge], (edge / 4, edge % 4), silenced);
            assert!((slope - quotient).abs() < 1e-6, "{edge}: {slope} is not {quotient}");
        }
    }
}
