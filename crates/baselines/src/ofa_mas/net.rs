//! The networks of OFA-MAS.
//!
//! | part | |
//! |---|---|
//! | question | `z = W₂ ReLU(W₁ q)`, 384 → 256 → 128; the weights of eight experts are a softmax of 128 → 256 → 8 on it |
//! | state | roles 384 → 256, then four layers: `m = ReLU(W h)`, a gate `σ(W[h; z])` on it, attention over whom a node reads, and the mean of that with `h`; `s = ReLU(W · mean h)` |
//! | role | eight networks 256 → 256 → 384 on `s`, mixed; the product with each role's vector and END's |
//! | edge | eight networks on `[h; role; z]` → 256 → 1, mixed; a sigmoid for each earlier agent |
//!
//! The loss is the cross-entropies of roles and edges by step, the balance of the experts (0.2) and the size of the gates (0.1).

use crate::cards::CARDS;
use crate::encoder::{Encoder, WIDTH};
use crate::error::BaselineError;
use crate::graph::{GraphMember, RoleGraph};
use crate::nn::{Linear, Mlp, NetWeights, draw, log_sigmoid, log_softmax, one_hot, sigmoid, softmax, tensor, values};
use candle_core::{D, Device, Result, Tensor};
use lemon_num::{Random, logistic};
use std::sync::Arc;

const TASK: usize = 128;
const HIDDEN: usize = 256;
const EXPERTS: usize = 8;
const LAYERS: usize = 4;
const BALANCE: f64 = 0.2;
const GATES: f64 = 0.1;
/// The score of a sender that is not read.
const FAR_BELOW: f64 = -1e9;
/// How much of a negative score stays.
const LEAK: f64 = 0.01;

/// A graph to learn, and the vector of its question.
#[derive(Debug, Clone)]
pub struct OfaStep {
    /// The question; zeros where there is none.
    pub query: Arc<[f32]>,
    pub graph: RoleGraph,
}

struct Layer {
    message: Linear,
    gate: Linear,
    key: Linear,
    question: Linear,
    score: Linear,
}

/// The networks.
pub struct OfaNet {
    weights: NetWeights,
    task: Mlp,
    experts: Mlp,
    first: Linear,
    layers: Vec<Layer>,
    state: Linear,
    /// Both layers of all experts at once.
    role_in: Linear,
    role_out: Tensor,
    role_shift: Tensor,
    edge_node: Linear,
    edge_role: Linear,
    edge_task: Linear,
    edge_out: Tensor,
    end: Tensor,
    /// The vectors of the nineteen roles.
    pool: Tensor,
}

/// A batch of graphs, encoded.
struct Encoded {
    /// Batch, node, width.
    nodes: Tensor,
    task: Tensor,
    experts: Tensor,
    gates: Tensor,
}

impl OfaNet {
    /// Networks with these weights.
    ///
    /// # Errors
    /// The weights are of another model, or a role has no vector.
    pub fn new(mut weights: NetWeights, encoder: &Encoder) -> std::result::Result<Self, BaselineError> {
        let mut pool = Vec::new();
        for card in CARDS {
            pool.extend_from_slice(&encoder.encode(&card.description())?);
        }
        let w = &mut weights;
        let layer = |w: &mut NetWeights, at: usize| -> Result<Layer> {
            let name = |part: &str| format!("layer.{at}.{part}");
            Ok(Layer {
                message: Linear::new(w, &name("message"), HIDDEN, HIDDEN)?,
                gate: Linear::new(w, &name("gate"), HIDDEN + TASK, HIDDEN)?,
                key: Linear::new(w, &name("key"), HIDDEN, HIDDEN)?,
                question: Linear::new(w, &name("question"), HIDDEN, HIDDEN)?,
                score: Linear::new(w, &name("score"), HIDDEN, 1)?,
            })
        };
        let pool = tensor(&pool, (CARDS.len(), WIDTH), w.dtype())?;
        Ok(OfaNet {
            task: Mlp::new(w, "task", &[WIDTH, HIDDEN, TASK])?,
            experts: Mlp::new(w, "experts", &[TASK, HIDDEN, EXPERTS])?,
            first: Linear::new(w, "first", WIDTH, HIDDEN)?,
            layers: (0..LAYERS).map(|at| layer(w, at)).collect::<Result<_>>()?,
            state: Linear::new(w, "state", HIDDEN, HIDDEN)?,
            role_in: Linear::new(w, "role.in", HIDDEN, EXPERTS * HIDDEN)?,
            role_out: w.uniform("role.out", &[EXPERTS * HIDDEN, WIDTH], 1.0 / (HIDDEN as f64).sqrt())?,
            role_shift: w.uniform("role.shift", &[EXPERTS, WIDTH], 1.0 / (HIDDEN as f64).sqrt())?,
            // The first layer of all experts at once, in three parts: so each is applied to what it depends on alone.
            edge_node: Linear::new(w, "edge.node", HIDDEN, EXPERTS * HIDDEN)?,
            edge_role: Linear::new(w, "edge.role", WIDTH, EXPERTS * HIDDEN)?,
            edge_task: Linear::new(w, "edge.task", TASK, EXPERTS * HIDDEN)?,
            edge_out: w.uniform("edge.out", &[EXPERTS, HIDDEN], 1.0 / (HIDDEN as f64).sqrt())?,
            end: w.uniform("end", &[1, WIDTH], 1.0 / (WIDTH as f64).sqrt())?,
            pool,
            weights,
        })
    }

