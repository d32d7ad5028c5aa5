//! Recorded replies as what a critic learns from, and a critic's file as an orchestrator.

use crate::bundled::{Stored, stored};
use crate::error::WorkersError;
use crate::recorded::recorded_items;
use lemon_critic::{CriticOrchestrator, CriticRule, DecisionCritic, LEVELS, RecordedTask, ScoredReply, SeenReply};
use lemon_exec::Form;
use lemon_task::{Item, Key, SetName, grade};
use lemon_world::{RecordedCall, Recordings};
use std::path::Path;

/// The base role whose recorded replies a critic learns from.
const SOLVER: &str = "solver";
/// The base role of a plain call: the question alone.
const PLAIN: &str = "plain";
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

impl CriticTasks {
    /// The tasks of splits that are for tests, of both parts.
    pub fn test(self) -> Vec<RecordedTask> {
        let is_test = |task: &RecordedTask| !task.set.ends_with("/train") && !task.set.ends_with("/dev");
        self.train.into_iter().filter(is_test).chain(self.held_out).collect()
    }
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
        let seen = SeenReply::new(level, &call.text, call.log_probability, form, question);
        let right = call.correct.unwrap_or_else(|| grade(item, &call.text).verdict.is_right());
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
    let is_plain = |call: &&RecordedCall| call.reads.is_empty() && call.bases.iter().all(|base| base == PLAIN);
    let strongest = recordings.levels().iter().position(|name| Some(name.as_str()) == LEVELS.last().copied());
    let plain = calls.iter().filter(is_plain).filter(|call| Some(call.level) == strongest);
    let plain = plain.filter_map(|call| reply(LEVELS.len() - 1, call)).collect();
    let name = format!("{set}/{}", item.task.id);
    RecordedTask { name, set, question: question.to_owned(), form, replies, plain }
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

/// The critics that ship with this program, each for one model.
static BUNDLED: [Stored; 1] = [stored!("critics/qwen2.5-coder-1.5b.json", text)];

/// The critic that ships with this program for a model of this name.
///
/// # Errors
/// There is none.
pub fn bundled_critic(model: &str) -> Result<DecisionCritic, WorkersError> {
    let mut names = Vec::new();
    for stored in &BUNDLED {
        let text = stored.read().map_err(WorkersError::new)?;
        let text = String::from_utf8(text).map_err(|error| WorkersError::new(error.to_string()))?;
        let critic = DecisionCritic::from_text(&text).map_err(WorkersError::new)?;
        if critic.fits(model) {
            return Ok(critic);
        }
        names.extend(critic.model().map(str::to_owned));
    }
    Err(WorkersError::new(format!("no critic ships for the model `{model}`; there is one for {}", names.join(", ")))
        .hint("`lemon critic fit --data DIR --out FILE` fits one to recorded replies; name it in orchestrator.critic"))
}

/// What a critic is to be used with.
#[derive(Debug, Clone)]
pub(crate) struct CriticUse<'a> {
    /// Its file; `None`: the bundled one for the model.
    pub path: Option<&'a Path>,
    /// The capacities, weakest first, each with the name of its model where that is known.
    pub capacities: Vec<(String, Option<String>)>,
    /// Whether it may be used with another model than its own.
    pub any_model: bool,
    pub rule: CriticRule,
}

