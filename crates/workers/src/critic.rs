//! Recorded replies as what a critic learns from, and a critic's file as an orchestrator.

use crate::error::WorkersError;
use crate::recorded::recorded_items;
use lemon_critic::{CriticOrchestrator, DecisionCritic, LEVELS, RecordedTask, ScoredReply, SeenReply, stated_answer};
use lemon_exec::Form;
use lemon_task::{Item, Key, SetName, grade};
use lemon_world::{RecordedCall, Recordings};
use std::path::Path;

/// The base role whose recorded replies a critic learns from.
const SOLVER: &str = "solver";
/// What a token of the prompt costs, over one of the reply.
pub const PROMPT_WEIGHT: f64 = 0.25;

/// Tasks to train a critic on, and tasks held out.
#[derive(Debug, Default)]
pub struct CriticTasks {
    /// To train on.
    pub train: Vec<RecordedTask>,
    /// To test on.
    pub held_out: Vec<RecordedTask>,
}

/// The recorded tasks of these sets. Levels are found by their names.
///
/// # Errors
/// A set cannot be read.
pub fn critic_tasks(data: &Path, sets: &[SetName], recordings: &Recordings) -> Result<CriticTasks, WorkersError> {
    let items = recorded_items(data, sets, recordings)?;
    let task = |(set, item): (String, Item)| {
        let calls = &recordings.get(&item.task.question)?.calls;
        Some(recorded_task(set, &item, calls, recordings))
    };
    Ok(CriticTasks {
        train: items.train.into_iter().filter_map(task).collect(),
        held_out: items.held_out.into_iter().filter_map(task).collect(),
    })
}

fn recorded_task(set: String, item: &Item, calls: &[RecordedCall], recordings: &Recordings) -> RecordedTask {
    let question = item.task.question.trim();
    let form = match item.key() {
        Key::Number(_) => Form::Number,
        Key::Choice { .. } => Form::Choice,
        Key::Code { .. } => Form::Code,
        Key::Text(_) => Form::of(question),
    };
    let reply = |level: usize, call: &RecordedCall| {
        let (tokens_in, tokens_out) = call.tokens?;
        let answer = stated_answer(&call.text, form, question);
        let right = call.correct.unwrap_or_else(|| grade(item, &call.text).verdict.is_right());
        let seen = SeenReply { level, answer, log_sure: call.log_probability };
        let tokens = PROMPT_WEIGHT * tokens_in as f64 + tokens_out as f64;
        Some(ScoredReply { seen, right, tokens, greedy: call.temperature == 0.0 })
    };
    let replies = std::array::from_fn(|level| {
        let position = recordings.levels().iter().position(|name| Some(name.as_str()) == LEVELS.get(level).copied());
        let of_level = calls.iter().filter(|call| {
            Some(call.level) == position && call.reads.is_empty() && call.bases.iter().any(|base| base == SOLVER)
        });
        of_level.filter_map(|call| reply(level, call)).collect()
    });
    let name = format!("{set}/{}", item.task.id);
    RecordedTask { name, set, question: question.to_owned(), form, replies }
}

/// The capacity that serves each level of a critic: the last one that is called like the level, or ends with `-` and its
/// name.
pub(crate) fn capacities_by_level(capacities: &[String]) -> [Option<String>; 3] {
    LEVELS.map(|level| {
        let serves =
            |name: &&String| *name == level || name.strip_suffix(level).is_some_and(|rest| rest.ends_with('-'));
        capacities.iter().rfind(serves).cloned()
    })
}

/// A critic's file as an orchestrator over these capacities.
///
/// # Errors
/// The file cannot be used, the price is below 0, or no capacity has a level.
pub(crate) fn critic_orchestrator(
    path: &Path,
    capacities: &[String],
    price: f64,
    rounds: u32,
) -> Result<CriticOrchestrator, WorkersError> {
    if !price.is_finite() || price < 0.0 {
        return Err(WorkersError::new(format!("orchestrator.price must be at least 0, got {price}"))
            .hint("it is the reward that 1,000 tokens are worth, where a right answer is 1; for instance 0.1"));
    }
    let critic = DecisionCritic::load(path)
        .map_err(|error| WorkersError::new(error).hint("`lemon critic fit --out FILE` makes a critic"))?;
    let served = capacities_by_level(capacities);
    if served.iter().all(Option::is_none) {
        let found = capacities.join(", ");
        let fact =
            format!("a critic needs capacities called {} (or NAME-brief and so on), found {found}", LEVELS.join(", "));
        return Err(
            WorkersError::new(fact).hint("set `efforts = [\"brief\", \"program\", \"reasoned\"]` for a capacity")
        );
    }
    Ok(CriticOrchestrator::new(critic, served, price, path.display().to_string()).with_rounds(rounds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capacities_serve_the_level_they_are_called_by() {
        let check = |capacities: &[&str], expected: [Option<&str>; 3]| {
            let capacities: Vec<String> = capacities.iter().map(|name| (*name).to_owned()).collect();
            assert_eq!(capacities_by_level(&capacities), expected.map(|name| name.map(str::to_owned)));
        };
        check(&["smol", "brief", "program", "reasoned"], [Some("brief"), Some("program"), Some("reasoned")]);
        check(&["tiny-brief", "qwen-brief", "qwen-reasoned"], [Some("qwen-brief"), None, Some("qwen-reasoned")]);
        check(&["small", "nonbrief"], [None, None, None]);
    }
}
