//! The methods: each a team, or a rule that writes one. To add one, add a row to [`METHODS`].

use async_trait::async_trait;
use lemon_exec::orchestrator::{Draft, Fixed, Orchestrator, OrchestratorError, WriteContext};
use lemon_spec::{Effort, Language, Next, PLAIN, Style};
use lemon_task::Key;
use std::fmt::Write;
use std::sync::Arc;

mod parse;
mod rules;

pub use parse::MethodError;
use rules::*;

/// A method by its name, with its number where it takes one, its variants and its capacity: `cot`, `sc-cot:10`,
/// `g-designer+long@small`.
#[derive(Debug, Clone)]
pub struct Method {
    kind: &'static Kind,
    number: usize,
    variants: Vec<Variant>,
    capacity: Option<String>,
}

/// What is known of a method.
#[derive(Debug)]
pub struct Kind {
    pub name: &'static str,
    /// What it is, in one line.
    pub about: &'static str,
    /// The number after the colon: what it counts, how many without one, how many at most.
    pub number: Option<(&'static str, usize, usize)>,
    writes: Writes,
    /// The style that a capacity has to have for it.
    pub needs: Option<Style>,
    /// The variants it has.
    pub variants: &'static [Variant],
}

/// A variant of a method that learns. Each is ours and not its authors'.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Variant {
    /// `+cost`: it learns from the reward, which tokens and structure lower, instead of from right answers.
    Cost,
    /// `+long`: ten times the passes over its tasks, and a baseline for each task.
    Long,
}

impl Variant {
    /// All of them.
    pub const ALL: [Variant; 2] = [Variant::Cost, Variant::Long];

    /// What follows the `+`.
    pub fn as_str(self) -> &'static str {
        match self {
            Variant::Cost => "cost",
            Variant::Long => "long",
        }
    }
}

/// The capacity that is chosen by the reward on the training tasks.
pub const CHOSEN: &str = "chosen";

#[derive(Debug)]
enum Writes {
    /// A rule.
    Team(fn(&mut Team)),
    /// A rule for a first round, and one for a second where the agents of the first disagree.
    Rounds(fn(&mut Team), fn(&mut Team)),
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
    /// A critic of decisions, which asks again after reading what came back.
    Critic,
    File,
    /// A published method that learns to design teams first.
    Trained(PublishedMethod),
}

/// A published method that learns to design teams. `lemon-baselines` has its code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PublishedMethod {
    /// Edge probabilities, learned by REINFORCE.
    GptSwarm,
    /// The same, and pruned.
    AgentPrune,
    /// The same, and agents eliminated by them.
    AgentDropout,
    /// A graph network writes the edges for each question, as in the public code.
    GDesigner,
    /// The same as in the paper.
    GDesignerPaper,
    /// A recurrent network writes roles and edges for each question.
    ArgDesigner,
    /// One generator for all sets.
    OfaMas,
    /// Mode, roles and capacities for each question.
    MasRouter,
    /// A search over workflows that a model expands.
    AFlow,
    /// The same with random changes.
    AFlowRandom,
}

