//! ARG-Designer: writes roster and edges one agent at a time, for each question.
//!
//! Role by role and edge by edge, until the role END: see [`net::ArgNet`]. It learns by teacher forcing from graphs that solved
//! their task, in two stages, as in the public code. Of the 40 tasks, 16 run dense graphs of all sizes; 24 run graphs drawn from
//! the model with a quarter of the edges left out, and chains, stars and layered graphs. Roles are drawn once for each
//! configuration, with replacement. A part (30 %) of the first stage is repeated in the second. Of ten graphs one validates; the
//! weights of the least validation loss stay.
//!
//! The public sampler is corrected. There, training puts "edge" into channel 0 and sampling reads channel 1; sampling takes an
//! empty step after START, and feeds no edges back. Here both go through the same steps.
//!
//! Departures: an agent's edges begin from the state that its role was drawn from, as in the code; END ends the steps of the
//! node network only, because the number of edges is known. The variant `+cost` keeps, of the right graphs of a task in the
//! second stage, the cheapest alone (ours).

pub mod net;

use crate::cards::Domain;
use crate::encoder::Encoder;
use crate::error::BaselineError;
use crate::graph::{GraphShape, RoleGraph};
use crate::nn::{Adam, NetWeights};
use crate::trials::{RivalObjective, RunScore, Trials};
use candle_core::DType;
use lemon_num::Random;
use net::{ArgNet, READS, TaughtGraph};

/// The share of the tasks that run dense graphs.
const BASE: f64 = 0.4;
const REPLAYED: f64 = 0.3;
const LEFT_OUT: f64 = 0.25;
const VALIDATION: f64 = 0.1;
const CLIP: f64 = 1.0;

/// The published constants for a domain.
struct Constants {
    most_agents: usize,
    batch: usize,
    rates: [f64; 2],
    epochs: [usize; 2],
}

impl Constants {
    fn of(domain: Domain) -> Self {
        let most_agents = domain.roster().len();
        let (batch, rates, epochs) = match domain {
            Domain::Math => (32, [1e-4, 5e-5], [100, 200]),
            Domain::Choice => (16, [5e-5, 5e-5], [100, 100]),
            Domain::Knowledge => (16, [1e-4, 5e-5], [100, 100]),
            Domain::Code => (64, [8e-5, 1e-5], [100, 100]),
        };
        Constants { most_agents, batch, rates, epochs }
    }
}

/// A model that writes graphs, and the sizes it saw.
pub struct ArgDesigner {
    /// The model.
    pub net: ArgNet,
    /// The smallest and the largest graph it learned from.
    pub sizes: (usize, usize),
}

impl ArgDesigner {
    /// A graph drawn for a question. Each agent after the first reads at least one other.
    ///
    /// # Errors
    /// A tensor operation failed.
    pub fn design(&self, query: &[f32], random: &mut Random) -> candle_core::Result<RoleGraph> {
        let mut graph = self.net.sample(query, self.sizes, random)?;
        reconnect(&mut graph, random);
        Ok(graph)
    }
}

/// Gives every agent after the first that reads none one of those it may read.
fn reconnect(graph: &mut RoleGraph, random: &mut Random) {
    for (at, member) in graph.members.iter_mut().enumerate().skip(1) {
        if member.after.is_empty() {
            member.after.push(random.between(at.saturating_sub(READS), at - 1));
        }
    }
}

/// Learns on the tasks of these trials, which are of one domain.
///
/// # Errors
/// There is no task, or a run, the encoder or a tensor operation failed.
pub async fn learn(trials: &mut Trials<'_>, encoder: &Encoder, seed: u64) -> Result<ArgDesigner, BaselineError> {
    learn_for(trials, encoder, seed, None).await
}

/// The same in so many epochs for each stage, where they are not the published ones.
async fn learn_for(
    trials: &mut Trials<'_>,
    encoder: &Encoder,
    seed: u64,
    epochs: Option<[usize; 2]>,
) -> Result<ArgDesigner, BaselineError> {
    let domain = trials.tasks.first().map(|task| task.domain);
    let domain = domain.ok_or_else(|| BaselineError::Unfit("there is no task to learn from".to_owned()))?;
    let mut constants = Constants::of(domain);
    constants.epochs = epochs.unwrap_or(constants.epochs);
    let net = ArgNet::new(domain, NetWeights::new(seed, DType::F32), encoder)?;
    let mut designer = ArgDesigner { net, sizes: (2, constants.most_agents) };
    let mut random = Random::named(seed, "arg-designer");
    let mut order: Vec<usize> = (0..trials.tasks.len()).collect();
    random.shuffle(&mut order);
    let (base, fine) = order.split_at((BASE * order.len() as f64).round() as usize);
    let most = constants.most_agents;

    // With a budget, each stage has the share that it has without one.
    let budget = trials.limit;
    trials.limit = budget.map(|tokens| tokens / 4);
    let dense: Vec<(GraphShape, usize)> = (3..=most)
        .flat_map(|agents| [Some((GraphShape::Full, agents)), (agents > 3).then_some((GraphShape::Full, agents))])
        .flatten()
        .collect();
    let mut first = Vec::new();
    let mut pass = 0;
    while trials.goes_on(pass, 1) {
        let planned = planned(&dense, base, domain, &mut random);
        first.extend(kept(trials, planned, pass as u64, RivalObjective::Native).await?);
        pass += 1;
    }
    let mut school = School { designer: &mut designer, encoder, random, batch: constants.batch };
    school.fit(trials, &first, constants.rates[0], constants.epochs[0])?;

    trials.limit = budget;
    let simple: Vec<(GraphShape, usize)> = [(GraphShape::Chain, 2), (GraphShape::Star, 3), (GraphShape::Layered, 4)]
        .into_iter()
        .flat_map(|(shape, least)| (least..=most).map(move |agents| (shape, agents)))
        .collect();
    let mut second = Vec::new();
    let mut pass = 0;
    while trials.goes_on(pass, 1) {
        let mut planned = planned(&simple, fine, domain, &mut school.random);
        for task in fine {
            planned.push((*task, school.pruned(&trials.tasks[*task].question)?));
        }
        second.extend(kept(trials, planned, 1_000 + pass as u64, trials.objective).await?);
        pass += 1;
    }
    let replayed = (REPLAYED * first.len() as f64).round() as usize;
    second.extend(school.random.some(&first, replayed));
    school.fit(trials, &second, constants.rates[1], constants.epochs[1])?;
    Ok(designer)
}

