//! A tabular policy: logits for every context. It uses no tensors and its gradients have a closed form, so that tests can
//! compare other gradients with it.

use crate::api::{Example, Finish, Policy, Sample, SampleRequest, SampleSettings, Sequence, StepReport, StepSettings};
use crate::draw::draw;
use crate::grammar::{Mask, NextTokens};
use crate::learn::Totals;
use crate::{PolicyError, Tokenizer};
use lemon_num::{Random, fnv1a};
use std::collections::BTreeMap;

/// A table of logits by context: the last tokens and the kind of prompt.
#[derive(Clone)]
pub struct TablePolicy {
    tokenizer: Tokenizer,
    /// Tokens that make a context.
    order: usize,
    /// The number of classes into which prompts are hashed.
    kinds: u64,
    /// Contexts that are missing have zero logits.
    logits: BTreeMap<Context, Vec<f32>>,
}

/// The kind of prompt, and the last tokens.
pub type Context = (u64, Vec<u32>);

impl TablePolicy {
    /// A table of zeros: every allowed token is equally likely.
    pub fn new(tokenizer: Tokenizer, order: usize, kinds: u64) -> Self {
        TablePolicy { tokenizer, order, kinds: kinds.max(1), logits: BTreeMap::new() }
    }

    /// The exact gradient of the sum of the objectives by every logit that has one.
    ///
    /// # Errors
    /// An example makes no sense.
    pub fn gradient(&self, examples: &[Example], temperature: f32) -> Result<BTreeMap<Context, Vec<f64>>, PolicyError> {
        self.pass(examples, temperature).map(|(gradient, _)| gradient)
    }

    fn context(&self, prompt: &[u32], tokens: &[u32]) -> Context {
        let kind = fnv1a(prompt.iter().copied());
        (kind % self.kinds, tokens.get(tokens.len().saturating_sub(self.order)..).unwrap_or_default().to_vec())
    }

    fn logits(&self, context: &Context) -> Vec<f32> {
        self.logits.get(context).cloned().unwrap_or_else(|| vec![0.0; self.tokenizer.vocabulary()])
    }

    /// The context and the mask of every token that was chosen.
    fn choices(&self, sequence: &Sequence) -> Result<Vec<(usize, Context, Option<Mask>)>, PolicyError> {
        let masks: Vec<Option<Option<Mask>>> = match &sequence.grammar {
            None => sequence.tokens.iter().map(|_| Some(None)).collect(),
            Some(grammar) => grammar.choices(&sequence.tokens)?.into_iter().map(|mask| mask.map(Some)).collect(),
        };
        let chosen = masks.into_iter().enumerate().filter_map(|(at, mask)| Some((at, mask?)));
        Ok(chosen.map(|(at, mask)| (at, self.context(&sequence.prompt, &sequence.tokens[..at]), mask)).collect())
    }

    fn pass(
        &self,
        examples: &[Example],
        temperature: f32,
    ) -> Result<(BTreeMap<Context, Vec<f64>>, StepReport), PolicyError> {
        let mut totals = Totals::default();
        let mut gradient: BTreeMap<Context, Vec<f64>> = BTreeMap::new();
        for example in examples {
            example.objective.check(example.sequence.tokens.len())?;
            for (at, context, mask) in self.choices(&example.sequence)? {
                let logprobs = logprobs(&self.logits(&context), mask.as_ref(), temperature);
                let target = example.sequence.tokens[at] as usize;
                let term =
                    example.objective.term(at, logprobs.get(target).copied().unwrap_or(f64::NEG_INFINITY) as f32);
                let entropy = -logprobs.iter().filter(|it| it.is_finite()).map(|it| it.exp() * it).sum::<f64>();
                totals.add(&term, entropy as f32);
                let row = gradient.entry(context).or_insert_with(|| vec![0.0; logprobs.len()]);
                for (token, (sum, logprob)) in row.iter_mut().zip(&logprobs).enumerate() {
                    let hit = f64::from(u8::from(token == target));
                    *sum += term.slope * (hit - logprob.exp()) / f64::from(temperature);
                }
            }
        }
        let mut report = totals.report();
        report.gradient_norm = gradient.values().flatten().map(|it| it * it).sum::<f64>().sqrt();
        Ok((gradient, report))
    }
}

