//! From rewards and counterfactual differences to an advantage for every token.

use super::counterfactual::Candidate;
use super::episode::Episode;
use super::recipe::{CreditForm, CreditSettings, Per, Place, Recipe, UpdateSettings};
use crate::TrainContext;
use lemon_credit::advantage::{combine, group_relative, token_weights};
use lemon_credit::economy::{Economy, OfferVerdict};
use lemon_model::{Example, Objective, PolicyError, Sequence};
use lemon_policy::{Encoded, PromptEncoder, TrainablePolicy};
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
    pub policy: &'a dyn TrainablePolicy,
    pub encoder: &'a dyn PromptEncoder,
    /// The policy that the divergence is measured from.
    pub reference: Option<&'a dyn TrainablePolicy>,
    pub credit: &'a CreditSettings,
    pub update: &'a UpdateSettings,
    /// The weight of the local term.
    pub lambda: f64,
    pub temperature: f32,
    /// What is known of the families of edits.
    pub economy: &'a Economy,
}

impl<'a> Signals<'a> {
    /// Those of a step, from 1.
    pub fn new(
        context: &TrainContext<'a>,
        policy: &'a dyn TrainablePolicy,
        recipe: &'a Recipe,
        step: u64,
        economy: &'a Economy,
    ) -> Self {
        Signals {
            policy,
            encoder: context.encoder,
            reference: context.reference,
            credit: &recipe.credit,
            update: &recipe.update,
            lambda: recipe.credit.lambda.at(step - 1),
            temperature: recipe.rollouts.temperature,
            economy,
        }
    }
}

/// The examples of a step.
///
/// # Errors
/// The policy cannot score.
pub(crate) fn examples(
    signals: &Signals<'_>,
    groups: &[Vec<Episode>],
    counterfactuals: &[Candidate],
) -> Result<Vec<Example>, PolicyError> {
    let Signals { policy, encoder, reference, credit, update, lambda, temperature, economy } = *signals;
    let old = old_scores(policy, groups, temperature)?;
    let others =
        if lambda == 0.0 { Vec::new() } else { others(policy, encoder, groups, counterfactuals, credit, temperature)? };
    // Without prefix teams a step is one of plain GRPO, to the bit. Spread over all tokens, they are like other counterfactuals.
    let by_prefix = credit.place == Place::Field
        && counterfactuals.iter().any(|counterfactual| PrefixTeam::of(counterfactual).is_some());
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
                let complete = round.plan.as_ref().filter(|_| by_prefix).and_then(completion);
                let (local, prefixes) = (Vec::new(), Vec::new());
                texts.push(Text { sequence, bytes, forced, old, advantage, local, prefixes, complete });
            }
        }
    }
    let mut pushed: Vec<(Sequence, Vec<f64>, Vec<f32>)> = Vec::new();
    for (number, counterfactual) in counterfactuals.iter().enumerate() {
        let place = (counterfactual.group, counterfactual.episode, counterfactual.round);
        let Some(text) = places.get(&place).and_then(|at| texts.get_mut(*at)) else { continue };
        if let (Some(prefix), true) = (PrefixTeam::of(counterfactual), by_prefix) {
            text.prefixes.push(prefix);
            continue;
        }
        let other = others.get(number).and_then(Option::as_ref);
        let Some(mut terms) = terms(text, counterfactual, other, credit) else { continue };
        if credit.by_variance && !credit.instead {
            let weight = economy
                .inverse_variance_weight(counterfactual.edit.family, counterfactual.verdict == OfferVerdict::Free);
            (terms.written, terms.other) = (weight * terms.written, weight * terms.other);
        }
        text.local.push((terms.span, terms.written));
        if let (Some(other), true) = (other, terms.other != 0.0 && credit.place == Place::Field) {
            let mut advantages = vec![0.0; other.sequence.tokens.len()];
            other.own.iter().for_each(|at| advantages[*at] = lambda * terms.other); // Positions of its own tokens.
            pushed.push((other.sequence.clone(), advantages, other.scores.clone()));
        }
    }
    let weights = Weights::new(&texts, update.per);
    let baseline = economy.baseline(Family::Agent);
    let mut examples: Vec<Example> = Vec::with_capacity(texts.len() + pushed.len());
    for text in &texts {
        let advantages = text.advantages(lambda, credit, baseline);
        let weight = weights.of(text);
        examples.push(example(text.sequence.clone(), advantages, text.old.clone(), |_| weight, update));
    }
    for (sequence, advantages, old) in pushed {
        let on = |advantage: f64| if advantage == 0.0 { 0.0 } else { weights.mean };
        examples.push(example(sequence, advantages, old, on, update));
    }
    if let Some(reference) = reference {
        add_reference(reference, &mut examples, temperature)?;
    }
    Ok(examples)
}

