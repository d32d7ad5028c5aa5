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

/// Where a row of the batch stands.
struct State {
    task: Tensor,
    history: Tensor,
    node: Tensor,
    /// The decisions of the agent before, as rows of [`READS`] times [`CHANNELS`].
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

    fn begin(&self, queries: &[&[f32]], learning: Option<&mut Random>) -> Result<State> {
        let (count, dtype) = (queries.len(), self.weights.dtype());
        let queries: Vec<f32> = queries.iter().flat_map(|query| query.iter().copied()).collect();
        let (first, norm, second) = &self.task;
        let mut x = norm.forward(&first.forward(&tensor(&queries, (count, WIDTH), dtype)?)?)?.relu()?;
        if let Some(random) = learning {
            x = dropout(&x, DROPPED, random)?;
        }
        let zeros = |width: usize| Tensor::zeros((count, width), dtype, &candle_core::Device::Cpu);
        Ok(State {
            task: second.forward(&x)?,
            history: zeros(WIDTH)?,
            node: zeros(HIDDEN)?,
            edges: one_hot(&[START].repeat(count * READS), CHANNELS, dtype)?.reshape((count, READS * CHANNELS))?,
            roles: self.role.forward(&self.pool)?,
        })
    }

    /// The logits of the next role of each row.
    fn next_role(&self, state: &mut State) -> Result<Tensor> {
        let agreement = ((&state.history * &state.task)?.sum_keepdim(D::Minus1)? / WIDTH as f64)?;
        let gate = sigmoid(&agreement)?;
        let context = (&state.history + (&state.task - &state.history)?.broadcast_mul(&gate)?)?;
        let input = self.input.forward(&Tensor::cat(&[&context, &state.edges], 1)?)?;
        state.node = self.node.forward(&input, &state.node)?;
        self.intent.forward(&state.node)?.matmul(&state.roles.t()?)
    }

    /// Takes up the agents that were added: their roles by position in the pool, and whom of the three before them they read.
    fn add(&self, state: &mut State, roles: &[u32], reads: &[[Option<bool>; READS]]) -> Result<()> {
        let vectors = self.pool.index_select(&Tensor::new(roles, self.pool.device())?, 0)?;
        state.history = self.history.forward(&vectors, &state.history)?;
        let channels: Vec<usize> = reads.iter().flatten().map(|read| channel(*read)).collect();
        let rows = one_hot(&channels, CHANNELS, self.weights.dtype())?;
        state.edges = rows.reshape((reads.len(), READS * CHANNELS))?;
        Ok(())
    }

    /// The logits of each row's next decision about an edge, the nearest agent first.
    fn next_edge(&self, state: &Tensor, last: &[usize]) -> Result<(Tensor, Tensor)> {
        let state = self.edge.forward(&one_hot(last, CHANNELS, self.weights.dtype())?, state)?;
        let logits = self.edge_out.forward(&state)?;
        Ok((logits, state))
    }

    /// The loss of a batch, by graph.
    ///
    /// # Errors
    /// A graph has a role that is not of the pool, or a tensor operation failed.
    pub fn loss(&self, batch: &[TaughtGraph], learning: Option<&mut Random>) -> Result<Tensor> {
        let queries: Vec<&[f32]> = batch.iter().map(|taught| &*taught.query).collect();
        let mut state = self.begin(&queries, learning)?;
        let sizes: Vec<usize> = batch.iter().map(|taught| taught.graph.members.len()).collect();
        let most = sizes.iter().copied().max().unwrap_or(0);
        let end = self.cards.len();
        let (mut role_terms, mut nodes) = (Vec::new(), Vec::new());
        for at in 0..=most {
            let logits = self.next_role(&mut state)?;
            let roles = batch.iter().map(|taught| self.role_of(&taught.graph, at)).collect::<Result<Vec<usize>>>()?;
            let counts: Vec<f32> = sizes.iter().map(|size| f32::from(u8::from(at <= *size))).collect();
            role_terms.push(self.cross_entropy(&logits, &roles, end + 1, &counts)?);
            nodes.push(state.node.clone());
            let reads: Vec<_> = batch.iter().map(|taught| reads(&taught.graph, at)).collect();
            let roles: Vec<u32> = roles.iter().map(|role| *role as u32).collect();
            self.add(&mut state, &roles, &reads)?;
        }
        let mut terms = Tensor::stack(&role_terms, 0)?.sum_all()?;
        terms = (terms * ROLE_SHARE)?;
        // The edges of all agents but the first, of all graphs at once.
        if let Some(nodes) = nodes.get(1..most).filter(|nodes| !nodes.is_empty()) {
            let mut edge = self.edge_start.forward(&Tensor::cat(nodes, 0)?)?;
            let targets: Vec<[Option<bool>; READS]> =
                (1..most).flat_map(|at| batch.iter().map(move |taught| reads(&taught.graph, at))).collect();
            let mut last = vec![START; targets.len()];
            for place in 0..READS {
                let (logits, next) = self.next_edge(&edge, &last)?;
                last = targets.iter().map(|reads| channel(reads[place])).collect();
                let counts: Vec<f32> =
                    targets.iter().map(|reads| f32::from(u8::from(reads[place].is_some()))).collect();
                let term = self.cross_entropy(&logits, &last, CHANNELS, &counts)?;
                terms = (terms + (term * (1.0 - ROLE_SHARE))?)?;
                edge = next;
            }
        }
        terms / batch.len().max(1) as f64
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
        let mut state = self.begin(&[query], None)?;
        let (mut cards, mut after) = (Vec::new(), Vec::new());
        while cards.len() < most.max(1) {
            let mut logits = values(&self.next_role(&mut state)?)?;
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
            self.add(&mut state, &[role as u32], &[reads])?;
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
            let (logits, next) = self.next_edge(&edge, &[last])?;
            let logits = values(&logits)?;
            let there = draw(&softmax(logits.get(..=NONE).unwrap_or_default()), random) == EDGE;
            *read = Some(there);
            last = channel(*read);
            edge = next;
        }
        Ok(reads)
    }
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
