//! G-Designer: edges between a fixed roster, written anew for each question.
//!
//! **As in the public code** ([`GcnDesigner`]): a graph convolutional network of two layers on the text of role and question
//! (768 → 16 → 384, dropout ½ while it learns, log-softmax at the end) over a hand-written adjacency; an untrained network
//! (384 → 16 → 16); the products of its rows, scaled to −1 … 1, are the logits of the edges. Ten batches of four tasks, Adam at
//! a rate of 0.1, `u · log p` with `u` the right answers, without a baseline. At test a graph is drawn for each question. One
//! round for all sets (the public default for HumanEval is two).
//!
//! **As in the paper** ([`paper::VariationalDesigner`]): a variational encoder with a node for the task and an anchor.
//!
//! The variant `+long` makes ten passes and takes the mean reward of a task off its rewards. **In a world with a planted edge it
//! did not learn it** in 400 runs at the published rate (201 of 400 drawn graphs had the edge, 198 untrained), though its
//! gradient is the difference quotient. The version of the paper learns the same edge.

pub mod paper;

use crate::cards::{CARDS, Domain};
use crate::encoder::{Encoder, WIDTH};
use crate::error::BaselineError;
use crate::graph::{DrawnGraph, RoleGraph, draw, ordered};
use crate::nn::{Adam, GcnLayer, Linear, NetWeights, dropout, log_sigmoid, log_softmax, tensor, values};
use crate::trials::{ItemBaseline, Trials};
use candle_core::{DType, Result, Tensor};
use lemon_num::{Random, logistic};

const HIDDEN: usize = 16;
const RATE: f64 = 0.1;
const DROPPED: f64 = 0.5;
const BATCH: usize = 4;
const LONG: usize = 10;

/// The version of the public code.
pub struct GcnDesigner {
    weights: NetWeights,
    first: GcnLayer,
    second: GcnLayer,
    /// Never trained, as there.
    decoder: [Linear; 2],
    adjacency: Tensor,
    roles: Vec<f32>,
    cards: Vec<usize>,
}

impl GcnDesigner {
    /// A designer for the roster of a domain.
    ///
    /// # Errors
    /// The weights are of another model, or a role has no vector.
    pub fn new(domain: Domain, mut weights: NetWeights, encoder: &Encoder) -> std::result::Result<Self, BaselineError> {
        let cards: Vec<usize> = domain.roster().collect();
        let roles = role_vectors(&cards, encoder)?;
        let count = cards.len();
        let adjacency = tensor(&GcnLayer::normalised(count, &domain.anchor()), (count, count), weights.dtype())?;
        Ok(GcnDesigner {
            first: GcnLayer::new(&mut weights, "first", 2 * WIDTH, HIDDEN)?,
            second: GcnLayer::new(&mut weights, "second", HIDDEN, WIDTH)?,
            decoder: [
                Linear::untrained(&mut weights, "decoder.0", WIDTH, HIDDEN)?,
                Linear::untrained(&mut weights, "decoder.1", HIDDEN, HIDDEN)?,
            ],
            adjacency,
            roles,
            cards,
            weights,
        })
    }

    /// Its weights.
    pub fn weights(&self) -> &NetWeights {
        &self.weights
    }

    /// The logits of the edges, sender by reader.
    fn logits(&self, query: &[f32], learning: Option<&mut Random>) -> Result<Tensor> {
        let rows: Vec<f32> = self.roles.chunks(WIDTH).flat_map(|role| role.iter().chain(query).copied()).collect();
        let x = tensor(&rows, (self.cards.len(), 2 * WIDTH), self.weights.dtype())?;
        let mut x = self.first.forward(&self.adjacency, &x)?.relu()?;
        if let Some(random) = learning {
            x = dropout(&x, DROPPED, random)?;
        }
        let x = log_softmax(&self.second.forward(&self.adjacency, &x)?)?;
        let [inner, outer] = &self.decoder;
        let z = outer.forward(&inner.forward(&x)?.relu()?)?;
        let s = z.matmul(&z.t()?)?;
        let flat = s.flatten_all()?;
        // One entry each: the matrix is symmetric, and the reductions of `candle` give each of equal entries the whole gradient.
        let numbers = values(&flat)?;
        let place = |of: fn(f32, f32) -> bool| {
            (0..numbers.len()).fold(0, |best, at| if of(numbers[at], numbers[best]) { at } else { best })
        };
        let (least, most) = (flat.narrow(0, place(|a, b| a < b), 1)?, flat.narrow(0, place(|a, b| a > b), 1)?);
        let range = ((&most - &least)? + 1e-9)?;
        let scaled = flat.broadcast_sub(&least)?.broadcast_div(&range)?;
        ((scaled * 2.0)? - 1.0)?.reshape(s.shape())
    }