/// A critic as an orchestrator over these capacities.
///
/// # Errors
/// The file cannot be used, the price is below 0, no capacity has a level, or the critic was fitted to another model.
pub(crate) fn critic_orchestrator(wanted: &CriticUse<'_>) -> Result<CriticOrchestrator, WorkersError> {
    let price = wanted.rule.price;
    if !price.is_finite() || price < 0.0 {
        return Err(WorkersError::new(format!("orchestrator.price must be at least 0, got {price}"))
            .hint("it is the reward that 1,000 tokens are worth, where a right answer is 1; for instance 0.1"));
    }
    let names: Vec<String> = wanted.capacities.iter().map(|(name, _)| name.clone()).collect();
    let served = capacities_by_level(&names);
    if served.iter().all(Option::is_none) {
        let found = names.join(", ");
        let fact =
            format!("a critic needs capacities called {} (or NAME-brief and so on), found {found}", LEVELS.join(", "));
        return Err(
            WorkersError::new(fact).hint("set `efforts = [\"brief\", \"program\", \"reasoned\"]` for a capacity")
        );
    }
    let models = wanted.capacities.iter().filter(|(name, _)| served.iter().flatten().any(|it| it == name));
    let models: Vec<&str> = models.filter_map(|(_, model)| model.as_deref()).collect();
    let (critic, name) = match wanted.path {
        Some(path) => {
            let critic = DecisionCritic::load(path)
                .map_err(|error| WorkersError::new(error).hint("`lemon critic fit --out FILE` makes a critic"))?;
            (critic, path.display().to_string())
        }
        None => {
            let model = models.first().copied().filter(|_| !wanted.any_model).unwrap_or(BUNDLED_FOR);
            (bundled_critic(model)?, "bundled critic".to_owned())
        }
    };
    let other = models.iter().find(|model| !critic.fits(model)).filter(|_| !wanted.any_model);
    if let (Some(other), Some(own)) = (other, critic.model()) {
        return Err(WorkersError::new(format!("{name} was fitted to {own}, and a capacity has the model `{other}`"))
            .hint("fit one to this model with `lemon critic fit`, or set `any_model = true` in [orchestrator]"));
    }
    Ok(CriticOrchestrator::new(critic, served, wanted.rule, name))
}

/// The model of the bundled critic that is used where models have no names, as in a recording.
pub const BUNDLED_FOR: &str = "qwen2.5-coder-1.5b";

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
        let levels = LEVELS.map(|level| (level.to_owned(), None));
        let check = |path: &Path, capacities: &[(String, Option<String>)], price, any_model| {
            let (rule, capacities) = (CriticRule { price, ..CriticRule::default() }, capacities.to_vec());
            let wanted = CriticUse { path: Some(path), capacities, any_model, rule };
            critic_orchestrator(&wanted).err().map(|error| error.fact).unwrap_or_default()
        };
        assert_eq!(check(&path, &levels, 0.1, false), "");
        assert_eq!(check(&path, &levels, -1.0, false), "orchestrator.price must be at least 0, got -1");
        assert!(check(&path, &[("large".to_owned(), None)], 0.1, false).contains("found large"));
        assert!(check(&folder.path().join("gsm8k/test.jsonl"), &levels, 0.1, false).contains("no usable critic"));
        assert!(check(&folder.path().join("none"), &levels, 0.1, false).contains("none"));
        // A critic that knows its model is used with no other, unless told otherwise.
        critic.for_model(Some("some-model-1b".to_owned())).save(&path).unwrap();
        let served = |model: &str| LEVELS.map(|level| (level.to_owned(), Some(model.to_owned())));
        assert_eq!(check(&path, &served("hub/Some_Model-1B-GGUF"), 0.1, false), "");
        assert!(check(&path, &served("some-model-7b"), 0.1, false).contains("was fitted to some-model-1b"));
        assert_eq!(check(&path, &served("some-model-7b"), 0.1, true), "");
    }

    #[test]
    fn the_bundled_critic_serves_its_model_alone() {
        let text = BUNDLED[0].read().unwrap();
        assert!(text.len() < 1 << 20, "{} bytes", text.len());
        let critic = bundled_critic("Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF").unwrap();
        assert!(critic.tasks() > 3_000 && critic.fits(BUNDLED_FOR));
        assert!(bundled_critic("/models/qwen2.5-coder-1.5b-instruct-q4_k_m.gguf").is_ok());
        assert!(bundled_critic("qwen2.5-coder:1.5b").is_ok());
        let fault = bundled_critic("qwen2.5-coder:7b").unwrap_err();
        assert!(fault.fact.contains("no critic ships for the model `qwen2.5-coder:7b`"), "{}", fault.fact);
    }
}
