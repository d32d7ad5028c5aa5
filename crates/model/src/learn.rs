//! Scoring and training: forward pass, losses in plain arithmetic, backward pass.

use crate::PolicyError;
use crate::api::{Example, Objective, Sequence, StepReport, StepSettings};
use crate::grammar::Mask;
use crate::model::Model;
use crate::ops;
use crate::optimiser::{Gradients, Optimiser};
use crate::rows::Rows;
use crate::write::allowed;
use candle_core::{DType, Tensor};
use std::time::Instant;

/// Positions in one pass when scoring.
const ROWS_AT_ONCE: usize = 8_192;

/// The log-probability of each token of each sequence; 0 for tokens that were forced.
pub(crate) fn score(model: &Model, sequences: &[Sequence], temperature: f32) -> Result<Vec<Vec<f32>>, PolicyError> {
    let mut scores = Vec::with_capacity(sequences.len());
    let mut rest = sequences;
    while !rest.is_empty() {
        let mut rows = 0;
        let fitting = rest.iter().take_while(|sequence| {
            let first = rows == 0;
            rows += sequence.prompt.len() + sequence.tokens.len();
            first || rows <= ROWS_AT_ONCE
        });
        let (now, later) = rest.split_at(fitting.count());
        let batch = Batch::new(model, now.iter())?;
        let logprobs = match &batch.choices {
            None => Vec::new(),
            Some(choices) => {
                let hidden = model.ops.gather_rows(&model.hidden(&batch.rows, None)?, &choices.rows)?;
                batch.logprobs(model, &hidden, choices, temperature)?.to_vec1::<f32>()?
            }
        };
        let mut next = logprobs.into_iter();
        for (sequence, chosen) in now.iter().zip(&batch.chosen) {
            let mut score = vec![0f32; sequence.tokens.len()];
            for at in chosen {
                score[*at] = next.next().unwrap_or(f32::NAN); // A position of these tokens.
            }
            scores.push(score);
        }
        rest = later;
    }
    Ok(scores)
}

/// One step on the sum of the objectives.
pub(crate) fn update(
    model: &Model,
    optimiser: &mut Optimiser,
    examples: &[Example],
    settings: &StepSettings,
) -> Result<StepReport, PolicyError> {
    for example in examples {
        example.objective.check(example.sequence.tokens.len())?;
    }
    let mut totals = Totals::default();
    let mut gradients = Gradients::default();
    let at_once = if settings.micro_batch == 0 { examples.len().max(1) } else { settings.micro_batch };
    for examples in examples.chunks(at_once) {
        accumulate(model, examples, settings, &mut gradients, &mut totals)?;
    }
    let norm = gradients.norm()?;
    let mut report = totals.report();
    report.gradient_norm = norm;
    if !(norm.is_finite() && report.loss.is_finite()) {
        report.skipped = true;
        return Ok(report);
    }
    if report.tokens > 0 {
        let scale = if settings.clip_norm > 0.0 && norm > settings.clip_norm { settings.clip_norm / norm } else { 1.0 };
        optimiser.step(&model.parameters, &gradients, settings.learning_rate, scale)?;
    }
    Ok(report)
}

/// Adds the gradients of some examples.
fn accumulate(
    model: &Model,
    examples: &[Example],
    settings: &StepSettings,
    gradients: &mut Gradients,
    totals: &mut Totals,
) -> Result<(), PolicyError> {
    let batch = Batch::new(model, examples.iter().map(|example| &example.sequence))?;
    let Some(choices) = &batch.choices else { return Ok(()) };
    let hidden = model.ops.gather_rows(&model.hidden(&batch.rows, None)?, &choices.rows)?;
    let logits = model.logits(&hidden)?;
    let temperature = f64::from(settings.temperature);
    let logprobs = model.ops.gathered_logprob(&logits, &choices.targets, choices.allowed.as_ref(), temperature)?;
    let entropies = ops::entropy(&logits, choices.allowed.as_ref(), temperature)?.to_vec1::<f32>()?;
    let values = logprobs.to_vec1::<f32>()?;
    // What the loss is to each log-probability is plain arithmetic; the model only has to carry it backwards.
    let mut slopes = Vec::with_capacity(values.len());
    let mut at = 0;
    for (example, chosen) in examples.iter().zip(&batch.chosen) {
        for token in chosen {
            let term = example.objective.term(*token, values[at]);
            totals.add(&term, entropies[at]);
            slopes.push(term.slope as f32);
            at += 1;
        }
    }
    let count = slopes.len();
    let loss = (logprobs * Tensor::from_vec(slopes, count, &model.device)?)?.sum_all()?;
    gradients.add(&loss.backward()?, &model.parameters)?;
    Ok(())
}

