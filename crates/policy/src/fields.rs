//! A policy that is a table: one choice for each field of a specification, for studies of thousands of training
//! runs. There is no grammar and no tensor in it, and its gradients are a formula.
//!
//! `task and earlier results → [encoder] → prompt → [table] → choices → text`. The text is that of `lemon_spec::render`. Its tokens
//! are alternately structure and values: the token of a value covers exactly the bytes of its field. Whether there is one more
//! agent is a value too, written as the agent's id. "No more" is a token without bytes where the entry would begin.
//!
//! | field | values |
//! |---|---|
//! | one more agent | more, enough; the first round has at least one |
//! | base | solver, expert, critic, verifier, planner |
//! | duty | that of the base role, one that names what the task needs, one that names what it does not need |
//! | capacity | the levels of the language |
//! | after | the sets of up to three agents of the round; in later rounds each also with those of earlier rounds |
//! | share | reply, answer |
//! | answer.by | last, vote, judge |
//! | next | stop, review where another round may follow |
//!
//! Choices are independent of one another, or conditioned on all earlier choices of the text ([`FieldStart::conditioned`]).
//!
//! Not choices: roles are those of the base role, and the answer comes from the agents that no other agent reads.

mod all;
mod encoder;
mod layout;
mod scene;
mod start;
mod state;
#[cfg(test)]
mod tests;
mod write;

pub use all::Text;
pub use encoder::FieldPromptEncoder;
pub use start::{FieldStart, FirstTeams};

use crate::trainable::TrainablePolicy;
use layout::{Layout, Place, STAGES, Setting, first_logits};
use lemon_model::{
    Example, Finish, OptimiserSettings, Policy, PolicyError, Sample, SampleRequest, SampleSettings, Sequence,
    StepReport, StepSettings, Totals,
};
use lemon_num::Random;
use lemon_spec::Language;
use scene::{Scene, setting};
use std::path::Path;
use write::{Chosen, write};

/// A table of logits: a row for each kind of task and stage of a run, and in it the values of every field.
#[derive(Debug, Clone)]
pub struct FieldTable {
    layout: Layout,
    kinds: usize,
    /// The rows; behind them, if the table is conditioned, what each earlier value adds to each later one.
    logits: Vec<f32>,
    conditioned: bool,
    optimiser: OptimiserSettings,
    memory: Memory,
}

/// The state of Adam.
#[derive(Debug, Clone, PartialEq)]
struct Memory {
    steps: u64,
    /// The means of gradients and of their squares, by logit.
    means: Vec<f32>,
    squares: Vec<f32>,
}

/// A choice that was made.
#[derive(Debug, Clone, Copy)]
struct Made {
    place: Place,
    /// How many of its values there were.
    allowed: usize,
    value: usize,
}

impl FieldTable {
    /// A table with the first logits of a recipe.
    ///
    /// # Errors
    /// The language has no such teams, or there are no kinds of task.
    pub fn new(start: &FieldStart, language: &Language) -> Result<Self, PolicyError> {
        if start.kinds == 0 || !start.lean.is_finite() {
            let fact = format!("a table for {} kinds of task that leans by {}", start.kinds, start.lean);
            return Err(PolicyError::Request(fact));
        }
        let layout = Layout::new(start, language)?;
        let mut logits = first_logits(&layout, start);
        if start.conditioned {
            logits.extend(std::iter::repeat_n(0.0, layout.width() * layout.width()));
        }
        let zeros = vec![0.0; logits.len()];
        let memory = Memory { steps: 0, means: zeros.clone(), squares: zeros };
        let (kinds, conditioned, optimiser) = (start.kinds, start.conditioned, OptimiserSettings::default());
        Ok(FieldTable { layout, kinds, logits, conditioned, optimiser, memory })
    }

    /// How many kinds of task it tells apart; [`FieldPromptEncoder::kind`] says which a question is of.
    pub fn kinds(&self) -> usize {
        self.kinds
    }

