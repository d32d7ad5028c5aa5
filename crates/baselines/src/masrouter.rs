//! MasRouter: for each question a mode of collaboration, a number of agents, their roles, and a capacity for each.
//!
//! A cascade on the embeddings of question, modes, roles and capacities, 64 wide, as in the public code: the kind of task by
//! cosine (temperature 0.5), the mode among six (temperature 0.8) from variational vectors, the number of agents up to six, roles
//! one by one given the sum of earlier ones, and a capacity for each agent. Utility is `right − price · cost`; Adam at 0.01, batches
//! of 16, five passes, without a baseline. The loss adds the cross-entropy of the kind of task and 0.001 times that of the
//! variational encoder. At test a team is drawn for each question.
//!
//! | mode | team |
//! |---|---|
//! | IO | one agent that answers |
//! | CoT | one agent that works step by step |
//! | Chain, FullConnected | the agents, and one more that reads all and decides |
//! | Debate | every agent twice: the second time it reads all of the first; one more decides |
//! | Reflection | the agents in a row, and the first once more, which reads them all |
//!
//! Departures: the number of agents is drawn (binomially, of six, at least one) and learned; in the public code it is rounded and has
//! no gradient. The price is that of the public code (200 · dollars) at 0.1 dollars for a million tokens of the weakest capacity:
//! 2·10⁻⁵ for each. The price of a capacity is in that account. Vectors of capacities are those of a sentence that says their rank. The
//! variant `+cost` takes the reward of this project as utility; `+long` makes ten times the passes and takes the mean reward of a
//! task off its rewards.

use crate::cards::{CARDS, Domain};
use crate::encoder::{Encoder, WIDTH};
use crate::error::BaselineError;
use crate::graph::{GraphDecision, GraphMember, RoleGraph};
use crate::nn::{Adam, Linear, Mlp, NetWeights, draw, log_sigmoid, log_softmax, tensor, values};
use crate::trials::{ItemBaseline, RivalObjective, Trials};
use candle_core::{D, DType, Result, Tensor};
use lemon_num::Random;
use serde::{Deserialize, Serialize};

const HIDDEN: usize = 64;
const TASK_TEMPERATURE: f64 = 0.5;
const MODE_TEMPERATURE: f64 = 0.8;
const CHOICE_TEMPERATURE: f64 = 1.0;
/// Agents of a team.
const MOST_AGENTS: usize = 6;
/// What a token of the weakest capacity costs, in right answers.
pub const PRICE: f64 = 2e-5;
const RATE: f64 = 0.01;
const BATCH: usize = 16;
const PASSES: usize = 5;
const LONG: usize = 50;
const VARIATIONAL: f64 = 0.001;

/// How agents work together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// One agent answers.
    Io,
    /// One agent works step by step.
    Cot,
    /// Each reads the one before.
    Chain,
    /// Each reads all before it.
    Full,
    /// Two rounds, all read all.
    Debate,
    /// The first revises what the others said of it.
    Reflection,
}

impl Mode {
    /// All modes.
    pub const ALL: [Mode; 6] = [Mode::Io, Mode::Cot, Mode::Chain, Mode::Full, Mode::Debate, Mode::Reflection];

    fn description(self) -> &'static str {
        match self {
            Mode::Io => "One agent answers the question directly, without showing its work.",
            Mode::Cot => "One agent solves the question alone, step by step.",
            Mode::Chain => "Several agents in a row: each reads the one before and goes on from there.",
            Mode::Full => "Several agents, each of which reads all agents before it.",
            Mode::Debate => "Several agents answer, read each other, and answer again.",
            Mode::Reflection => "An agent answers, others criticise it, and it revises its answer.",
        }
    }

    fn is_alone(self) -> bool {
        matches!(self, Mode::Io | Mode::Cot)
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
        let member = |at: usize, after: Vec<usize>| {
            let (card, capacity) = self.agents.get(at).copied().unwrap_or_default();
            GraphMember { card, capacity: Some(capacity), after }
        };
        let (members, decision): (Vec<GraphMember>, GraphDecision) = match self.mode {
            Mode::Io | Mode::Cot => (vec![member(0, Vec::new())], GraphDecision::Last),
            Mode::Chain => (
                (0..count).map(|at| member(at, at.checked_sub(1).into_iter().collect())).collect(),
                GraphDecision::Judge,
            ),
            Mode::Full => ((0..count).map(|at| member(at, (0..at).collect())).collect(), GraphDecision::Judge),
            Mode::Debate => {
                let again = (0..count).map(|at| member(at, (0..count).collect()));
                ((0..count).map(|at| member(at, Vec::new())).chain(again).collect(), GraphDecision::Judge)
            }
            Mode::Reflection => {
                let others = (0..count).map(|at| member(at, at.checked_sub(1).into_iter().collect()));
                (others.chain([member(0, (0..count).collect())]).collect(), GraphDecision::Last)
            }
        };
        RoleGraph { members, decision }
    }
}

