//! What the tests share: environments without a store, and the tasks of the sample.

use async_trait::async_trait;
use lemon_credit::choose::ChoiceRule;
use lemon_exec::orchestrator::{Draft, Orchestrator, OrchestratorError, WriteContext};
use lemon_exec::{Backend, Settings};
use lemon_profile::{Counterfactuals, Effect, Profile, ProfileWork, profile};
use lemon_rollout::{Case, Grader, RolloutEnv};
use lemon_spec::edit::Change;
use lemon_spec::{Language, Plan, validate};
use lemon_task::{SetName, Source, load, load_jsonl};
use lemon_world::{AgentNoise, Preset, World};
use std::future::Future;
use std::sync::{Arc, LazyLock};
use tokio_util::sync::CancellationToken;

pub static LANGUAGE: LazyLock<Arc<Language>> =
    LazyLock::new(|| Arc::new(Language { tools: vec!["consult".to_owned()], ..Language::default() }));

/// Every word problem of the samples: 84.
pub static WORD_PROBLEMS: LazyLock<Vec<Case>> = LazyLock::new(|| {
    let sets =
        [(SetName::Gsm8k, "test"), (SetName::Gsm8k, "train"), (SetName::MultiArith, "test"), (SetName::Svamp, "test")];
    let cases = |(set, split)| {
        let items = load(&Source::Sample, set, split).unwrap().items;
        items.into_iter().map(move |item| Case { set: format!("{set}/{split}").into(), item })
    };
    sets.into_iter().flat_map(cases).collect()
});

/// Tasks of one's own: questions and answers.
pub fn own_cases(tasks: impl IntoIterator<Item = (String, String)>) -> Vec<Case> {
    let line = |(question, answer)| serde_json::json!({"question": question, "answer": answer}).to_string();
    let lines: Vec<String> = tasks.into_iter().map(line).collect();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tasks.jsonl");
    std::fs::write(&path, lines.join("\n")).unwrap();
    load_jsonl(&path).unwrap().items.into_iter().map(|item| Case { set: "own".into(), item }).collect()
}

pub fn env(backend: Backend) -> RolloutEnv {
    RolloutEnv::new(backend, LANGUAGE.clone(), Settings::default(), Grader::new(None))
}

/// The simulated world of the word problems.
pub fn simulated(preset: Preset, noise: AgentNoise) -> RolloutEnv {
    env(World::new(preset, WORD_PROBLEMS.iter().map(|case| &case.item)).with_noise(noise).backend())
}

pub fn counterfactuals(env: &RolloutEnv) -> Counterfactuals<'_> {
    Counterfactuals { env, reviewer: Some(Arc::new(FakeReviewer)) }
}

pub fn plan(text: &str) -> Plan {
    validate(text, &LANGUAGE).unwrap_or_else(|rejection| panic!("{text}\n{:?}", rejection.diagnostics))
}

/// Everything, without a budget.
pub fn work<'a>(plan: &'a Plan, cases: &'a [Case], seeds: &'a [u64]) -> ProfileWork<'a> {
    ProfileWork { plan, cases, seeds, families: &[], width: 16, budget: None.into(), policy: ChoiceRule::default() }
}

pub fn profile_of(counterfactuals: &Counterfactuals<'_>, work: &ProfileWork<'_>) -> Profile {
    wait(profile(counterfactuals, work, &CancellationToken::new(), |_, _| {})).unwrap()
}

/// What was found of a change.
#[track_caller]
pub fn effect<'p>(profile: &'p Profile, change: &Change) -> &'p Effect {
    let found = profile.effects.iter().find(|effect| effect.edit.change == *change);
    found.unwrap_or_else(|| panic!("{change} is no edit of this team"))
}

pub fn wait<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

/// A fake: has every second round done by one verifier that reads the first three agents of the first round.
pub struct FakeReviewer;

#[async_trait]
impl Orchestrator for FakeReviewer {
    async fn draft(&self, context: &WriteContext<'_>) -> Result<Option<Draft>, OrchestratorError> {
        let read: Vec<&str> = context.results.iter().take(3).map(|result| result.agent).collect();
        let text =
            format!("agents: [{{id: second_look, base: verifier, capacity: medium, after: [{}]}}]", read.join(", "));
        Ok((context.round == 2).then_some(Draft::Text(text)))
    }
}