/// A text with the advantages of its tokens.
struct Text {
    sequence: Sequence,
    bytes: Vec<Range<usize>>,
    forced: Vec<bool>,
    old: Vec<f32>,
    /// Of the whole text in its group.
    advantage: f64,
    /// Of single fields.
    local: Vec<(Span, f64)>,
    /// Its prefix teams.
    prefixes: Vec<PrefixTeam>,
    /// The decision that the team is complete, where prefix teams are measured.
    complete: Option<Span>,
}

/// The reward of a team, less that of the prefix team that ends before one of its agents.
struct PrefixTeam {
    /// The decision that there is one more agent.
    decision: Span,
    /// The rest of its entry.
    rest: Span,
    delta: f64,
}

impl PrefixTeam {
    /// `None`: the counterfactual is no prefix team.
    fn of(counterfactual: &Candidate) -> Option<PrefixTeam> {
        let Change::EndBefore { .. } = counterfactual.edit.change else { return None };
        let decision = span_of(counterfactual)?;
        let rest = Span { start: decision.end, end: counterfactual.edited.before?.end };
        Some(PrefixTeam { decision, rest, delta: counterfactual.delta? })
    }
}

/// The place where a text decides that its team is complete: between the last agent and the answer. A later round without agents is
/// compared with the group, because not every round with agents has a counterfactual without.
fn completion(plan: &Plan) -> Option<Span> {
    let last = plan.agents().len().checked_sub(1)?;
    let (entry, from) = (plan.spans().get(Field::Agent(last))?, plan.spans().get(Field::AnswerFrom)?);
    Some(Span { start: entry.end, end: from.start })
}

impl Text {
    fn chosen(&self) -> usize {
        self.forced.iter().filter(|forced| !**forced).count()
    }

