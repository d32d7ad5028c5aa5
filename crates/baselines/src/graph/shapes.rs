//! The classic topologies, as the lists of whom each agent reads.

use lemon_num::Random;

/// A classic topology.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum GraphShape {
    /// Each agent reads the one before.
    Chain,
    /// All read the first.
    Star,
    /// Each reads all before it.
    Full,
    /// Two layers, divided at random: all of the second read all of the first.
    Layered,
    /// A grid: each reads its neighbours above and to the left.
    Grid,
}

impl GraphShape {
    /// Whom each of `agents` reads.
    pub fn after(self, agents: usize, random: &mut Random) -> Vec<Vec<usize>> {
        let first_layer = random.between(1, agents.saturating_sub(1));
        let side = (1..).find(|side| side * side >= agents).unwrap_or(1);
        let reads = |reader: usize| -> Vec<usize> {
            match self {
                GraphShape::Chain => reader.checked_sub(1).into_iter().collect(),
                GraphShape::Star => (0..reader.min(1)).collect(),
                GraphShape::Full => (0..reader).collect(),
                GraphShape::Layered => (0..if reader < first_layer { 0 } else { first_layer }).collect(),
                GraphShape::Grid => {
                    let left = (!reader.is_multiple_of(side)).then(|| reader - 1);
                    reader.checked_sub(side).into_iter().chain(left).collect()
                }
            }
        };
        (0..agents).map(reads).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(shape: GraphShape, agents: usize, expected: &[&[usize]]) {
        assert_eq!(shape.after(agents, &mut Random::new(1)), expected, "{shape:?}");
    }

    #[test]
    fn shapes_are_those_they_are_named_after() {
        check(GraphShape::Chain, 3, &[&[], &[0], &[1]]);
        check(GraphShape::Star, 3, &[&[], &[0], &[0]]);
        check(GraphShape::Full, 3, &[&[], &[0], &[0, 1]]);
        check(GraphShape::Grid, 4, &[&[], &[0], &[0], &[1, 2]]);
        check(GraphShape::Layered, 2, &[&[], &[0]]);
        for seed in 0..20 {
            let layered = GraphShape::Layered.after(5, &mut Random::new(seed));
            let first = layered.iter().filter(|reads| reads.is_empty()).count();
            assert!((1..5).contains(&first) && layered[first..].iter().all(|reads| reads.len() == first));
        }
    }
}
