//! G-Designer as its paper describes it, where that is known.
//!
//! A node for the task is linked both ways to every agent, the agents form a chain (the anchor). A variational graph encoder
//! gives each node a mean and a spread (384 → 32 → 16) and draws its vector; a network on the vectors of sender, reader and task
//! gives the logit of an edge; edges are drawn (Gumbel and sigmoid at a temperature near 0 is a Bernoulli draw). The mean of the
//! drawn matrix and the anchor is refined: its singular values are shrunk by ζ/2 (ζ = 0.1), which solves the paper's problem for
//! `Z W Zᵀ` where `Z` is a whole basis. Entries above ¼ are edges, in the order of rows; one that would close a circle is left out.
//!
//! Departures: one round instead of three. The paper's text was not at hand, so these are ours: widths, learning rate (0.01),
//! threshold, and the weights of the divergence (0.01) and of the distance from the anchor (0.1). So is the whole basis: with
//! fewer left singular vectors an agent that is read by none could read none. The refinement has no gradient.

use super::{climb, role_vectors};
use crate::cards::Domain;
use crate::encoder::{Encoder, WIDTH};
use crate::error::BaselineError;
use crate::graph::{RoleGraph, draw, ordered};
use crate::linear::Svd;
use crate::nn::{Adam, GcnLayer, Mlp, NetWeights, sigmoid, tensor, values};
use crate::trials::{ItemBaseline, Trials};
use candle_core::{DType, Result, Tensor};
use lemon_num::{Random, logistic};

const HIDDEN: usize = 32;
const LATENT: usize = 16;
const RATE: f64 = 0.01;
const SHRINK: f64 = 0.1;
const THRESHOLD: f64 = 0.25;
const DIVERGENCE: f64 = 0.01;
const ANCHOR: f64 = 0.1;
const BATCH: usize = 4;
const LONG: usize = 10;

/// The version of the paper.
pub struct VariationalDesigner {
    weights: NetWeights,
    hidden: GcnLayer,
    mean: GcnLayer,
    spread: GcnLayer,
    decoder: Mlp,
    adjacency: Tensor,
    roles: Vec<f32>,
    cards: Vec<usize>,
    anchor: Vec<f64>,
}

/// The logits of the edges, and what the encoder pays.
struct Encoded {
    logits: Tensor,
    divergence: Tensor,
}

impl VariationalDesigner {
    /// A designer for the roster of a domain.
    ///
    /// # Errors
    /// The weights are of another model, or a role has no vector.
    pub fn new(domain: Domain, mut weights: NetWeights, encoder: &Encoder) -> std::result::Result<Self, BaselineError> {
        let cards: Vec<usize> = domain.roster().collect();
        let count = cards.len();
        let chain: Vec<(usize, usize)> = (1..count).map(|to| (to - 1, to)).collect();
        let task = (0..count).flat_map(|agent| [(agent, count), (count, agent)]);
        let edges: Vec<(usize, usize)> = chain.iter().copied().chain(task).collect();
        let adjacency = tensor(&GcnLayer::normalised(count + 1, &edges), (count + 1, count + 1), weights.dtype())?;
        let mut anchor = vec![0.0; count * count];
        chain.iter().for_each(|(from, to)| anchor[from * count + to] = 1.0);
        Ok(VariationalDesigner {
            hidden: GcnLayer::new(&mut weights, "hidden", WIDTH, HIDDEN)?,
            mean: GcnLayer::new(&mut weights, "mean", HIDDEN, LATENT)?,
            spread: GcnLayer::new(&mut weights, "spread", HIDDEN, LATENT)?,
            decoder: Mlp::new(&mut weights, "decoder", &[3 * LATENT, LATENT, 1])?,
            adjacency,
            roles: role_vectors(&cards, encoder)?,
            cards,
            anchor,
            weights,
        })
    }

    pub fn weights(&self) -> &NetWeights {
        &self.weights
    }

