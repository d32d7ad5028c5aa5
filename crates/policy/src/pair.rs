//! Pairs of a task and a specification: the training data of supervised fine-tuning.

use lemon_spec::{Agent, Answer, Language, Spec, render, validate_round};
use lemon_trace::AgentStatus;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::io::{self, BufRead, Write};

/// A task and a specification for it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pair {
    /// The task.
    pub task: TaskText,
    /// The round the specification is for, from 1.
    pub round: u32,
    /// What the agents of the rounds before gave; empty in the first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub results: Vec<Told>,
    /// The specification as [`render`] writes it, with the ids of [`canonical_round`].
    pub spec: String,
    /// Who wrote it.
    pub teacher: Teacher,
    /// The mean reward of its runs; absent where it was not run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reward: Option<f64>,
    /// The share of them with a right answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub success: Option<f64>,
    /// Tokens a run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<f64>,
    /// The simulated world it was run in, if it was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub world: Option<String>,
    /// The seed of every random choice on the way.
    pub seed: u64,
    /// How often it was run.
    pub runs: u32,
}

/// A task as the orchestrator reads it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskText {
    /// The set it comes from.
    pub set: String,
    /// Its id there.
    pub id: String,
    /// The question.
    pub question: String,
}

/// What an agent of an earlier round gave.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Told {
    /// The agent.
    pub agent: String,
    /// Its role.
    pub role: String,
    /// How it ended.
    pub status: AgentStatus,
    /// Its reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply: Option<String>,
    /// How sure it was of it, in percent, where it says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sure: Option<u8>,
}

/// Who wrote a specification.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Teacher {
    /// The policy written by hand.
    Rules,
    /// The search in the simulated world.
    Search,
    /// A model behind an endpoint.
    Endpoint,
    /// Teams drawn at random from those that make sense.
    Broad,
}

/// Pairs that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum PairError {
    /// The file cannot be read.
    #[error("the pairs cannot be read: {0}")]
    Io(#[from] io::Error),
    /// A line is no pair.
    #[error("line {line}: {fact}")]
    Line {
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        fact: String,
    },
}

/// Reads pairs, one JSON object to a line; empty lines are skipped. Every pair is checked: its specification is valid for its
/// round, and written as we write them.
///
/// # Errors
/// The file cannot be read, or the first line that is no pair.
pub fn read(reader: impl BufRead, language: &Language) -> Result<Vec<Pair>, PairError> {
    let mut pairs = Vec::new();
    for (number, line) in reader.lines().enumerate() {
        let fault = |fact: String| PairError::Line { line: number + 1, fact };
        let line = line.map_err(|error| match error.kind() {
            io::ErrorKind::InvalidData => fault("not UTF-8".to_owned()),
            _ => PairError::Io(error),
        })?;
        // Some editors begin a file with a mark of its byte order.
        let line = line.strip_prefix('\u{feff}').filter(|_| number == 0).unwrap_or(&line);
        if line.trim().is_empty() {
            continue;
        }
        let pair: Pair = serde_json::from_str(line).map_err(|error| fault(not_a_pair(&error)))?;
        match pair.fault(language) {
            None => pairs.push(pair),
            Some(fact) => return Err(fault(fact)),
        }
    }
    Ok(pairs)
}

/// The parser's reason without its line, which is always 1 and would be taken for the file's.
fn not_a_pair(error: &serde_json::Error) -> String {
    let reason = error.to_string();
    format!("not a pair: {}", reason.split(" at line ").next().unwrap_or_default())
}

/// Writes pairs, one JSON object to a line.
///
/// # Errors
/// The file cannot be written.
pub fn write(pairs: &[Pair], mut writer: impl Write) -> io::Result<()> {
    for pair in pairs {
        serde_json::to_writer(&mut writer, pair)?;
        writer.write_all(b"\n")?;
    }
    writer.flush()
}

/// Leaves one pair of those with the same question, round, results and specification: the one with most runs, of equals the
/// first, in the place of the first.
pub fn dedupe(pairs: Vec<Pair>) -> Vec<Pair> {
    let mut kept: Vec<Pair> = Vec::with_capacity(pairs.len());
    let mut places: HashMap<(String, u32, Vec<Told>, String), usize> = HashMap::new();
    for pair in pairs {
        let key = (pair.task.question.clone(), pair.round, pair.results.clone(), pair.spec.clone());
        let place = *places.entry(key).or_insert(kept.len());
        match kept.get_mut(place) {
            None => kept.push(pair),
            Some(known) if pair.runs > known.runs => *known = pair,
            Some(_) => {}
        }
    }
    kept
}

impl Pair {
    /// Why it is no training data; `None`: it is.
    pub fn fault(&self, language: &Language) -> Option<String> {
        if self.task.question.trim().is_empty() {
            return Some("the question is empty".to_owned());
        }
        if (self.round <= 1) != self.results.is_empty() || self.round == 0 {
            return Some(format!("round {} with the results of {} agents", self.round, self.results.len()));
        }
        let measured = [self.reward, self.success, self.tokens];
        if measured.iter().any(|figure| figure.is_some_and(|figure| !figure.is_finite())) {
            return Some("a figure is not finite".to_owned());
        }
        if measured.iter().any(Option::is_some) && self.runs == 0 {
            return Some("it has figures but no runs".to_owned());
        }
        let earlier: Vec<String> = self.results.iter().map(|told| told.agent.clone()).collect();
        if let Some((place, id)) = earlier.iter().enumerate().find(|(place, id)| **id != id_at(*place)) {
            return Some(format!("the results are of `{id}` where `{}` would come", id_at(place)));
        }
        match validate_round(&self.spec, language, &earlier) {
            Err(rejection) => Some(format!("the specification is not valid: {rejection}")),
            Ok(plan) if render(&canonical_round(plan.spec(), &earlier)).text != self.spec => {
                Some("the specification is not written canonically".to_owned())
            }
            Ok(_) => None,
        }
    }
}

/// The specification with the ids `a1`, `a2`, … in the order written, and references in the order of the agents.
pub fn canonical_ids(spec: &Spec) -> Spec {
    canonical_round(spec, &[])
}

/// The same for a later round: the agents of `earlier` rounds come first, and the new ones are numbered behind them.
pub fn canonical_round(spec: &Spec, earlier: &[String]) -> Spec {
    let old: Vec<&String> = earlier.iter().chain(spec.agents.iter().map(|agent| &agent.id)).collect();
    let renamed = |ids: &[String]| -> Vec<String> {
        // An unknown reference is kept, at the end: validation rejects it.
        let place = |id: &String| old.iter().position(|known| *known == id).unwrap_or(usize::MAX);
        let mut placed: Vec<(usize, &String)> = ids.iter().map(|id| (place(id), id)).collect();
        placed.sort_by_key(|(place, _)| *place);
        let name = |(place, id): (usize, &String)| if place < old.len() { id_at(place) } else { id.clone() };
        placed.into_iter().map(name).collect()
    };
    let agent = |(at, agent): (usize, &Agent)| Agent {
        id: id_at(earlier.len() + at),
        after: renamed(&agent.after),
        ..agent.clone()
    };
    Spec {
        agents: spec.agents.iter().enumerate().map(agent).collect(),
        answer: Answer { from: renamed(&spec.answer.from), by: spec.answer.by },
        next: spec.next,
    }
}

/// The id of the agent at a place of the run, from 0.
fn id_at(place: usize) -> String {
    format!("a{}", place + 1)
}

#[cfg(test)]
mod tests;
