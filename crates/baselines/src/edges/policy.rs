//! Edges that are there with a learned probability: REINFORCE, Adam and masks.

use crate::cards::Domain;
use crate::graph::{DrawnGraph, GraphDecider, GraphMember, RoleGraph, draw, ordered};
use lemon_num::{Random, logistic};
use serde::{Deserialize, Serialize};

const RATE: f64 = 0.1;
const FIRST_DECAY: f64 = 0.9;
const SECOND_DECAY: f64 = 0.999;
const EPSILON: f64 = 1e-8;

/// Independent edges, each there with probability `σ(logit)` until it is masked.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct EdgePolicy {
    edges: Vec<Edge>,
    steps: i32,
}

#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
struct Edge {
    logit: f64,
    masked: bool,
    /// Adam's running means of the gradient and of its square.
    mean: f64,
    square: f64,
}

impl EdgePolicy {
    /// Edges as likely there as not.
    pub fn new(edges: usize) -> Self {
        EdgePolicy { edges: vec![Edge::default(); edges], steps: 0 }
    }

    /// All logits, those of masked edges and loops too, as AgentDropout's penalties see them.
    pub fn logits(&self) -> Vec<f64> {
        self.edges.iter().map(|edge| edge.logit).collect()
    }

    /// The same masks and nothing learned.
    #[must_use]
    pub fn forgotten(&self) -> Self {
        let edges = self.edges.iter().map(|edge| Edge { masked: edge.masked, ..Edge::default() });
        EdgePolicy { edges: edges.collect(), steps: 0 }
    }

    /// The probability of an edge; `None`: it is masked.
    pub fn probability(&self, edge: usize) -> Option<f64> {
        self.edges.get(edge).filter(|edge| !edge.masked).map(|edge| logistic(edge.logit))
    }

    /// The logit of an edge; masked ones have the one they were masked with.
    pub fn logit(&self, edge: usize) -> f64 {
        self.edges.get(edge).map_or(0.0, |edge| edge.logit)
    }

    /// Masks an edge.
    pub fn mask(&mut self, edge: usize) {
        if let Some(edge) = self.edges.get_mut(edge) {
            edge.masked = true;
        }
    }

    /// Edges that are not masked.
    pub fn left(&self) -> usize {
        self.edges.iter().filter(|edge| !edge.masked).count()
    }

    /// Adds what decisions about edges contribute to `∇ advantage · log p`: for an edge that is there with `p = σ(logit)` the
    /// derivative of `log p` is `1 − p` if it is there and `−p` if not.
    pub fn add_score(&self, gradient: &mut [f64], decisions: impl Iterator<Item = (usize, bool)>, advantage: f64) {
        for (edge, there) in decisions {
            if let (Some(slope), Some(probability)) = (gradient.get_mut(edge), self.probability(edge)) {
                *slope += advantage * (f64::from(u8::from(there)) - probability);
            }
        }
    }

    /// One step of Adam up a gradient.
    pub fn climb(&mut self, gradient: &[f64]) {
        self.steps += 1;
        let (first, second) = (1.0 - FIRST_DECAY.powi(self.steps), 1.0 - SECOND_DECAY.powi(self.steps));
        for (edge, slope) in self.edges.iter_mut().zip(gradient) {
            edge.mean = FIRST_DECAY * edge.mean + (1.0 - FIRST_DECAY) * slope;
            edge.square = SECOND_DECAY * edge.square + (1.0 - SECOND_DECAY) * slope * slope;
            edge.logit += RATE * (edge.mean / first) / ((edge.square / second).sqrt() + EPSILON);
        }
    }

    /// Masks this share of the edges that are left, the least likely first, and at least one.
    pub fn prune(&mut self, share: f64) {
        let mut left: Vec<&mut Edge> = self.edges.iter_mut().filter(|edge| !edge.masked).collect();
        // Half an edge is rounded as the public code does.
        let count = ((share * left.len() as f64).round_ties_even() as usize).max(1);
        left.sort_by(|a, b| a.logit.total_cmp(&b.logit));
        left.into_iter().take(count).for_each(|edge| edge.masked = true);
    }
}

