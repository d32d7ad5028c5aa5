//! From rewards and differences to what the learner gets: an advantage for every token.

use super::contrast::Candidate;
use super::episode::Episode;
use super::recipe::{CreditSettings, Form, Per, Place, UpdateSettings};
use crate::student::{Encoded, Scribe, Student};
use lemon_credit::advantage::{combine, group_relative, token_weights};
use lemon_credit::economy::{Economy, Verdict};
use lemon_model::{Example, Objective, PolicyError, Sequence};
use lemon_spec::edit::{Change, Family};
use lemon_spec::{Field, Plan, Span};
use std::collections::BTreeMap;
use std::ops::Range;

/// The value that an edit puts in place of what was written, as tokens.
struct Other {
    sequence: Sequence,
    /// Its tokens that belong to the edited field.
    own: Vec<usize>,
    /// The log-probabilities of all its tokens.
    scores: Vec<f32>,
}

/// What signals are made with.
pub(crate) struct Signals<'a> {
    pub student: &'a dyn Student,
    pub scribe: &'a dyn Scribe,
    /// The policy that the divergence is measured from.
    pub reference: Option<&'a dyn Student>,
    pub credit: &'a CreditSettings,
    pub update: &'a UpdateSettings,
    /// The weight of the local term.
    pub lambda: f64,
    pub temperature: f32,
    /// What is known of the families of edits.
    pub economy: &'a Economy,
}

/// The examples of a step.
///
/// # Errors
/// The policy cannot score.
pub(crate) fn examples(
    signals: &Signals<'_>,
    groups: &[Vec<Episode>],
    contrasts: &[Candidate],
) -> Result<Vec<Example>, PolicyError> {
    let Signals { student, scribe, reference, credit, update, lambda, temperature, economy } = *signals;
    let old = old_scores(student, groups, temperature)?;
    let others =
        if lambda == 0.0 { Vec::new() } else { others(student, scribe, groups, contrasts, credit, temperature)? };
    // Without any ending a step is one of plain GRPO, to the bit. Spread over all tokens, endings are as other contrasts are.
    let by_endings = credit.place == Place::Field && contrasts.iter().any(|contrast| Ending::of(contrast).is_some());
    let mut texts: Vec<Text> = Vec::new();
    let mut places: BTreeMap<Written, usize> = BTreeMap::new();
    for (group_at, group) in groups.iter().enumerate() {
        let reward = |episode: &Episode| Some(episode.run.as_ref()?.outcome?.reward);
        let rewards: Vec<Option<f64>> = group.iter().map(reward).collect();
        let advantages = group_relative(&rewards, credit.divide_by_deviation);
        for (episode_at, (episode, advantage)) in group.iter().zip(advantages).enumerate() {
            let Some(advantage) = advantage else { continue };
            for (round_at, round) in episode.rounds.iter().enumerate() {
                let place = (group_at, episode_at, round_at);
                places.insert(place, texts.len());
                let sequence = Sequence {
                    prompt: round.request.prompt.clone(),
                    tokens: round.sample.tokens.clone(),
                    grammar: round.request.grammar.clone(),
                };
                let old = old.get(&place).cloned().unwrap_or_else(|| round.sample.logprobs.clone());
                let (bytes, forced) = (byte_ranges(&round.sample.ends), round.sample.forced.clone());
                let complete = round.plan.as_ref().filter(|_| by_endings).and_then(completion);
                let (local, endings) = (Vec::new(), Vec::new());
                texts.push(Text { sequence, bytes, forced, old, advantage, local, endings, complete });
            }
        }
    }
    let mut pushed: Vec<(Sequence, Vec<f64>, Vec<f32>)> = Vec::new();
    for (number, contrast) in contrasts.iter().enumerate() {
        let place = (contrast.group, contrast.episode, contrast.round);
        let Some(text) = places.get(&place).and_then(|at| texts.get_mut(*at)) else { continue };
        if let (Some(ending), true) = (Ending::of(contrast), by_endings) {
            text.endings.push(ending);
            continue;
        }
        let other = others.get(number).and_then(Option::as_ref);
        let Some(mut terms) = terms(text, contrast, other, credit) else { continue };
        if credit.by_variance && !credit.instead {
            let loudness = economy.inverse_variance_weight(contrast.edit.family, contrast.verdict == Verdict::Free);
            (terms.written, terms.other) = (loudness * terms.written, loudness * terms.other);
        }
        text.local.push((terms.span, terms.written));
        if let (Some(other), true) = (other, terms.other != 0.0 && credit.place == Place::Field) {
            let mut advantages = vec![0.0; other.sequence.tokens.len()];
            other.own.iter().for_each(|at| advantages[*at] = lambda * terms.other); // Positions of its own tokens.
            pushed.push((other.sequence.clone(), advantages, other.scores.clone()));
        }
    }
    let weights = Weights::new(&texts, update.per);
    let usual = economy.baseline(Family::Agent);
    let mut examples: Vec<Example> = Vec::with_capacity(texts.len() + pushed.len());
    for text in &texts {
        let advantages = text.advantages(lambda, credit, usual);
        let weight = weights.of(text);
        examples.push(example(text.sequence.clone(), advantages, text.old.clone(), |_| weight, update));
    }
    for (sequence, advantages, old) in pushed {
        let on = |advantage: f64| if advantage == 0.0 { 0.0 } else { weights.usual };
        examples.push(example(sequence, advantages, old, on, update));
    }
    if let Some(reference) = reference {
        add_reference(reference, &mut examples, temperature)?;
    }
    Ok(examples)
}