/// The log-probability of every token; −∞ where it is not allowed.
fn logprobs(logits: &[f32], allowed: Option<&Mask>, temperature: f32) -> Vec<f64> {
    let at = |token: usize, logit: f32| {
        let is_allowed = allowed.is_none_or(|mask| mask.allows(token as u32));
        if is_allowed { f64::from(logit) / f64::from(temperature) } else { f64::NEG_INFINITY }
    };
    let scaled: Vec<f64> = logits.iter().enumerate().map(|(token, logit)| at(token, *logit)).collect();
    let most = scaled.iter().fold(f64::NEG_INFINITY, |most, it| most.max(*it));
    let total = scaled.iter().map(|it| (it - most).exp()).sum::<f64>().ln() + most;
    scaled.iter().map(|it| it - total).collect()
}

impl Policy for TablePolicy {
    fn sample(&self, requests: &[SampleRequest], settings: &SampleSettings) -> Result<Vec<Sample>, PolicyError> {
        requests.iter().map(|request| self.write(request, settings)).collect()
    }

    fn score(&self, sequences: &[Sequence], temperature: f32) -> Result<Vec<Vec<f32>>, PolicyError> {
        let one = |sequence: &Sequence| {
            let mut scores = vec![0f32; sequence.tokens.len()];
            for (at, context, mask) in self.choices(sequence)? {
                let logprobs = logprobs(&self.logits(&context), mask.as_ref(), temperature);
                let target = sequence.tokens[at] as usize;
                scores[at] = logprobs.get(target).copied().unwrap_or(f64::NEG_INFINITY) as f32;
            }
            Ok(scores)
        };
        sequences.iter().map(one).collect()
    }

    /// Plain gradient descent: what a step does can be read off the gradient.
    fn update(&mut self, examples: &[Example], settings: &StepSettings) -> Result<StepReport, PolicyError> {
        let (gradient, mut report) = self.pass(examples, settings.temperature)?;
        let norm = report.gradient_norm;
        if !(norm.is_finite() && report.loss.is_finite()) {
            report.skipped = true;
            return Ok(report);
        }
        let scale = if settings.clip_norm > 0.0 && norm > settings.clip_norm { settings.clip_norm / norm } else { 1.0 };
        for (context, row) in gradient {
            let mut logits = self.logits(&context);
            for (logit, slope) in logits.iter_mut().zip(&row) {
                *logit -= (settings.learning_rate * scale * slope) as f32;
            }
            self.logits.insert(context, logits);
        }
        Ok(report)
    }
}

impl TablePolicy {
    fn write(&self, request: &SampleRequest, settings: &SampleSettings) -> Result<Sample, PolicyError> {
        let mut random = Random::new(request.seed);
        let mut walk = request.grammar.as_ref().map(|grammar| grammar.walk());
        let mut sample = Sample {
            text: String::new(),
            tokens: Vec::new(),
            ends: Vec::new(),
            logprobs: Vec::new(),
            forced: Vec::new(),
            finish: Finish::Length,
        };
        let mut bytes = Vec::new();
        while sample.tokens.len() < settings.most_tokens && sample.finish == Finish::Length {
            let next = walk.as_mut().map(|walk| walk.next()).transpose()?;
            let (tokens, logprob, forced) = match next {
                Some(NextTokens::End) => break,
                Some(NextTokens::Forced(tokens)) => (tokens, 0.0, true),
                free => {
                    let mask = if let Some(NextTokens::Choose(mask)) = free { Some(mask) } else { None };
                    let logits = self.logits(&self.context(&request.prompt, &sample.tokens));
                    let none = || PolicyError::Request("no token is allowed".to_owned());
                    let drawn = draw(&logits, mask.as_ref(), settings, &mut random).ok_or_else(none)?;
                    if let Some(walk) = walk.as_mut() {
                        walk.take(drawn.token)?;
                    }
                    let logprob = drawn.logprob.unwrap_or_else(|| {
                        let logprobs = logprobs(&logits, mask.as_ref(), settings.temperature);
                        logprobs.get(drawn.token as usize).copied().unwrap_or(f64::NEG_INFINITY) as f32
                    });
                    (vec![drawn.token], logprob, false)
                }
            };
            for token in tokens.into_iter().take(settings.most_tokens - sample.tokens.len()) {
                sample.tokens.push(token);
                sample.logprobs.push(logprob);
                sample.forced.push(forced);
                if self.tokenizer.ends().contains(&token) {
                    sample.finish = Finish::Stop;
                } else {
                    bytes.extend_from_slice(self.tokenizer.bytes(token));
                }
                sample.ends.push(bytes.len());
            }
        }
        sample.text = String::from_utf8_lossy(&bytes).into_owned();
        Ok(sample)
    }
}