/// A roster with learned edges.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EdgeDesigner {
    /// The roles of the roster.
    pub cards: Vec<usize>,
    /// By round: the agents that take part, by position in the roster.
    pub present: Vec<Vec<bool>>,
    /// By round: the edges within it, `from · agents + to`.
    pub spatial: Vec<EdgePolicy>,
    /// By round after the first: the edges from the round before.
    pub temporal: Vec<EdgePolicy>,
    /// Whether the likelier graph is taken instead of a drawn one.
    pub fixed: bool,
}

/// What was drawn in all rounds.
pub type DrawnRounds = Vec<(DrawnGraph, Vec<(usize, usize, bool)>)>;

impl EdgeDesigner {
    /// A roster of so many agents, in so many rounds, that knows nothing yet.
    pub fn new(domain: Domain, agents: usize, rounds: usize, fixed: bool) -> Self {
        let policies = |count: usize| (0..count).map(|_| EdgePolicy::new(agents * agents)).collect();
        let mut designer = EdgeDesigner {
            cards: domain.roster().cycle().take(agents).collect(),
            present: vec![vec![true; agents]; rounds],
            spatial: policies(rounds),
            temporal: policies(rounds.saturating_sub(1)),
            fixed,
        };
        let loops = (0..agents).map(|agent| agent * agents + agent);
        designer.spatial.iter_mut().for_each(|policy| loops.clone().for_each(|edge| policy.mask(edge)));
        designer
    }

    /// Removes an agent from a round, with all its edges. The last agent of a round stays.
    pub fn remove(&mut self, round: usize, agent: usize) {
        let agents = self.agents();
        let Some(present) = self.present.get_mut(round) else { return };
        if present.iter().filter(|there| **there).count() < 2 {
            return;
        }
        if let Some(there) = present.get_mut(agent) {
            *there = false;
        }
        let (to, from) = ((0..agents).map(|from| from * agents + agent), (0..agents).map(|to| agent * agents + to));
        if let Some(policy) = self.spatial.get_mut(round) {
            to.clone().chain(from.clone()).for_each(|edge| policy.mask(edge));
        }
        if let Some(policy) = round.checked_sub(1).and_then(|before| self.temporal.get_mut(before)) {
            to.for_each(|edge| policy.mask(edge));
        }
        if let Some(policy) = self.temporal.get_mut(round) {
            from.for_each(|edge| policy.mask(edge));
        }
    }

    /// Agents of the roster.
    pub fn agents(&self) -> usize {
        self.cards.len()
    }

    /// A drawn graph, with what was decided.
    pub fn draw(&self, random: &mut Random) -> (RoleGraph, DrawnRounds) {
        let agents = self.agents();
        let is_there =
            |round: usize, agent: usize| self.present.get(round).and_then(|there| there.get(agent)) == Some(&true);
        let certain = |probability: f64| if self.fixed { f64::from(u8::from(probability > 0.5)) } else { probability };
        let mut rounds = DrawnRounds::new();
        for (round, spatial) in self.spatial.iter().enumerate() {
            let probability = |from: usize, to: usize| {
                let known = spatial.probability(from * agents + to).map(certain);
                known.filter(|_| is_there(round, from) && is_there(round, to))
            };
            let within = draw(agents, probability, random);
            let mut across = Vec::new();
            if let Some(temporal) = round.checked_sub(1).and_then(|before| self.temporal.get(before)) {
                for (from, to) in (0..agents).flat_map(|from| (0..agents).map(move |to| (from, to))) {
                    let known = temporal.probability(from * agents + to).map(certain);
                    let known = known.filter(|_| is_there(round - 1, from) && is_there(round, to));
                    across.extend(known.map(|probability| (from, to, random.chance(probability))));
                }
            }
            rounds.push((within, across));
        }
        (self.graph(&rounds), rounds)
    }

