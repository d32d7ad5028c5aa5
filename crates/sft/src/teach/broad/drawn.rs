//! Random teams: their shapes and their agents. All ids and references are canonical.

use crate::teach::pick;
use crate::teach::rules::{Level, first_base};
use crate::teach::words::{BRIEF, REWORDED, WORKED, worded};
use lemon_num::Random;
use lemon_policy::{TaskFeatures, TaskKind};
use lemon_spec::{Agent, Answer, AnswerRule, Language, Next, Share, Spec};

/// How often in a hundred a team has one agent, two, three or four.
const SIZES: [(u64, usize); 4] = [(20, 1), (35, 2), (30, 3), (15, 4)];
/// How often an agent has which level of model.
const LEVELS: [(u64, Level); 3] = [(30, Level::Weak), (35, Level::Middle), (35, Level::Strong)];
/// How often words name what the task takes, are general, or are left to the base role.
const WORDINGS: [(u64, Wording); 3] = [(50, Wording::Naming), (25, Wording::General), (25, Wording::Inherited)];
/// How several answers become one.
const RULES: [(u64, AnswerRule); 3] = [(45, AnswerRule::Vote), (45, AnswerRule::Judge), (10, AnswerRule::Last)];

/// How often in a hundred a team with planners has three agents, four, five or six.
const ADVISED_SIZES: [(u64, usize); 4] = [(25, 3), (30, 4), (20, 5), (25, 6)];

/// How agents stand to each other.
#[derive(Clone, Copy)]
enum Form {
    /// Each reads the one before.
    Chain,
    /// No agent reads another.
    Abreast,
    /// One plans, one or two carry it out, one verifies.
    Planned,
    /// Experts, and a critic who reads them.
    Reviewed,
}

#[derive(Clone, Copy)]
enum Wording {
    Naming,
    General,
    Inherited,
}

/// Roles and duties that fit any task. None names a skill.
pub(super) const ROLES: [&str; 6] =
    ["Careful worker", "Team member", "Calm colleague", "Thoughtful helper", "Sceptical reader", "Steady hand"];
pub(super) const DUTIES: [&str; 8] = [
    "Do this with care.",
    "Take it slowly and make sure.",
    "Read the task again, then decide.",
    "Say what you think and why.",
    "Look at it from another side.",
    "Be brief but complete.",
    "Trust nothing that you have not looked at.",
    "Make sure that it is what was asked for.",
];

/// Samples teams.
pub(in crate::teach) struct TeamSampler(Random);

impl TeamSampler {
    pub fn new(seed: u64) -> Self {
        TeamSampler(Random::new(seed))
    }

    pub fn chance(&mut self, probability: f64) -> bool {
        self.0.chance(probability)
    }

    fn weighted<T: Copy>(&mut self, choices: &[(u64, T)], otherwise: T) -> T {
        let mut rolled = self.0.next_u64() % choices.iter().map(|(weight, _)| weight).sum::<u64>().max(1);
        for (weight, choice) in choices {
            match rolled.checked_sub(*weight) {
                Some(rest) => rolled = rest,
                None => return *choice,
            }
        }
        otherwise
    }

