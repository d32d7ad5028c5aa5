//! What a specification may say here: the roles, the capacities and the limits of this installation.

use crate::{AnswerRule, Effort, RoleLibrary};
use serde::{Deserialize, Serialize};

/// The context a text is validated in.
#[derive(Debug, Clone)]
pub struct Language {
    /// The base roles an agent may inherit from.
    pub roles: RoleLibrary,
    /// The capacities, weakest first.
    pub capacities: Vec<String>,
    /// How each capacity replies, in the same order; empty where nothing is known of them.
    pub efforts: Vec<Effort>,
    /// The tools that agents may be given; empty where none is configured.
    pub tools: Vec<String>,
    /// Whether orchestrators are offered `by: test`. A file may say it anywhere.
    pub tests: bool,
    /// The bounds on what a text may ask for.
    pub limits: Limits,
}

impl Default for Language {
    fn default() -> Self {
        Language {
            roles: RoleLibrary::builtin(),
            capacities: ["small", "medium", "large"].map(String::from).to_vec(),
            efforts: Vec::new(),
            tools: Vec::new(),
            tests: false,
            limits: Limits::default(),
        }
    }
}

impl Language {
    /// The rules of aggregation that orchestrators and edits may choose from.
    pub fn answer_rules(&self) -> &'static [AnswerRule] {
        if self.tests { AnswerRule::ALL } else { AnswerRule::WITHOUT_CODE }
    }

    /// What is known of the capacity at this position.
    pub fn effort(&self, level: usize) -> Effort {
        self.efforts.get(level).copied().unwrap_or_default()
    }

    /// The capacities in words, weakest first: their names, each with what is known of it.
    pub fn told_capacities(&self) -> Vec<String> {
        let told = |(level, name): (usize, &String)| match self.effort(level).to_string() {
            known if known.is_empty() => name.clone(),
            known => format!("{name} ({known})"),
        };
        self.capacities.iter().enumerate().map(told).collect()
    }
}

/// The bounds on a specification: safe for a text that a model wrote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Agents in one specification.
    pub agents: usize,
    /// Agents on the longest path.
    pub depth: usize,
    /// References in one agent's `after`, and in `answer.from`.
    pub parents: usize,
    /// Tools of one agent.
    pub tools: usize,
    /// Characters of an id.
    pub id_chars: usize,
    /// Characters of a role.
    pub role_chars: usize,
    /// Characters of a duty.
    pub duty_chars: usize,
    /// Bytes of the whole text.
    pub bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            agents: 64,
            depth: 16,
            parents: 16,
            tools: 8,
            id_chars: 48,
            role_chars: 120,
            duty_chars: 2_000,
            bytes: 256 * 1024,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Shape, Style, grammar, json_schema, validate};

    const TEAM: &str = "agents:\n  - {id: a, base: programmer, capacity: small}\nanswer: {from: [a], by: test}\n";

    #[test]
    fn tests_are_offered_where_code_is_run_and_understood_everywhere() {
        let plain = Language::default();
        let tests = Language { tests: true, ..Language::default() };
        let offered = |language: &Language| {
            let schema = json_schema(language).to_string();
            (grammar(language, &[], &Shape::default()).contains("\"test\""), schema.contains("\"test\""))
        };
        assert_eq!((offered(&plain), offered(&tests)), ((false, false), (true, true)));
        for language in [&plain, &tests] {
            let plan = validate(TEAM, language).unwrap();
            assert_eq!(plan.answer_rule(), AnswerRule::Test);
            let edits = crate::edit::edits(&plan, language);
            assert!(
                edits.iter().all(|edit| crate::edit::apply(&plan, edit, language).is_ok()),
                "every edit keeps it valid"
            );
        }
    }

    #[test]
    fn capacities_are_told_with_their_effort() {
        let mut language = Language::default();
        assert_eq!(language.told_capacities(), ["small", "medium", "large"]);
        let schema = |language: &Language| json_schema(language).to_string();
        assert!(!schema(&language).contains("how it replies"));
        language.efforts = vec![Effort { style: Some(Style::Brief), price: None }];
        assert_eq!(language.told_capacities()[0], "small (gives the answer alone, about 6 tokens)");
        assert_eq!(language.told_capacities()[1], "medium");
        assert!(schema(&language).contains("small (gives the answer alone"));
    }
}
