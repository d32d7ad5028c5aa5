//! Graphs of roles: what baselines design, and the specification that it stands for.

mod draw;
mod shapes;

pub use draw::{DrawnGraph, draw, ordered};
pub use shapes::GraphShape;

use crate::cards::{CARDS, Domain};
use lemon_spec::{Agent, Answer, AnswerRule, Language, Next, PLAIN, Share, Spec, Style};
use serde::{Deserialize, Serialize};

/// A designed team. One more agent reads the members and decides, as in the public code.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct RoleGraph {
    /// The agents; each reads only earlier ones.
    pub members: Vec<GraphMember>,
    /// Who decides.
    pub decider: GraphDecider,
}

/// An agent of a designed team.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct GraphMember {
    /// Its role: a position in [`CARDS`].
    pub card: usize,
    /// The capacity that the method chose, by position; `None`: the one that is fixed for the method.
    pub capacity: Option<usize>,
    /// The earlier agents that it reads, by position.
    pub after: Vec<usize>,
    /// How it is to work, besides what its role says; empty: as the role says.
    pub manner: &'static str,
}

/// The agent that decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct GraphDecider {
    /// It reads the members from this position on: those of the last round.
    pub reads_from: usize,
    /// Its capacity, by position; `None`: that of the strongest member.
    pub capacity: Option<usize>,
}

/// What a graph needs to become a specification.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpecFrame {
    /// The capacities, weakest first.
    pub capacities: Vec<String>,
    /// Those that agents without a capacity take in turns.
    pub turns: Vec<String>,
}

impl SpecFrame {
    /// A frame in which every agent gets this capacity; without one they take turns through those that work as their roles
    /// say, or step by step.
    pub fn new(language: &Language, capacity: Option<&str>) -> Self {
        let capacities = language.capacities.clone();
        let by_role =
            |(level, _): &(usize, &String)| language.effort(*level).style.is_none_or(|style| style == Style::Reasoned);
        let mut turns: Vec<String> = match capacity {
            Some(capacity) => vec![capacity.to_owned()],
            None => capacities.iter().enumerate().filter(by_role).map(|(_, name)| name.clone()).collect(),
        };
        if turns.is_empty() {
            turns.clone_from(&capacities);
        }
        SpecFrame { capacities, turns }
    }

    /// The capacity of the agent at this position.
    pub fn capacity(&self, at: usize) -> String {
        let turn = at.checked_rem(self.turns.len()).and_then(|at| self.turns.get(at));
        turn.cloned().unwrap_or_default()
    }

    /// One agent that does what its base role says.
    pub fn agent(&self, at: usize, base: &str) -> Agent {
        let (after, tools) = (Vec::new(), Vec::new());
        let (id, base) = (format!("a{}", at + 1), base.to_owned());
        Agent { id, base, role: None, duty: None, capacity: self.capacity(at), after, share: Share::Reply, tools }
    }

    /// The specification of a graph. A graph without members is one plain call.
    pub fn spec(&self, graph: &RoleGraph, domain: Domain) -> Spec {
        let mut agents: Vec<Agent> = Vec::new();
        for (at, member) in graph.members.iter().enumerate() {
            let mut agent = match CARDS.get(member.card) {
                Some(card) => Agent {
                    role: Some(card.title.to_owned()),
                    duty: Some([card.duty, member.manner].join(" ").trim_end().to_owned()),
                    ..self.agent(at, card.base)
                },
                None => self.agent(at, PLAIN),
            };
            if let Some(capacity) = member.capacity.and_then(|at| self.capacities.get(at)) {
                agent.capacity.clone_from(capacity);
            }
            agent.after = member.after.iter().filter(|read| **read < at).map(|read| format!("a{}", read + 1)).collect();
            agents.push(agent);
        }
        let read: Vec<String> = agents.iter().skip(graph.decider.reads_from).map(|agent| agent.id.clone()).collect();
        let last = if read.is_empty() {
            if agents.is_empty() {
                agents.push(self.agent(0, PLAIN));
            }
            agents.last().map(|agent| agent.id.clone())
        } else {
            // Who decides on programs has to write one. Who decides is no weaker than those it reads, where nothing is chosen.
            let base = if domain.is_code() { "programmer" } else { "judge" };
            let strength = |agent: &&Agent| self.capacities.iter().position(|name| *name == agent.capacity);
            let strongest = agents.iter().max_by_key(strength).map(|agent| agent.capacity.clone());
            let chosen = graph.decider.capacity.and_then(|at| self.capacities.get(at)).cloned();
            let capacity = chosen.or(strongest).unwrap_or_default();
            agents.push(Agent { id: "decide".to_owned(), capacity, after: read, ..self.agent(0, base) });
            Some("decide".to_owned())
        };
        let answer = Answer { from: last.into_iter().collect(), by: AnswerRule::Last };
        Spec { agents, answer, next: Next::Stop }
    }
}

impl RoleGraph {
    /// A graph of these roles and edges.
    pub fn new(cards: &[usize], after: Vec<Vec<usize>>) -> Self {
        let members =
            cards.iter().zip(after).map(|(card, after)| GraphMember { card: *card, after, ..GraphMember::default() });
        RoleGraph { members: members.collect(), decider: GraphDecider::default() }
    }

    /// Its edges, as sender and reader.
    pub fn edges(&self) -> impl Iterator<Item = (usize, usize)> {
        self.members
            .iter()
            .enumerate()
            .flat_map(|(reader, member)| member.after.iter().map(move |read| (*read, reader)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lemon_spec::{render, validate};
    use proptest::prelude::*;

    #[test]
    fn a_roster_is_decided_on_by_one_more_agent_that_reads_all() {
        let language = Language::default();
        let frame = SpecFrame::new(&language, None);
        let graph = RoleGraph::new(&[0, 3], vec![vec![], vec![0]]);
        let spec = frame.spec(&graph, Domain::Math);
        let told: Vec<(&str, &str, usize)> =
            spec.agents.iter().map(|agent| (agent.base.as_str(), agent.capacity.as_str(), agent.after.len())).collect();
        assert_eq!(told, [("solver", "small", 0), ("verifier", "medium", 1), ("judge", "medium", 2)]);
        assert_eq!(frame.spec(&graph, Domain::Code).agents[2].base, "programmer");
        let fixed = SpecFrame::new(&language, Some("large")).spec(&graph, Domain::Math);
        assert!(fixed.agents.iter().all(|agent| agent.capacity == "large"));
        let last = RoleGraph { decider: GraphDecider { reads_from: 1, capacity: Some(0) }, ..graph };
        let decides = frame.spec(&last, Domain::Math).agents.remove(2);
        assert_eq!((decides.after, decides.capacity.as_str()), (vec!["a2".to_owned()], "small"));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_graph_is_a_valid_team(
            members in prop::collection::vec((0_usize..25, prop::option::of(0_usize..4), prop::collection::btree_set(0_usize..8, 0..4)), 0..9),
            reads_from in 0_usize..10,
            chosen in prop::option::of(0_usize..4),
            domain in prop::sample::select(Domain::ALL.to_vec()),
        ) {
            let members = members.into_iter().map(|(card, capacity, after)| GraphMember { card, capacity, after: after.into_iter().collect(), manner: "Be brief." });
            let graph = RoleGraph { members: members.collect(), decider: GraphDecider { reads_from, capacity: chosen } };
            let language = Language { tests: true, ..Language::default() };
            let spec = SpecFrame::new(&language, None).spec(&graph, domain);
            let plan = validate(&render(&spec).text, &language);
            prop_assert!(plan.is_ok(), "{:?}", plan.err());
        }
    }
}