    /// Their weights.
    pub fn weights(&self) -> &NetWeights {
        &self.weights
    }

    fn encode(&self, queries: &[&[f32]], graphs: &[&RoleGraph]) -> Result<Encoded> {
        let (count, dtype) = (graphs.len(), self.weights.dtype());
        let most = graphs.iter().map(|graph| graph.members.len()).max().unwrap_or(0).max(1);
        let queries: Vec<f32> = queries.iter().flat_map(|query| query.iter().copied()).collect();
        let task = self.task.forward(&tensor(&queries, (count, WIDTH), dtype)?)?;
        let experts = log_softmax(&self.experts.forward(&task)?)?.exp()?;
        let member = |graph: &RoleGraph, at: usize| graph.members.get(at).map_or(0, |member| member.card as u32);
        let cards: Vec<u32> = graphs.iter().flat_map(|graph| (0..most).map(move |at| member(graph, at))).collect();
        let roles = self.pool.index_select(&Tensor::new(cards, &Device::Cpu)?, 0)?;
        // Reader by sender; a node that reads none keeps half of itself alone.
        let mut edges = vec![0.0_f32; count * most * most];
        for (at, graph) in graphs.iter().enumerate() {
            graph.edges().for_each(|(from, to)| edges[(at * most + to) * most + from] = 1.0);
        }
        let edges = tensor(&edges, (count, most, most), dtype)?;
        let barred = ((1.0 - &edges)? * FAR_BELOW)?;
        let reads = edges.max_keepdim(D::Minus1)?;
        let task_rows = task.unsqueeze(1)?.broadcast_as((count, most, TASK))?.reshape((count * most, TASK))?;
        let mut h = self.first.forward(&roles)?;
        let mut gates = Vec::new();
        for layer in &self.layers {
            let gate = sigmoid(&layer.gate.forward(&Tensor::cat(&[&h, &task_rows], 1)?)?)?;
            let message = (layer.message.forward(&h)?.relu()? * &gate)?;
            // e_ij = LeakyReLU(aᵀ[W h_j ; W m_i]): a sum of a part of the reader and a part of the sender.
            let part = |map: &Linear, x: &Tensor| layer.score.forward(&map.forward(x)?)?.reshape((count, most));
            let reader = part(&layer.key, &h)?.unsqueeze(2)?;
            let sender = part(&layer.question, &message)?.unsqueeze(1)?;
            let scores = reader.broadcast_add(&sender)?;
            let scores = (scores.relu()? - ((scores.neg()?.relu()?) * LEAK)?)?;
            let weights = (log_softmax(&(scores + &barred)?)?.exp()?.broadcast_mul(&reads)? * &edges)?;
            let read = weights.matmul(&message.reshape((count, most, HIDDEN))?)?.reshape((count * most, HIDDEN))?;
            h = ((h + read)? * 0.5)?;
            gates.push(gate.mean_all()?);
        }
        let gates = Tensor::stack(&gates, 0)?.mean_all()?;
        Ok(Encoded { nodes: h.reshape((count, most, HIDDEN))?, task, experts, gates })
    }

    /// The logits of every role and END, for states and the experts of their questions.
    fn role_logits(&self, states: &Tensor, experts: &Tensor) -> Result<Tensor> {
        let rows = states.dim(0)?;
        // A mixture of outputs is the output of the mixture: the weights go to what the experts compute within.
        let within = self.role_in.forward(states)?.relu()?.reshape((rows, EXPERTS, HIDDEN))?;
        let within = within.broadcast_mul(&experts.unsqueeze(2)?)?.reshape((rows, EXPERTS * HIDDEN))?;
        let mixed = (within.matmul(&self.role_out)? + experts.matmul(&self.role_shift)?)?;
        mixed.matmul(&Tensor::cat(&[&self.pool, &self.end], 0)?.t()?)
    }

    /// The logits of edges, by row what the first layer takes from a node, a new role and a question, and the experts.
    fn edge_logits(&self, parts: [&Tensor; 3], experts: &Tensor) -> Result<Tensor> {
        let [node, role, task] = parts;
        let rows = node.dim(0)?;
        let inner = ((node + role)? + task)?.relu()?.reshape((rows, EXPERTS, HIDDEN))?;
        let each = inner.broadcast_mul(&self.edge_out.unsqueeze(0)?)?.sum(D::Minus1)?;
        (each * experts)?.sum(D::Minus1)
    }

    /// The state after the first `count` nodes of each graph; the mean of none is 0.
    fn state_of(&self, means: &Tensor) -> Result<Tensor> {
        self.state.forward(means)?.relu()
    }

