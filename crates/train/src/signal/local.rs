//! Fields with measured alternatives: an estimate of the gradient of that field alone.
//!
//! The reward of another value is measured with the rest of the text as it was written. That is a direct effect. With
//! [`Suffix::Weigh`] it is weighted by how likely the rest is after the other value, which makes it an estimate of the value of
//! the decision. Fields whose measured values have all of the probability use the all-action form; others the pairwise form.

use super::text::{Text, byte_ranges, is_in, value_key};
use super::{Candidate, Push, Signals, Written};
use crate::episode::Episode;
use crate::recipe::{CreditForm, Place, Suffix};
use lemon_credit::economy::OfferVerdict;
use lemon_credit::estimator::{all_action, single_action, weighted_reward};
use lemon_model::{PolicyError, Sequence};
use lemon_policy::Encoded;
use lemon_spec::edit::Family;
use lemon_spec::{Field, Span};
use std::collections::BTreeMap;

/// The probability from which the measured values count as all values.
const COMPLETE: f64 = 0.999;
/// What an entry begins with; ids are short.
const ID_LINE: &str = "id: a1";

/// What the fields of a step came to.
pub(super) struct Local {
    pub pushes: Vec<Push>,
    /// The advantages of measured values.
    pub values: Vec<(String, f64)>,
    /// Tokens that the policy scored.
    pub scored: u64,
}

/// Another value of a field, as tokens.
struct Other {
    sequence: Sequence,
    /// Its tokens that belong to the field.
    own: Vec<usize>,
    /// The log-probabilities of all its tokens.
    scores: Vec<f32>,
}

/// A field of a text with its measured alternatives, as places among the counterfactuals.
struct Measured {
    text: usize,
    field: Field,
    /// Where the field stands in the text.
    span: Span,
    family: Family,
    others: Vec<usize>,
}

/// Changes the advantages of the fields with measured alternatives, and has other values pushed.
pub(super) fn apply(
    signals: &Signals<'_>,
    groups: &[Vec<Episode>],
    (texts, places): (&mut [Text], &BTreeMap<Written, usize>),
    counterfactuals: &[Candidate],
) -> Result<Local, PolicyError> {
    let (others, scored) = others(signals, groups, counterfactuals)?;
    let mut local = Local { pushes: Vec::new(), values: Vec::new(), scored };
    for measured in fields(texts, places, counterfactuals) {
        let is_free = |at: &usize| counterfactuals[*at].verdict == OfferVerdict::Free; // Places of counterfactuals.
        let weight = if signals.credit.by_variance && signals.credit.form != CreditForm::Preference {
            signals.economy.inverse_variance_weight(measured.family, measured.others.iter().all(is_free))
        } else {
            1.0
        };
        one(signals, texts, &measured, (counterfactuals, &others), weight, &mut local);
    }
    if signals.credit.replace {
        blank_unmeasured(signals, texts, places, counterfactuals);
    }
    Ok(local)
}

/// The measured fields of all texts.
fn fields(texts: &[Text], places: &BTreeMap<Written, usize>, counterfactuals: &[Candidate]) -> Vec<Measured> {
    let mut found: BTreeMap<(usize, usize, usize), Measured> = BTreeMap::new();
    for (number, candidate) in counterfactuals.iter().enumerate() {
        let place = (candidate.group, candidate.episode, candidate.round);
        let (Some(text), None, Some(_)) = (places.get(&place).copied(), candidate.prefix, candidate.delta) else {
            continue;
        };
        let Some(span) = span_of(candidate) else { continue };
        if texts.get(text).is_none_or(|text| text.tokens_in(span).is_empty()) {
            continue;
        }
        let (field, family) = (candidate.edited.field, candidate.edit.family);
        let entry = found.entry((text, span.start, span.end)).or_insert_with(|| Measured {
            text,
            field,
            span,
            family,
            others: Vec::new(),
        });
        entry.others.push(number);
    }
    found.into_values().collect()
}

/// The bytes of the decision that an edit changes. Of an agent that is removed: the dash and the id, where one more agent was
/// chosen; what it is like is for other edits to say.
fn span_of(candidate: &Candidate) -> Option<Span> {
    let before = candidate.edited.before?;
    if candidate.edit.family != Family::Agent {
        return Some(before);
    }
    let end = before.start + ID_LINE.len();
    Some(Span { start: candidate.edited.after.start.min(before.start), end: end.min(before.end) })
}

