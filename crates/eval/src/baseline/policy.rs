//! Edges that are there with a learned probability: REINFORCE, Adam and pruning.

use lemon_num::{Random, logistic};

/// Adam's rate, as in the public code; the rest are its default figures.
const RATE: f64 = 0.1;
const FIRST_DECAY: f64 = 0.9;
const SECOND_DECAY: f64 = 0.999;
const EPSILON: f64 = 1e-8;

/// Independent edges, each there with probability `σ(logit)` until it is pruned.
pub struct EdgePolicy {
    edges: Vec<Edge>,
    steps: i32,
}

#[derive(Clone, Copy, Default)]
struct Edge {
    logit: f64,
    pruned: bool,
    /// Adam's running means of the gradient and of its square.
    mean: f64,
    square: f64,
}

impl Edge {
    fn probability(&self) -> f64 {
        if self.pruned { 0.0 } else { logistic(self.logit) }
    }
}

impl EdgePolicy {
    /// Edges as likely there as not.
    pub fn new(edges: usize) -> Self {
        EdgePolicy { edges: vec![Edge::default(); edges], steps: 0 }
    }

    pub fn is_empty(&self) -> bool {
        self.edges.is_empty()
    }

    pub fn probabilities(&self) -> impl Iterator<Item = f64> {
        self.edges.iter().map(Edge::probability)
    }

    /// Which edges are there in one draw.
    pub fn draw(&self, random: &mut Random) -> Vec<bool> {
        self.probabilities().map(|probability| random.chance(probability)).collect()
    }

    /// Which edges have not been pruned.
    pub fn kept(&self) -> Vec<bool> {
        self.edges.iter().map(|edge| !edge.pruned).collect()
    }

    /// One step of Adam up the [`gradient`](EdgePolicy::gradient).
    pub fn learn(&mut self, graphs: &[Vec<bool>], advantages: &[f64]) {
        let gradient = self.gradient(graphs, advantages);
        self.steps += 1;
        let (first, second) = (1.0 - FIRST_DECAY.powi(self.steps), 1.0 - SECOND_DECAY.powi(self.steps));
        for (edge, slope) in self.edges.iter_mut().zip(gradient) {
            edge.mean = FIRST_DECAY * edge.mean + (1.0 - FIRST_DECAY) * slope;
            edge.square = SECOND_DECAY * edge.square + (1.0 - SECOND_DECAY) * slope * slope;
            edge.logit += RATE * (edge.mean / first) / ((edge.square / second).sqrt() + EPSILON);
        }
    }

    /// The mean of `advantage · ∂ log p(graph) / ∂ logit`, by edge. For one edge that is there with `p = σ(logit)`, the
    /// derivative is `1 − p` if it is there and `−p` if not; a pruned one is no choice and has none.
    fn gradient(&self, graphs: &[Vec<bool>], advantages: &[f64]) -> Vec<f64> {
        let runs = graphs.len().max(1) as f64;
        let slope = |(at, edge): (usize, &Edge)| {
            let there = graphs.iter().map(|graph| f64::from(u8::from(graph.get(at) == Some(&true))));
            let scores = there.map(|there| if edge.pruned { 0.0 } else { there - edge.probability() });
            scores.zip(advantages).map(|(score, advantage)| score * advantage).sum::<f64>() / runs
        };
        self.edges.iter().enumerate().map(slope).collect()
    }