/// The cascade.
pub struct MasRouter {
    weights: NetWeights,
    task_query: Linear,
    task_kind: Linear,
    mode_encoder: Mlp,
    mode_mean: Linear,
    mode_spread: Linear,
    mode_decoder: Mlp,
    count: Mlp,
    role_context: Mlp,
    role: Linear,
    capacity_context: Mlp,
    capacity: Linear,
    kinds: Tensor,
    modes: Tensor,
    roles: Tensor,
    capacities: Tensor,
}

/// What one question came to, with the logarithm of its probability.
struct Walk {
    routed: Routed,
    log: Tensor,
    /// The cross-entropy of the kind of task, and the loss of the variational encoder.
    side: Tensor,
}

impl MasRouter {
    /// A router over so many capacities.
    ///
    /// # Errors
    /// The weights are of another model, or a text has no vector.
    pub fn new(
        capacities: &[String],
        mut weights: NetWeights,
        encoder: &Encoder,
    ) -> std::result::Result<Self, BaselineError> {
        let dtype = weights.dtype();
        let rows = |texts: Vec<String>| -> std::result::Result<Tensor, BaselineError> {
            let mut all = Vec::new();
            for text in &texts {
                all.extend_from_slice(&encoder.encode(text)?);
            }
            Ok(tensor(&all, (texts.len(), WIDTH), dtype)?)
        };
        let rank = |(at, name): (usize, &String)| {
            format!("The language model {name}: number {} of {} by strength and by price.", at + 1, capacities.len())
        };
        let w = &mut weights;
        Ok(MasRouter {
            task_query: Linear::new(w, "task.query", WIDTH, HIDDEN)?,
            task_kind: Linear::new(w, "task.kind", WIDTH, HIDDEN)?,
            mode_encoder: Mlp::new(w, "mode.encoder", &[WIDTH, HIDDEN])?,
            mode_mean: Linear::new(w, "mode.mean", HIDDEN, HIDDEN)?,
            mode_spread: Linear::new(w, "mode.spread", HIDDEN, HIDDEN)?,
            mode_decoder: Mlp::new(w, "mode.decoder", &[HIDDEN, HIDDEN, WIDTH])?,
            count: Mlp::new(w, "count", &[WIDTH, HIDDEN, 1])?,
            role_context: Mlp::new(w, "role.context", &[3 * WIDTH, HIDDEN, HIDDEN])?,
            role: Linear::new(w, "role", WIDTH, HIDDEN)?,
            capacity_context: Mlp::new(w, "capacity.context", &[2 * WIDTH, HIDDEN, HIDDEN])?,
            capacity: Linear::new(w, "capacity", WIDTH, HIDDEN)?,
            kinds: rows(Domain::ALL.map(|domain| domain.description().to_owned()).to_vec())?,
            modes: rows(Mode::ALL.map(|mode| mode.description().to_owned()).to_vec())?,
            roles: rows(CARDS.iter().map(|card| card.description()).collect())?,
            capacities: rows(capacities.iter().enumerate().map(rank).collect())?,
            weights,
        })
    }

    /// Its weights.
    pub fn weights(&self) -> &NetWeights {
        &self.weights
    }

    /// A team drawn for a question.
    ///
    /// # Errors
    /// A tensor operation failed.
    pub fn design(&self, query: &[f32], domain: Domain, random: &mut Random) -> Result<RoleGraph> {
        Ok(self.walk(query, domain, false, random)?.routed.graph())
    }