/// One field: its advantages, and what is pushed in its place.
fn one(
    signals: &Signals<'_>,
    texts: &mut [Text],
    measured: &Measured,
    (counterfactuals, others): (&[Candidate], &[Option<Other>]),
    weight: f64,
    local: &mut Local,
) {
    let (credit, share) = (signals.credit, signals.share(weight));
    let text = &mut texts[measured.text]; // The place of a text.
    let own = text.tokens_in(measured.span);
    let Some(last) = own.last().copied() else { return };
    let written = text.logprob(&own).exp();
    let suffix: Vec<usize> = (last + 1..text.old.len()).collect();
    let after = text.logprob(&suffix);

    // The written value first, then the others: probability and reward.
    let (mut chances, mut rewards, mut pushed) = (vec![written], vec![text.reward], Vec::new());
    let mut without_tokens = 0.0;
    for number in &measured.others {
        let candidate = &counterfactuals[*number]; // Places of counterfactuals.
        let Some(delta) = candidate.delta else { continue };
        let Some(other) = others.get(*number).and_then(Option::as_ref) else {
            // The policy cannot write it in this place: there is nothing to push.
            without_tokens += delta;
            continue;
        };
        let sum = |at: &mut dyn Iterator<Item = f32>| at.map(f64::from).sum::<f64>();
        let chance = sum(&mut other.own.iter().filter_map(|at| other.scores.get(*at)).copied()).exp();
        let rest = other.own.last().map_or(0, |last| last + 1);
        let reward = match credit.suffix {
            Suffix::Keep => text.reward - delta,
            Suffix::Weigh => {
                let ratio = (sum(&mut other.scores.iter().skip(rest).copied()) - after).exp();
                weighted_reward(text.reward - delta, ratio, text.control)
            }
        };
        chances.push(chance);
        rewards.push(reward);
        pushed.push((other, candidate));
    }
    if measured.family == Family::Agent {
        // Another team, which no other value of this decision leads to: the difference goes to the decision as it was made.
        own.iter().for_each(|at| text.advantages[*at] = mixed(text.advantages[*at], without_tokens, share));
        return;
    }
    if pushed.is_empty() {
        return;
    }
    let raw = rewards.clone();
    subtract_means(signals, measured, text, &pushed, &mut rewards);
    let is_complete = chances.iter().sum::<f64>() > COMPLETE;
    // Spread over all tokens there is no place for other values: the form that needs none has the same mean.
    let form = match (credit.form, credit.place) {
        (CreditForm::AllAction | CreditForm::Gradient, Place::Everywhere) => CreditForm::Sampled,
        (form, _) => form,
    };
    let pair = |other: usize| chances[other].powf(credit.correction.clamp(0.0, 1.0)) * (rewards[0] - rewards[other]);
    let (advantage, pushes): (f64, Vec<f64>) = match form {
        CreditForm::None => return,
        CreditForm::AllAction if is_complete => {
            let mut all = all_action(&chances, &rewards);
            let pushes = all.split_off(1);
            (all[0], pushes)
        }
        CreditForm::Sampled if is_complete => (single_action(&chances, &rewards, 0).unwrap_or(0.0), Vec::new()),
        CreditForm::Replay => {
            let others = lemon_num::mean_of(rewards.iter().skip(1).copied());
            (others.map_or(0.0, |others| rewards[0] - others), Vec::new())
        }
        CreditForm::Sampled => ((1..rewards.len()).map(pair).sum(), Vec::new()),
        CreditForm::AllAction | CreditForm::Gradient => {
            let pushes: Vec<f64> = (1..rewards.len()).map(|other| -0.5 * pair(other)).collect();
            (-pushes.iter().sum::<f64>(), pushes)
        }
        CreditForm::Preference => {
            let pushes: Vec<f64> = (1..rewards.len())
                .map(|other| {
                    let delta = rewards[0] - rewards[other];
                    let margin = credit.beta * delta.signum() * (chances[0].ln() - chances[other].ln());
                    -delta * credit.beta / (1.0 + margin.exp())
                })
                .collect();
            (-pushes.iter().sum::<f64>(), pushes)
        }
    };
    let is_added = form == CreditForm::Preference && !credit.replace;
    for at in &own {
        let group = text.advantages[*at]; // Positions of tokens.
        text.advantages[*at] =
            if is_added { group + signals.lambda * advantage } else { mixed(group, advantage, share) };
    }
    // In a branch of a tree a push counts what the written value does.
    let strength = f64::from(text.scale[last] * text.ratio[last]) * if is_added { signals.lambda } else { share };
    for ((other, _), push) in pushed.iter().zip(&pushes) {
        if *push != 0.0 && strength != 0.0 {
            let mut advantages = vec![0.0; other.sequence.tokens.len()];
            other.own.iter().for_each(|at| advantages[*at] = strength * push); // Positions of its own tokens.
            local.pushes.push(cut(other, advantages));
        }
    }
    if is_complete {
        record(measured, text, &pushed, (&chances, &raw), &mut local.values);
    }
}

/// The tokens after the field carry nothing: they are left out.
fn cut(other: &Other, mut advantages: Vec<f64>) -> Push {
    let length = other.own.last().map_or(0, |last| last + 1);
    let (mut sequence, mut old) = (other.sequence.clone(), other.scores.clone());
    sequence.tokens.truncate(length);
    advantages.truncate(length);
    old.truncate(length);
    Push { sequence, advantages, old }
}

fn mixed(group: f64, local: f64, share: f64) -> f64 {
    // Not the sum where nothing is mixed in, which would turn a −0.0 into 0.0.
    if share == 0.0 { group } else { (1.0 - share) * group + share * local }
}