    /// Prunes this share of the edges that are left, the least likely first, and at least one.
    pub fn prune(&mut self, share: f64) {
        let mut left: Vec<&mut Edge> = self.edges.iter_mut().filter(|edge| !edge.pruned).collect();
        // Half an edge is rounded as the public code does.
        let count = ((share * left.len() as f64).round_ties_even() as usize).max(1);
        left.sort_by(|a, b| a.logit.total_cmp(&b.logit));
        left.into_iter().take(count).for_each(|edge| edge.pruned = true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(logit: f64, runs: &[(bool, f64)], slope: f64) {
        let mut policy = EdgePolicy::new(1);
        policy.edges[0].logit = logit;
        let (graphs, advantages): (Vec<Vec<bool>>, Vec<f64>) = runs.iter().map(|(there, a)| (vec![*there], *a)).unzip();
        let found = policy.gradient(&graphs, &advantages)[0];
        assert!((found - slope).abs() < 1e-12, "{found}");
    }

    #[test]
    fn the_gradient_is_the_one_worked_out_by_hand() {
        check(0.0, &[(true, 1.0)], 0.5);
        check(0.0, &[(false, 1.0)], -0.5);
        check(0.0, &[(true, 1.0), (false, -1.0)], 0.5);
        check(0.0, &[(true, 0.25), (true, 0.25), (false, 0.25), (true, -0.75)], -0.0625);
        // σ(ln 3) = 3/4.
        check(3_f64.ln(), &[(true, 1.0)], 0.25);
        check(3_f64.ln(), &[(false, 1.0)], -0.75);
        check(3_f64.ln(), &[(true, 0.0), (false, 0.0)], 0.0);
    }

    #[test]
    fn the_gradient_is_that_of_the_expected_reward() {
        // Two edges, all four graphs with their probabilities: Σ p · reward · ∇ log p against a difference quotient.
        let reward = |graph: &[bool]| if graph[0] && !graph[1] { 1.0 } else { 0.25 };
        let graphs: Vec<Vec<bool>> = (0..4).map(|bits| vec![bits & 1 == 1, bits & 2 == 2]).collect();
        let at = |logits: [f64; 2]| {
            let mut policy = EdgePolicy::new(2);
            policy.edges.iter_mut().zip(logits).for_each(|(edge, logit)| edge.logit = logit);
            policy
        };
        let chance = |policy: &EdgePolicy, graph: &[bool]| -> f64 {
            policy.probabilities().zip(graph).map(|(p, there)| if *there { p } else { 1.0 - p }).product()
        };
        let expected =
            |policy: &EdgePolicy| graphs.iter().map(|graph| chance(policy, graph) * reward(graph)).sum::<f64>();
        let policy = at([0.3, -0.8]);
        let weighted: Vec<f64> = graphs.iter().map(|graph| 4.0 * chance(&policy, graph) * reward(graph)).collect();
        let quotient = |up: [f64; 2], down: [f64; 2]| (expected(&at(up)) - expected(&at(down))) / 2e-6;
        let gradient = policy.gradient(&graphs, &weighted);
        assert!((gradient[0] - quotient([0.3 + 1e-6, -0.8], [0.3 - 1e-6, -0.8])).abs() < 1e-8);
        assert!((gradient[1] - quotient([0.3, -0.8 + 1e-6], [0.3, -0.8 - 1e-6])).abs() < 1e-8);
    }

    #[test]
    fn the_first_step_of_adam_is_the_rate() {
        let mut policy = EdgePolicy::new(2);
        policy.learn(&[vec![true, false]], &[0.001]);
        assert!((policy.edges[0].logit - RATE).abs() < 1e-3 && (policy.edges[1].logit + RATE).abs() < 1e-3);
    }

    #[test]
    fn an_edge_that_matters_is_learned_and_kept() {
        for seed in 0..20 {
            let (mut policy, mut random) = (EdgePolicy::new(10), Random::new(seed));
            for batch in 1..=100 {
                let graphs: Vec<Vec<bool>> = (0..4).map(|_| policy.draw(&mut random)).collect();
                let advantages: Vec<f64> = graphs.iter().map(|graph| if graph[7] { 0.5 } else { -0.5 }).collect();
                policy.learn(&graphs, &advantages);
                if batch % 50 == 0 {
                    policy.prune(0.25);
                }
            }
            let likely = policy.edges[7].probability();
            assert!(likely > 0.95 && !policy.edges[7].pruned, "seed {seed}: {likely}");
            assert_eq!(policy.kept().iter().filter(|kept| **kept).count(), 6);
        }
    }

    #[test]
    fn the_least_likely_are_pruned_and_stay_so() {
        let mut policy = EdgePolicy::new(5);
        let logits = [0.1, -2.0, 3.0, -1.0, 0.0];
        policy.edges.iter_mut().zip(logits).for_each(|(edge, logit)| edge.logit = logit);
        policy.prune(0.4);
        assert_eq!(policy.kept(), [true, false, true, false, true]);
        policy.learn(&[vec![true; 5]], &[1.0]);
        assert_eq!(policy.edges[1].logit, -2.0);
        assert!((0..100).all(|seed| !policy.draw(&mut Random::new(seed))[1]));
        policy.prune(0.0);
        assert_eq!(policy.kept(), [true, false, true, false, false]);
        (0..9).for_each(|_| policy.prune(1.0));
        assert_eq!(policy.kept(), [false; 5]);
    }
}