/// All methods.
#[rustfmt::skip]
pub const METHODS: &[Kind] = {
    use Writes::{Elsewhere, Rounds, Team};
    use Variant::{Cost, Long};
    const KIND: Kind = Kind { name: "", about: "", number: None, writes: Team(cot), needs: None, variants: &[] };
    const fn rival(name: &'static str, rival: PublishedMethod, variants: &'static [Variant], about: &'static str) -> Kind {
        Kind { name, about, writes: Elsewhere(TeamSource::Trained(rival)), variants, ..KIND }
    }
    const EDGES: Option<(&str, usize, usize)> = Some(("agents", 5, 12));
    const PROGRAM: Kind = Kind { needs: Some(Style::Program), ..KIND };
    &[
        Kind { name: "vanilla", about: "one agent, asked plainly", writes: Team(vanilla), ..KIND },
        Kind { name: "plain", about: "one call with the question alone", writes: Team(plain), ..KIND },
        Kind { name: "brief", about: "one agent that gives the answer alone", writes: Team(brief), ..KIND },
        Kind { name: "program", about: "one agent that writes a program, which is run", writes: Team(program), ..PROGRAM },
        Kind { name: "cot", about: "one agent that works step by step", writes: Team(cot), ..KIND },
        Kind { name: "sc-cot", about: "that many agents like cot, and a vote", number: Some(("agents", 5, 64)), writes: Team(sc_cot), ..KIND },
        Kind { name: "mixed", about: "that many programs and one more agent like cot, and a vote", number: Some(("programs", 3, 7)), writes: Team(mixed), ..PROGRAM },
        Kind { name: "agree", about: "a program and an agent like cot, five more only where they disagree, and a vote", writes: Rounds(agree, disagree), ..PROGRAM },
        Kind { name: "critic", about: "an agent like cot, and a critic that reads it", writes: Team(critic), ..KIND },
        Kind { name: "judge", about: "that many agents like cot, and a judge", number: Some(("agents", 3, 16)), writes: Team(judge), ..KIND },
        Kind { name: "chain", about: "each agent reads the one before", number: Some(("agents", 4, 32)), writes: Team(chain), ..KIND },
        Kind { name: "star", about: "agents around one that reads them all", number: Some(("agents", 4, 32)), writes: Team(star), ..KIND },
        Kind { name: "tree", about: "pairs are merged until one is left", number: Some(("leaves", 4, 16)), writes: Team(tree), ..KIND },
        Kind { name: "complete", about: "each agent reads all before it", number: Some(("agents", 4, 16)), writes: Team(complete), ..KIND },
        Kind { name: "random", about: "each earlier agent is read with probability one half, by seed and task", number: Some(("agents", 4, 16)), writes: Team(random), ..KIND },
        Kind { name: "debate", about: "three agents, all read all in each round, then a vote", number: Some(("rounds", 2, 8)), writes: Team(debate), ..KIND },
        Kind { name: "prompted", about: "a model writes the team for each task", writes: Elsewhere(TeamSource::Prompted), ..KIND },
        Kind { name: "policy", about: "a model of our own that learned to write teams writes one for each task", writes: Elsewhere(TeamSource::Policy), ..KIND },
        Kind { name: "decision-critic", about: "a fitted critic chooses how each task is asked, reads the replies and asks again", writes: Elsewhere(TeamSource::Critic), ..KIND },
        Kind { name: "file", about: "the team of --spec", writes: Elsewhere(TeamSource::File), ..KIND },
        Kind { number: EDGES, ..rival("gptswarm", PublishedMethod::GptSwarm, &[Cost, Long], "edges of a roster learned by REINFORCE, then fixed (GPTSwarm)") },
        Kind { number: EDGES, ..rival("agentprune", PublishedMethod::AgentPrune, &[Cost, Long], "edges learned and pruned, drawn for each task (AgentPrune)") },
        Kind { number: EDGES, ..rival("agentdropout", PublishedMethod::AgentDropout, &[Cost, Long], "two rounds, agents and edges eliminated by learned weights (AgentDropout)") },
        rival("g-designer", PublishedMethod::GDesigner, &[Cost, Long], "edges of a roster written for each question, as in the public code (G-Designer)"),
        rival("g-designer-paper", PublishedMethod::GDesignerPaper, &[Cost, Long], "the same with the variational encoder and the anchor of the paper"),
        rival("arg-designer", PublishedMethod::ArgDesigner, &[Cost], "roles and edges written agent by agent for each question (ARG-Designer)"),
        rival("ofa-mas", PublishedMethod::OfaMas, &[Cost], "one generator of roles and edges for all sets (OFA-MAS)"),
        rival("masrouter", PublishedMethod::MasRouter, &[Cost, Long], "mode, roles and a capacity for each agent, by question and price (MasRouter)"),
        rival("aflow", PublishedMethod::AFlow, &[Cost], "a tree search over workflows that a model changes (AFlow)"),
        rival("aflow-random", PublishedMethod::AFlowRandom, &[Cost], "the same search with random changes"),
    ]
};

