//! The networks: a recurrent network over agents, and one over the edges of an agent.
//!
//! | part | |
//! |---|---|
//! | task | `t = W₂ · dropout(ReLU(norm(W₁ q)))`, 384 → 256 → 384 |
//! | history | the last state of a GRU (384) over the vectors of the roles so far |
//! | context | `c = (1 − g) h + g t` with `g = σ(h·t / 384)` |
//! | node | GRU (256) over `[c; edges of the agent before]` through 396 → 256 → 256 |
//! | role | `MLP(node) · MLP(role)` for each role and END, softmax |
//! | edge | GRU (256) that begins as `MLP(node)` and reads its last decision; softmax over edge, none, START, END |
//!
//! An agent may read the three before it. The loss is the binary cross-entropy of the softmax outputs, 0.2 for roles and 0.8 for
//! edges.

use crate::cards::{CARDS, Domain};
use crate::encoder::{Encoder, WIDTH};
use crate::error::BaselineError;
use crate::graph::RoleGraph;
use crate::nn::{
    GruCell, LayerNorm, Linear, Mlp, NetWeights, draw, dropout, log_softmax, one_hot, sigmoid, softmax, tensor, values,
};
use candle_core::{D, Result, Tensor};
use lemon_num::Random;
use std::sync::Arc;

/// How many agents before it an agent may read.
pub const READS: usize = 3;
const HIDDEN: usize = 256;
const DROPPED: f64 = 0.1;
const ROLE_SHARE: f64 = 0.2;
/// The channels of a decision about an edge.
const EDGE: usize = 0;
const NONE: usize = 1;
const START: usize = 2;
const CHANNELS: usize = 4;
const TINY: f64 = 1e-7;

/// A graph to learn, and the vector of its question.
#[derive(Debug, Clone)]
pub struct TaughtGraph {
    /// The question.
    pub query: Arc<[f32]>,
    /// The graph.
    pub graph: RoleGraph,
}

/// The networks.
pub struct ArgNet {
    weights: NetWeights,
    task: (Linear, LayerNorm, Linear),
    history: GruCell,
    input: Mlp,
    node: GruCell,
    intent: Mlp,
    role: Mlp,
    edge_start: Mlp,
    edge: GruCell,
    edge_out: Linear,
    /// The vectors of the roles, and zeros for END.
    pool: Tensor,
    cards: Vec<usize>,
}

/// Where a graph that is drawn stands.
struct State {
    task: Tensor,
    history: Tensor,
    node: Tensor,
    /// The decisions of the agent before: [`READS`] times [`CHANNELS`].
    edges: Tensor,
    roles: Tensor,
}

impl ArgNet {
    /// Networks that choose among the roles of a domain.
    ///
    /// # Errors
    /// The weights are of another model, or a role has no vector.
    pub fn new(domain: Domain, mut weights: NetWeights, encoder: &Encoder) -> std::result::Result<Self, BaselineError> {
        let cards: Vec<usize> = domain.roster().collect();
        let mut pool = Vec::new();
        for card in cards.iter().filter_map(|card| CARDS.get(*card)) {
            pool.extend_from_slice(&encoder.encode(&card.description())?);
        }
        pool.extend([0.0; WIDTH]);
        let w = &mut weights;
        let pool = tensor(&pool, (cards.len() + 1, WIDTH), w.dtype())?;
        Ok(ArgNet {
            task: (
                Linear::new(w, "task.0", WIDTH, HIDDEN)?,
                LayerNorm::new(w, "task.norm", HIDDEN)?,
                Linear::new(w, "task.1", HIDDEN, WIDTH)?,
            ),
            history: GruCell::new(w, "history", WIDTH, WIDTH)?,
            input: Mlp::new(w, "input", &[WIDTH + READS * CHANNELS, HIDDEN, HIDDEN])?,
            node: GruCell::new(w, "node", HIDDEN, HIDDEN)?,
            intent: Mlp::new(w, "intent", &[HIDDEN, HIDDEN, WIDTH])?,
            role: Mlp::new(w, "role", &[WIDTH, WIDTH / 2, WIDTH])?,
            edge_start: Mlp::new(w, "edge_start", &[HIDDEN, HIDDEN, HIDDEN])?,
            edge: GruCell::new(w, "edge", CHANNELS, HIDDEN)?,
            edge_out: Linear::new(w, "edge_out", HIDDEN, CHANNELS)?,
            pool,
            cards,
            weights,
        })
    }

    /// Their weights.
    pub fn weights(&self) -> &NetWeights {
        &self.weights
    }

    /// The tasks, as rows.
    fn tasks(&self, queries: &[&[f32]], learning: Option<&mut Random>) -> Result<Tensor> {
        let rows: Vec<f32> = queries.iter().flat_map(|query| query.iter().copied()).collect();
        let (first, norm, second) = &self.task;
        let rows = tensor(&rows, (queries.len(), WIDTH), self.weights.dtype())?;
        let mut x = norm.forward(&first.forward(&rows)?)?.relu()?;
        if let Some(random) = learning {
            x = dropout(&x, DROPPED, random)?;
        }
        second.forward(&x)
    }

