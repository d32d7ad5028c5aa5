//! Draws directed acyclic graphs edge by edge, as the public code of GPTSwarm does.

use super::{GraphMember, RoleGraph};
use lemon_num::Random;

/// A drawn graph, and what was decided on the way.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DrawnGraph {
    /// The edges that are there, as sender and reader.
    pub edges: Vec<(usize, usize)>,
    /// What was drawn: sender, reader, and whether the edge is there. Edges that would have closed a circle are no decision.
    pub decisions: Vec<(usize, usize, bool)>,
}

/// Draws every edge with its probability, row by row. One that would close a circle is left out without a draw. `None`: no
/// such edge exists.
pub fn draw(nodes: usize, probability: impl Fn(usize, usize) -> Option<f64>, random: &mut Random) -> DrawnGraph {
    let mut drawn = DrawnGraph::default();
    // Whether `to` is reached from `from`; the edges are few.
    let reaches = |edges: &[(usize, usize)], from: usize, to: usize| {
        let mut open = vec![from];
        let mut seen = vec![false; nodes];
        while let Some(node) = open.pop() {
            if node == to {
                return true;
            }
            if !std::mem::replace(&mut seen[node], true) {
                open.extend(edges.iter().filter(|(sender, _)| *sender == node).map(|(_, reader)| *reader));
            }
        }
        false
    };
    for (from, to) in (0..nodes).flat_map(|from| (0..nodes).map(move |to| (from, to))).filter(|(from, to)| from != to) {
        let Some(probability) = probability(from, to).filter(|_| !reaches(&drawn.edges, to, from)) else { continue };
        let there = random.chance(probability);
        drawn.decisions.push((from, to, there));
        if there {
            drawn.edges.push((from, to));
        }
    }
    drawn
}

/// The graph of a roster with these edges, in an order in which every agent reads earlier ones; of several possible orders the
/// one nearest to the roster's. The edges have no circle.
pub fn ordered(cards: &[usize], edges: &[(usize, usize)]) -> RoleGraph {
    let mut order: Vec<usize> = Vec::new();
    while order.len() < cards.len() {
        let is_ready =
            |node: &usize| !order.contains(node) && edges.iter().all(|(from, to)| to != node || order.contains(from));
        // A circle would leave none; the first that is left breaks it.
        let next = (0..cards.len()).find(is_ready).or_else(|| (0..cards.len()).find(|node| !order.contains(node)));
        order.extend(next);
    }
    let place = |node: usize| order.iter().position(|other| *other == node);
    let members = order.iter().enumerate().map(|(at, node)| {
        let read =
            edges.iter().filter(|(_, to)| to == node).filter_map(|(from, _)| place(*from)).filter(|read| *read < at);
        let mut after: Vec<usize> = read.collect();
        after.sort_unstable();
        GraphMember { card: cards.get(*node).copied().unwrap_or_default(), after, ..GraphMember::default() }
    });
    RoleGraph { members: members.collect(), ..RoleGraph::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_pair_that_is_not_linked_gets_a_second_chance() {
        let certain = |from: usize, to: usize| Some(if from > to { 1.0 } else { 0.0 });
        let drawn = draw(2, certain, &mut Random::new(1));
        assert_eq!(drawn.decisions, [(0, 1, false), (1, 0, true)]);
        let both = draw(2, |_, _| Some(1.0), &mut Random::new(1));
        assert_eq!(both.decisions, [(0, 1, true)], "the edge back would close a circle");
        let graph = ordered(&[7, 8], &drawn.edges);
        assert_eq!((graph.members[0].card, graph.members[1].after.clone()), (8, vec![0]));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn what_is_drawn_has_no_circle(nodes in 0_usize..8, seed: u64, share in 0.0_f64..1.0) {
            let drawn = draw(nodes, |_, _| Some(share), &mut Random::new(seed));
            let cards: Vec<usize> = (0..nodes).collect();
            let graph = ordered(&cards, &drawn.edges);
            prop_assert_eq!(graph.members.len(), nodes);
            prop_assert_eq!(graph.edges().count(), drawn.edges.len(), "an edge was lost");
            prop_assert!(graph.edges().all(|(from, to)| from < to));
            let mut roles: Vec<usize> = graph.members.iter().map(|member| member.card).collect();
            roles.sort_unstable();
            prop_assert_eq!(roles, cards);
        }
    }
}