/// What a rule is told.
#[derive(Debug, Clone, Copy)]
pub struct Ask<'a> {
    /// The capacities, weakest first.
    pub capacities: &'a [String],
    /// How each of them replies; empty where nothing is known.
    pub efforts: &'a [Effort],
    /// The capacity every agent gets; `None`: they take turns, weakest first.
    pub capacity: Option<&'a str>,
    /// Whether a program is asked for.
    pub code: bool,
    /// For the rules that draw.
    pub seed: u64,
}

impl<'a> Ask<'a> {
    /// What is asked about an item.
    pub fn new(item: &lemon_task::Item, language: &'a Language, capacity: Option<&'a str>, seed: u64) -> Self {
        let Language { capacities, efforts, .. } = language;
        Ask { capacities, efforts, capacity, code: matches!(item.key(), Key::Code { .. }), seed }
    }

    /// The capacities whose agents reply in one of these styles.
    fn styled(&self, wanted: impl Fn(Option<Style>) -> bool) -> Vec<&'a str> {
        let style = |at: usize| self.efforts.get(at).and_then(|effort| effort.style);
        let all = self.capacities.iter().enumerate();
        all.filter(|(at, _)| wanted(style(*at))).map(|(_, name)| name.as_str()).collect()
    }

    /// The capacity of an agent that replies in this style: the one that was asked for, or the strongest.
    fn with_style(&self, style: Style) -> Option<&'a str> {
        let known = self.styled(|found| found == Some(style));
        self.capacity.filter(|name| known.contains(name)).or(known.last().copied())
    }
}

impl Kind {
    /// Whether it is a published method that learns first.
    pub fn learns(&self) -> bool {
        matches!(self.writes, Writes::Elsewhere(TeamSource::Trained(_)))
    }
}

impl Method {
    /// The name with the number, the variants and the capacity, as they were given: `debate:3@small`, but `debate` for the
    /// default number.
    pub fn name(&self) -> String {
        let mut name = match self.kind.number {
            Some((_, default, _)) if default != self.number => format!("{}:{}", self.kind.name, self.number),
            _ => self.kind.name.to_owned(),
        };
        for variant in &self.variants {
            name = format!("{name}+{}", variant.as_str());
        }
        match &self.capacity {
            Some(capacity) => format!("{name}@{capacity}"),
            None => name,
        }
    }

    /// Whether it is this variant.
    pub fn is(&self, variant: Variant) -> bool {
        self.variants.contains(&variant)
    }

    /// The capacity that its agents get, over the one that all methods get: a name, or [`CHOSEN`].
    pub fn capacity(&self) -> Option<&str> {
        self.capacity.as_deref()
    }

    /// The same method at this capacity. `None`: it chooses capacities itself.
    pub fn at(&self, capacity: &str) -> Option<Method> {
        self.takes_capacity().then(|| Method { capacity: Some(capacity.to_owned()), ..self.clone() })
    }

    /// Whether its agents can be given a capacity.
    pub fn takes_capacity(&self) -> bool {
        match self.source() {
            None => true,
            Some(TeamSource::Trained(rival)) => rival != PublishedMethod::MasRouter,
            Some(_) => false,
        }
    }