    /// What the node network reads, by row: the context, and whom the agent before reads.
    fn inputs(&self, tasks: &Tensor, histories: &Tensor, edges: &Tensor) -> Result<Tensor> {
        let agreement = ((histories * tasks)?.sum_keepdim(D::Minus1)? / WIDTH as f64)?;
        let gate = sigmoid(&agreement)?;
        let context = (histories + (tasks - histories)?.broadcast_mul(&gate)?)?;
        self.input.forward(&Tensor::cat(&[&context, edges], 1)?)
    }

    /// The logits of every role and END, by row.
    fn role_logits(&self, nodes: &Tensor, roles: &Tensor) -> Result<Tensor> {
        self.intent.forward(nodes)?.matmul(&roles.t()?)
    }

    /// Decisions about edges, as rows.
    fn edge_rows(&self, reads: &[[Option<bool>; READS]]) -> Result<Tensor> {
        let channels: Vec<usize> = reads.iter().flatten().map(|read| channel(*read)).collect();
        one_hot(&channels, CHANNELS, self.weights.dtype())?.reshape((reads.len(), READS * CHANNELS))
    }

    /// What stands for the decisions before the first agent.
    fn start_rows(&self, rows: usize) -> Result<Tensor> {
        one_hot(&[START].repeat(rows * READS), CHANNELS, self.weights.dtype())?.reshape((rows, READS * CHANNELS))
    }

    fn zeros(&self, rows: usize, width: usize) -> Result<Tensor> {
        Tensor::zeros((rows, width), self.weights.dtype(), self.pool.device())
    }

    /// The loss of a batch, by graph. All that is to be read is known, so that each network sees all steps at once, but for the
    /// states of the recurrent ones.
    ///
    /// # Errors
    /// A graph has a role that is not of the pool, or a tensor operation failed.
    pub fn loss(&self, batch: &[TaughtGraph], learning: Option<&mut Random>) -> Result<Tensor> {
        let queries: Vec<&[f32]> = batch.iter().map(|taught| &*taught.query).collect();
        let rows = batch.len();
        let most = batch.iter().map(|taught| taught.graph.members.len()).max().unwrap_or(0);
        let of_roles = self.history.project(&self.pool)?;
        let (mut history, mut edges) = (self.zeros(rows, WIDTH)?, self.start_rows(rows)?);
        let (mut histories, mut all_edges, mut targets, mut counts) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for at in 0..=most {
            let roles = batch.iter().map(|taught| self.role_of(&taught.graph, at)).collect::<Result<Vec<usize>>>()?;
            counts.extend(batch.iter().map(|taught| f32::from(u8::from(at <= taught.graph.members.len()))));
            histories.push(history.clone());
            all_edges.push(edges.clone());
            if at < most {
                let chosen: Vec<u32> = roles.iter().map(|role| *role as u32).collect();
                let chosen = of_roles.index_select(&Tensor::new(chosen, self.pool.device())?, 0)?;
                history = self.history.advance(&chosen, &history)?;
                edges = self.edge_rows(&batch.iter().map(|taught| reads(&taught.graph, at)).collect::<Vec<_>>())?;
            }
            targets.extend(roles);
        }
        let tasks = self.tasks(&queries, learning)?.repeat((most + 1, 1))?;
        let inputs = self.inputs(&tasks, &Tensor::cat(&histories, 0)?, &Tensor::cat(&all_edges, 0)?)?;
        let nodes = states(&self.node, &self.node.project(&inputs)?, self.zeros(rows, HIDDEN)?)?;
        let logits = self.role_logits(&nodes, &self.role.forward(&self.pool)?)?;
        let terms = (self.cross_entropy(&logits, &targets, self.cards.len() + 1, &counts)? * ROLE_SHARE)?;
        let terms = match most {
            0 | 1 => terms,
            _ => (terms + (self.edge_loss(batch, &nodes.narrow(0, rows, (most - 1) * rows)?)? * (1.0 - ROLE_SHARE))?)?,
        };
        terms / rows.max(1) as f64
    }

    /// The loss of the edges of all agents but the first, whose states these are: agent by agent, and of each all graphs.
    fn edge_loss(&self, batch: &[TaughtGraph], nodes: &Tensor) -> Result<Tensor> {
        let agents = nodes.dim(0)? / batch.len().max(1);
        let decided: Vec<[Option<bool>; READS]> =
            (1..=agents).flat_map(|at| batch.iter().map(move |taught| reads(&taught.graph, at))).collect();
        let by_place = |place: usize| decided.iter().map(move |reads| reads.get(place).copied().flatten());
        let targets: Vec<usize> = (0..READS).flat_map(by_place).map(channel).collect();
        let counts: Vec<f32> = (0..READS).flat_map(by_place).map(|read| f32::from(u8::from(read.is_some()))).collect();
        // Each decision reads the one before; the first START.
        let mut last = vec![START; decided.len()];
        last.extend(&targets[..targets.len() - decided.len()]);
        let last = one_hot(&last, CHANNELS, self.weights.dtype())?;
        let edges = states(&self.edge, &self.edge.project(&last)?, self.edge_start.forward(nodes)?)?;
        self.cross_entropy(&self.edge_out.forward(&edges)?, &targets, CHANNELS, &counts)
    }