/// Each configuration on each task, with roles drawn once for each configuration.
pub fn planned(
    configurations: &[(GraphShape, usize)],
    tasks: &[usize],
    domain: Domain,
    random: &mut Random,
) -> Vec<(usize, RoleGraph)> {
    let roster: Vec<usize> = domain.roster().collect();
    let mut planned = Vec::new();
    for (shape, agents) in configurations {
        let cards: Vec<usize> = (0..*agents).filter_map(|_| random.pick(&roster).copied()).collect();
        let graph = RoleGraph::new(&cards, shape.after(*agents, random));
        planned.extend(tasks.iter().map(|task| (*task, graph.clone())));
    }
    planned
}

/// Runs graphs and keeps those that solved their task; by cost, the cheapest of each task alone.
pub async fn kept(
    trials: &mut Trials<'_>,
    planned: Vec<(usize, RoleGraph)>,
    occasion: u64,
    objective: RivalObjective,
) -> Result<Vec<(usize, RoleGraph)>, BaselineError> {
    let scores = trials.run_graphs(&planned, occasion).await?;
    let is_right = |score: &RunScore| score.right == Some(true);
    let right = planned.into_iter().zip(scores).filter_map(|(graph, score)| Some((graph, score.filter(is_right)?)));
    let mut right: Vec<((usize, RoleGraph), RunScore)> = right.collect();
    if objective == RivalObjective::Cost {
        right.sort_by(|(a, a_score), (b, b_score)| a.0.cmp(&b.0).then(a_score.cost.total_cmp(&b_score.cost)));
        right.dedup_by_key(|((task, _), _)| *task);
    }
    Ok(right.into_iter().map(|(graph, _)| graph).collect())
}

struct School<'a> {
    designer: &'a mut ArgDesigner,
    encoder: &'a Encoder,
    random: Random,
    batch: usize,
}

impl School<'_> {
    /// A graph drawn from the model, with a share of its edges left out.
    fn pruned(&mut self, question: &str) -> Result<RoleGraph, BaselineError> {
        let query = self.encoder.encode(question)?;
        let mut graph = self.designer.design(&query, &mut self.random)?;
        let edges: Vec<(usize, usize)> = graph.edges().collect();
        let count = (LEFT_OUT * edges.len() as f64).round() as usize;
        for (from, to) in self.random.some(&edges, count) {
            if let Some(member) = graph.members.get_mut(to) {
                member.after.retain(|read| *read != from);
            }
        }
        reconnect(&mut graph, &mut self.random);
        Ok(graph)
    }

    /// Fits these graphs, and keeps the weights of the least validation loss.
    fn fit(
        &mut self,
        trials: &Trials<'_>,
        graphs: &[(usize, RoleGraph)],
        rate: f64,
        epochs: usize,
    ) -> Result<(), BaselineError> {
        let mut taught = Vec::new();
        for (task, graph) in graphs {
            let query = self.encoder.encode(&trials.tasks[*task].question)?;
            taught.push(TaughtGraph { query, graph: graph.clone() });
        }
        if taught.is_empty() {
            return Ok(());
        }
        let sizes = || taught.iter().map(|taught| taught.graph.members.len());
        let (least, most) = (sizes().min().unwrap_or(2), sizes().max().unwrap_or(2));
        self.designer.sizes = (least, most);
        self.random.shuffle(&mut taught);
        let validating = (VALIDATION * taught.len() as f64).round() as usize;
        let validation = taught.split_off(taught.len() - validating);
        let net = &self.designer.net;
        let mut adam = Adam::new(rate).clipped(CLIP);
        let mut best: Option<(f32, _)> = None;
        for _ in 0..epochs {
            self.random.shuffle(&mut taught);
            for batch in taught.chunks(self.batch) {
                let loss = net.loss(batch, Some(&mut self.random))?;
                adam.step(net.weights(), &loss)?;
            }
            if !validation.is_empty() {
                let loss = net.loss(&validation, None)?.to_scalar::<f32>()?;
                if best.as_ref().is_none_or(|(least, _)| loss < *least) {
                    best = Some((loss, net.weights().copies()?));
                }
            }
        }
        if let Some((_, copies)) = best {
            net.weights().restore(&copies)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