    fn encode(&self, query: &[f32], noise: Option<&mut Random>) -> Result<Encoded> {
        let (count, dtype) = (self.cards.len(), self.weights.dtype());
        let rows: Vec<f32> = self.roles.iter().chain(query).copied().collect();
        let x = tensor(&rows, (count + 1, WIDTH), dtype)?;
        let x = self.hidden.forward(&self.adjacency, &x)?.relu()?;
        let (mean, spread) = (self.mean.forward(&self.adjacency, &x)?, self.spread.forward(&self.adjacency, &x)?);
        let h = match noise {
            Some(random) => {
                let noise: Vec<f32> = (0..(count + 1) * LATENT).map(|_| random.normal() as f32).collect();
                (&mean + (spread.exp()? * tensor(&noise, (count + 1, LATENT), dtype)?)?)?
            }
            None => mean.clone(),
        };
        let pick =
            |of: fn(usize, usize) -> usize| -> Vec<u32> { (0..count * count).map(|at| of(at, count) as u32).collect() };
        let select = |rows: Vec<u32>| h.index_select(&Tensor::new(rows, h.device())?, 0);
        let [from, to, task] = [pick(|at, n| at / n), pick(|at, n| at % n), pick(|_, n| n)].map(select);
        let logits = self.decoder.forward(&Tensor::cat(&[from?, to?, task?], 1)?)?.reshape((count, count))?;
        // ½ Σ (σ² + μ² − 1 − 2 log σ), by node.
        let two = (&spread * 2.0)?;
        let divergence = (((two.exp()? + mean.sqr()?)? - two)? - 1.0)?.mean_all()?;
        Ok(Encoded { logits, divergence: (divergence * 0.5)? })
    }

    /// What is drawn, smoothed with the anchor, as edges.
    fn refined(&self, there: &[bool]) -> Vec<(usize, usize)> {
        let n = self.cards.len();
        let drawn = there.iter().map(|there| f64::from(u8::from(*there)));
        let both: Vec<f64> = drawn.zip(&self.anchor).map(|(drawn, anchor)| 0.5 * (drawn + anchor)).collect();
        let smooth = Svd::of(&both, n).with(|s| (s - SHRINK / 2.0).max(0.0));
        let certain = |from: usize, to: usize| Some(f64::from(u8::from(smooth[from * n + to] > THRESHOLD)));
        draw(n, certain, &mut Random::new(0)).edges
    }

    fn drawn(&self, logits: &Tensor, random: &mut Random) -> Result<Vec<bool>> {
        let n = self.cards.len();
        let there = values(logits)?.into_iter().enumerate();
        Ok(there.map(|(at, logit)| at / n != at % n && random.chance(logistic(f64::from(logit)))).collect())
    }

    /// A graph drawn for a question.
    ///
    /// # Errors
    /// A tensor operation failed.
    pub fn design(&self, query: &[f32], random: &mut Random) -> Result<RoleGraph> {
        let there = self.drawn(&self.encode(query, None)?.logits, random)?;
        Ok(ordered(&self.cards, &self.refined(&there)))
    }
}

