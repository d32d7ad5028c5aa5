//! The networks of MasRouter, 64 wide.
//!
//! | part | |
//! |---|---|
//! | kind of task | cosines of linear maps of question and kinds, softmax at 0.5; the cross-entropy is taken of these probabilities as if they were logits, as in the public code |
//! | variational encoder | 384 → 64 → mean and log-variance; a draw of a tenth of that spread; 64 → 64 → 384. Its loss: the mean square error, and the mean divergence from a normal distribution of spread 0.1. One each for modes, questions, the number, roles and capacities; what is drawn is scaled to length 1 |
//! | mode | cosines of question and modes, softmax at 0.8 |
//! | number | `6 σ(linear)` of the question's number vector, rounded, at least 1 |
//! | roles | one after the other: cosines of roles with a linear map of `[question; mode; roles so far]`, softmax at 0.5; the roles so far are summed, and normed after each |
//! | capacities | cosines of capacities with a linear map of `[question; mode; roles]`, softmax at 1; all agents draw from the same probabilities |

use super::{Mode, Routed};
use crate::cards::{CARDS, Domain};
use crate::encoder::{Encoder, WIDTH};
use crate::error::BaselineError;
use crate::graph::RoleGraph;
use crate::nn::{Linear, NetWeights, draw, log_softmax, sigmoid, tensor, values};
use candle_core::{D, Result, Tensor};
use lemon_num::Random;
use std::sync::Arc;

const HIDDEN: usize = 64;
const TASK_TEMPERATURE: f64 = 0.5;
const MODE_TEMPERATURE: f64 = 0.8;
const ROLE_TEMPERATURE: f64 = 0.5;
const CAPACITY_TEMPERATURE: f64 = 1.0;
/// Agents of a team.
const MOST_AGENTS: usize = 6;
/// How much the losses of the variational encoders count.
const VARIATIONAL: f64 = 0.001;
/// The spread of what is expected of an encoder, and the share of its own spread that is drawn.
const PRIOR: f64 = 0.1;
/// What a norm adds to a variance.
const NORM_EPSILON: f64 = 1e-5;

/// A question to route.
#[derive(Debug, Clone)]
pub struct RouterQuery {
    /// Its vector.
    pub query: Arc<[f32]>,
    /// What kind of task it is.
    pub domain: Domain,
}

/// The cascade.
pub struct RouterNet {
    weights: NetWeights,
    task_query: Linear,
    task_kind: Linear,
    mode: Variational,
    question: Variational,
    number: Variational,
    number_out: Linear,
    role: Variational,
    role_context: Linear,
    capacity: Variational,
    capacity_context: Linear,
    kinds: Tensor,
    modes: Tensor,
    roles: Tensor,
    capacities: Tensor,
}

/// What a batch of questions came to.
pub struct Walks {
    /// The teams.
    pub routed: Vec<Routed>,
    /// The logarithms of their probabilities.
    logs: Vec<Tensor>,
    /// The cross-entropy of the kinds of tasks, and the losses of the variational encoders.
    side: Tensor,
}

impl Walks {
    /// The loss, by what each team was worth.
    ///
    /// # Errors
    /// A tensor operation failed.
    pub fn loss(&self, advantages: &[f64]) -> Result<Tensor> {
        let count = self.logs.len().max(1) as f64;
        let mut loss = self.side.clone();
        for (log, advantage) in self.logs.iter().zip(advantages) {
            loss = (loss + (log * (-advantage / count))?)?;
        }
        Ok(loss)
    }
}