/// A text with what its tokens get.
struct Text {
    sequence: Sequence,
    bytes: Vec<Range<usize>>,
    forced: Vec<bool>,
    old: Vec<f32>,
    /// Of the whole text in its group.
    advantage: f64,
    /// Of single fields.
    local: Vec<(Span, f64)>,
    /// Teams that end earlier.
    endings: Vec<Ending>,
    /// Where the decision stands that the team is complete, where endings are measured.
    complete: Option<Span>,
}

/// What a team earned more than the same team would have that ends before an agent.
struct Ending {
    /// Where it was decided that there is one more agent.
    decision: Span,
    /// The rest of its entry.
    rest: Span,
    delta: f64,
}

impl Ending {
    /// `None`: the contrast is of another kind.
    fn of(contrast: &Candidate) -> Option<Ending> {
        let Change::EndBefore { .. } = contrast.edit.change else { return None };
        let decision = span_of(contrast)?;
        let rest = Span { start: decision.end, end: contrast.edited.before?.end };
        Some(Ending { decision, rest, delta: contrast.delta? })
    }
}

/// Where a text decides that its team is complete: behind the last agent, before the answer names anybody. That a later round
/// asks nobody is compared with the group: not every text that asks somebody has a contrast to it.
fn completion(plan: &Plan) -> Option<Span> {
    let last = plan.agents().len().checked_sub(1)?;
    let (entry, from) = (plan.spans().get(Field::Agent(last))?, plan.spans().get(Field::AnswerFrom)?);
    Some(Span { start: entry.end, end: from.start })
}

impl Text {
    fn chosen(&self) -> usize {
        self.forced.iter().filter(|forced| !**forced).count()
    }

    fn advantages(&self, lambda: f64, credit: &CreditSettings, usual: f64) -> Vec<f64> {
        let local = token_weights(&self.bytes, &self.local);
        match credit.place {
            Place::Field if credit.instead => {
                let mut advantages = vec![self.advantage; local.len()];
                self.measure_from_endings(&mut advantages, usual);
                let own = local.iter().map(|credit| credit.map(|credit| lambda * credit));
                advantages.iter().zip(own).map(|(group, own)| own.unwrap_or(*group)).collect()
            }
            Place::Field => {
                let mut advantages = combine(self.advantage, &local, lambda);
                self.measure_from_endings(&mut advantages, usual);
                advantages
            }
            Place::Everywhere => {
                // The same sum, spread evenly over every token that was chosen.
                let credit = |(credit, forced): (&Option<f64>, &bool)| credit.filter(|_| !forced).unwrap_or(0.0);
                let sum: f64 = local.iter().zip(&self.forced).map(credit).sum();
                let spread = Some(sum / self.chosen().max(1) as f64).filter(|_| !self.local.is_empty());
                combine(self.advantage, &vec![spread; local.len()], lambda)
            }
        }
    }