    /// The loss of a batch.
    ///
    /// # Errors
    /// A tensor operation failed.
    pub fn loss(&self, batch: &[OfaStep]) -> Result<Tensor> {
        let dtype = self.weights.dtype();
        let queries: Vec<&[f32]> = batch.iter().map(|step| &*step.query).collect();
        let graphs: Vec<&RoleGraph> = batch.iter().map(|step| &step.graph).collect();
        let encoded = self.encode(&queries, &graphs)?;
        let (count, most, _) = encoded.nodes.dims3()?;
        // A row for each step of each graph: which nodes are there already, and what comes next.
        let (mut rows, mut averages, mut targets) = (Vec::new(), Vec::new(), Vec::new());
        let (mut nodes, mut new, mut owners, mut there) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for (at, graph) in graphs.iter().enumerate() {
            for step in 0..=graph.members.len() {
                rows.push(at as u32);
                let share = |node: usize| if node < step { 1.0 / step as f32 } else { 0.0 };
                averages.extend(
                    (0..count).flat_map(|other| (0..most).map(move |node| if other == at { share(node) } else { 0.0 })),
                );
                targets.push(graph.members.get(step).map_or(CARDS.len(), |member| member.card));
                let Some(member) = graph.members.get(step) else { continue };
                for node in 0..step {
                    nodes.push((at * most + node) as u32);
                    new.push(member.card as u32);
                    owners.push(at as u32);
                    there.push(f32::from(u8::from(member.after.contains(&node))));
                }
            }
        }
        let pick = |from: &Tensor, rows: &[u32]| from.index_select(&Tensor::new(rows, &Device::Cpu)?, 0);
        let flat = encoded.nodes.reshape((count * most, HIDDEN))?;
        let means = tensor(&averages, (rows.len(), count * most), dtype)?.matmul(&flat)?;
        let logits = self.role_logits(&self.state_of(&means)?, &pick(&encoded.experts, &rows)?)?;
        let wanted = one_hot(&targets, CARDS.len() + 1, dtype)?;
        let mut sum = (log_softmax(&logits)? * wanted)?.sum_all()?.neg()?;
        if !nodes.is_empty() {
            // Each part is computed once, and then taken by all rows that need it.
            let node = pick(&self.edge_node.forward(&flat)?, &nodes)?;
            let role = pick(&self.edge_role.forward(&self.pool)?, &new)?;
            let task = pick(&self.edge_task.forward(&encoded.task)?, &owners)?;
            let logits = self.edge_logits([&node, &role, &task], &pick(&encoded.experts, &owners)?)?;
            let there = tensor(&there, there.len(), dtype)?;
            let log = ((&there * log_sigmoid(&logits)?)? + ((1.0 - &there)? * log_sigmoid(&logits.neg()?)?)?)?;
            sum = (sum - log.sum_all()?)?;
        }
        let balance = (encoded.experts.mean(0)?.sqr()?.sum_all()? * (BALANCE * EXPERTS as f64))?;
        (sum / rows.len().max(1) as f64)? + (balance + (encoded.gates * GATES)?)?
    }

    /// Draws a graph: END not before the least and always after the most agents. An agent that would read none reads the
    /// likeliest.
    ///
    /// # Errors
    /// A tensor operation failed.
    pub fn sample(&self, query: &[f32], (least, most): (usize, usize), random: &mut Random) -> Result<RoleGraph> {
        let mut graph = RoleGraph::default();
        while graph.members.len() < most {
            let encoded = self.encode(&[query], &[&graph])?;
            let (count, flat) = (graph.members.len(), encoded.nodes.squeeze(0)?);
            // The state of no node is that of training: the mean is 0.
            let mean = if count > 0 { flat.mean_keepdim(0)? } else { (flat.narrow(0, 0, 1)? * 0.0)? };
            let mut logits = values(&self.role_logits(&self.state_of(&mean)?, &encoded.experts)?)?;
            if count < least {
                logits.truncate(CARDS.len());
            }
            let card = draw(&softmax(&logits), random);
            if card == CARDS.len() {
                break;
            }
            let mut after = Vec::new();
            if count > 0 {
                let rows = |x: &Tensor| x.broadcast_as((count, x.dim(1)?))?.contiguous();
                let node = self.edge_node.forward(&flat)?;
                let role = rows(&self.edge_role.forward(&self.pool.narrow(0, card, 1)?)?)?;
                let task = rows(&self.edge_task.forward(&encoded.task)?)?;
                let logits = values(&self.edge_logits([&node, &role, &task], &rows(&encoded.experts)?)?)?;
                after = (0..count).filter(|node| random.chance(logistic(f64::from(logits[*node])))).collect();
                let likeliest = (0..count).max_by(|a, b| logits[*a].total_cmp(&logits[*b]));
                if after.is_empty() {
                    after.extend(likeliest);
                }
            }
            graph.members.push(GraphMember { card, after, ..GraphMember::default() });
        }
        Ok(graph)
    }
}