    /// Goes through the cascade, drawing at each step.
    fn walk(&self, query: &[f32], domain: Domain, learning: bool, random: &mut Random) -> Result<Walk> {
        let query = tensor(query, (1, WIDTH), self.weights.dtype())?;
        let kinds = cosines(&self.task_query.forward(&query)?, &self.task_kind.forward(&self.kinds)?)?;
        let kind = log_softmax(&(kinds / TASK_TEMPERATURE)?)?;
        let at = Domain::ALL.iter().position(|other| *other == domain).unwrap_or(0);
        let mut side = kind.narrow(1, at, 1)?.sum_all()?.neg()?;

        let mut latent = |x: &Tensor| -> Result<(Tensor, Tensor)> {
            let h = self.mode_encoder.forward(x)?.relu()?;
            let (mean, spread) = (self.mode_mean.forward(&h)?, self.mode_spread.forward(&h)?);
            let z = match learning {
                true => {
                    let noise: Vec<f32> = (0..mean.elem_count()).map(|_| random.normal() as f32).collect();
                    (&mean + (spread.exp()? * tensor(&noise, mean.shape(), mean.dtype())?)?)?
                }
                false => mean.clone(),
            };
            let again = (self.mode_decoder.forward(&z)? - x)?.sqr()?.mean_all()?;
            let two = (&spread * 2.0)?;
            let divergence = ((((two.exp()? + mean.sqr()?)? - two)? - 1.0)?.mean_all()? * 0.5)?;
            Ok((z, (again + divergence)?))
        };
        let (of_query, first) = latent(&query)?;
        let (of_modes, second) = latent(&self.modes)?;
        side = (side + ((first + second)? * VARIATIONAL)?)?;
        let (mode, log) = choice(&(cosines(&of_query, &of_modes)? / MODE_TEMPERATURE)?, random)?;
        let mut log = log;
        let mode_vector = self.modes.narrow(0, mode, 1)?;
        let mode = Mode::ALL.get(mode).copied().unwrap_or(Mode::Io);

        let mut count = 1;
        if !mode.is_alone() {
            // Binomial of six: each of the six is there with the same probability.
            let logit = self.count.forward(&query)?;
            let share = lemon_num::logistic(f64::from(values(&logit)?.first().copied().unwrap_or(0.0)));
            let there = (0..MOST_AGENTS).filter(|_| random.chance(share)).count();
            let (yes, no) = (log_sigmoid(&logit)?.sum_all()?, log_sigmoid(&logit.neg()?)?.sum_all()?);
            log = (log + ((yes * there as f64)? + (no * (MOST_AGENTS - there) as f64)?)?)?;
            count = there.max(1);
        }
        let roles = self.roles_of(domain)?;
        let role_keys = self.role.forward(&roles)?;
        let capacity_keys = self.capacity.forward(&self.capacities)?;
        let mut earlier = query.zeros_like()?;
        let mut agents = Vec::new();
        for _ in 0..count {
            let context = self.role_context.forward(&Tensor::cat(&[&query, &mode_vector, &earlier], 1)?)?;
            let (role, role_log) = choice(&(cosines(&context, &role_keys)? / (CHOICE_TEMPERATURE / 4.0))?, random)?;
            let vector = roles.narrow(0, role, 1)?;
            earlier = (earlier + &vector)?;
            let context = self.capacity_context.forward(&Tensor::cat(&[&query, &vector], 1)?)?;
            let (capacity, capacity_log) =
                choice(&(cosines(&context, &capacity_keys)? / (CHOICE_TEMPERATURE / 4.0))?, random)?;
            log = ((log + role_log)? + capacity_log)?;
            agents.push((domain.roster().start + role, capacity));
        }
        Ok(Walk { routed: Routed { mode, agents }, log, side })
    }

    fn roles_of(&self, domain: Domain) -> Result<Tensor> {
        let roster = domain.roster();
        self.roles.narrow(0, roster.start, roster.len())
    }
}

/// The cosines of a row with other rows.
fn cosines(one: &Tensor, others: &Tensor) -> Result<Tensor> {
    let unit = |x: &Tensor| x.broadcast_div(&(x.sqr()?.sum_keepdim(D::Minus1)?.sqrt()? + 1e-8)?);
    unit(one)?.matmul(&unit(others)?.t()?)
}

