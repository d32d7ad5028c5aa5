//! How likely does the orchestrator's model find a team? Its log-probability, token by token and field by field.

use crate::error::Error;
use lemon_model::{LanguagePolicy, Policy, Sequence, owners};
use lemon_policy::LanguagePromptEncoder;
use lemon_policy::pair::canonical_ids;
use lemon_spec::{Field, Plan, render};
use serde::Serialize;
use std::ops::Range;

/// A specification as the model would write it, with the probability of each token. The field names are an interface.
#[derive(Debug, Serialize)]
pub struct ScoredSpec {
    /// The canonical text.
    pub spec: String,
    /// The log-probability of all of it.
    pub logprob: f32,
    pub tokens: Vec<ScoredToken>,
}

/// A token of a specification.
#[derive(Debug, Serialize)]
pub struct ScoredToken {
    pub text: String,
    /// Its log-probability.
    pub logprob: f32,
    /// The grammar leaves no other.
    pub forced: bool,
    /// The field that holds most of it: `a1.capacity`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
}

/// The tokens of a field together.
#[derive(Debug, PartialEq)]
pub struct FieldScore<'s> {
    /// The field: `a1.capacity`.
    pub field: &'s str,
    /// The log-probability of its tokens.
    pub logprob: f32,
    /// Tokens that the model chose: the others are forced.
    pub choices: usize,
}

/// Scores the team of a text as the answer to a task.
///
/// # Errors
/// The text is no team, the model cannot write it, or the model failed.
pub fn score_spec(
    (policy, encoder): (&LanguagePolicy, &LanguagePromptEncoder),
    task: &str,
    text: &str,
    temperature: f32,
) -> Result<ScoredSpec, Error> {
    let language = encoder.language();
    let plan = lemon_spec::validate(text, language)?;
    let spec = render(&canonical_ids(plan.spec())).text;
    // Other ids leave a team as it is: it stays valid.
    let plan = lemon_spec::validate(&spec, language)?;
    let grammar = encoder.grammar(&[]).map_err(Error::input)?;
    let tokens = grammar.encode(&spec).map_err(|error| {
        Error::input(format!("the orchestrator cannot write this team: {error}"))
            .with_hint("it writes at most six agents, and duties in plain words")
    })?;
    let prompt = encoder.prompt(&encoder.first(task, 0)).map_err(Error::input)?;
    let choices = grammar.choices(&tokens).map_err(Error::input)?;
    let sequence = Sequence { prompt, tokens: tokens.clone(), grammar: Some(grammar) };
    let logprobs = policy.score(&[sequence], temperature).map_err(Error::input)?.concat();
    let mut ends = Vec::with_capacity(tokens.len());
    let mut end = 0;
    for token in &tokens {
        end += encoder.tokenizer().bytes(*token).len();
        ends.push(end);
    }
    let (names, spans): (Vec<String>, Vec<Range<usize>>) = fields(&plan).into_iter().unzip();
    let fields = owners(&ends, &spans);
    let scored = tokens.iter().zip(&logprobs).zip(choices.iter().zip(fields));
    let tokens: Vec<ScoredToken> = scored
        .map(|((token, logprob), (choice, field))| ScoredToken {
            text: encoder.tokenizer().decode(&[*token]),
            logprob: *logprob,
            forced: choice.is_none(),
            field: field.and_then(|at| names.get(at)).cloned(),
        })
        .collect();
    Ok(ScoredSpec { spec, logprob: logprobs.iter().sum(), tokens })
}

impl ScoredSpec {
    /// The fields in which the model chose something, least likely first: what it would have written otherwise.
    pub fn by_field(&self) -> Vec<FieldScore<'_>> {
        let mut scores: Vec<FieldScore<'_>> = Vec::new();
        for token in &self.tokens {
            let Some(field) = token.field.as_deref() else { continue };
            let at = scores.iter().position(|score| score.field == field).unwrap_or_else(|| {
                scores.push(FieldScore { field, logprob: 0.0, choices: 0 });
                scores.len() - 1
            });
            if let Some(score) = scores.get_mut(at) {
                score.logprob += token.logprob;
                score.choices += usize::from(!token.forced);
            }
        }
        scores.retain(|score| score.choices > 0);
        scores.sort_by(|a, b| a.logprob.total_cmp(&b.logprob));
        scores
    }

    /// How many tokens the model chose.
    pub fn choices(&self) -> usize {
        self.tokens.iter().filter(|token| !token.forced).count()
    }
}

/// The fields of a specification by name, with their places.
fn fields(plan: &Plan) -> Vec<(String, Range<usize>)> {
    let mut fields = Vec::new();
    let mut push = |name: String, field: Field| {
        fields.extend(plan.spans().get(field).map(|span| (name, span.start..span.end)));
    };
    for (at, agent) in plan.spec().agents.iter().enumerate() {
        let of_agent = [
            ("id", Field::Id(at)),
            ("base", Field::Base(at)),
            ("role", Field::Role(at)),
            ("duty", Field::Duty(at)),
            ("capacity", Field::Capacity(at)),
            ("after", Field::After(at)),
            ("share", Field::Share(at)),
        ];
        for (name, field) in of_agent {
            push(format!("{}.{name}", agent.id), field);
        }
    }
    push("answer.from".to_owned(), Field::AnswerFrom);
    push("answer.by".to_owned(), Field::AnswerBy);
    push("next".to_owned(), Field::Next);
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_the_sum_of_its_tokens_and_forced_fields_are_left_out() {
        let token = |field: &str, logprob, forced| ScoredToken {
            text: "x".to_owned(),
            logprob,
            forced,
            field: (!field.is_empty()).then(|| field.to_owned()),
        };
        let tokens = vec![
            token("a1.base", -0.5, false),
            token("", -9.0, false),
            token("a1.duty", -1.0, false),
            token("a1.duty", -0.25, true),
            token("a1.id", 0.0, true),
        ];
        let scored = ScoredSpec { spec: String::new(), logprob: -10.75, tokens };
        let expected = [("a1.duty", -1.25, 1), ("a1.base", -0.5, 1)];
        let expected = expected.map(|(field, logprob, choices)| FieldScore { field, logprob, choices });
        assert_eq!(scored.by_field(), expected);
        assert_eq!(scored.choices(), 3);
    }
}