/// The milliseconds of going forwards, backwards, and of the optimiser, in the median of several steps.
pub(crate) fn step_parts(
    model: &Model,
    optimiser: &mut Optimiser,
    examples: &[Example],
    times: usize,
) -> Result<[f64; 3], PolicyError> {
    let mut parts: [Vec<f64>; 3] = Default::default();
    for _ in 0..times.max(1) {
        let mut start = Instant::now();
        let mut lap = |part: usize| -> Result<(), PolicyError> {
            model.device.synchronize()?;
            parts[part].push(start.elapsed().as_secs_f64() * 1e3);
            start = Instant::now();
            Ok(())
        };
        let batch = Batch::new(model, examples.iter().map(|example| &example.sequence))?;
        let Some(choices) = &batch.choices else { break };
        let hidden = model.ops.gather_rows(&model.hidden(&batch.rows, None)?, &choices.rows)?;
        let loss = batch.logprobs(model, &hidden, choices, 1.0)?.sum_all()?;
        lap(0)?;
        let mut gradients = Gradients::default();
        gradients.add(&loss.backward()?, &model.parameters)?;
        lap(1)?;
        gradients.norm()?;
        optimiser.step(&model.parameters, &gradients, 0.0, 1.0)?;
        lap(2)?;
    }
    Ok(parts.map(|mut times| {
        times.sort_by(f64::total_cmp);
        times.get(times.len() / 2).copied().unwrap_or(f64::NAN)
    }))
}

/// Sequences, ready for the model.
struct Batch {
    rows: Rows,
    /// By sequence: the tokens that were chosen and not forced.
    chosen: Vec<Vec<usize>>,
    /// `None`: nothing was chosen anywhere.
    choices: Option<Choices>,
}

/// The tokens that were chosen, in all sequences together.
struct Choices {
    /// The rows that predict them.
    rows: Vec<u32>,
    targets: Tensor,
    allowed: Option<Tensor>,
}

impl Batch {
    fn new<'s>(model: &Model, sequences: impl Iterator<Item = &'s Sequence>) -> Result<Batch, PolicyError> {
        let sequences: Vec<&Sequence> = sequences.collect();
        let mut texts = Vec::with_capacity(sequences.len());
        for sequence in &sequences {
            let length = sequence.prompt.len() + sequence.tokens.len();
            if sequence.prompt.is_empty() || length > model.config.positions {
                let most = model.config.positions;
                let fact = format!(
                    "a sequence of {length} tokens, {} of them prompt; from 1 to {most} can be read",
                    sequence.prompt.len()
                );
                return Err(PolicyError::Request(fact));
            }
            if let Some(token) =
                sequence.prompt.iter().chain(&sequence.tokens).find(|it| **it as usize >= model.config.vocabulary)
            {
                return Err(PolicyError::Request(format!("the model has no token {token}")));
            }
            // The last token predicts nothing.
            let read = sequence.tokens.len().saturating_sub(1);
            texts.push([&sequence.prompt, &sequence.tokens[..read]].concat());
        }
        let slices: Vec<&[u32]> = texts.iter().map(Vec::as_slice).collect();
        let (rows, starts) = model.rows_of_texts(&slices);
        let (mut chosen, mut masks) = (Vec::new(), Vec::new());
        let (mut at, mut targets) = (Vec::new(), Vec::new());
        for (sequence, start) in sequences.iter().zip(starts) {
            let of_tokens: Vec<Option<Option<Mask>>> = match &sequence.grammar {
                None => sequence.tokens.iter().map(|_| Some(None)).collect(),
                Some(grammar) => grammar.choices(&sequence.tokens)?.into_iter().map(|mask| mask.map(Some)).collect(),
            };
            let mut here = Vec::new();
            for (token, mask) in of_tokens.into_iter().enumerate() {
                let Some(mask) = mask else { continue };
                here.push(token);
                masks.push(mask);
                at.push((start + sequence.prompt.len() + token - 1) as u32);
                targets.push(sequence.tokens[token]);
            }
            chosen.push(here);
        }
        let count = targets.len();
        let choices = if count == 0 {
            None
        } else {
            let masks: Vec<Option<&Mask>> = masks.iter().map(Option::as_ref).collect();
            Some(Choices {
                rows: at,
                targets: Tensor::from_vec(targets, count, &model.device)?,
                allowed: allowed(&masks, model.config.vocabulary, model)?,
            })
        };
        Ok(Batch { rows, chosen, choices })
    }

    fn logprobs(
        &self,
        model: &Model,
        hidden: &Tensor,
        choices: &Choices,
        temperature: f32,
    ) -> Result<Tensor, PolicyError> {
        let logits = model.logits(hidden)?;
        let allowed = choices.allowed.as_ref();
        let logprobs = model.ops.gathered_logprob(&logits, &choices.targets, allowed, f64::from(temperature))?;
        Ok(logprobs.to_dtype(DType::F32)?)
    }
}