    /// A graph drawn for a question.
    ///
    /// # Errors
    /// A tensor operation failed.
    pub fn design(&self, query: &[f32], random: &mut Random) -> Result<RoleGraph> {
        let logits = values(&self.logits(query, None)?)?;
        Ok(ordered(&self.cards, &drawn(&logits, self.cards.len(), random).edges))
    }
}

/// The vectors of these cards, one after the other.
fn role_vectors(cards: &[usize], encoder: &Encoder) -> std::result::Result<Vec<f32>, BaselineError> {
    let mut vectors = Vec::with_capacity(cards.len() * WIDTH);
    for card in cards.iter().filter_map(|card| CARDS.get(*card)) {
        vectors.extend_from_slice(&encoder.encode(&card.description())?);
    }
    Ok(vectors)
}

fn drawn(logits: &[f32], nodes: usize, random: &mut Random) -> DrawnGraph {
    let probability = |from: usize, to: usize| logits.get(from * nodes + to).map(|logit| logistic(f64::from(*logit)));
    draw(nodes, probability, random)
}

/// The logarithm of the probability of what was drawn.
fn log_probability(logits: &Tensor, decisions: &[(usize, usize, bool)]) -> Result<Tensor> {
    let (nodes, _) = logits.dims2()?;
    let mut masks = [vec![0.0_f32; nodes * nodes], vec![0.0_f32; nodes * nodes]];
    for (from, to, there) in decisions {
        // Both are below `nodes`.
        masks[usize::from(*there)][from * nodes + to] = 1.0;
    }
    let [absent, present] = masks.map(|mask| tensor(&mask, (nodes, nodes), logits.dtype()));
    (log_sigmoid(logits)? * present?)?.sum_all()? + (log_sigmoid(&logits.neg()?)? * absent?)?.sum_all()?
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
) -> std::result::Result<GcnDesigner, BaselineError> {
    let domain = trials.tasks.first().map(|task| task.domain);
    let domain = domain.ok_or_else(|| BaselineError::Unfit("there is no task to learn from".to_owned()))?;
    let designer = GcnDesigner::new(domain, NetWeights::new(seed, DType::F32), encoder)?;
    let mut random = Random::named(seed, "g-designer");
    let mut tasks: Vec<usize> = (0..trials.tasks.len()).collect();
    random.shuffle(&mut tasks);
    let mut baseline = if long { ItemBaseline::of_items(tasks.len()) } else { ItemBaseline::none() };
    let mut adam = Adam::new(RATE);
    let mut pass = 0;
    while trials.goes_on(pass, if long { LONG } else { 1 }) {
        for tasks in tasks.chunks(BATCH) {
            let mut logs = Vec::new();
            let mut graphs = Vec::new();
            for task in tasks {
                let query = encoder.encode(&trials.tasks[*task].question)?;
                let logits = designer.logits(&query, Some(&mut random))?;
                let drawn = drawn(&values(&logits)?, designer.cards.len(), &mut random);
                logs.push(log_probability(&logits, &drawn.decisions)?);
                graphs.push((*task, ordered(&designer.cards, &drawn.edges)));
            }
            let scores = trials.run_graphs(&graphs, pass as u64).await?;
            let advantages = baseline.advantages(tasks, &trials.utilities(&scores));
            climb(&mut adam, &designer.weights, &logs, &advantages, None)?;
        }
        pass += 1;
    }
    Ok(designer)
}