    /// The probability of each value of each field, by their names, where another round may follow; only fields that have a
    /// choice. Stage 0 is the first round, 1 a later one after answers that agree, 2 one after answers that differ. Slots count
    /// given that there is an agent in them. Of a conditioned table: without what earlier choices add. Empty for a kind or a stage that there is not.
    pub fn probabilities(&self, kind: usize, stage: usize) -> Vec<(String, Vec<(String, f64)>)> {
        if kind >= self.kinds || stage >= STAGES {
            return Vec::new();
        }
        let setting = Setting { kind, stage, review: true };
        let mut logprobs = Vec::new();
        let mut named = Vec::new();
        for place in self.layout.places() {
            let allowed = self.layout.allowed(*place, setting);
            self.logprobs(setting, *place, allowed, 1.0, &[], &mut logprobs);
            let value = |(value, logprob): (usize, &f64)| (self.layout.value_name(place.choice, value), logprob.exp());
            if allowed > 1 {
                named.push((self.layout.name(place.choice), logprobs.iter().enumerate().map(value).collect()));
            }
        }
        named
    }

    /// The gradient of the sum of the objectives by every logit.
    ///
    /// # Errors
    /// An example makes no sense, or the temperature is not above 0.
    pub fn gradient(&self, examples: &[Example], temperature: f32) -> Result<Vec<f64>, PolicyError> {
        self.pass(examples, temperature).map(|(gradient, _)| gradient)
    }

    /// The place of the first value of a choice among all logits.
    fn start(&self, setting: Setting, place: Place) -> usize {
        (setting.kind * STAGES + setting.stage) * self.layout.width() + place.first
    }

