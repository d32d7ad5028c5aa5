//! A model behind an endpoint as orchestrator.

use super::{Draft, Orchestrator, OrchestratorError, Refused, WriteContext, assignment};
use crate::form::Form;
use crate::tokens;
use crate::worker::ChatMessage;
use async_trait::async_trait;
use lemon_spec::{Language, diagnostic, json_schema};
use std::fmt::Write;
use std::sync::Arc;

/// How many faults a model is shown of its own specification.
const MOST_FAULTS_SHOWN: usize = 12;

/// What the orchestrator is told of one capacity.
#[derive(Debug, Clone, Default)]
pub struct ModelNote {
    /// The model behind it, as its endpoint names it.
    pub model: String,
    /// US dollars for a million tokens of a prompt and of a reply, where they are known.
    pub price: Option<(f64, f64)>,
}

/// A team written by an endpoint's model.
pub struct Prompted {
    /// The capacity that writes: a position in [`Language::capacities`].
    pub level: usize,
    /// Whether to ask for output that obeys the JSON Schema; an endpoint that refuses is asked without.
    pub structured: bool,
    /// The team to run where the model wrote none that is valid.
    pub fallback: Option<String>,
    /// What is known of each capacity, weakest first; empty if nothing is.
    pub models: Vec<ModelNote>,
}

#[async_trait]
impl Orchestrator for Prompted {
    async fn draft(&self, context: &WriteContext<'_>) -> Result<Option<Draft>, OrchestratorError> {
        let messages = vec![ChatMessage::system(self.instructions(context)), ChatMessage::user(assignment(context))];
        Ok(Some(self.ask(context, messages)))
    }

    async fn repair(
        &self,
        context: &WriteContext<'_>,
        refused: &Refused<'_>,
    ) -> Result<Option<Draft>, OrchestratorError> {
        // The first faults are enough to mend by, and a hostile text can have thousands.
        let first = refused.diagnostics.get(..MOST_FAULTS_SHOWN).unwrap_or(refused.diagnostics);
        let faults = diagnostic::explain(first, refused.text, "your specification", false);
        let correction =
            format!("This specification is not valid:\n\n{faults}\n\nWrite it again, whole and corrected.");
        let messages = vec![
            ChatMessage::system(self.instructions(context)),
            ChatMessage::user(assignment(context)),
            ChatMessage::assistant(refused.text),
            ChatMessage::user(correction),
        ];
        Ok(Some(self.ask(context, messages)))
    }

    fn fallback(&self, context: &WriteContext<'_>) -> Option<String> {
        if context.round > 1 {
            // There is an answer already; a round that no draft planned would only spend.
            return None;
        }
        self.fallback.clone().or_else(|| {
            let capacity = context.language.capacities.get(self.level)?;
            Some(format!("agents:\n  - {{id: solve, base: solver, capacity: {capacity}}}\n"))
        })
    }
}

impl Prompted {
    fn ask(&self, context: &WriteContext<'_>, messages: Vec<ChatMessage>) -> Draft {
        let schema = self.structured.then(|| Arc::new(json_schema(context.language)));
        Draft::Ask { level: self.level, messages, schema }
    }

    /// What the model is told of teams. Its examples name nothing that a task could be about: small models copy examples,
    /// and a copy of one of these is a sound team for most tasks.
    fn instructions(&self, context: &WriteContext<'_>) -> String {
        let language = context.language;
        let (weak, strong) = (level(language, 0), level(language, usize::MAX));
        let mut text = format!(
            "You write teams. You read a task and decide which model calls answer it: one plain call, or a small team of \
             agents. You do not solve the task yourself.\n\n\
             One plain call is the standard: {}. Write a team only where it is worth several times that: where independent \
             attempts at the same short answer can be compared by a vote. Do not add agents that only check or comment.\n\n\
             Reply with a specification like one of these three, and with nothing else. One plain call:\n\n\
             agents:\n\
             \x20 - {{id: a1, base: plain, capacity: {strong}}}\n\n\
             Three attempts and a vote:\n\n\
             agents:\n\
             \x20 - {{id: a1, base: solver, capacity: {strong}}}\n\
             \x20 - {{id: a2, base: solver, duty: Write down what is given and what is asked. Then solve it., capacity: {strong}}}\n\
             \x20 - {{id: a3, base: expert, capacity: {strong}}}\n\
             answer: {{from: [a1, a2, a3], by: vote}}\n\n\
             A plan, and one who follows it (`after` names earlier agents only):\n\n\
             agents:\n\
             \x20 - {{id: a1, base: planner, capacity: {weak}}}\n\
             \x20 - {{id: a2, base: solver, capacity: {strong}, after: [a1]}}\n\n\
             Every agent sees the task. `answer.by` is {}; `next: review` asks for another round.\n\n\
             Base roles: ",
            plain_cost(context),
            rules(language)
        );
        let names: Vec<&str> = language.roles.iter().map(|role| role.name.as_str()).collect();
        let _ = write!(text, "{}.\nCapacities, weakest first:", names.join(", "));
        for (at, name) in language.capacities.iter().enumerate() {
            let _ = write!(text, "\n- {name}");
            let effort = language.effort(at).to_string();
            if !effort.is_empty() {
                let _ = write!(text, " ({effort})");
            }
            let Some(note) = self.models.get(at) else { continue };
            let _ = write!(text, ": {}", note.model);
            if let Some((input, output)) = note.price {
                let _ = write!(text, ", {input} USD in and {output} USD out for a million tokens");
            }
        }
        let _ =
            write!(text, "\nAt most {} agents, {} references each.", language.limits.agents, language.limits.parents);
        if !language.tools.is_empty() {
            let tools = language.tools.join(", ");
            let _ =
                write!(text, "\nAn agent may be given tools, which it then calls: `tools: […]` with some of {tools}.");
        }
        text
    }
}

/// The rules of aggregation, in words.
fn rules(language: &Language) -> &'static str {
    match language.tests {
        true => "last, vote, judge, or for code test (the program that passes most of the question's examples)",
        false => "last, vote or judge",
    }
}

/// What a plain call of this task costs, in words.
fn plain_cost(context: &WriteContext<'_>) -> String {
    let prompt = tokens::estimate(context.question);
    let reply = match context.form {
        Form::Choice | Form::Short => 60,
        Form::Number | Form::Json => 200,
        Form::Open | Form::Code => 300,
    };
    format!("for this task it costs about {} tokens", prompt + reply)
}

fn level(language: &Language, at: usize) -> &str {
    let last = language.capacities.len().saturating_sub(1);
    language.capacities.get(at.min(last)).map_or("large", String::as_str)
}
