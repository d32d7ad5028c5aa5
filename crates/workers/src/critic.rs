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

    /// A folder with sixty sums and three recorded replies to each.
    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let (mut items, mut calls) = (String::new(), String::new());
        for at in 0..60 {
            let question = format!("Ann has {at} apples and buys 3. How many apples has she?");
            let answer = format!("{at} + 3 = {0}\n#### {0}", at + 3);
            items += &format!("{}\n", serde_json::json!({ "question": question, "answer": answer }));
            for (level, said) in [("brief", at + at % 3), ("program", at + 3), ("reasoned", at + 3)] {
                let call = serde_json::json!({
                    "item": format!("gsm8k/test/{at}"), "model": "m", "level": level, "tokens_in": 40, "tokens_out": 10,
                    "logprob": -0.5, "correct": said == at + 3, "reply": format!("Answer: {said}"),
                });
                calls += &format!("{call}\n");
            }
        }
        std::fs::create_dir_all(folder.path().join("gsm8k")).unwrap();
        std::fs::create_dir_all(folder.path().join("outcomes")).unwrap();
        std::fs::write(folder.path().join("gsm8k/test.jsonl"), items).unwrap();
        std::fs::write(folder.path().join("outcomes/own.jsonl"), calls).unwrap();
        folder
    }

    #[test]
    fn recorded_replies_become_a_critic_and_an_orchestrator() {
        let folder = folder();
        let sets = [SetName::Gsm8k];
        let recordings = Recordings::read(folder.path(), &sets, &LEVELS.map(str::to_owned)).unwrap();
        let tasks = critic_tasks(folder.path(), &sets, &recordings).unwrap();
        assert_eq!(tasks.train.len() + tasks.held_out.len(), 60);
        assert!(tasks.train.len() > 15 && tasks.held_out.len() > 15, "{}", tasks.train.len());
        let first = tasks.train.first().unwrap();
        let reply = first.replies[2].first().unwrap();
        assert_eq!((reply.tokens, reply.right, reply.seen.log_sure), (20.0, true, Some(-0.5)));
        assert!(reply.seen.answer.is_some() && first.set == "gsm8k/test", "{first:?}");
        let all: Vec<RecordedTask> = tasks.train.into_iter().chain(tasks.held_out).collect();
        let critic = lemon_critic::fit_critic(&all, &lemon_critic::CriticSettings::default()).unwrap();
        let path = folder.path().join("critic.json");
        critic.save(&path).unwrap();
        let capacities = LEVELS.map(str::to_owned);
        assert!(critic_orchestrator(&path, &capacities, 0.1, 2).is_ok());
        let fault = |path: &Path, capacities: &[String], price| {
            critic_orchestrator(path, capacities, price, 2).err().map(|error| error.fact).unwrap_or_default()
        };
        assert_eq!(fault(&path, &capacities, -1.0), "orchestrator.price must be at least 0, got -1");
        assert!(fault(&path, &["large".to_owned()], 0.1).contains("found large"));
        assert!(fault(&folder.path().join("gsm8k/test.jsonl"), &capacities, 0.1).contains("no usable critic"));
        assert!(fault(&folder.path().join("none"), &capacities, 0.1).contains("none"));
    }
}