    /// Where the weights begin that earlier values add to the values of a choice; none if the table is not conditioned.
    fn pairs<'e>(&self, place: Place, earlier: &'e [usize]) -> impl Iterator<Item = usize> + use<'e> {
        let (width, rows) = (self.layout.width(), self.kinds * STAGES * self.layout.width());
        let earlier = if self.conditioned { earlier } else { &[] };
        earlier.iter().map(move |value| rows + value * width + place.first)
    }

    /// The log-probabilities of the first values of a choice. At temperature 0 the likeliest has all.
    /// `earlier` are the places of the values chosen before, in a row.
    fn logprobs(
        &self,
        setting: Setting,
        place: Place,
        allowed: usize,
        temperature: f32,
        earlier: &[usize],
        out: &mut Vec<f64>,
    ) {
        let start = self.start(setting, place);
        out.clear();
        out.extend(self.logits.get(start..start + allowed).unwrap_or_default().iter().map(|it| f64::from(*it)));
        for start in self.pairs(place, earlier) {
            let added = self.logits.get(start..start + allowed).unwrap_or_default();
            out.iter_mut().zip(added).for_each(|(logit, added)| *logit += f64::from(*added));
        }
        let most = out.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        if temperature <= 0.0 {
            let likeliest = out.iter().position(|logit| *logit == most);
            let certain = |at: usize| if Some(at) == likeliest { 0.0 } else { f64::NEG_INFINITY };
            out.iter_mut().enumerate().for_each(|(at, logit)| *logit = certain(at));
            return;
        }
        out.iter_mut().for_each(|logit| *logit = (*logit - most) / f64::from(temperature));
        let total = out.iter().map(|it| it.exp()).sum::<f64>().ln();
        out.iter_mut().for_each(|it| *it -= total);
    }

    /// The choice that a token stands for; `None`: there was nothing to choose.
    fn made(&self, setting: Setting, at: usize, token: u32) -> Result<Option<Made>, PolicyError> {
        let Some((place, value)) = self.layout.value(token) else {
            let is_known = token == layout::STRUCTURE || token == layout::END;
            return if is_known { Ok(None) } else { Err(PolicyError::NotInGrammar { at }) };
        };
        let allowed = self.layout.allowed(place, setting);
        if value >= allowed {
            return Err(PolicyError::NotInGrammar { at });
        }
        Ok((allowed > 1).then_some(Made { place, allowed, value }))
    }

    /// Writes a text. It begins with the values of the tokens `given`.
    fn write(&self, request: &SampleRequest, given: &[u32], settings: &SampleSettings) -> Result<Sample, PolicyError> {
        let scene = Scene::read(&request.prompt, self.kinds)?;
        let mut random = Random::new(request.seed);
        let mut logprobs = Vec::new();
        let mut earlier = Vec::new();
        let mut given = given.iter().filter_map(|token| self.layout.value(*token));
        let written = write(&self.layout, &scene, |choice| {
            let place = self.layout.place(choice);
            let allowed = self.layout.allowed(place, scene.setting);
            let known = given.next();
            if known.is_some_and(|(known, value)| known.first != place.first || value >= allowed) {
                return None;
            }
            if allowed == 1 {
                return Some(Chosen { value: 0, logprob: 0.0, forced: true });
            }
            self.logprobs(scene.setting, place, allowed, settings.temperature, &earlier, &mut logprobs);
            let (value, logprob) = match known {
                Some((_, value)) => (value, *logprobs.get(value)?),
                None => draw(&logprobs, &mut random)?,
            };
            earlier.push(place.first + value);
            Some(Chosen { value, logprob: logprob as f32, forced: false })
        });
        let sample = written.ok_or_else(|| PolicyError::Request("no value can be drawn".to_owned()))?;
        Ok(cut(sample, settings.most_tokens))
    }

    /// The log-probability of each token.
    fn scores(&self, sequence: &Sequence, temperature: f32) -> Result<Vec<f64>, PolicyError> {
        let setting = setting(&sequence.prompt, self.kinds)?;
        let (mut logprobs, mut earlier) = (Vec::new(), Vec::new());
        let tokens = sequence.tokens.iter().enumerate();
        let scores = tokens.map(|(at, token)| {
            let Some(Made { place, allowed, value }) = self.made(setting, at, *token)? else { return Ok(0.0) };
            self.logprobs(setting, place, allowed, temperature, &earlier, &mut logprobs);
            earlier.push(place.first + value);
            Ok(logprobs.get(value).copied().unwrap_or(f64::NEG_INFINITY))
        });
        scores.collect()
    }

    fn pass(&self, examples: &[Example], temperature: f32) -> Result<(Vec<f64>, StepReport), PolicyError> {
        if temperature <= 0.0 || !temperature.is_finite() {
            return Err(PolicyError::Request(format!("nothing can be learned at the temperature {temperature}")));
        }
        let mut totals = Totals::default();
        let mut gradient = vec![0.0; self.logits.len()];
        let (mut logprobs, mut earlier) = (Vec::new(), Vec::new());
        for Example { sequence, objective } in examples {
            objective.check(sequence.tokens.len())?;
            let setting = setting(&sequence.prompt, self.kinds)?;
            earlier.clear();
            for (at, token) in sequence.tokens.iter().enumerate() {
                let Some(Made { place, allowed, value }) = self.made(setting, at, *token)? else { continue };
                self.logprobs(setting, place, allowed, temperature, &earlier, &mut logprobs);
                let term = objective.term(at, logprobs.get(value).copied().unwrap_or(f64::NEG_INFINITY) as f32);
                let entropy = -logprobs.iter().filter(|it| it.is_finite()).map(|it| it.exp() * it).sum::<f64>();
                totals.add(&term, entropy as f32);
                let own = self.start(setting, place);
                for start in std::iter::once(own).chain(self.pairs(place, &earlier)) {
                    for (other, (sum, logprob)) in gradient.iter_mut().skip(start).zip(&logprobs).enumerate() {
                        let hit = f64::from(u8::from(other == value));
                        *sum += term.slope * (hit - logprob.exp()) / f64::from(temperature);
                    }
                }
                earlier.push(place.first + value);
            }
        }
        let mut report = totals.report();
        report.gradient_norm = gradient.iter().map(|it| it * it).sum::<f64>().sqrt();
        Ok((gradient, report))
    }

    /// One step of Adam. Without weight decay: it would pull every field towards drawing anything. `None`: a number would not
    /// be finite.
    fn adam(&self, gradient: &[f64], learning_rate: f64) -> Option<(Vec<f32>, Memory)> {
        let OptimiserSettings { beta1, beta2, epsilon, .. } = self.optimiser;
        let mut memory = self.memory.clone();
        memory.steps += 1;
        let steps = memory.steps as f64;
        let (rate, root) = (learning_rate / (1.0 - beta1.powf(steps)), (1.0 - beta2.powf(steps)).sqrt());
        let mut logits = self.logits.clone();
        let moments = memory.means.iter_mut().zip(&mut memory.squares);
        for ((logit, slope), (mean, square)) in logits.iter_mut().zip(gradient).zip(moments) {
            *mean = (beta1 * f64::from(*mean) + (1.0 - beta1) * slope) as f32;
            *square = (beta2 * f64::from(*square) + (1.0 - beta2) * slope * slope) as f32;
            *logit =
                (f64::from(*logit) - rate * f64::from(*mean) / (f64::from(*square).sqrt() / root + epsilon)) as f32;
        }
        let finite = logits.iter().chain(&memory.means).chain(&memory.squares).all(|value| value.is_finite());
        finite.then_some((logits, memory))
    }
}

