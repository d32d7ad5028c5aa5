//! A text with the advantages of its tokens.

use super::{Signals, Written};
use crate::episode::Round;
use lemon_credit::model::Features;
use lemon_model::Sequence;
use lemon_spec::{Field, Plan, Span};
use std::collections::BTreeMap;
use std::ops::Range;

/// A text with the advantages of its tokens.
pub(super) struct Text {
    /// Where it was written.
    pub place: Written,
    pub sequence: Sequence,
    pub bytes: Vec<Range<usize>>,
    pub forced: Vec<bool>,
    /// The log-probabilities of its tokens.
    pub old: Vec<f32>,
    pub plan: Option<Plan>,
    /// What the critic reads of its beginnings and of the whole; empty where nothing asks it.
    pub read: Vec<Features>,
    pub reward: f64,
    /// What its reward is compared with: it does not depend on the text.
    pub control: f64,
    /// One for each token.
    pub advantages: Vec<f64>,
    /// What each token counts beside others: less in the branches of a tree.
    pub scale: Vec<f32>,
    /// What it counts for being drawn from another distribution: its probability by the policy over that by which it was drawn.
    pub ratio: Vec<f32>,
}

impl Text {
    pub fn new(place: Written, round: &Round, reward: f64) -> Text {
        let tokens = round.sample.tokens.len();
        Text {
            place,
            sequence: Sequence {
                prompt: round.request.prompt.clone(),
                tokens: round.sample.tokens.clone(),
                grammar: round.request.grammar.clone(),
            },
            bytes: byte_ranges(&round.sample.ends),
            forced: round.sample.forced.clone(),
            old: round.sample.logprobs.clone(),
            plan: round.plan.clone(),
            read: Vec::new(),
            reward,
            control: reward,
            advantages: vec![0.0; tokens],
            scale: vec![1.0; tokens],
            ratio: vec![1.0; tokens],
        }
    }

    /// How far other log-probabilities of the chosen tokens are from those of sampling.
    pub fn gaps(&self, scores: &[f32]) -> impl Iterator<Item = f64> {
        let pairs = scores.iter().zip(&self.old).zip(&self.forced).filter(|(_, forced)| !**forced);
        pairs.map(|((own, drawn), _)| f64::from(own - drawn))
    }

    /// Takes the policy's own log-probabilities for those of sampling. Where both differ because a grammar cut tokens off, each
    /// token is weighed by their quotient: under the grammar it is more likely than it was by the policy.
    pub fn rescore(&mut self, scores: Vec<f32>, most_ratio: Option<f32>) {
        if let Some(most) = most_ratio {
            self.ratio = scores.iter().zip(&self.old).map(|(own, drawn)| (own - drawn).exp().min(most)).collect();
        }
        self.old = scores;
    }

    /// Tokens that were chosen, by what they count.
    pub fn chosen(&self) -> f32 {
        self.forced.iter().zip(&self.scale).filter(|(forced, _)| !**forced).map(|(_, scale)| scale).sum()
    }

    /// How much of a whole text it counts.
    pub fn whole(&self) -> f32 {
        let tokens = self.forced.iter().filter(|forced| !**forced).count().max(1) as f32;
        self.chosen() / tokens
    }

    /// The tokens that were chosen and stand in a span for the most part.
    pub fn tokens_in(&self, span: Span) -> Vec<usize> {
        let held = |at: &usize| is_in(&self.bytes[*at], span) && !self.forced[*at]; // Positions of tokens.
        (0..self.bytes.len()).filter(held).collect()
    }

    /// The segment that each token belongs to: how many entries of agents end before it.
    pub fn segments(&self) -> Vec<usize> {
        let plan = self.plan.as_ref();
        let end = |agent: usize| plan?.spans().get(Field::Agent(agent)).map(|span| span.end);
        let ends: Vec<usize> = (0..plan.map_or(0, |plan| plan.agents().len())).filter_map(end).collect();
        let segment = |token: &Range<usize>| {
            let middle = (token.start + token.end).div_ceil(2);
            // Later text than the end of an entry belongs to what follows; a token without text to what follows it too.
            ends.iter().filter(|end| middle > **end || (token.is_empty() && middle >= **end)).count()
        };
        self.bytes.iter().map(segment).collect()
    }

    /// The log-probability of some tokens together.
    pub fn logprob(&self, tokens: &[usize]) -> f64 {
        tokens.iter().filter_map(|at| self.old.get(*at)).map(|score| f64::from(*score)).sum()
    }