/// The values of a small decision: the written one, then the others.
fn keys(measured: &Measured, text: &Text, pushed: &[(&Other, &Candidate)]) -> Vec<Option<String>> {
    let written = text.plan.as_ref().map(|plan| measured.span.of(plan.source()));
    let others = pushed.iter().map(|(_, candidate)| Some(candidate.edited.after.of(candidate.edited.plan.source())));
    std::iter::once(written).chain(others).map(|value| value_key(measured.field, value?)).collect()
}

/// Subtracts what each value was worth on average, as far as the guard asks for it.
fn subtract_means(
    signals: &Signals<'_>,
    measured: &Measured,
    text: &Text,
    pushed: &[(&Other, &Candidate)],
    rewards: &mut [f64],
) {
    let keep = signals.credit.guard.value_baseline;
    if keep == 0.0 {
        return;
    }
    for (reward, key) in rewards.iter_mut().zip(keys(measured, text, pushed)) {
        *reward -= key.map_or(0.0, |key| keep * signals.values.get(&key));
    }
}

/// Records what each value was worth more than the mean.
fn record(
    measured: &Measured,
    text: &Text,
    pushed: &[(&Other, &Candidate)],
    (chances, rewards): (&[f64], &[f64]),
    values: &mut Vec<(String, f64)>,
) {
    for (at, key) in keys(measured, text, pushed).into_iter().enumerate() {
        if let (Some(key), Some(advantage)) = (key, single_action(chances, rewards, at)) {
            values.push((key, advantage));
        }
    }
}

/// With replacement, fields of the credited families without a measurement get no credit: that of the group is a comparison with
/// another baseline, and which fields are measured may depend on their values.
fn blank_unmeasured(
    signals: &Signals<'_>,
    texts: &mut [Text],
    places: &BTreeMap<Written, usize>,
    counterfactuals: &[Candidate],
) {
    let measured: std::collections::BTreeSet<(usize, usize)> = counterfactuals
        .iter()
        .filter(|candidate| candidate.prefix.is_none() && candidate.delta.is_some())
        .filter_map(|candidate| {
            let text = places.get(&(candidate.group, candidate.episode, candidate.round))?;
            Some((*text, span_of(candidate)?.start))
        })
        .collect();
    let has = |family: Family| signals.credit.families.contains(&family);
    for (at, text) in texts.iter_mut().enumerate() {
        let Some(plan) = text.plan.clone() else { continue };
        let of_agent = |agent: usize| {
            [
                (Family::Role, Field::Role(agent)),
                (Family::Duty, Field::Duty(agent)),
                (Family::Capacity, Field::Capacity(agent)),
                (Family::Dependency, Field::After(agent)),
                (Family::Share, Field::Share(agent)),
            ]
        };
        let fields = (0..plan.agents().len()).flat_map(of_agent);
        let fields = fields.chain([(Family::Answer, Field::AnswerBy), (Family::Stop, Field::Next)]);
        for (_, field) in fields.filter(|(family, _)| has(*family)) {
            let Some(span) = plan.spans().get(field) else { continue };
            if !measured.contains(&(at, span.start)) {
                text.tokens_in(span).into_iter().for_each(|token| text.advantages[token] = 0.0);
            }
        }
    }
}

/// The other value of every counterfactual as tokens, scored; `None` where it is a prefix team or the policy cannot write it.
fn others(
    signals: &Signals<'_>,
    groups: &[Vec<Episode>],
    counterfactuals: &[Candidate],
) -> Result<(Vec<Option<Other>>, u64), PolicyError> {
    let needs_rest = signals.credit.suffix == Suffix::Weigh;
    let encode = |candidate: &Candidate| -> Option<(Sequence, Vec<usize>)> {
        if candidate.prefix.is_some() || candidate.edit.family == Family::Agent || candidate.delta.is_none() {
            return None;
        }
        let round = groups.get(candidate.group)?.get(candidate.episode)?.rounds.get(candidate.round)?;
        let text = candidate.edited.plan.source();
        let Encoded { tokens, ends } = signals.encoder.encode(&round.request, text, &round.sample.tokens)?;
        let ranges = byte_ranges(&ends);
        let own: Vec<usize> = (0..ranges.len()).filter(|at| is_in(&ranges[*at], candidate.edited.after)).collect();
        let length = if needs_rest { tokens.len() } else { *own.last()? + 1 };
        let tokens = tokens.get(..length)?.to_vec();
        let (prompt, grammar) = (round.request.prompt.clone(), round.request.grammar.clone());
        (!own.is_empty()).then_some((Sequence { prompt, tokens, grammar }, own))
    };
    let encoded: Vec<Option<(Sequence, Vec<usize>)>> = counterfactuals.iter().map(encode).collect();
    let sequences: Vec<Sequence> = encoded.iter().flatten().map(|(sequence, _)| sequence.clone()).collect();
    let scored = sequences.iter().map(|sequence| sequence.tokens.len() as u64).sum();
    let mut scores = signals.policy.score(&sequences, signals.temperature)?.into_iter();
    let mut others = Vec::with_capacity(encoded.len());
    for encoded in encoded {
        let scored = encoded.and_then(|(sequence, own)| Some(Other { sequence, own, scores: scores.next()? }));
        others.push(scored);
    }
    Ok((others, scored))
}
