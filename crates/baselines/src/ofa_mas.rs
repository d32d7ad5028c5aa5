//! OFA-MAS: one generator of teams for all sets of tasks.
//!
//! It writes roles out of nineteen and edges, agent by agent: see [`net::OfaNet`]. It learns in three stages, as in the public
//! code: graphs of the classic shapes without a question; pairs of questions and teams that were written and never run; graphs that
//! solved their task, of all sets together.
//!
//! Departures:
//! - END is trained as the last role and has a vector of its own. In the public code its logit is always 0.
//! - Written pairs of the public code without edges, meant as complete graphs, are complete here.
//! - The second stage's pairs are written by a rule of ours and not by gpt-4o-mini: questions are the training tasks, roles those of
//!   the roster nearest to the question, shapes and sizes in the published proportions.
//! - Messages are weighed over the senders of a reader instead of over the readers of a sender. So a node's state does not change
//!   when an agent is added, and one pass over a graph gives all steps of its making.
//! - 20 epochs a stage instead of 51, and 320 graphs in the first stage instead of 800, because all is computed on a CPU.

pub mod net;

use crate::arg_designer::{kept, planned};
use crate::cards::{CARDS, Domain};
use crate::encoder::{Encoder, WIDTH};
use crate::error::BaselineError;
use crate::graph::{GraphShape, RoleGraph};
use crate::nn::{Adam, NetWeights};
use crate::trials::Trials;
use candle_core::DType;
use lemon_num::Random;
use net::{OfaNet, OfaStep};
use std::collections::HashMap;
use std::sync::Arc;

/// Graphs of each shape and size in the first stage.
const SHAPED: usize = 20;
/// Pairs in the second stage.
const WRITTEN: usize = 400;
const EPOCHS: usize = 20;
const BATCH: usize = 32;
const RATES: [f64; 3] = [2e-3, 2e-3, 5e-4];
/// Agents of a team.
const MOST_AGENTS: usize = 6;
/// END is not drawn before.
const LEAST_AGENTS: usize = 2;
/// The published pairs: sizes from 2 to 6, and shapes.
const SIZES: [u32; 5] = [117, 583, 290, 40, 1];
const SHAPES: [(GraphShape, u32); 5] = [
    (GraphShape::Chain, 321),
    (GraphShape::Layered, 255),
    (GraphShape::Star, 238),
    (GraphShape::Full, 122),
    (GraphShape::Grid, 95),
];

/// A trained generator.
pub struct OfaDesigner {
    /// The model.
    pub net: OfaNet,
}

/// Weights after the two stages that need no runs. They depend on the seed and the questions alone.
pub type OfaPretrained = HashMap<String, candle_core::Tensor>;

impl OfaDesigner {
    /// A graph drawn for a question.
    ///
    /// # Errors
    /// A tensor operation failed.
    pub fn design(&self, query: &[f32], random: &mut Random) -> candle_core::Result<RoleGraph> {
        self.net.sample(query, (LEAST_AGENTS, MOST_AGENTS), random)
    }
}

/// The stages without runs.
///
/// # Errors
/// The encoder or a tensor operation failed.
pub fn pretrain(trials: &Trials<'_>, encoder: &Encoder, seed: u64) -> Result<OfaPretrained, BaselineError> {
    let net = OfaNet::new(NetWeights::new(seed, DType::F32), encoder)?;
    let mut random = Random::named(seed, "ofa-mas stages without runs");
    let nothing: Arc<[f32]> = vec![0.0; WIDTH].into();
    let mut shaped = Vec::new();
    for shape in [GraphShape::Chain, GraphShape::Star, GraphShape::Full, GraphShape::Grid] {
        for agents in 3..=MOST_AGENTS {
            for _ in 0..SHAPED {
                let cards = random.some(&(0..CARDS.len()).collect::<Vec<_>>(), agents);
                let graph = RoleGraph::new(&cards, shape.after(agents, &mut random));
                shaped.push(OfaStep { query: nothing.clone(), graph });
            }
        }
    }
    fit(&net, &mut shaped, RATES[0], EPOCHS, &mut random)?;
    let mut written = Vec::new();
    for at in 0..if trials.tasks.is_empty() { 0 } else { WRITTEN } {
        let task = &trials.tasks[at % trials.tasks.len()];
        let query = encoder.encode(&task.question)?;
        written.push(OfaStep { graph: written_team(&query, task.domain, encoder, &mut random)?, query });
    }
    fit(&net, &mut written, RATES[1], EPOCHS, &mut random)?;
    Ok(net.weights().copies()?)
}