    fn role_of(&self, graph: &RoleGraph, at: usize) -> Result<usize> {
        let Some(member) = graph.members.get(at) else { return Ok(self.cards.len()) };
        match self.cards.iter().position(|card| *card == member.card) {
            Some(role) => Ok(role),
            None => candle_core::bail!("role {} is not of this pool", member.card),
        }
    }

    /// The binary cross-entropy of softmax outputs against one-hots, summed over rows that count.
    fn cross_entropy(&self, logits: &Tensor, targets: &[usize], width: usize, counts: &[f32]) -> Result<Tensor> {
        let dtype = self.weights.dtype();
        let wanted = one_hot(targets, width, dtype)?;
        let log = log_softmax(logits)?;
        let log_not = ((1.0 + TINY) - log.exp()?)?.log()?;
        let terms = ((&wanted * log)? + ((1.0 - &wanted)? * log_not)?)?;
        let rows = terms.sum(D::Minus1)?;
        (rows * tensor(counts, counts.len(), dtype)?)?.sum_all()?.neg()
    }

    /// Draws a graph: roles from the softmax, END not before the least and always after the most agents; edges from theirs.
    ///
    /// # Errors
    /// A tensor operation failed.
    pub fn sample(&self, query: &[f32], (least, most): (usize, usize), random: &mut Random) -> Result<RoleGraph> {
        let end = self.cards.len();
        let mut state = State {
            task: self.tasks(&[query], None)?,
            history: self.zeros(1, WIDTH)?,
            node: self.zeros(1, HIDDEN)?,
            edges: self.start_rows(1)?,
            roles: self.role.forward(&self.pool)?,
        };
        let (mut cards, mut after) = (Vec::new(), Vec::new());
        while cards.len() < most.max(1) {
            let inputs = self.inputs(&state.task, &state.history, &state.edges)?;
            state.node = self.node.forward(&inputs, &state.node)?;
            let mut logits = values(&self.role_logits(&state.node, &state.roles)?)?;
            if cards.len() < least.max(1) {
                logits.truncate(end);
            }
            let role = draw(&softmax(&logits), random);
            if role == end {
                break;
            }
            let reads = self.draw_edges(&state.node, cards.len(), random)?;
            let at = cards.len();
            after.push(
                (0..READS).rev().filter(|place| reads[*place] == Some(true)).map(|place| at - 1 - place).collect(),
            );
            cards.push(self.cards.get(role).copied().unwrap_or_default());
            state.history = self.history.forward(&self.pool.narrow(0, role, 1)?, &state.history)?;
            state.edges = self.edge_rows(&[reads])?;
        }
        Ok(RoleGraph::new(&cards, after))
    }

    fn draw_edges(&self, node: &Tensor, at: usize, random: &mut Random) -> Result<[Option<bool>; READS]> {
        let mut reads = [None; READS];
        if at == 0 {
            return Ok(reads);
        }
        let mut edge = self.edge_start.forward(node)?;
        let mut last = START;
        for read in reads.iter_mut().take(at) {
            edge = self.edge.forward(&one_hot(&[last], CHANNELS, self.weights.dtype())?, &edge)?;
            let logits = values(&self.edge_out.forward(&edge)?)?;
            let there = draw(&softmax(logits.get(..=NONE).unwrap_or_default()), random) == EDGE;
            *read = Some(there);
            last = channel(*read);
        }
        Ok(reads)
    }
}

/// The states that a unit goes through, one step after the other, by what it takes from the inputs of all steps.
fn states(unit: &GruCell, inputs: &Tensor, start: Tensor) -> Result<Tensor> {
    let rows = start.dim(0)?;
    let (mut state, mut states) = (start, Vec::new());
    for at in (0..inputs.dim(0)?).step_by(rows.max(1)) {
        state = unit.advance(&inputs.narrow(0, at, rows)?, &state)?;
        states.push(state.clone());
    }
    Tensor::cat(&states, 0)
}

/// Whom of the agents before it an agent reads, the nearest first; `None`: there is none there.
fn reads(graph: &RoleGraph, at: usize) -> [Option<bool>; READS] {
    let mut reads = [None; READS];
    if let Some(member) = graph.members.get(at) {
        for (place, read) in reads.iter_mut().enumerate() {
            *read = at.checked_sub(place + 1).map(|other| member.after.contains(&other));
        }
    }
    reads
}

/// The channel of a decision; that there is none to make has no channel.
fn channel(read: Option<bool>) -> usize {
    match read {
        Some(true) => EDGE,
        Some(false) => NONE,
        None => CHANNELS,
    }
}