    fn one_of(&mut self, words: &[&'static str]) -> &'static str {
        pick(words, self.0.next_u64()).unwrap_or_default()
    }

    /// How the answers of so many become one.
    pub fn rule(&mut self, sources: usize) -> AnswerRule {
        if sources > 1 { self.weighted(&RULES, AnswerRule::Vote) } else { AnswerRule::Last }
    }

    /// The shape of a first round: bases and references, without words and levels.
    pub fn opening(&mut self, kind: TaskKind, next: Next) -> Spec {
        let size = self.weighted(&SIZES, 1);
        let form = match size {
            1 => Form::Chain,
            // As many with a vote as with a judge.
            2 => self.weighted(&[(1, Form::Chain), (2, Form::Abreast), (1, Form::Reviewed)], Form::Chain),
            _ => {
                let forms = [(1, Form::Chain), (2, Form::Abreast), (1, Form::Planned), (1, Form::Reviewed)];
                self.weighted(&forms, Form::Chain)
            }
        };
        let agents: Vec<Agent> = (0..size).map(|at| self.member(form, at, size, kind)).collect();
        let from: Vec<String> = match form {
            Form::Abreast => agents.iter().map(|agent| agent.id.clone()).collect(),
            Form::Chain | Form::Planned | Form::Reviewed => {
                agents.last().map(|agent| agent.id.clone()).into_iter().collect()
            }
        };
        let by = match self.rule(from.len()) {
            // A judge of a first round would be one of its results, and pairs know none but those of written agents.
            AnswerRule::Judge if next == Next::Review => AnswerRule::Vote,
            by => by,
        };
        Spec { agents, answer: Answer { from, by }, next }
    }

    /// The shape of a first round in which some plan, and all others solve, each with one of the plans or without.
    pub fn advised(&mut self, kind: TaskKind, next: Next) -> Spec {
        let size = self.weighted(&ADVISED_SIZES, 3);
        let planners = if size > 4 && self.chance(0.5) { 2 } else { 1 };
        let agents: Vec<Agent> = (0..size)
            .map(|at| match size - at {
                _ if at < planners => agent(at, "planner", Vec::new()),
                // The last ones get a plan each, so that every plan is read.
                left if left <= planners => agent(at, self.worker(kind), vec![id_at(left - 1)]),
                _ if self.chance(0.5) => {
                    let plan = usize::from(planners == 2 && self.chance(0.5));
                    agent(at, self.worker(kind), vec![id_at(plan)])
                }
                _ => agent(at, self.worker(kind), Vec::new()),
            })
            .collect();
        let from: Vec<String> = agents.iter().skip(planners).map(|agent| agent.id.clone()).collect();
        Spec { agents, answer: Answer { from, by: AnswerRule::Vote }, next }
    }

    /// A vote of several, up to so many agents in all, with levels and marks for duties. In every other team some have a plan, and
    /// every other agent reads the task in other words.
    pub fn voters(&mut self, kind: TaskKind, most: usize, language: &Language) -> Spec {
        let empty = Answer { from: Vec::new(), by: AnswerRule::Vote };
        let mut team = match self.chance(0.5) {
            true => self.advised(kind, Next::Stop),
            false => Spec { agents: Vec::new(), answer: empty, next: Next::Stop },
        };
        while team.answer.from.len() < 2 || team.agents.len() < most && self.chance(0.8) {
            let joining = agent(team.agents.len(), self.worker(kind), Vec::new());
            team.answer.from.push(joining.id.clone());
            team.agents.push(joining);
        }
        for agent in &mut team.agents {
            agent.capacity = self.capacity(language);
            agent.duty = Some(if self.chance(0.5) { REWORDED } else { WORKED }.to_owned());
        }
        team
    }

    /// A vote of all earlier agents and of up to so many new ones, with levels and marks for duties: every other one reads the task
    /// in other words.
    pub fn vote(&mut self, kind: TaskKind, earlier: &[String], most: usize, next: Next, language: &Language) -> Spec {
        let mut agents: Vec<Agent> = Vec::new();
        while agents.is_empty() || agents.len() < most && self.chance(0.75) {
            let mut joining = agent(earlier.len() + agents.len(), self.worker(kind), Vec::new());
            joining.capacity = self.capacity(language);
            joining.duty = Some(if self.chance(0.5) { REWORDED } else { WORKED }.to_owned());
            agents.push(joining);
        }
        let from: Vec<String> = earlier.iter().cloned().chain(agents.iter().map(|agent| agent.id.clone())).collect();
        let by = if from.len() > 1 { AnswerRule::Vote } else { AnswerRule::Last };
        Spec { agents, answer: Answer { from, by }, next }
    }

    /// The first agents of a round, and the vote of these and all earlier ones; every other time it is all of them.
    pub fn some_of(&mut self, round: &Spec, earlier: &[String]) -> Spec {
        let mut team = round.clone();
        if self.chance(0.5) {
            team.agents.truncate(1 + self.0.below(round.agents.len().max(1)));
        }
        let own = team.agents.iter().map(|agent| agent.id.clone());
        team.answer.from = earlier.iter().cloned().chain(own).collect();
        team
    }

    /// The agent at a place of a first round.
    fn member(&mut self, form: Form, at: usize, size: usize, kind: TaskKind) -> Agent {
        let last = at + 1 == size;
        let (base, after) = match form {
            Form::Chain if at > 0 => (self.checker(1), at - 1..at),
            Form::Planned if at == 0 => ("planner", 0..0),
            Form::Planned if last => ("verifier", 1..at),
            Form::Planned => (self.worker(kind), 0..1),
            Form::Reviewed if last => ("critic", 0..at),
            Form::Reviewed => (if kind == TaskKind::Program { "programmer" } else { "expert" }, 0..0),
            Form::Chain | Form::Abreast => (self.worker(kind), 0..0),
        };
        agent(at, base, after.map(id_at).collect())
    }

    /// The shape of a second round: up to so many new agents that read those of the first.
    pub fn further(&mut self, kind: TaskKind, earlier: &[String], most: usize) -> Spec {
        let first = earlier.len();
        let base =
            |sampler: &mut Self, read| if sampler.chance(0.3) { sampler.worker(kind) } else { sampler.checker(read) };
        let mut agents = vec![agent(first, base(self, first), earlier.to_vec())];
        let mut from = vec![id_at(first)];
        if most > 1 && self.chance(0.5) {
            // Beside the first, or behind it; then it reads the first alone, so that no list exceeds what models may write.
            let beside = self.chance(0.5);
            let after = if beside { earlier.to_vec() } else { from.clone() };
            agents.push(agent(first + 1, base(self, after.len()), after));
            from = if beside { vec![id_at(first), id_at(first + 1)] } else { vec![id_at(first + 1)] };
        }
        let by = self.rule(from.len());
        Spec { agents, answer: Answer { from, by }, next: Next::Stop }
    }

    /// The base role of an agent that starts.
    fn worker(&mut self, kind: TaskKind) -> &'static str {
        match kind {
            TaskKind::Program => first_base(kind),
            TaskKind::Number | TaskKind::Options | TaskKind::Knowledge => self.one_of(&["solver", "expert"]),
        }
    }

    /// The base role of an agent that reads so many others.
    fn checker(&mut self, read: usize) -> &'static str {
        self.one_of(if read > 1 { &["critic", "verifier", "judge"] } else { &["critic", "verifier"] })
    }

