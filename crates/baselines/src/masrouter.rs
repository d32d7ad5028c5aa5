//! MasRouter: for each question a mode of collaboration, a number of agents, their roles, and a capacity for each.
//!
//! A cascade on the embeddings of question, modes, roles and capacities, as in the public code: see [`net::RouterNet`]. Utility is
//! `right − price · cost`; Adam at 0.01, batches of 16, five passes, without a baseline. The loss adds the cross-entropy of the kind of
//! task and 0.001 times that of the variational encoders. At test a team is drawn for each question.
//!
//! | mode | team; one more agent reads the last round and decides, at the most frequent capacity of the team |
//! |---|---|
//! | IO, CoT | the agents beside each other: asked for the answer, or for steps |
//! | Chain | each reads the one before |
//! | FullConnected | each reads all before it |
//! | Debate | every agent twice: the second time it reads the others' first replies |
//! | Reflection | every agent twice: the second time it reads its own first reply |
//!
//! The number of agents is rounded, and has a gradient all the same: the logarithm of the probability of the capacities holds
//! `ln Γ(n + 1)` of the number before it is rounded. It rises with every right answer, whatever the number was.
//!
//! Departures: the price is that of the public code (200 · dollars) at 0.1 dollars for a million tokens of the weakest capacity:
//! 2·10⁻⁵ for each. The price of a capacity is in that account. Vectors of capacities are those of a sentence that says their rank;
//! kinds of tasks are four, and roles those of our rosters. The rest of the tasks that fills no batch of 16 is learned from as well.
//! The variant `+cost` takes the reward of this project as utility; `+long` makes ten times the passes and takes the mean reward of a
//! task off its rewards.

pub mod net;

use crate::encoder::Encoder;
use crate::error::BaselineError;
use crate::graph::{GraphDecider, GraphMember, RoleGraph};
use crate::nn::{Adam, NetWeights};
use crate::trials::{ItemBaseline, RivalObjective, RunScore, Trials};
use candle_core::DType;
use lemon_num::Random;
use net::{RouterNet, RouterQuery};

/// What a token of the weakest capacity costs, in right answers.
pub const PRICE: f64 = 2e-5;
const RATE: f64 = 0.01;
const BATCH: usize = 16;
const PASSES: usize = 5;
const LONG: usize = 50;

/// How agents work together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Agents beside each other, asked for the answer.
    Io,
    /// Agents beside each other, asked for steps.
    Cot,
    /// Each reads the one before.
    Chain,
    /// Each reads all before it.
    Full,
    /// Two rounds: the second reads the others of the first.
    Debate,
    /// Two rounds: the second reads what the same agent said in the first.
    Reflection,
}

impl Mode {
    /// All modes.
    pub const ALL: [Mode; 6] = [Mode::Io, Mode::Cot, Mode::Chain, Mode::Full, Mode::Debate, Mode::Reflection];

    fn description(self) -> &'static str {
        match self {
            Mode::Io => "IO: one agent gives the answer to the question directly, without showing its work.",
            Mode::Cot => "CoT: one agent solves the question alone, step by step.",
            Mode::Chain => "Chain: several agents in a row; each reads the one before and goes on from there.",
            Mode::Full => "FullConnected: several agents, each of which reads all agents before it.",
            Mode::Debate => "Debate: several agents answer, read each other, and answer again.",
            Mode::Reflection => {
                "Reflection: several agents answer, look for errors in their own answers, and revise them."
            }
        }
    }

    /// What agents are told of the mode.
    fn manner(self) -> &'static str {
        match self {
            Mode::Io => "Give the answer directly, without your work.",
            Mode::Cot => "Think step by step.",
            Mode::Chain | Mode::Full | Mode::Debate => "",
            Mode::Reflection => "If you see an earlier answer of yours, look for errors in it and answer again.",
        }
    }
}

/// What was chosen for a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Routed {
    /// The mode.
    pub mode: Mode,
    /// Role and capacity of each agent.
    pub agents: Vec<(usize, usize)>,
}

impl Routed {
    /// The team that it stands for.
    pub fn graph(&self) -> RoleGraph {
        let count = self.agents.len();
        let rounds = if matches!(self.mode, Mode::Debate | Mode::Reflection) { 2 } else { 1 };
        let reads = |agent: usize, round: usize| -> Vec<usize> {
            match self.mode {
                Mode::Io | Mode::Cot => Vec::new(),
                Mode::Chain => agent.checked_sub(1).into_iter().collect(),
                Mode::Full => (0..agent).collect(),
                Mode::Debate | Mode::Reflection if round == 0 => Vec::new(),
                Mode::Debate => (0..count).filter(|other| *other != agent).collect(),
                Mode::Reflection => vec![agent],
            }
        };
        let member = |round: usize, agent: usize| {
            let (card, capacity) = self.agents.get(agent).copied().unwrap_or_default();
            GraphMember { card, capacity: Some(capacity), after: reads(agent, round), manner: self.mode.manner() }
        };
        let members = (0..rounds).flat_map(|round| (0..count).map(move |agent| (round, agent)));
        RoleGraph {
            members: members.map(|(round, agent)| member(round, agent)).collect(),
            decider: GraphDecider { reads_from: (rounds - 1) * count, capacity: self.most_frequent() },
        }
    }

    /// The most frequent capacity; of equals the one that comes first.
    fn most_frequent(&self) -> Option<usize> {
        let count = |wanted: usize| self.agents.iter().filter(|(_, capacity)| *capacity == wanted).count();
        let capacities = self.agents.iter().map(|(_, capacity)| *capacity);
        // Of equals `max_by_key` gives the last.
        capacities.rev().max_by_key(|capacity| count(*capacity))
    }
}

/// Learns on the tasks of these trials, which may be of all domains.
///
/// # Errors
/// A run, the encoder or a tensor operation failed.
pub async fn learn(
    long: bool,
    trials: &mut Trials<'_>,
    encoder: &Encoder,
    seed: u64,
) -> Result<RouterNet, BaselineError> {
    let router = RouterNet::new(trials.frame.capacities.len(), NetWeights::new(seed, DType::F32), encoder)?;
    let mut random = Random::named(seed, "masrouter");
    let mut tasks: Vec<usize> = (0..trials.tasks.len()).collect();
    random.shuffle(&mut tasks);
    let mut baseline = if long { ItemBaseline::of_items(tasks.len()) } else { ItemBaseline::none() };
    let mut adam = Adam::new(RATE);
    let mut pass = 0;
    while trials.goes_on(pass, if long { LONG } else { PASSES }) {
        for tasks in tasks.chunks(BATCH) {
            let mut asked = Vec::new();
            for task in tasks {
                let text = &trials.tasks[*task];
                asked.push(RouterQuery { query: encoder.encode(&text.question)?, domain: text.domain });
            }
            let walks = router.walk(&asked, &mut random)?;
            let graphs: Vec<(usize, RoleGraph)> =
                tasks.iter().zip(&walks.routed).map(|(task, routed)| (*task, routed.graph())).collect();
            let scores = trials.run_graphs(&graphs, pass as u64).await?;
            let price = if trials.objective == RivalObjective::Native { PRICE } else { 0.0 };
            let worth = |score: &RunScore| Some(trials.utility(score)? - price * score.cost);
            let utilities: Vec<Option<f64>> = scores.iter().map(|score| score.as_ref().and_then(worth)).collect();
            let advantages = baseline.advantages(tasks, &utilities);
            adam.step(router.weights(), &walks.loss(&advantages)?)?;
        }
        pass += 1;
    }
    Ok(router)
}

#[cfg(test)]
mod tests;