/// A team as a rule writes it: a size and a shape in the published proportions, and roles of the roster, those nearest to the
/// question first.
fn written_team(
    query: &[f32],
    domain: Domain,
    encoder: &Encoder,
    random: &mut Random,
) -> Result<RoleGraph, BaselineError> {
    let agents = 2 + random.weighted(&SIZES);
    let shapes: Vec<u32> = SHAPES.iter().map(|(_, weight)| *weight).collect();
    let shape = match agents {
        2 => GraphShape::Chain,
        _ => SHAPES.get(random.weighted(&shapes)).map_or(GraphShape::Chain, |(shape, _)| *shape),
    };
    let mut roster = Vec::new();
    for card in domain.roster() {
        let vector = encoder.encode(&CARDS.get(card).map(|card| card.description()).unwrap_or_default())?;
        let nearness: f32 = vector.iter().zip(query).map(|(a, b)| a * b).sum();
        // A little noise: the same question gets several teams.
        roster.push((card, f64::from(nearness) + 0.1 * random.normal()));
    }
    roster.sort_by(|a, b| b.1.total_cmp(&a.1));
    let mut cards: Vec<usize> = roster.into_iter().map(|(card, _)| card).cycle().take(agents).collect();
    // Who checks comes last: a roster's order is that of its cards.
    cards.sort_unstable();
    Ok(RoleGraph::new(&cards, shape.after(agents, random)))
}

/// Learns on the tasks of these trials, which may be of all domains.
///
/// # Errors
/// A run, the encoder or a tensor operation failed.
pub async fn learn(
    trials: &mut Trials<'_>,
    pretrained: &OfaPretrained,
    encoder: &Encoder,
    seed: u64,
) -> Result<OfaDesigner, BaselineError> {
    learn_for(trials, pretrained, encoder, seed, EPOCHS).await
}

/// The same in so many epochs of the last stage.
async fn learn_for(
    trials: &mut Trials<'_>,
    pretrained: &OfaPretrained,
    encoder: &Encoder,
    seed: u64,
    epochs: usize,
) -> Result<OfaDesigner, BaselineError> {
    let net = OfaNet::new(NetWeights::loaded(pretrained.clone()), encoder)?;
    let mut random = Random::named(seed, "ofa-mas");
    let mut right = Vec::new();
    let mut pass = 0;
    while trials.goes_on(pass, 1) {
        for domain in Domain::ALL {
            let tasks: Vec<usize> = (0..trials.tasks.len()).filter(|at| trials.tasks[*at].domain == domain).collect();
            let graphs =
                with_any_role(planned(&configurations(domain), &tasks, domain, &mut random), &tasks, &mut random);
            right.extend(kept(trials, graphs, pass as u64, trials.objective).await?);
        }
        pass += 1;
    }
    let mut steps = Vec::new();
    for (task, graph) in right {
        steps.push(OfaStep { query: encoder.encode(&trials.tasks[task].question)?, graph });
    }
    fit(&net, &mut steps, RATES[2], epochs, &mut random)?;
    Ok(OfaDesigner { net })
}

/// The classic configurations of a domain: 9 for word problems, 14 for programs, 19 for questions of knowledge.
fn configurations(domain: Domain) -> Vec<(GraphShape, usize)> {
    let most = domain.roster().len();
    // Mesh is the complete graph below nine agents, as in the public code.
    [
        (GraphShape::Chain, 2),
        (GraphShape::Star, 3),
        (GraphShape::Layered, 4),
        (GraphShape::Full, 3),
        (GraphShape::Full, 4),
    ]
    .into_iter()
    .flat_map(|(shape, least)| (least..=most).map(move |agents| (shape, agents)))
    .collect()
}

/// The same graphs with roles drawn from all nineteen, once for each configuration.
fn with_any_role(mut graphs: Vec<(usize, RoleGraph)>, tasks: &[usize], random: &mut Random) -> Vec<(usize, RoleGraph)> {
    for graphs in graphs.chunks_mut(tasks.len().max(1)) {
        let cards: Vec<usize> = (0..MOST_AGENTS).map(|_| random.below(CARDS.len())).collect();
        for (_, graph) in graphs {
            graph.members.iter_mut().zip(&cards).for_each(|(member, card)| member.card = *card);
        }
    }
    graphs
}

fn fit(
    net: &OfaNet,
    steps: &mut [OfaStep],
    rate: f64,
    epochs: usize,
    random: &mut Random,
) -> Result<(), BaselineError> {
    /// The rate is halved after so many epochs without a smaller loss.
    const PATIENCE: usize = 10;
    let mut adam = Adam::new(rate);
    let (mut least, mut since) = (f32::INFINITY, 0);
    for _ in 0..epochs {
        random.shuffle(steps);
        let mut sum = 0.0;
        for batch in steps.chunks(BATCH) {
            let loss = net.loss(batch)?;
            adam.step(net.weights(), &loss)?;
            sum += loss.to_scalar::<f32>()?;
        }
        (least, since) = if sum < least { (sum, 0) } else { (least, since + 1) };
        if since >= PATIENCE {
            (adam.rate, since) = (adam.rate / 2.0, 0);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
