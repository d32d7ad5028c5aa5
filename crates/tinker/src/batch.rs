//! From examples to what a server computes a gradient of. What it would misread or never answer is refused here.

use crate::settings::{Reduction, TokenLimits};
use crate::wire::{Clip, Datum, LossInput, LossOutput};
use crate::{ServerName, TinkerError};
use lemon_model::{Example, Objective, Sequence, StepReport, Totals};

/// Texts in one request.
const TEXTS: usize = 128;

/// Texts with at least one token, as data to be scored.
pub(crate) struct Scores {
    pub inputs: Vec<LossInput>,
    /// The places of these texts among all.
    places: Vec<usize>,
}

impl Scores {
    pub fn new(sequences: &[Sequence], limits: &TokenLimits) -> Result<Self, TinkerError> {
        let places = written(sequences.iter(), limits)?;
        let data = places.iter().filter_map(|at| sequences.get(*at)).map(Datum::new).collect();
        Ok(Scores { inputs: chunks(data, "cross_entropy", None), places })
    }

    /// The log-probability of each token of each text.
    pub fn read(&self, sequences: &[Sequence], outputs: Vec<LossOutput>) -> Result<Vec<Vec<f32>>, TinkerError> {
        let mut scores: Vec<Vec<f32>> = sequences.iter().map(|_| Vec::new()).collect();
        for (place, score) in self.places.iter().zip(logprobs("forward", &self.places, sequences, outputs)?) {
            scores[*place] = score; // A place among the texts.
        }
        Ok(scores)
    }
}

/// A batch of examples as data to learn from.
pub(crate) struct Batch {
    pub inputs: Vec<LossInput>,
    places: Vec<usize>,
    sequences: Vec<Sequence>,
}

impl Batch {
    /// The data whose gradient, as the server reduces it, is that of the sum of these objectives. All are
    /// [`Objective::Clipped`] with the same bounds.
    pub fn new(examples: &[Example], limits: &TokenLimits, reduction: Reduction) -> Result<Self, TinkerError> {
        let places = written(examples.iter().map(|example| &example.sequence), limits)?;
        let mut data = Vec::with_capacity(places.len());
        let mut clip = None;
        for example in places.iter().filter_map(|at| examples.get(*at)) {
            let tokens = example.sequence.tokens.len();
            example.objective.check(tokens).map_err(|error| TinkerError::Data(error.to_string()))?;
            let Objective::Clipped { weights, advantages, old, reference, low, high, kl } = &example.objective else {
                return Err(TinkerError::Data("expected clipped objectives, got a likelihood".to_owned()));
            };
            if reference.is_some() && *kl != 0.0 {
                let fact = "a divergence from a reference cannot be learned from over the Tinker API";
                return Err(TinkerError::Data(fact.to_owned()));
            }
            let own = Clip { clip_low_threshold: 1.0 - low, clip_high_threshold: 1.0 + high };
            if *clip.get_or_insert(own) != own {
                return Err(TinkerError::Data("the examples of a step differ in how ratios are clipped".to_owned()));
            }
            let scale = match reduction {
                Reduction::Sum => 1.0,
                // The server divides by the tokens of the text, which all weigh 1, and by the texts.
                Reduction::Mean => (tokens * places.len()) as f32,
            };
            if weights.iter().any(|weight| *weight < 0.0) {
                // The minimum of the clipped objective would become a maximum.
                return Err(TinkerError::Data("the weight of a token is negative".to_owned()));
            }
            let scaled: Vec<f32> = weights.iter().zip(advantages).map(|(weight, it)| weight * it * scale).collect();
            if !scaled.iter().chain(old).all(|number| number.is_finite()) {
                return Err(TinkerError::Data("an advantage or a log-probability is not a number".to_owned()));
            }
            data.push(Datum::new(&example.sequence).with(&example.sequence, scaled, old));
        }
        let sequences = examples.iter().map(|example| example.sequence.clone()).collect();
        Ok(Batch { inputs: chunks(data, "ppo", clip), places, sequences })
    }