    /// Keeps collapse off: subtracts what each value was worth on average, and pays for entropy. Records the advantages of the
    /// values before that, where no measurement did.
    pub fn guard(&mut self, signals: &Signals<'_>, values: &mut Vec<(String, f64)>) {
        let keep = signals.credit.guard.value_baseline;
        if keep != 0.0 {
            for (key, span) in self.decisions() {
                let tokens = self.tokens_in(span);
                let Some(first) = tokens.first() else { continue };
                values.push((key.clone(), self.advantages[*first])); // A position of a token, here and below.
                let mean = keep * signals.values.get(&key);
                tokens.iter().for_each(|at| self.advantages[*at] -= mean);
            }
        }
        if signals.entropy_price != 0.0 {
            for ((advantage, score), forced) in self.advantages.iter_mut().zip(&self.old).zip(&self.forced) {
                // The gradient of the entropy of a choice is the mean of −log p · ∇ log p.
                *advantage += if *forced { 0.0 } else { -signals.entropy_price * f64::from(*score) };
            }
        }
    }

    /// The small decisions of the text by name and value, and where each stands.
    fn decisions(&self) -> Vec<(String, Span)> {
        let Some(plan) = &self.plan else { return Vec::new() };
        let agents = 0..plan.agents().len();
        let fields =
            agents.flat_map(|at| [Field::Capacity(at), Field::Share(at)]).chain([Field::AnswerBy, Field::Next]);
        let named = |field: Field| {
            let span = plan.spans().get(field)?;
            Some((value_key(field, span.of(plan.source()))?, span))
        };
        fields.filter_map(named).collect()
    }

    /// Gives every chosen token the mean of what the decisions got, each decision counted once.
    pub fn spread(&mut self) {
        let mut decisions: BTreeMap<usize, (f64, usize)> = BTreeMap::new();
        for at in (0..self.advantages.len()).filter(|at| !self.forced[*at]) {
            let (sum, count) = decisions.entry(self.decision_of(at)).or_default();
            (*sum, *count) = (*sum + self.advantages[at], *count + 1);
        }
        let each = decisions.values().map(|(sum, count)| sum / *count as f64);
        let mean = each.sum::<f64>() / decisions.len().max(1) as f64;
        self.advantages.iter_mut().for_each(|advantage| *advantage = mean);
    }

    /// The decision that a token belongs to: tokens of one field are one.
    fn decision_of(&self, at: usize) -> usize {
        let Some(plan) = &self.plan else { return at };
        let of_agent = |agent: usize| {
            [Field::Id(agent), Field::Base(agent), Field::Role(agent), Field::Duty(agent), Field::Capacity(agent)]
                .into_iter()
                .chain([Field::After(agent), Field::Share(agent)])
        };
        let fields = (0..plan.agents().len()).flat_map(of_agent);
        let mut fields = fields.chain([Field::AnswerFrom, Field::AnswerBy, Field::Next]);
        let found = fields.find(|field| plan.spans().get(*field).is_some_and(|span| is_in(&self.bytes[at], span)));
        // Tokens of a field by its first byte, others by their own place behind all bytes.
        let first = found.and_then(|field| plan.spans().get(field)).map(|span| span.start);
        first.unwrap_or(plan.source().len() + at)
    }
}

/// The name of a value of a small decision; `None`: the field is not one.
pub(super) fn value_key(field: Field, value: &str) -> Option<String> {
    match field {
        Field::Capacity(_) => Some(format!("capacity={value}")),
        Field::Share(_) => Some(format!("share={value}")),
        Field::AnswerBy => Some(format!("by={value}")),
        Field::Next => Some(format!("next={value}")),
        _ => None,
    }
}

/// Whether a token stands in a span for the most part; one without text, if it stands at its place.
pub(super) fn is_in(token: &Range<usize>, span: Span) -> bool {
    let held = token.end.min(span.end).saturating_sub(token.start.max(span.start));
    match token.is_empty() {
        true => token.start >= span.start && token.end <= span.end,
        false => 2 * held > token.len(),
    }
}

/// From where tokens end to the bytes they hold.
pub(super) fn byte_ranges(ends: &[usize]) -> Vec<Range<usize>> {
    let starts = std::iter::once(0).chain(ends.iter().copied());
    starts.zip(ends).map(|(start, end)| start..*end).collect()
}