/// Learns on the tasks of these trials, which are of one domain.
///
/// # Errors
/// There is no task, or a run, the encoder or a tensor operation failed.
pub async fn learn(
    long: bool,
    trials: &mut Trials<'_>,
    encoder: &Encoder,
    seed: u64,
) -> std::result::Result<VariationalDesigner, BaselineError> {
    let domain = trials.tasks.first().map(|task| task.domain);
    let domain = domain.ok_or_else(|| BaselineError::Unfit("there is no task to learn from".to_owned()))?;
    let designer = VariationalDesigner::new(domain, NetWeights::new(seed, DType::F32), encoder)?;
    let n = designer.cards.len();
    let anchor: Vec<f32> = designer.anchor.iter().map(|x| *x as f32).collect();
    let anchor = tensor(&anchor, (n, n), DType::F32)?;
    let mut random = Random::named(seed, "g-designer paper");
    let mut tasks: Vec<usize> = (0..trials.tasks.len()).collect();
    random.shuffle(&mut tasks);
    let mut baseline = if long { ItemBaseline::of_items(tasks.len()) } else { ItemBaseline::none() };
    let mut adam = Adam::new(RATE);
    let mut pass = 0;
    while trials.goes_on(pass, if long { LONG } else { 1 }) {
        for tasks in tasks.chunks(BATCH) {
            let (mut logs, mut graphs, mut penalties) = (Vec::new(), Vec::new(), Vec::new());
            for task in tasks {
                let query = encoder.encode(&trials.tasks[*task].question)?;
                let encoded = designer.encode(&query, Some(&mut random))?;
                let there = designer.drawn(&encoded.logits, &mut random)?;
                let decisions: Vec<(usize, usize, bool)> =
                    (0..n * n).filter(|at| at / n != at % n).map(|at| (at / n, at % n, there[at])).collect();
                logs.push(super::log_probability(&encoded.logits, &decisions)?);
                let distance = (sigmoid(&encoded.logits)? - &anchor)?.sqr()?.mean_all()?;
                penalties.push(((encoded.divergence * DIVERGENCE)? + (distance * ANCHOR)?)?);
                graphs.push((*task, ordered(&designer.cards, &designer.refined(&there))));
            }
            let scores = trials.run_graphs(&graphs, pass as u64).await?;
            let advantages = baseline.advantages(tasks, &trials.utilities(&scores));
            let penalty = Tensor::stack(&penalties, 0)?.mean_all()?;
            climb(&mut adam, &designer.weights, &logs, &advantages, Some(penalty))?;
        }
        pass += 1;
    }
    Ok(designer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nn::check::check_gradient;
    use crate::planted::{Planted, reads, tasks, trials};
    use lemon_spec::Spec;

    #[test]
    fn the_gradient_is_the_difference_quotient() {
        let encoder = Encoder::hashed();
        let designer = VariationalDesigner::new(Domain::Math, NetWeights::new(3, DType::F64), &encoder).unwrap();
        let query = encoder.encode("How many are left?").unwrap();
        check_gradient(designer.weights(), || {
            let encoded = designer.encode(&query, Some(&mut Random::new(1)))?;
            super::super::log_probability(&encoded.logits, &[(0, 1, true), (2, 0, false)])? + encoded.divergence
        });
    }

    #[test]
    fn the_anchor_stays_and_what_is_drawn_is_added() {
        let designer =
            VariationalDesigner::new(Domain::Math, NetWeights::new(3, DType::F32), &Encoder::hashed()).unwrap();
        let mut there = vec![false; 16];
        (0..3).for_each(|from| there[from * 4 + from + 1] = true);
        assert_eq!(designer.refined(&there), [(0, 1), (1, 2), (2, 3)]);
        there[3] = true;
        assert!(designer.refined(&there).contains(&(0, 3)));
    }

    fn planted(_: usize, spec: &Spec) -> f64 {
        if reads(spec, "Inspector", "Math solver") { 0.95 } else { 0.05 }
    }

    #[tokio::test]
    async fn a_planted_edge_becomes_likelier() {
        let (tasks, scorer, encoder) = (tasks(Domain::Math), Planted(planted), Encoder::hashed());
        let mut trials = trials(&scorer, &tasks, 1);
        let designer = learn(true, &mut trials, &encoder, 1).await.unwrap();
        let mut random = Random::new(9);
        let query = encoder.encode("How many are left?").unwrap();
        let found = (0..200).filter(|_| {
            let graph = designer.design(&query, &mut random).unwrap();
            reads(&trials.frame.spec(&graph, Domain::Math), "Inspector", "Math solver")
        });
        let found = found.count();
        assert!(found > 150, "{found} of 200");
    }
}
