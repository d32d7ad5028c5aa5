//! What a model is asked, and what is read from its reply.

use super::Node;
use crate::cards::Domain;
use crate::graph::SpecFrame;
use crate::trials::{LearnerTask, RunScore};
use lemon_spec::{Agent, AnswerRule, Language, Share, Spec};
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
        writeln!(text, "The workflow, with a score of {:.3}:\n```yaml\n{}```\n", node.score, short_form(&node.spec));
    text.push_str("Operators:\n");
    for (name, form) in operators(domain) {
        let _ = writeln!(text, "- {name}: {form}");
    }
    let bases: Vec<&str> = language.roles.iter().map(|role| role.name.as_str()).collect();
    let _ = writeln!(
        text,
        "\nFields of an agent: id, base (one of {}), duty (what it must do, free text), capacity (always {}), after (the ids of \
         earlier agents that it reads). All agents stand in one list. `answer` comes once, after the last agent: `from` names the \
         agents that answer, and `by` is last, vote or judge. The form of a workflow, of another one:\n```yaml\n{}```\n",
        bases.join(", "),
        frame.capacity(0),
        short_form(&example(frame)),
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
        "Try operators that are not used yet: reviewing, revising, several solvers with an ensemble. No placeholders in duties, and \
         nothing in them of the questions above: the workflow is for other questions of their kind. \
         Reply with three parts:\n<modification>one line that says the change</modification>\n<graph>\nthe whole YAML \
         specification, as it is after the change\n</graph>\n<prompt>why it should help, in one line</prompt>\n",
    );
    text
}

/// A workflow with a line for each agent and nothing that says the default: models imitate it better than the canonical form.
fn short_form(spec: &Spec) -> String {
    let mut text = "agents:\n".to_owned();
    // Writing to a string cannot fail.
    for agent in &spec.agents {
        let _ = write!(text, "  - {{id: {}, base: {}", agent.id, agent.base);
        for (name, value) in [("role", &agent.role), ("duty", &agent.duty)] {
            if let Some(value) = value {
                // Quoted as JSON, which YAML reads.
                let _ = write!(text, ", {name}: {}", serde_json::Value::from(value.as_str()));
            }
        }
        let _ = write!(text, ", capacity: {}", agent.capacity);
        if !agent.after.is_empty() {
            let _ = write!(text, ", after: [{}]", agent.after.join(", "));
        }
        if agent.share != Share::Reply {
            let _ = write!(text, ", share: {}", agent.share.as_str());
        }
        if !agent.tools.is_empty() {
            let _ = write!(text, ", tools: [{}]", agent.tools.join(", "));
        }
        text.push_str("}\n");
    }
    let _ = writeln!(text, "answer: {{from: [{}], by: {}}}", spec.answer.from.join(", "), spec.answer.by.as_str());
    text
}

/// A workflow that shows the form.
fn example(frame: &SpecFrame) -> Spec {
    let planner = Agent { duty: Some("List what is given and what is asked.".to_owned()), ..frame.agent(0, "planner") };
    let (planner, expert) = (Agent { id: "x".to_owned(), ..planner }, frame.agent(1, "expert"));
    let expert = Agent { id: "y".to_owned(), after: vec![planner.id.clone()], ..expert };
    let answer = lemon_spec::Answer { from: vec![expert.id.clone()], by: AnswerRule::Last };
    Spec { agents: vec![planner, expert], answer, next: lemon_spec::Next::Stop }
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

/// The change that a reply names: between tags, or in a line of its own.
pub fn modification(reply: &str) -> Option<String> {
    let line = || reply.lines().find_map(|line| line.trim().strip_prefix("modification:"));
    let text = tagged(reply, "modification").or_else(line)?.split_whitespace().collect::<Vec<_>>().join(" ");
    (!text.is_empty()).then_some(text)
}

/// The specification of a reply: its `graph`, with or without a fence; without tags, what begins with `agents:`.
pub fn specification(reply: &str) -> Option<String> {
    let inner = match tagged(reply, "graph") {
        Some(text) => match text.split_once("```") {
            Some((_, fenced)) => before(fenced, "```").trim_start_matches("yaml"),
            None => text,
        },
        None => before(reply.find("agents:").and_then(|at| reply.get(at..))?, "```"),
    };
    Some(format!("{}\n", inner.trim()))
}

fn before<'a>(text: &'a str, end: &str) -> &'a str {
    text.split(end).next().unwrap_or(text)
}

fn tagged<'a>(reply: &'a str, tag: &str) -> Option<&'a str> {
    let (_, rest) = reply.split_once(&format!("<{tag}>"))?;
    Some(rest.split_once(&format!("</{tag}>")).map_or(rest, |(inner, _)| inner))
}