    /// The graph of what was decided: the rounds one after the other. Who decides reads the last round.
    fn graph(&self, rounds: &DrawnRounds) -> RoleGraph {
        let agents = self.agents();
        let node = |round: usize, agent: usize| round * agents + agent;
        let mut edges = Vec::new();
        for (round, (within, across)) in rounds.iter().enumerate() {
            edges.extend(within.edges.iter().map(|(from, to)| (node(round, *from), node(round, *to))));
            let there = across.iter().filter(|(_, _, there)| *there);
            edges
                .extend(there.filter_map(|(from, to, _)| Some((node(round.checked_sub(1)?, *from), node(round, *to)))));
        }
        let takes_part: Vec<usize> = (0..rounds.len() * agents)
            .filter(|at| self.present.get(at / agents).and_then(|there| there.get(at % agents)) == Some(&true))
            .collect();
        let place = |node: usize| takes_part.iter().position(|other| *other == node);
        let cards: Vec<usize> = takes_part.iter().filter_map(|at| self.cards.get(at % agents).copied()).collect();
        let edges: Vec<(usize, usize)> =
            edges.iter().filter_map(|(from, to)| Some((place(*from)?, place(*to)?))).collect();
        // The order keeps the rounds apart: of those that are ready the first comes first, and an earlier round waits for none.
        self.read_by_last_round(ordered(&cards, &edges), &takes_part)
    }

    /// The graph, decided on by what the last round says.
    fn read_by_last_round(&self, graph: RoleGraph, takes_part: &[usize]) -> RoleGraph {
        let last_round = self.spatial.len().saturating_sub(1) * self.agents();
        let reads_from = takes_part.iter().filter(|node| **node < last_round).count();
        RoleGraph { decider: GraphDecider { reads_from, capacity: None }, ..graph }
    }

    /// Adds what a drawn graph contributes to the gradients, the spatial ones first.
    pub fn add_scores(&self, gradients: &mut [Vec<f64>], rounds: &DrawnRounds, advantage: f64) {
        let agents = self.agents();
        let count = self.spatial.len();
        for (round, (within, across)) in rounds.iter().enumerate() {
            let decided = |decisions: &[(usize, usize, bool)]| {
                decisions.iter().map(|(from, to, there)| (from * agents + to, *there)).collect::<Vec<_>>()
            };
            if let (Some(policy), Some(gradient)) = (self.spatial.get(round), gradients.get_mut(round)) {
                policy.add_score(gradient, decided(&within.decisions).into_iter(), advantage);
            }
            let before = round.checked_sub(1);
            if let Some((policy, gradient)) =
                before.and_then(|at| Some((self.temporal.get(at)?, gradients.get_mut(count + at)?)))
            {
                policy.add_score(gradient, decided(across).into_iter(), advantage);
            }
        }
    }

    /// All policies, the spatial ones first.
    pub fn policies_mut(&mut self) -> impl Iterator<Item = &mut EdgePolicy> {
        self.spatial.iter_mut().chain(&mut self.temporal)
    }

    /// A graph with every edge that goes on in the order of the roster, within a round and to the next, without the agent that is
    /// silenced in each round.
    pub fn whole(&self, silenced: &[usize]) -> RoleGraph {
        let agents = self.agents();
        let nodes = self.spatial.len() * agents;
        let speaks: Vec<usize> = (0..nodes).filter(|at| silenced.get(at / agents) != Some(&(at % agents))).collect();
        let members = speaks.iter().map(|at| {
            let reads = |read: usize| read % agents < at % agents && (at / agents).wrapping_sub(read / agents) <= 1;
            let after = speaks.iter().enumerate().filter(|(_, read)| reads(**read)).map(|(place, _)| place).collect();
            let card = self.cards.get(at % agents).copied().unwrap_or_default();
            GraphMember { card, after, ..GraphMember::default() }
        });
        self.read_by_last_round(RoleGraph { members: members.collect(), ..RoleGraph::default() }, &speaks)
    }

    /// Takes what was learned away; masks and agents that were removed stay as they are.
    pub fn forget(&mut self) {
        self.policies_mut().for_each(|policy| *policy = policy.forgotten());
    }
}