    /// Puts what endings tell in the place of the group's comparison.
    ///
    /// With Δ the difference between going on and ending, the gradient of a choice between the two is p(1 − p)Δ. It comes out if
    /// every "one more" has Δ as its advantage and "enough" none; the group's advantage would come to the same on average and
    /// has the luck of the whole team in it. What an agent is like cannot change what was earned before it, so for the
    /// rest of its entry that is the better thing to compare with; `usual`, the mean difference of all steps so far, keeps
    /// advantages around nothing.
    fn measure_from_endings(&self, advantages: &mut [f64], usual: f64) {
        let tokens = |span: Span| (0..self.bytes.len()).filter(move |at| self.is_in(*at, span));
        if let Some(complete) = self.complete {
            tokens(complete).for_each(|at| advantages[at] = 0.0); // Positions are those of tokens, here and below.
        }
        for Ending { decision, rest, delta } in &self.endings {
            tokens(*decision).for_each(|at| advantages[at] += delta - self.advantage);
            tokens(*rest).for_each(|at| advantages[at] += delta - usual - self.advantage);
        }
    }

    /// Whether a token was chosen, and stands in a span for the most part; one without text, if it stands at its place.
    fn is_in(&self, at: usize, span: Span) -> bool {
        let Range { start, end } = self.bytes[at].clone();
        let held = end.min(span.end).saturating_sub(start.max(span.start));
        let stands = if start == end { start >= span.start && end <= span.end } else { 2 * held > end - start };
        stands && !self.forced[at]
    }
}

/// The bytes of the decision that an edit changes. Of an agent that is removed: the dash and the id, where one more agent was
/// chosen; what it is like is for other edits to say.
fn span_of(contrast: &Candidate) -> Option<Span> {
    let before = contrast.edited.before?;
    if contrast.edit.family != Family::Agent {
        return Some(before);
    }
    let end = before.start + ID_LINE.len();
    // Whether a round asks anybody is the first thing that is decided in it.
    let asks_nobody = contrast.edited.plan.agents().is_empty();
    let start = if asks_nobody { 0 } else { contrast.edited.after.start.min(before.start) };
    Some(Span { start, end: end.min(before.end) })
}

/// What an entry begins with; ids are short.
const ID_LINE: &str = "id: a1";

/// What a contrast gives to the tokens of the field as it was written, and to those of its other value.
struct Terms {
    span: Span,
    written: f64,
    other: f64,
}

fn terms(text: &Text, contrast: &Candidate, other: Option<&Other>, credit: &CreditSettings) -> Option<Terms> {
    let delta = contrast.delta?;
    let span = span_of(contrast)?;
    if contrast.edit.family == Family::Agent {
        // The other value, that there is none, is not in its place but in all that follows.
        let written = if credit.form == Form::None { 0.0 } else { delta };
        return Some(Terms { span, written, other: 0.0 });
    }
    match (credit.form, other) {
        (Form::None, _) => None,
        (Form::Sampled, _) => Some(Terms { span, written: delta, other: 0.0 }),
        // What the policy cannot write it need not be told not to.
        (Form::Gradient | Form::Preference, None) => Some(Terms { span, written: delta, other: 0.0 }),
        (Form::Gradient, Some(other)) => {
            let chance = f64::from(other.own.iter().map(|at| other.scores[*at]).sum::<f32>()).exp();
            let push = 0.5 * delta * chance.powf(credit.correction.clamp(0.0, 1.0));
            Some(Terms { span, written: push, other: -push })
        }
        (Form::Preference, Some(other)) => {
            let own = |at: usize| token_weights(&text.bytes[at..=at], &[(span, 1.0)])[0].is_some();
            let written: f32 = (0..text.bytes.len()).filter(|at| own(*at)).map(|at| text.old[at]).sum();
            let changed: f32 = other.own.iter().map(|at| other.scores[*at]).sum();
            let margin = credit.beta * delta.signum() * f64::from(written - changed);
            let push = delta * credit.beta / (1.0 + margin.exp());
            Some(Terms { span, written: push, other: -push })
        }
    }
}