/// One of the columns, drawn, and the logarithm of its probability.
fn choice(logits: &Tensor, random: &mut Random) -> Result<(usize, Tensor)> {
    let logs = log_softmax(logits)?;
    let at = draw(&values(&logs.exp()?)?, random);
    let log = logs.narrow(1, at, 1)?.sum_all()?;
    Ok((at, log))
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
) -> std::result::Result<MasRouter, BaselineError> {
    let router = MasRouter::new(&trials.frame.capacities, NetWeights::new(seed, DType::F32), encoder)?;
    let mut random = Random::named(seed, "masrouter");
    let mut tasks: Vec<usize> = (0..trials.tasks.len()).collect();
    random.shuffle(&mut tasks);
    let mut baseline = if long { ItemBaseline::of_items(tasks.len()) } else { ItemBaseline::none() };
    let mut adam = Adam::new(RATE);
    let mut pass = 0;
    while trials.goes_on(pass, if long { LONG } else { PASSES }) {
        for tasks in tasks.chunks(BATCH) {
            let (mut walks, mut graphs) = (Vec::new(), Vec::new());
            for task in tasks {
                let text = &trials.tasks[*task];
                let walk = router.walk(&encoder.encode(&text.question)?, text.domain, true, &mut random)?;
                graphs.push((*task, walk.routed.graph()));
                walks.push(walk);
            }
            let scores = trials.run_graphs(&graphs, pass as u64).await?;
            let price = if trials.objective == RivalObjective::Native { PRICE } else { 0.0 };
            let worth = |score: &crate::trials::RunScore| Some(trials.utility(score)? - price * score.cost);
            let utilities: Vec<Option<f64>> = scores.iter().map(|score| score.as_ref().and_then(worth)).collect();
            let advantages = baseline.advantages(tasks, &utilities);
            let count = walks.len().max(1) as f64;
            let term = |(walk, advantage): (&Walk, &f64)| (&walk.log * -advantage)? + &walk.side;
            let terms = walks.iter().zip(&advantages).map(term).collect::<Result<Vec<_>>>()?;
            adam.step(&router.weights, &(Tensor::stack(&terms, 0)?.sum_all()? / count)?)?;
        }
        pass += 1;
    }
    Ok(router)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nn::check::check_gradient;
    use crate::planted::{Planted, tasks};
    use lemon_spec::{Language, Spec};

    fn router(seed: u64, dtype: DType) -> MasRouter {
        MasRouter::new(&Language::default().capacities, NetWeights::new(seed, dtype), &Encoder::hashed()).unwrap()
    }

    #[test]
    fn the_gradient_is_the_difference_quotient() {
        let router = router(3, DType::F64);
        let query = Encoder::hashed().encode("How many are left?").unwrap();
        // A seed with which several agents are drawn: the same draws give the same walk.
        let walk = |seed: u64| router.walk(&query, Domain::Math, true, &mut Random::new(seed)).unwrap();
        let seed = (0..50).find(|seed| walk(*seed).routed.agents.len() > 1).unwrap();
        check_gradient(router.weights(), || {
            let walk = walk(seed);
            walk.log + walk.side
        });
    }

    #[track_caller]
    fn check(mode: Mode, agents: usize, edges: usize) {
        let graph = Routed { mode, agents: vec![(0, 1); 3] }.graph();
        assert_eq!((graph.members.len(), graph.edges().count()), (agents, edges), "{mode:?}");
    }

    #[test]
    fn modes_are_the_teams_they_are_named_after() {
        check(Mode::Io, 1, 0);
        check(Mode::Cot, 1, 0);
        check(Mode::Chain, 3, 2);
        check(Mode::Full, 3, 3);
        check(Mode::Debate, 6, 9);
        check(Mode::Reflection, 4, 5);
    }

    /// The strongest capacity alone is right; the others cost less and are not.
    fn planted(_: usize, spec: &Spec) -> f64 {
        let strong = spec.agents.iter().filter(|agent| agent.capacity == "large").count();
        if 2 * strong > spec.agents.len() { 0.95 } else { 0.05 }
    }

    #[tokio::test]
    async fn a_planted_capacity_is_found() {
        let (tasks, scorer, encoder) = (tasks(Domain::Math), Planted(planted), Encoder::hashed());
        let frame = crate::graph::SpecFrame::new(&Language::default(), None);
        let mut trials = Trials::new(&scorer, &tasks, frame, 1);
        let trained = learn(true, &mut trials, &encoder, 1).await.unwrap();
        let query = encoder.encode(&tasks[0].question).unwrap();
        let mut random = Random::new(4);
        let mut score = |router: &MasRouter| {
            let graphs = (0..100).map(|_| router.design(&query, Domain::Math, &mut random).unwrap());
            graphs.filter(|graph| planted(0, &trials.frame.spec(graph, Domain::Math)) > 0.5).count()
        };
        let (before, after) = (score(&router(1, DType::F32)), score(&trained));
        assert!(after > before + 25, "{after} of 100, {before} untrained");
    }
}
