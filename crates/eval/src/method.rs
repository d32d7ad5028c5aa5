//! The methods: each a team, or a rule that writes one. To add one, add a row to [`METHODS`].

use lemon_task::Key;
use std::fmt::Write;
use std::str::FromStr;

/// A method by its name, with its number where it takes one: `cot`, `sc-cot:10`.
#[derive(Debug, Clone)]
pub struct Method {
    kind: &'static Kind,
    number: usize,
}

/// What is known of a method.
#[derive(Debug)]
pub struct Kind {
    /// Its name.
    pub name: &'static str,
    /// What it is, in one line.
    pub about: &'static str,
    /// The number after the colon: what it counts, how many without one, how many at most.
    pub number: Option<(&'static str, usize, usize)>,
    writes: Writes,
}

#[derive(Debug)]
enum Writes {
    /// A rule.
    Team(fn(&mut Team)),
    /// No rule: a model, a file, a search.
    Elsewhere(TeamSource),
}

/// Who writes the team of a method that has no rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TeamSource {
    /// An endpoint's model, task by task.
    Prompted,
    /// A policy of our own that learned to write teams.
    Policy,
    /// A file.
    File,
    /// Edge probabilities, learned by REINFORCE and pruned.
    AgentPrune,
    /// Edge weights, learned the same way, and agents eliminated by them.
    AgentDropout,
}

/// All methods.
#[rustfmt::skip]
pub const METHODS: &[Kind] = {
    use Writes::{Elsewhere, Team};
    &[
        Kind { name: "vanilla", about: "one agent, asked plainly", number: None, writes: Team(vanilla) },
        Kind { name: "cot", about: "one agent that works step by step", number: None, writes: Team(cot) },
        Kind { name: "sc-cot", about: "that many agents like cot, and a vote", number: Some(("agents", 5, 64)), writes: Team(sc_cot) },
        Kind { name: "chain", about: "each agent reads the one before", number: Some(("agents", 4, 32)), writes: Team(chain) },
        Kind { name: "star", about: "agents around one that reads them all", number: Some(("agents", 4, 32)), writes: Team(star) },
        Kind { name: "tree", about: "pairs are merged until one is left", number: Some(("leaves", 4, 16)), writes: Team(tree) },
        Kind { name: "complete", about: "each agent reads all before it", number: Some(("agents", 4, 16)), writes: Team(complete) },
        Kind { name: "random", about: "each earlier agent is read with probability one half, by seed and task", number: Some(("agents", 4, 16)), writes: Team(random) },
        Kind { name: "debate", about: "three agents, all read all in each round, then a vote", number: Some(("rounds", 2, 8)), writes: Team(debate) },
        Kind { name: "prompted", about: "a model writes the team for each task", number: None, writes: Elsewhere(TeamSource::Prompted) },
        Kind { name: "policy", about: "a model of our own that learned to write teams writes one for each task", number: None, writes: Elsewhere(TeamSource::Policy) },
        Kind { name: "file", about: "the team of --spec", number: None, writes: Elsewhere(TeamSource::File) },
        Kind { name: "agentprune", about: "edge probabilities learned by REINFORCE, then pruned (GPTSwarm, AgentPrune)", number: Some(("agents", 5, 12)), writes: Elsewhere(TeamSource::AgentPrune) },
        Kind { name: "agentdropout", about: "edge weights learned, then agents and edges eliminated (AgentDropout)", number: Some(("agents", 5, 12)), writes: Elsewhere(TeamSource::AgentDropout) },
    ]
};

/// What a rule is told.
#[derive(Debug, Clone, Copy)]
pub struct Ask<'a> {
    /// The capacities, weakest first.
    pub capacities: &'a [String],
    /// The capacity every agent gets; `None`: they take turns, weakest first.
    pub capacity: Option<&'a str>,
    /// Whether a program is asked for.
    pub code: bool,
    /// For the rules that draw.
    pub seed: u64,
}

impl<'a> Ask<'a> {
    /// What is asked about an item.
    pub fn new(item: &lemon_task::Item, capacities: &'a [String], capacity: Option<&'a str>, seed: u64) -> Self {
        Ask { capacities, capacity, code: matches!(item.key(), Key::Code { .. }), seed }
    }
}

impl Method {
    /// The name with the number, as it was given: `debate:3`, but `debate` for the default number.
    pub fn name(&self) -> String {
        match self.kind.number {
            Some((_, default, _)) if default != self.number => format!("{}:{}", self.kind.name, self.number),
            _ => self.kind.name.to_owned(),
        }
    }