/// The other value of every contrast as tokens, scored; `None` where the form does not need it or the policy cannot write it.
fn others(
    student: &dyn Student,
    scribe: &dyn Scribe,
    groups: &[Vec<Episode>],
    contrasts: &[Candidate],
    credit: &CreditSettings,
    temperature: f32,
) -> Result<Vec<Option<Other>>, PolicyError> {
    let needed = matches!(credit.form, Form::Gradient | Form::Preference);
    let encode = |contrast: &Candidate| -> Option<(Sequence, Vec<usize>)> {
        // A difference of nothing pushes nothing.
        if !needed || contrast.edit.family == Family::Agent || contrast.delta.is_none_or(|delta| delta == 0.0) {
            return None;
        }
        let round = groups.get(contrast.group)?.get(contrast.episode)?.rounds.get(contrast.round)?;
        let text = contrast.edited.plan.source();
        let Encoded { tokens, ends } = scribe.encode(&round.request, text, &round.sample.tokens)?;
        let held = token_weights(&byte_ranges(&ends), &[(contrast.edited.after, 1.0)]);
        let own: Vec<usize> = held.iter().enumerate().filter(|(_, held)| held.is_some()).map(|(at, _)| at).collect();
        // What comes after the field needs no look.
        let last = *own.last()?;
        let tokens = tokens.get(..=last)?.to_vec();
        let (prompt, grammar) = (round.request.prompt.clone(), round.request.grammar.clone());
        Some((Sequence { prompt, tokens, grammar }, own))
    };
    let encoded: Vec<Option<(Sequence, Vec<usize>)>> = contrasts.iter().map(encode).collect();
    let sequences: Vec<Sequence> = encoded.iter().flatten().map(|(sequence, _)| sequence.clone()).collect();
    let mut scores = student.score(&sequences, temperature)?.into_iter();
    let mut others = Vec::with_capacity(encoded.len());
    for encoded in encoded {
        let scored = encoded.and_then(|(sequence, own)| Some(Other { sequence, own, scores: scores.next()? }));
        others.push(scored);
    }
    Ok(others)
}

/// Where a text was written: group, episode and round.
type Written = (usize, usize, usize);

/// The log-probabilities under the policy that wrote, where it has to be asked for them.
fn old_scores(
    student: &dyn Student,
    groups: &[Vec<Episode>],
    temperature: f32,
) -> Result<BTreeMap<Written, Vec<f32>>, PolicyError> {
    if student.scores_as_it_writes() {
        return Ok(BTreeMap::new());
    }
    let mut places = Vec::new();
    let mut sequences = Vec::new();
    for (group_at, group) in groups.iter().enumerate() {
        for (episode_at, episode) in group.iter().enumerate() {
            for (round_at, round) in episode.rounds.iter().enumerate() {
                places.push((group_at, episode_at, round_at));
                let (prompt, tokens) = (round.request.prompt.clone(), round.sample.tokens.clone());
                sequences.push(Sequence { prompt, tokens, grammar: round.request.grammar.clone() });
            }
        }
    }
    Ok(places.into_iter().zip(student.score(&sequences, temperature)?).collect())
}

/// What a token counts, by what the sum is divided by.
struct Weights {
    per: Per,
    texts: f32,
    /// What a token of a usual text counts.
    usual: f32,
}

impl Weights {
    fn new(texts: &[Text], per: Per) -> Self {
        let count = texts.len().max(1) as f32;
        let tokens = texts.iter().map(Text::chosen).sum::<usize>().max(1) as f32;
        let usual = match per {
            Per::Token | Per::Text => 1.0 / tokens,
            Per::Rollout => 1.0 / count,
        };
        Weights { per, texts: count, usual }
    }

    fn of(&self, text: &Text) -> f32 {
        match self.per {
            Per::Token | Per::Rollout => self.usual,
            Per::Text => 1.0 / (self.texts * text.chosen().max(1) as f32),
        }
    }
}

fn example(
    sequence: Sequence,
    advantages: Vec<f64>,
    old: Vec<f32>,
    weight: impl Fn(f64) -> f32,
    update: &UpdateSettings,
) -> Example {
    let objective = Objective::Clipped {
        weights: advantages.iter().map(|advantage| weight(*advantage)).collect(),
        advantages: advantages.iter().map(|advantage| *advantage as f32).collect(),
        old,
        reference: None,
        low: update.clip_low,
        high: update.clip_high,
        kl: update.kl,
    };
    Example { sequence, objective }
}

fn add_reference(reference: &dyn Student, examples: &mut [Example], temperature: f32) -> Result<(), PolicyError> {
    let sequences: Vec<Sequence> = examples.iter().map(|example| example.sequence.clone()).collect();
    for (example, scores) in examples.iter_mut().zip(reference.score(&sequences, temperature)?) {
        if let Objective::Clipped { reference, .. } = &mut example.objective {
            *reference = Some(scores);
        }
    }
    Ok(())
}

/// From where tokens end to the bytes they hold.
fn byte_ranges(ends: &[usize]) -> Vec<Range<usize>> {
    let starts = std::iter::once(0).chain(ends.iter().copied());
    starts.zip(ends).map(|(start, end)| start..*end).collect()
}