    /// What is known of it.
    pub fn kind(&self) -> &'static Kind {
        self.kind
    }

    pub fn number(&self) -> usize {
        self.number
    }

    /// Who writes its teams, if it is no rule.
    pub fn source(&self) -> Option<TeamSource> {
        match self.kind.writes {
            Writes::Team(_) | Writes::Rounds(..) => None,
            Writes::Elsewhere(source) => Some(source),
        }
    }

    /// The specification its rule writes; `None` if it has no rule. Of two rounds the first.
    pub fn spec(&self, ask: &Ask<'_>) -> Option<String> {
        match self.kind.writes {
            Writes::Team(rule) | Writes::Rounds(rule, _) => Some(self.team(ask, &[], rule).render()),
            Writes::Elsewhere(_) => None,
        }
    }

    /// The specification of the second round, which runs where the agents of the first disagree.
    pub fn second_spec(&self, ask: &Ask<'_>) -> Option<String> {
        let Writes::Rounds(first, second) = self.kind.writes else { return None };
        let before = self.team(ask, &[], first);
        if before.next == Next::Stop {
            return None;
        }
        let before: Vec<String> = before.agents.into_iter().map(|(id, _)| id).collect();
        Some(self.team(ask, &before, second).render())
    }

    /// What writes its teams; `None` if it has no rule.
    pub fn orchestrator(&self, ask: &Ask<'_>) -> Option<Arc<dyn Orchestrator>> {
        let text = self.spec(ask)?;
        let more = self.second_spec(ask).map(|text| Arc::new(IfTheyDisagree { text }) as Arc<dyn Orchestrator>);
        Some(Arc::new(Fixed { text, reviewer: more }))
    }

    fn team<'a>(&self, ask: &Ask<'a>, before: &[String], rule: fn(&mut Team)) -> Team<'a> {
        let (agents, answer) = (Vec::new(), String::new());
        let mut team =
            Team { ask: *ask, number: self.number, before: before.to_vec(), agents, answer, next: Next::Stop };
        rule(&mut team);
        team
    }

    /// That the capacities have the style that it needs.
    ///
    /// # Errors
    /// None has.
    pub fn check(&self, efforts: &[Effort]) -> Result<(), MethodError> {
        match self.kind.needs.filter(|needed| !efforts.iter().any(|effort| effort.style == Some(*needed))) {
            Some(style) => Err(MethodError::NoStyle { name: self.name(), style }),
            None => Ok(()),
        }
    }
}

/// One more round where the agents of the first do not agree.
struct IfTheyDisagree {
    text: String,
}

#[async_trait]
impl Orchestrator for IfTheyDisagree {
    async fn draft(&self, context: &WriteContext<'_>) -> Result<Option<Draft>, OrchestratorError> {
        let wanted = context.round == 2 && !context.agree();
        Ok(wanted.then(|| Draft::Text(self.text.clone())))
    }
}

/// A team being written.
struct Team<'a> {
    ask: Ask<'a>,
    number: usize,
    /// The agents of the round before.
    before: Vec<String>,
    agents: Vec<(String, String)>,
    answer: String,
    next: Next,
}

impl Team<'_> {
    /// Adds an agent that reads these, and gives its id. Agents take turns through the capacities that work as their roles
    /// say, or step by step.
    fn add(&mut self, base: &str, duty: Option<&str>, after: &[String]) -> String {
        let mut capacities = self.ask.styled(|style| style.is_none_or(|style| style == Style::Reasoned));
        if capacities.is_empty() {
            capacities = self.ask.styled(|_| true);
        }
        let turn = self.agents.len().checked_rem(capacities.len()).and_then(|at| capacities.get(at));
        let capacity = self.ask.capacity.or(turn.copied()).unwrap_or_default();
        self.add_at(capacity, base, duty, after)
    }

    fn add_at(&mut self, capacity: &str, base: &str, duty: Option<&str>, after: &[String]) -> String {
        let id = format!("a{}", self.before.len() + self.agents.len() + 1);
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

    /// Adds an agent whose program computes the answer. Where a program is asked for, it is one like the others.
    fn programmer(&mut self) -> String {
        match self.ask.with_style(Style::Program).filter(|_| !self.ask.code) {
            Some(capacity) => self.add_at(capacity, PLAIN, None, &[]),
            None => self.solver(&[]),
        }
    }

    /// The most frequent answer; of programs, which agree in no word, the one that passes most examples.
    fn vote(&mut self, from: &[String]) {
        self.answer(from, if self.ask.code { "test" } else { "vote" });
    }

    fn answer(&mut self, from: &[String], by: &str) {
        self.answer = format!("answer: {{from: [{}], by: {by}}}\n", from.join(", "));
    }

    fn render(&self) -> String {
        let agents: String = self.agents.iter().map(|(_, entry)| entry.as_str()).collect();
        let next = if self.next == Next::Review { "next: review\n" } else { "" };
        format!("agents:\n{agents}{}{next}", self.answer)
    }
}

#[cfg(test)]
mod tests;