impl RouterNet {
    /// A router over so many capacities.
    ///
    /// # Errors
    /// The weights are of another model, or a text has no vector.
    pub fn new(
        capacities: usize,
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
        let w = &mut weights;
        Ok(RouterNet {
            task_query: Linear::new(w, "task.query", WIDTH, HIDDEN)?,
            task_kind: Linear::new(w, "task.kind", WIDTH, HIDDEN)?,
            mode: Variational::new(w, "mode")?,
            question: Variational::new(w, "question")?,
            number: Variational::new(w, "number")?,
            number_out: Linear::new(w, "number.out", HIDDEN, 1)?,
            role: Variational::new(w, "role")?,
            role_context: Linear::new(w, "role.context", 3 * HIDDEN, HIDDEN)?,
            capacity: Variational::new(w, "capacity")?,
            capacity_context: Linear::new(w, "capacity.context", 3 * HIDDEN, HIDDEN)?,
            kinds: rows(Domain::ALL.map(|domain| domain.description().to_owned()).to_vec())?,
            modes: rows(Mode::ALL.map(|mode| mode.description().to_owned()).to_vec())?,
            roles: rows(CARDS.iter().map(|card| card.description()).collect())?,
            capacities: rows((0..capacities).map(|at| rank(at, capacities)).collect())?,
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
    pub fn design(&self, query: &Arc<[f32]>, domain: Domain, random: &mut Random) -> Result<RoleGraph> {
        let walks = self.walk(&[RouterQuery { query: query.clone(), domain }], random)?;
        Ok(walks.routed.first().map(Routed::graph).unwrap_or_default())
    }

    /// Goes through the cascade with a batch of questions, drawing at each step.
    ///
    /// # Errors
    /// A tensor operation failed.
    pub fn walk(&self, asked: &[RouterQuery], random: &mut Random) -> Result<Walks> {
        let rows: Vec<f32> = asked.iter().flat_map(|asked| asked.query.iter().copied()).collect();
        let queries = tensor(&rows, (asked.len(), WIDTH), self.weights.dtype())?;
        let of_kinds = unit(&self.task_query.forward(&queries)?)?;
        let kinds = of_kinds.matmul(&unit(&self.task_kind.forward(&self.kinds)?)?.t()?)?;
        let kinds = log_softmax(&log_softmax(&(kinds / TASK_TEMPERATURE)?)?.exp()?)?;

        let (modes, of_modes) = self.mode.encode(&self.modes, random)?;
        let (questions, of_questions) = self.question.encode(&queries, random)?;
        let (numbers, of_numbers) = self.number.encode(&queries, random)?;
        let (capacities, of_capacities) = self.capacity.encode(&self.capacities, random)?;
        let mode_logs = log_softmax(&(questions.matmul(&modes.t()?)? / MODE_TEMPERATURE)?)?;
        let numbers = (sigmoid(&self.number_out.forward(&numbers)?)? * MOST_AGENTS as f64)?;

        let (mut routed, mut logs, mut wrong, mut of_roles) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for (at, asked) in asked.iter().enumerate() {
            let kind = Domain::ALL.iter().position(|other| *other == asked.domain).unwrap_or(0);
            wrong.push(kinds.narrow(0, at, 1)?.narrow(1, kind, 1)?.sum_all()?.neg()?);
            let (mode, mut log) = choice(&mode_logs.narrow(0, at, 1)?, random)?;
            let number = numbers.narrow(0, at, 1)?;
            let agents = values(&number)?.first().map_or(1.0, |number| number.round_ties_even());
            let agents = (agents as usize).clamp(1, MOST_AGENTS);

            let roster = asked.domain.roster();
            let (roles, of_these) = self.role.encode(&self.roles.narrow(0, roster.start, roster.len())?, random)?;
            of_roles.push(of_these);
            let context = Tensor::cat(&[&of_kinds.narrow(0, at, 1)?, &modes.narrow(0, mode, 1)?], 1)?;
            let (drawn_roles, history, role_log) = self.draw_roles(&context, &roles, agents, random)?;
            let context = self.capacity_context.forward(&Tensor::cat(&[&context, &history], 1)?)?;
            let (drawn_capacities, capacity_log) = draw_capacities(&unit(&context)?, &capacities, agents, random)?;
            log = (((log + role_log)? + capacity_log)? + ln_gamma_after(&number)?.sum_all()?)?;
            let mode = Mode::ALL.get(mode).copied().unwrap_or(Mode::Io);
            let cards = drawn_roles.into_iter().map(|role| roster.start + role);
            routed.push(Routed { mode, agents: cards.zip(drawn_capacities).collect() });
            logs.push(log);
        }
        let mean = |terms: &[Tensor]| Tensor::stack(terms, 0)?.mean_all();
        let variational = ((of_modes + of_questions)? + (of_numbers + of_capacities)?)? + mean(&of_roles)?;
        let side = (mean(&wrong)? + (variational? * VARIATIONAL)?)?;
        Ok(Walks { routed, logs, side })
    }

    /// So many roles, one after the other, what the last was drawn by, and the logarithm of the probability of all.
    fn draw_roles(
        &self,
        context: &Tensor,
        roles: &Tensor,
        agents: usize,
        random: &mut Random,
    ) -> Result<(Vec<usize>, Tensor, Tensor)> {
        let mut history = roles.narrow(0, 0, 1)?.zeros_like()?;
        let (mut last, mut log) = (history.clone(), history.sum_all()?);
        let mut drawn = Vec::new();
        for _ in 0..agents {
            history = normed(&(history + last)?)?;
            let wanted = unit(&self.role_context.forward(&Tensor::cat(&[context, &history], 1)?)?)?;
            let (role, role_log) = choice(&log_softmax(&(wanted.matmul(&roles.t()?)? / ROLE_TEMPERATURE)?)?, random)?;
            log = (log + role_log)?;
            last = roles.narrow(0, role, 1)?;
            drawn.push(role);
        }
        Ok((drawn, history, log))
    }
}

/// So many capacities from the same probabilities, and the logarithm of the probability of how many there are of each, less
/// that of the number's factorial.
fn draw_capacities(
    wanted: &Tensor,
    capacities: &Tensor,
    agents: usize,
    random: &mut Random,
) -> Result<(Vec<usize>, Tensor)> {
    let logs = log_softmax(&(wanted.matmul(&capacities.t()?)? / CAPACITY_TEMPERATURE)?)?;
    let mut counts = vec![0_u32; capacities.dim(0)?];
    let mut drawn = Vec::new();
    let mut log = (wanted.sum_all()? * 0.0)?;
    for _ in 0..agents {
        let (capacity, capacity_log) = choice(&logs, random)?;
        log = (log + capacity_log)?;
        counts.iter_mut().skip(capacity).take(1).for_each(|count| *count += 1);
        drawn.push(capacity);
    }
    let orders: f64 = counts.iter().flat_map(|count| 1..=*count).map(|factor| f64::from(factor).ln()).sum();
    Ok((drawn, (log - orders)?))
}

/// What an encoder sees of a capacity: its place among all of them.
fn rank(at: usize, of: usize) -> String {
    format!("A language model, number {} of {of} by strength and by price.", at + 1)
}

/// Every text that is read as a vector, but roles and kinds of tasks; of capacities, where there are at most eight.
pub fn texts() -> impl Iterator<Item = String> {
    let modes = Mode::ALL.iter().map(|mode| mode.description().to_owned());
    modes.chain((1..=8).flat_map(|of| (0..of).map(move |at| rank(at, of))))
}

/// Draws vectors of texts.
struct Variational {
    within: Linear,
    mean: Linear,
    spread: Linear,
    back: [Linear; 2],
}

impl Variational {
    fn new(w: &mut NetWeights, name: &str) -> Result<Self> {
        let name = |part: &str| format!("{name}.{part}");
        Ok(Variational {
            within: Linear::new(w, &name("within"), WIDTH, HIDDEN)?,
            mean: Linear::new(w, &name("mean"), HIDDEN, HIDDEN)?,
            spread: Linear::new(w, &name("spread"), HIDDEN, HIDDEN)?,
            back: [Linear::new(w, &name("back.0"), HIDDEN, HIDDEN)?, Linear::new(w, &name("back.1"), HIDDEN, WIDTH)?],
        })
    }

    /// A vector of length 1 for each row, and the loss.
    fn encode(&self, x: &Tensor, random: &mut Random) -> Result<(Tensor, Tensor)> {
        let h = self.within.forward(x)?.relu()?;
        let (mean, log_variance) = (self.mean.forward(&h)?, self.spread.forward(&h)?);
        let noise: Vec<f32> = (0..mean.elem_count()).map(|_| (random.normal() * PRIOR) as f32).collect();
        let z = (&mean + ((&log_variance * 0.5)?.exp()? * tensor(&noise, mean.shape(), mean.dtype())?)?)?;
        let [first, second] = &self.back;
        let error = (second.forward(&first.forward(&z)?.relu()?)? - x)?.sqr()?.mean_all()?;
        let variance = PRIOR * PRIOR;
        let divergence = (((log_variance.exp()? + mean.sqr()?)? / variance)? - &log_variance)?;
        let divergence = ((divergence.mean_all()? + (variance.ln() - 1.0))? * 0.5)?;
        Ok((unit(&z)?, (error + divergence)?))
    }
}

/// Rows of length 1.
fn unit(x: &Tensor) -> Result<Tensor> {
    x.broadcast_div(&(x.sqr()?.sum_keepdim(D::Minus1)?.sqrt()? + 1e-8)?)
}

/// Rows with mean 0 and variance 1.
fn normed(x: &Tensor) -> Result<Tensor> {
    let centred = x.broadcast_sub(&x.mean_keepdim(D::Minus1)?)?;
    centred.broadcast_div(&(centred.sqr()?.mean_keepdim(D::Minus1)? + NORM_EPSILON)?.sqrt()?)
}

/// One of the columns, drawn, and the logarithm of its probability.
fn choice(logs: &Tensor, random: &mut Random) -> Result<(usize, Tensor)> {
    let at = draw(&values(&logs.exp()?)?, random);
    let log = logs.narrow(1, at, 1)?.sum_all()?;
    Ok((at, log))
}

/// `ln Γ(x + 1)` of numbers from 0 on: Stirling's series where it is exact, and the way back down from there.
pub(super) fn ln_gamma_after(x: &Tensor) -> Result<Tensor> {
    const UP: i32 = 8;
    let mut product = x.ones_like()?;
    for step in 1..UP {
        product = (product * (x + f64::from(step))?)?;
    }
    let z = (x + f64::from(UP))?;
    let series = (((z.recip()? / 12.0)? - (z.powf(-3.0)? / 360.0)?)? + (z.powf(-5.0)? / 1260.0)?)?;
    let half = 0.5 * (2.0 * std::f64::consts::PI).ln();
    (((((&z - 0.5)? * z.log()?)? - &z)? + half)? + series)? - product.log()?
}