    /// Gives a team its capacities, its words, and what each agent shares.
    pub fn assign(&mut self, team: &mut Spec, question: &str, features: &TaskFeatures, language: &Language) {
        let read: Vec<String> = team.agents.iter().flat_map(|agent| agent.after.clone()).collect();
        for agent in &mut team.agents {
            agent.capacity = self.capacity(language);
            let mark = if agent.base != "planner" && self.chance(1.0 / 3.0) { BRIEF } else { WORKED };
            agent.duty = Some(mark.to_owned());
            // Where another round follows, every agent may be read. A plan holds no answer.
            let is_read = team.next == Next::Review || read.contains(&agent.id);
            let may_be_short = is_read && agent.base != "planner";
            agent.share = if may_be_short && self.chance(0.5) { Share::Answer } else { Share::Reply };
        }
        *team = worded(team, features, question, self.0.next_u64());
        for agent in &mut team.agents {
            agent.role = self.wording(agent.role.take(), &ROLES);
            agent.duty = self.wording(agent.duty.take(), &DUTIES);
        }
    }

    /// One of three levels; of more capacities each is as likely.
    fn capacity(&mut self, language: &Language) -> String {
        let all = &language.capacities;
        match all.len() > LEVELS.len() {
            // Below the number of capacities.
            true => all.get((self.0.next_u64() % all.len() as u64) as usize).cloned().unwrap_or_default(),
            false => self.weighted(&LEVELS, Level::Middle).name(language),
        }
    }

    /// The words that name what the task takes, general ones, or none.
    fn wording(&mut self, naming: Option<String>, general: &[&'static str]) -> Option<String> {
        match self.weighted(&WORDINGS, Wording::Inherited) {
            Wording::Naming => naming,
            Wording::General => Some(self.one_of(general).to_owned()),
            Wording::Inherited => None,
        }
    }
}

/// An agent without words and level.
fn agent(at: usize, base: &str, after: Vec<String>) -> Agent {
    Agent {
        id: id_at(at),
        base: base.to_owned(),
        role: None,
        duty: None,
        capacity: String::new(),
        after,
        share: Share::Reply,
        tools: Vec::new(),
    }
}

/// The id of the agent at a place of the run, from 0.
fn id_at(place: usize) -> String {
    format!("a{}", place + 1)
}