/// A value by its probability, and its log-probability.
fn draw(logprobs: &[f64], random: &mut Random) -> Option<(usize, f64)> {
    let place = random.uniform();
    let mut reached = 0.0;
    let possible = || logprobs.iter().copied().enumerate().filter(|(_, logprob)| logprob.is_finite());
    let drawn = possible().find(|(_, logprob)| {
        reached += logprob.exp();
        reached > place
    });
    // The sum can fall short of 1 by rounding.
    drawn.or_else(|| possible().next_back())
}

/// The beginning of a text, where it has more tokens than it may.
fn cut(mut sample: Sample, most_tokens: usize) -> Sample {
    if sample.tokens.len() > most_tokens {
        sample.tokens.truncate(most_tokens);
        sample.ends.truncate(most_tokens);
        sample.logprobs.truncate(most_tokens);
        sample.forced.truncate(most_tokens);
        sample.text.truncate(sample.ends.last().copied().unwrap_or(0));
        sample.finish = Finish::Length;
    }
    sample
}

/// Requests need no grammar, and one that they have is not read: a table writes nothing but teams.
impl Policy for FieldTable {
    fn sample(&self, requests: &[SampleRequest], settings: &SampleSettings) -> Result<Vec<Sample>, PolicyError> {
        if settings.top_p < 1.0 {
            let fact = format!("a table draws from all values: top_p has to be 1, not {}", settings.top_p);
            return Err(PolicyError::Request(fact));
        }
        requests.iter().map(|request| self.write(request, &[], settings)).collect()
    }

    fn resume(
        &self,
        begun: &[(SampleRequest, Vec<u32>)],
        settings: &SampleSettings,
    ) -> Result<Vec<Sample>, PolicyError> {
        begun.iter().map(|(request, given)| self.write(request, given, settings)).collect()
    }

    fn score(&self, sequences: &[Sequence], temperature: f32) -> Result<Vec<Vec<f32>>, PolicyError> {
        let narrow = |scores: Vec<f64>| scores.into_iter().map(|score| score as f32).collect();
        sequences.iter().map(|sequence| self.scores(sequence, temperature).map(narrow)).collect()
    }

    fn update(&mut self, examples: &[Example], settings: &StepSettings) -> Result<StepReport, PolicyError> {
        let (mut gradient, mut report) = self.pass(examples, settings.temperature)?;
        let norm = report.gradient_norm;
        let is_finite = norm.is_finite() && report.loss.is_finite();
        if is_finite && report.tokens == 0 {
            return Ok(report);
        }
        if settings.clip_norm > 0.0 && norm > settings.clip_norm {
            gradient.iter_mut().for_each(|slope| *slope *= settings.clip_norm / norm);
        }
        let next = if is_finite { self.adam(&gradient, settings.learning_rate) } else { None };
        report.skipped = next.is_none();
        if let Some((logits, memory)) = next {
            (self.logits, self.memory) = (logits, memory);
        }
        Ok(report)
    }
}

impl TrainablePolicy for FieldTable {
    fn set_optimiser(&mut self, settings: OptimiserSettings) {
        self.optimiser = settings;
    }

    fn save_state(&self, folder: &Path) -> Result<(), PolicyError> {
        state::save(self, folder)
    }

    fn load_state(&mut self, folder: &Path) -> Result<(), PolicyError> {
        state::load(self, folder)
    }

    fn scores_as_it_writes(&self) -> bool {
        true
    }
}