    /// What is known of it.
    pub fn kind(&self) -> &'static Kind {
        self.kind
    }

    /// Its number.
    pub fn number(&self) -> usize {
        self.number
    }

    /// Who writes its teams, if it is no rule.
    pub fn source(&self) -> Option<TeamSource> {
        match self.kind.writes {
            Writes::Team(_) => None,
            Writes::Elsewhere(source) => Some(source),
        }
    }

    /// The specification its rule writes; `None` if it has no rule.
    pub fn spec(&self, ask: &Ask<'_>) -> Option<String> {
        let Writes::Team(rule) = self.kind.writes else { return None };
        let mut team = Team { ask: *ask, number: self.number, agents: Vec::new(), answer: String::new() };
        rule(&mut team);
        Some(team.render())
    }
}

/// A name that no method has, or a number it does not take.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MethodError {
    /// There is none of that name.
    #[error("no method is called `{0}`")]
    Unknown(String),
    /// It takes no number.
    #[error("`{0}` takes no number")]
    NoNumber(String),
    /// Its number is out of range.
    #[error("`{name}` takes 1 to {most} {what}, not `{given}`")]
    Number {
        /// The method.
        name: String,
        /// What it counts.
        what: &'static str,
        /// How many at most.
        most: usize,
        /// What was given.
        given: String,
    },
}

impl FromStr for Method {
    type Err = MethodError;

    fn from_str(text: &str) -> Result<Self, MethodError> {
        let (name, number) = text.split_once(':').map_or((text, None), |(name, number)| (name, Some(number)));
        let kind =
            METHODS.iter().find(|kind| kind.name == name).ok_or_else(|| MethodError::Unknown(name.to_owned()))?;
        let number = match (kind.number, number) {
            (None, None) => 1,
            (None, Some(_)) => return Err(MethodError::NoNumber(name.to_owned())),
            (Some((_, default, _)), None) => default,
            (Some((what, _, most)), Some(given)) => {
                let number = given.parse().ok().filter(|number| (1..=most).contains(number));
                number.ok_or_else(|| MethodError::Number { name: name.into(), what, most, given: given.into() })?
            }
        };
        Ok(Method { kind, number })
    }
}

/// A team being written.
struct Team<'a> {
    ask: Ask<'a>,
    number: usize,
    agents: Vec<(String, String)>,
    answer: String,
}

impl Team<'_> {
    /// Adds an agent that reads these, and gives its id.
    fn add(&mut self, base: &str, duty: Option<&str>, after: &[String]) -> String {
        let id = format!("a{}", self.agents.len() + 1);
        let capacities = self.ask.capacities;
        let turn = self.agents.len().checked_rem(capacities.len()).and_then(|at| capacities.get(at));
        let capacity = self.ask.capacity.or(turn.map(String::as_str)).unwrap_or_default();
        let mut entry = format!("  - id: {id}\n    base: {base}\n");
        // Writing to a string cannot fail.
        if let Some(duty) = duty {
            let _ = writeln!(entry, "    duty: {duty}");
        }
        let _ = writeln!(entry, "    capacity: {capacity}\n    after: [{}]", after.join(", "));
        self.agents.push((id.clone(), entry));
        id
    }

    /// Adds an agent that solves the task.
    fn solver(&mut self, after: &[String]) -> String {
        let base = if self.ask.code { "programmer" } else { "solver" };
        self.add(base, None, after)
    }

    fn answer(&mut self, from: &[String], by: &str) {
        self.answer = format!("answer: {{from: [{}], by: {by}}}\n", from.join(", "));
    }

    fn render(&self) -> String {
        let agents: String = self.agents.iter().map(|(_, entry)| entry.as_str()).collect();
        format!("agents:\n{agents}{}", self.answer)
    }
}

fn vanilla(team: &mut Team) {
    let base = if team.ask.code { "programmer" } else { "solver" };
    team.add(base, Some("Answer the task."), &[]);
}

fn cot(team: &mut Team) {
    team.solver(&[]);
}

fn sc_cot(team: &mut Team) {
    let all: Vec<_> = (0..team.number).map(|_| team.solver(&[])).collect();
    team.answer(&all, "vote");
}

fn chain(team: &mut Team) {
    let mut last = Vec::new();
    for _ in 0..team.number {
        last = vec![team.solver(&last)];
    }
}

fn star(team: &mut Team) {
    let around: Vec<_> = (1..team.number).map(|_| team.solver(&[])).collect();
    let centre = team.solver(&around);
    team.answer(&[centre], "last");
}

fn tree(team: &mut Team) {
    let mut layer: Vec<_> = (0..team.number).map(|_| team.solver(&[])).collect();
    while layer.len() > 1 {
        layer =
            layer.chunks(2).map(<[String]>::to_vec).collect::<Vec<_>>().iter().map(|pair| team.solver(pair)).collect();
    }
    team.answer(&layer, "last");
}