    /// What the server's log-probabilities say about the step, all but the norm of the gradient.
    pub fn report(&self, examples: &[Example], outputs: Vec<LossOutput>) -> Result<StepReport, TinkerError> {
        let mut totals = Totals::default();
        let found = logprobs("forward_backward", &self.places, &self.sequences, outputs)?;
        for (example, scores) in self.places.iter().filter_map(|at| examples.get(*at)).zip(found) {
            for (token, score) in scores.into_iter().enumerate() {
                // The server does not tell how sure the model is of a token.
                totals.add(&example.objective.term(token, score), f32::NAN);
            }
        }
        Ok(totals.report())
    }
}

/// The places of the texts that have tokens.
fn written<'s>(sequences: impl Iterator<Item = &'s Sequence>, limits: &TokenLimits) -> Result<Vec<usize>, TinkerError> {
    let mut places = Vec::new();
    for (at, sequence) in sequences.enumerate() {
        check(sequence, limits)?;
        if !sequence.tokens.is_empty() {
            places.push(at);
        }
    }
    Ok(places)
}

/// Checks that a server can read a text.
fn check(sequence: &Sequence, limits: &TokenLimits) -> Result<(), TinkerError> {
    let Sequence { prompt, tokens, grammar } = sequence;
    if grammar.is_some() {
        return Err(TinkerError::Data("the Tinker API knows no grammars".to_owned()));
    }
    check_prompt(prompt, limits)?;
    check_tokens(tokens, limits)?;
    let (length, most) = (prompt.len() + tokens.len(), limits.positions);
    if length > most {
        return Err(TinkerError::Data(format!("a text and its prompt have {length} tokens; the model reads {most}")));
    }
    Ok(())
}

/// Checks that a server can go on from a prompt.
pub(crate) fn check_prompt(prompt: &[u32], limits: &TokenLimits) -> Result<(), TinkerError> {
    if prompt.is_empty() {
        return Err(TinkerError::Data("a prompt has to have at least one token".to_owned()));
    }
    if prompt.len() >= limits.positions {
        let (length, most) = (prompt.len(), limits.positions);
        return Err(TinkerError::Data(format!("a prompt has {length} tokens; the model reads {most} in all")));
    }
    check_tokens(prompt, limits)
}

fn check_tokens(tokens: &[u32], limits: &TokenLimits) -> Result<(), TinkerError> {
    match tokens.iter().find(|token| **token as usize >= limits.vocabulary) {
        None => Ok(()),
        Some(token) => Err(TinkerError::Data(format!(
            "the model has no token {token}: by the config.json of its folder it has {}",
            limits.vocabulary
        ))),
    }
}

/// Data in requests, none of which is empty.
fn chunks(data: Vec<Datum>, loss_fn: &'static str, loss_fn_config: Option<Clip>) -> Vec<LossInput> {
    let mut inputs = Vec::new();
    let mut rest = data.into_iter().peekable();
    while rest.peek().is_some() {
        inputs.push(LossInput { data: rest.by_ref().take(TEXTS).collect(), loss_fn, loss_fn_config });
    }
    inputs
}

/// The log-probabilities of the tokens of the texts at these places.
fn logprobs(
    call: &'static str,
    places: &[usize],
    sequences: &[Sequence],
    outputs: Vec<LossOutput>,
) -> Result<Vec<Vec<f32>>, TinkerError> {
    let outputs: Vec<_> = outputs.into_iter().flat_map(|output| output.loss_fn_outputs).collect();
    let malformed = |fact: String| TinkerError::Malformed { server: ServerName::Tinker, call, fact };
    if outputs.len() != places.len() {
        return Err(malformed(format!("expected the outputs of {} texts, got {}", places.len(), outputs.len())));
    }
    let mut found = Vec::with_capacity(places.len());
    for (sequence, output) in places.iter().filter_map(|at| sequences.get(*at)).zip(outputs) {
        let (prompt, tokens) = (sequence.prompt.len() - 1, sequence.tokens.len());
        let logprobs = output.logprobs.data;
        let own = logprobs.get(prompt..).filter(|own| own.len() == tokens).ok_or_else(|| {
            malformed(format!("expected {} log-probabilities, got {}", prompt + tokens, logprobs.len()))
        })?;
        if !own.iter().all(|number| number.is_finite()) {
            return Err(malformed("a log-probability is not a number".to_owned()));
        }
        found.push(own.to_vec());
    }
    Ok(found)
}