    fn advantages(&self, lambda: f64, credit: &CreditSettings, baseline: f64) -> Vec<f64> {
        let local = token_weights(&self.bytes, &self.local);
        match credit.place {
            Place::Field if credit.instead => {
                let mut advantages = vec![self.advantage; local.len()];
                self.measure_from_prefix(&mut advantages, baseline);
                let own = local.iter().map(|credit| credit.map(|credit| lambda * credit));
                advantages.iter().zip(own).map(|(group, own)| own.unwrap_or(*group)).collect()
            }
            Place::Field => {
                let mut advantages = combine(self.advantage, &local, lambda);
                self.measure_from_prefix(&mut advantages, baseline);
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

    /// Replaces the group's comparison by that with prefix teams.
    ///
    /// With Δ the difference between going on and ending, the gradient of the choice between the two is p(1 − p)Δ. This results if every
    /// "one more" has Δ as its advantage and every "enough" has none. The group's advantage has the same mean, and the noise of the
    /// whole team. The fields of an agent cannot change the reward of the prefix team, so it is the better baseline for the rest of
    /// the entry. `baseline`, the mean difference of all steps so far, centres these advantages.
    fn measure_from_prefix(&self, advantages: &mut [f64], baseline: f64) {
        let tokens = |span: Span| (0..self.bytes.len()).filter(move |at| self.is_in(*at, span));
        if let Some(complete) = self.complete {
            tokens(complete).for_each(|at| advantages[at] = 0.0); // Positions are those of tokens, here and below.
        }
        for PrefixTeam { decision, rest, delta } in &self.prefixes {
            tokens(*decision).for_each(|at| advantages[at] += delta - self.advantage);
            tokens(*rest).for_each(|at| advantages[at] += delta - baseline - self.advantage);
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
fn span_of(counterfactual: &Candidate) -> Option<Span> {
    let before = counterfactual.edited.before?;
    if counterfactual.edit.family != Family::Agent {
        return Some(before);
    }
    let end = before.start + ID_LINE.len();
    // Whether a round has agents is its first decision.
    let is_empty = counterfactual.edited.plan.agents().is_empty();
    let start = if is_empty { 0 } else { counterfactual.edited.after.start.min(before.start) };
    Some(Span { start, end: end.min(before.end) })
}

/// What an entry begins with; ids are short.
const ID_LINE: &str = "id: a1";

/// The advantage that a counterfactual gives to the tokens of the field as it was written, and to those of its other value.
struct Terms {
    span: Span,
    written: f64,
    other: f64,
}

fn terms(text: &Text, counterfactual: &Candidate, other: Option<&Other>, credit: &CreditSettings) -> Option<Terms> {
    let delta = counterfactual.delta?;
    let span = span_of(counterfactual)?;
    if counterfactual.edit.family == Family::Agent {
        // The other value, that there is none, is not in its place but in all that follows.
        let written = if credit.form == CreditForm::None { 0.0 } else { delta };
        return Some(Terms { span, written, other: 0.0 });
    }
    match (credit.form, other) {
        (CreditForm::None, _) => None,
        (CreditForm::Sampled, _) => Some(Terms { span, written: delta, other: 0.0 }),
        // The policy cannot write the other value: there is nothing to push down.
        (CreditForm::Gradient | CreditForm::Preference, None) => Some(Terms { span, written: delta, other: 0.0 }),
        (CreditForm::Gradient, Some(other)) => {
            let chance = f64::from(other.own.iter().map(|at| other.scores[*at]).sum::<f32>()).exp();
            let push = 0.5 * delta * chance.powf(credit.correction.clamp(0.0, 1.0));
            Some(Terms { span, written: push, other: -push })
        }
        (CreditForm::Preference, Some(other)) => {
            let own = |at: usize| token_weights(&text.bytes[at..=at], &[(span, 1.0)])[0].is_some();
            let written: f32 = (0..text.bytes.len()).filter(|at| own(*at)).map(|at| text.old[at]).sum();
            let changed: f32 = other.own.iter().map(|at| other.scores[*at]).sum();
            let margin = credit.beta * delta.signum() * f64::from(written - changed);
            let push = delta * credit.beta / (1.0 + margin.exp());
            Some(Terms { span, written: push, other: -push })
        }
    }
}

/// The other value of every counterfactual as tokens, scored; `None` where the form does not need it or the policy cannot write it.
fn others(
    policy: &dyn TrainablePolicy,
    encoder: &dyn PromptEncoder,
    groups: &[Vec<Episode>],
    counterfactuals: &[Candidate],
    credit: &CreditSettings,
    temperature: f32,
) -> Result<Vec<Option<Other>>, PolicyError> {
    let needed = matches!(credit.form, CreditForm::Gradient | CreditForm::Preference);
    let encode = |counterfactual: &Candidate| -> Option<(Sequence, Vec<usize>)> {
        // A difference of 0 has no gradient.
        if !needed
            || counterfactual.edit.family == Family::Agent
            || counterfactual.delta.is_none_or(|delta| delta == 0.0)
        {
            return None;
        }
        let round = groups.get(counterfactual.group)?.get(counterfactual.episode)?.rounds.get(counterfactual.round)?;
        let text = counterfactual.edited.plan.source();
        let Encoded { tokens, ends } = encoder.encode(&round.request, text, &round.sample.tokens)?;
        let held = token_weights(&byte_ranges(&ends), &[(counterfactual.edited.after, 1.0)]);
        let own: Vec<usize> = held.iter().enumerate().filter(|(_, held)| held.is_some()).map(|(at, _)| at).collect();
        // The tokens after the field are not scored.
        let last = *own.last()?;
        let tokens = tokens.get(..=last)?.to_vec();
        let (prompt, grammar) = (round.request.prompt.clone(), round.request.grammar.clone());
        Some((Sequence { prompt, tokens, grammar }, own))
    };
    let encoded: Vec<Option<(Sequence, Vec<usize>)>> = counterfactuals.iter().map(encode).collect();
    let sequences: Vec<Sequence> = encoded.iter().flatten().map(|(sequence, _)| sequence.clone()).collect();
    let mut scores = policy.score(&sequences, temperature)?.into_iter();
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
    policy: &dyn TrainablePolicy,
    groups: &[Vec<Episode>],
    temperature: f32,
) -> Result<BTreeMap<Written, Vec<f32>>, PolicyError> {
    if policy.scores_as_it_writes() {
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
    Ok(places.into_iter().zip(policy.score(&sequences, temperature)?).collect())
}

/// What a token counts, by what the sum is divided by.
struct Weights {
    per: Per,
    texts: f32,
    /// The weight of a token of a text of mean length.
    mean: f32,
}

impl Weights {
    fn new(texts: &[Text], per: Per) -> Self {
        let count = texts.len().max(1) as f32;
        let tokens = texts.iter().map(Text::chosen).sum::<usize>().max(1) as f32;
        let mean = match per {
            Per::Token | Per::Text => 1.0 / tokens,
            Per::Rollout => 1.0 / count,
        };
        Weights { per, texts: count, mean }
    }

    fn of(&self, text: &Text) -> f32 {
        match self.per {
            Per::Token | Per::Rollout => self.mean,
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

fn add_reference(
    reference: &dyn TrainablePolicy,
    examples: &mut [Example],
    temperature: f32,
) -> Result<(), PolicyError> {
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
