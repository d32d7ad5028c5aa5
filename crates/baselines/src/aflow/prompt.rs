//! What a model is asked, and what is read from its reply.

use super::Node;
use crate::cards::Domain;
use crate::graph::SpecFrame;
use crate::trials::{LearnerTask, RunScore};
use lemon_spec::{Language, render};
use std::fmt::Write;

/// Characters of a question or a reply that are shown.
const SHOWN: usize = 400;

/// A failure, as it is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    question: String,
    right: String,
    output: String,
}

/// The tasks whose answer was wrong.
pub fn failures(tasks: &[LearnerTask], scores: &[Option<RunScore>]) -> Vec<Shown> {
    let wrong =
        |(_, score): &(&LearnerTask, &Option<RunScore>)| score.as_ref().is_some_and(|score| score.right == Some(false));
    let shown = |(task, score): (&LearnerTask, &Option<RunScore>)| Shown {
        question: short(&task.question),
        right: short(&task.gold),
        output: short(score.as_ref().map_or("", |score| &score.answer)),
    };
    tasks.iter().zip(scores).filter(wrong).map(shown).collect()
}

fn short(text: &str) -> String {
    text.chars().take(SHOWN).collect()
}

/// The request for one changed workflow.
pub fn prompt(node: &Node, shown: &[Shown], domain: Domain, language: &Language, frame: &SpecFrame) -> String {
    let mut text = String::from(
        "You improve a workflow of language-model agents. A workflow is a YAML specification. Change exactly one thing: add, \
         delete or replace one agent, its duty, what it reads, or how the answer is made. At most 10 agents.\n\n",
    );
    // Writing to a string cannot fail.
    if !node.experience.is_empty() {
        text.push_str(
            "These changes of the workflow below were tried and must not be tried again; think differently:\n",
        );
        for (change, score) in &node.experience {
            let end = if *score > node.score { "better" } else { "not better" };
            let _ = writeln!(text, "- {change}: score {score:.3}, {end}");
        }
        text.push('\n');
    }
    let _ =
        writeln!(text, "The workflow, with a score of {:.3}:\n```yaml\n{}```\n", node.score, render(&node.spec).text);
    text.push_str("Operators:\n");
    for (name, form) in operators(domain) {
        let _ = writeln!(text, "- {name}: {form}");
    }
    let bases: Vec<&str> = language.roles.iter().map(|role| role.name.as_str()).collect();
    let _ = writeln!(
        text,
        "\nFields of an agent: id, base (one of {}), duty (what it must do, free text), capacity (always {}), after (the ids of \
         earlier agents that it reads). The workflow ends with `answer: {{from: [ids], by: last | vote | judge}}`.\n",
        bases.join(", "),
        frame.capacity(0),
    );
    if !shown.is_empty() {
        text.push_str("It failed on these:\n");
        for failure in shown {
            let _ = writeln!(
                text,
                "Question: {}\nRight answer: {}\nIts output: {}\n",
                failure.question, failure.right, failure.output
            );
        }
    }
    text.push_str(
        "Try operators that are not used yet: reviewing, revising, several solvers with an ensemble. No placeholders in duties. \
         Reply with three parts:\n<modification>one line that says the change</modification>\n<graph>\nthe whole YAML \
         specification\n</graph>\n<prompt>why it should help, in one line</prompt>\n",
    );
    text
}

fn operators(domain: Domain) -> Vec<(&'static str, &'static str)> {
    let custom = ("Custom", "any base with a duty that you write");
    let ensemble = ("ScEnsemble", "several agents beside each other, and `answer: {from: [all of them], by: judge}`");
    let review = ("Review and Revise", "a critic after an agent, and a solver after both");
    let mut all = vec![custom, ensemble, review];
    match domain {
        Domain::Math | Domain::Choice => {
            all.push(("Programmer", "a solver whose duty is to compute as a program would"))
        }
        Domain::Knowledge => all.push(("AnswerGenerate", "an expert that reasons step by step, then answers in short")),
        Domain::Code => all.push(("Test", "a tester after a programmer, and a programmer after both")),
    }
    all
}

/// The change that a reply names.
pub fn modification(reply: &str) -> Option<String> {
    let text = tagged(reply, "modification")?.split_whitespace().collect::<Vec<_>>().join(" ");
    (!text.is_empty()).then_some(text)
}

/// The specification of a reply: its `graph`, with or without a fence.
pub fn specification(reply: &str) -> Option<String> {
    let text = tagged(reply, "graph").or_else(|| reply.find("agents:").and_then(|at| reply.get(at..)))?;
    let inner = match text.split_once("```") {
        Some((_, fenced)) => fenced.split("```").next().unwrap_or(fenced).trim_start_matches("yaml"),
        None => text,
    };
    Some(format!("{}\n", inner.trim()))
}

fn tagged<'a>(reply: &'a str, tag: &str) -> Option<&'a str> {
    let (_, rest) = reply.split_once(&format!("<{tag}>"))?;
    Some(rest.split_once(&format!("</{tag}>")).map_or(rest, |(inner, _)| inner))
}