/// The contribution of one token to the loss.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Term {
    /// Its part of the loss.
    pub loss: f64,
    /// The derivative of the loss by the token's log-probability.
    pub slope: f64,
    /// Whether it carries a weight.
    pub weighted: bool,
    /// Whether its ratio was clipped.
    pub clipped: bool,
    /// Its divergence (k3) from the old policy.
    pub kl_old: f64,
    /// Its divergence (k3) from the reference.
    pub kl_reference: f64,
}

impl Objective {
    /// Checks that there is one weight, advantage and old log-probability for each token.
    ///
    /// # Errors
    /// There are more or fewer.
    pub fn check(&self, tokens: usize) -> Result<(), PolicyError> {
        let lengths = match self {
            Objective::Likelihood { weights } => vec![weights.len()],
            Objective::Clipped { weights, advantages, old, reference, .. } => {
                let mut lengths = vec![weights.len(), advantages.len(), old.len()];
                lengths.extend(reference.as_ref().map(Vec::len));
                lengths
            }
        };
        match lengths.iter().find(|length| **length != tokens) {
            None => Ok(()),
            Some(length) => Err(PolicyError::Request(format!("{length} figures for {tokens} tokens"))),
        }
    }

    /// The contribution of the token at a position, given its current log-probability.
    pub fn term(&self, at: usize, logprob: f32) -> Term {
        let now = f64::from(logprob);
        let of = |values: &[f32]| f64::from(values.get(at).copied().unwrap_or(0.0));
        match self {
            Objective::Likelihood { weights } => {
                let weight = of(weights);
                let (kl_old, kl_reference) = (0.0, 0.0);
                Term {
                    loss: -weight * now,
                    slope: -weight,
                    weighted: weight != 0.0,
                    clipped: false,
                    kl_old,
                    kl_reference,
                }
            }
            Objective::Clipped { weights, advantages, old, reference, low, high, kl } => {
                let (weight, advantage) = (of(weights), of(advantages));
                let ratio = (now - of(old)).exp();
                let bound = ratio.clamp(1.0 - f64::from(*low), 1.0 + f64::from(*high));
                let clipped = bound * advantage < ratio * advantage;
                let gain = if clipped { bound * advantage } else { ratio * advantage };
                let mut term = Term {
                    loss: -weight * gain,
                    slope: if clipped { 0.0 } else { -weight * ratio * advantage },
                    weighted: weight != 0.0,
                    clipped,
                    kl_old: divergence(of(old) - now),
                    kl_reference: 0.0,
                };
                if let Some(reference) = reference {
                    let gap = of(reference) - now;
                    term.kl_reference = divergence(gap);
                    term.loss += weight * f64::from(*kl) * term.kl_reference;
                    // d/dx (e^(r−x) − (r−x) − 1) = 1 − e^(r−x)
                    term.slope += weight * f64::from(*kl) * (1.0 - gap.exp());
                }
                term
            }
        }
    }
}

/// Schulman's third estimator of a divergence, from the log-ratio of the other policy to this one; never negative.
fn divergence(gap: f64) -> f64 {
    gap.exp() - gap - 1.0
}

/// Sums over the tokens that were chosen: what a step reports.
#[derive(Debug, Clone, Default)]
pub struct Totals {
    loss: f64,
    tokens: usize,
    entropy: f64,
    clipped: usize,
    kl_old: f64,
    kl_reference: f64,
}

impl Totals {
    /// Adds a token, and the entropy of the distribution it was drawn from.
    pub fn add(&mut self, term: &Term, entropy: f32) {
        self.loss += term.loss;
        if term.weighted {
            self.tokens += 1;
            self.entropy += f64::from(entropy);
            self.clipped += usize::from(term.clipped);
            self.kl_old += term.kl_old;
            self.kl_reference += term.kl_reference;
        }
    }

    /// The report, all but the norm of the gradient.
    pub fn report(&self) -> StepReport {
        let mean = |sum: f64| if self.tokens == 0 { 0.0 } else { sum / self.tokens as f64 };
        StepReport {
            loss: self.loss,
            gradient_norm: 0.0,
            tokens: self.tokens,
            entropy: mean(self.entropy),
            clipped: mean(self.clipped as f64),
            kl_old: mean(self.kl_old),
            kl_reference: mean(self.kl_reference),
            skipped: false,
        }
    }
}