fn complete(team: &mut Team) {
    let mut before = Vec::new();
    for _ in 0..team.number {
        before.push(team.solver(&before));
    }
    let last = before.split_off(before.len().saturating_sub(1));
    team.answer(&last, "last");
}

fn random(team: &mut Team) {
    let mut draws = lemon_num::Random::new(team.ask.seed);
    let mut before: Vec<String> = Vec::new();
    let mut unread: Vec<String> = Vec::new();
    for _ in 0..team.number {
        let read: Vec<String> = before.iter().filter(|_| draws.next_u64().is_multiple_of(2)).cloned().collect();
        unread.retain(|id| !read.contains(id));
        let id = team.solver(&read);
        before.push(id.clone());
        unread.push(id);
    }
    team.answer(&unread, if unread.len() == 1 { "last" } else { "vote" });
}

fn debate(team: &mut Team) {
    let mut round: Vec<String> = (0..3).map(|_| team.solver(&[])).collect();
    for _ in 1..team.number {
        round = (0..3).map(|_| team.solver(&round)).collect::<Vec<_>>();
    }
    team.answer(&round, "vote");
}

#[cfg(test)]
mod tests {
    use super::*;
    use lemon_spec::{AnswerRule, Language, Plan, validate};

    fn plan(method: &str, capacity: Option<&str>, seed: u64) -> Plan {
        let language = Language::default();
        let ask = Ask { capacities: &language.capacities, capacity, code: false, seed };
        let text = method.parse::<Method>().unwrap().spec(&ask).unwrap();
        validate(&text, &language).unwrap_or_else(|rejection| panic!("{method}: {rejection:?}\n{text}"))
    }

    fn check(method: &str, agents: usize, edges: usize, rule: AnswerRule) {
        let plan = plan(method, Some("small"), 1);
        assert_eq!(plan.agents().len(), agents, "{method}");
        assert_eq!(plan.agents().iter().map(|agent| agent.parents.len()).sum::<usize>(), edges, "{method}");
        assert_eq!(plan.answer_rule(), rule, "{method}");
        assert!(plan.agents().iter().all(|agent| agent.capacity == "small"), "{method}");
    }

    #[test]
    fn methods_write_the_graphs_they_are_named_after() {
        check("vanilla", 1, 0, AnswerRule::Last);
        check("cot", 1, 0, AnswerRule::Last);
        check("sc-cot", 5, 0, AnswerRule::Vote);
        check("sc-cot:10", 10, 0, AnswerRule::Vote);
        check("chain", 4, 3, AnswerRule::Last);
        check("star:5", 5, 4, AnswerRule::Last);
        check("star:1", 1, 0, AnswerRule::Last);
        check("tree", 7, 6, AnswerRule::Last);
        check("tree:5", 11, 10, AnswerRule::Last);
        check("complete", 4, 6, AnswerRule::Last);
        check("debate", 6, 9, AnswerRule::Vote);
        check("debate:3", 9, 18, AnswerRule::Vote);
    }

    #[test]
    fn every_rule_writes_valid_teams_of_any_size_and_seed() {
        for kind in METHODS.iter().filter(|kind| matches!(kind.writes, Writes::Team(_))) {
            let most = kind.number.map_or(1, |(_, _, most)| most.min(12));
            for number in 1..=most {
                let name = if kind.number.is_some() { format!("{}:{number}", kind.name) } else { kind.name.to_owned() };
                for seed in 0..20 {
                    plan(&name, None, seed);
                }
            }
        }
    }

    #[test]
    fn random_teams_follow_the_seed() {
        let edges = |seed| plan("random:8", None, seed).agents().iter().map(|a| a.parents.clone()).collect::<Vec<_>>();
        assert_eq!(edges(1), edges(1));
        assert_ne!(edges(1), edges(2));
    }

    #[test]
    fn mixed_teams_take_turns() {
        let plan = plan("sc-cot:4", None, 0);
        let levels: Vec<_> = plan.agents().iter().map(|agent| agent.capacity.as_str()).collect();
        assert_eq!(levels, ["small", "medium", "large", "small"]);
    }

    #[test]
    fn wrong_names_and_numbers_are_named() {
        let error = |text: &str| text.parse::<Method>().unwrap_err().to_string();
        assert_eq!(error("coot"), "no method is called `coot`");
        assert_eq!(error("cot:3"), "`cot` takes no number");
        assert_eq!(error("debate:99"), "`debate` takes 1 to 8 rounds, not `99`");
        assert_eq!(error("sc-cot:x"), "`sc-cot` takes 1 to 64 agents, not `x`");
        assert_eq!("debate:2".parse::<Method>().unwrap().name(), "debate");
        assert_eq!("debate:3".parse::<Method>().unwrap().name(), "debate:3");
    }
}