/// One step up the mean of `advantage · log p`, less a penalty.
fn climb(
    adam: &mut Adam,
    weights: &NetWeights,
    logs: &[Tensor],
    advantages: &[f64],
    penalty: Option<Tensor>,
) -> Result<()> {
    let scored = logs.iter().zip(advantages).map(|(log, advantage)| log * (-advantage / logs.len().max(1) as f64));
    let mut terms: Vec<Tensor> = scored.collect::<Result<_>>()?;
    terms.extend(penalty);
    adam.step(weights, &Tensor::stack(&terms, 0)?.sum_all()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nn::check::check_gradient;
    use crate::planted::{Planted, tasks, trials};
    use lemon_spec::Spec;

    #[test]
    fn the_gradient_of_log_p_is_the_difference_quotient() {
        let encoder = Encoder::hashed();
        let designer = GcnDesigner::new(Domain::Math, NetWeights::new(3, DType::F64), &encoder).unwrap();
        let query = encoder.encode("How many are left?").unwrap();
        let decisions = [(0, 1, true), (0, 2, false), (1, 3, true), (3, 0, false)];
        check_gradient(designer.weights(), || log_probability(&designer.logits(&query, None)?, &decisions));
    }

    #[test]
    fn probabilities_stay_within_the_published_range() {
        let encoder = Encoder::hashed();
        let designer = GcnDesigner::new(Domain::Code, NetWeights::new(1, DType::F32), &encoder).unwrap();
        let logits = values(&designer.logits(&encoder.encode("Sort a list.").unwrap(), None).unwrap()).unwrap();
        assert!(logits.iter().all(|logit| (-1.0..=1.0).contains(logit)) && logits.len() == 25);
        assert!(logits.iter().any(|logit| *logit > 0.99) && logits.iter().any(|logit| *logit < -0.99));
    }

    /// The edges that are drawn on average, of twelve.
    fn edges_of(designer: &GcnDesigner, encoder: &Encoder) -> f64 {
        let query = encoder.encode("How many are left?").unwrap();
        let mut random = Random::new(3);
        (0..300).map(|_| designer.design(&query, &mut random).unwrap().edges().count() as f64).sum::<f64>() / 300.0
    }

    /// What the public network does with rewards: it draws fewer edges, whatever is right. So it finds a world in which few are right,
    /// and no other. A copy of it in another library does the same (`docs/results/baselines.md`).
    #[tokio::test]
    async fn it_drifts_to_few_edges_whatever_is_right() {
        let (tasks, encoder) = (tasks(Domain::Math), Encoder::hashed());
        let edges = |spec: &Spec| spec.agents.iter().map(|agent| agent.after.len()).sum::<usize>() - 4;
        let few = Planted(|_: usize, spec: &Spec| if edges(spec) <= 2 { 0.95 } else { 0.05 });
        let many = Planted(|_: usize, spec: &Spec| if edges(spec) >= 5 { 0.95 } else { 0.05 });
        for scorer in [&few as &dyn crate::trials::Scorer, &many] {
            let designer = learn(true, &mut trials(scorer, &tasks, 1), &encoder, 1).await.unwrap();
            let untrained = GcnDesigner::new(Domain::Math, NetWeights::new(1, DType::F32), &encoder).unwrap();
            let (before, after) = (edges_of(&untrained, &encoder), edges_of(&designer, &encoder));
            assert!(after < before - 0.5, "{after} edges, {before} untrained");
        }
    }

    #[tokio::test]
    async fn the_published_runs_are_made() {
        let (tasks, scorer, encoder) = (tasks(Domain::Math), Planted(|_: usize, _: &Spec| 0.5), Encoder::hashed());
        let mut trials = trials(&scorer, &tasks, 1);
        learn(false, &mut trials, &encoder, 1).await.unwrap();
        assert_eq!(trials.account.runs, 40);
    }
}
