//! A counterfactual that reuses what it can is what a full run of the changed team would have been.

use crate::common::{FakeReviewer, LANGUAGE, WORD_PROBLEMS, counterfactuals, plan, simulated, wait};
use lemon_exec::ReplyCache;
use lemon_exec::orchestrator::Fixed;
use lemon_rollout::{Case, RolloutEnv, RunOptions};
use lemon_spec::edit::{Edit, Edited, apply, edits};
use lemon_spec::{Plan, generate, render};
use lemon_trace::{EventKind, Spend, Trace};
use lemon_world::{AgentNoise, Preset};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

const TEAMS: u64 = 40;
/// Of a large team every few edits; of a small one all.
const MOST_EDITS: usize = 60;

#[test]
fn a_fork_is_a_full_run_of_the_changed_team() {
    let (mut forks, mut reused) = (0, 0);
    for noise in [AgentNoise::Kept, AgentNoise::Fresh] {
        let env = simulated(Preset::Teams, noise);
        for seed in 0..TEAMS {
            let team = plan(&render(&generate::spec(seed, &LANGUAGE)).text);
            let case = &WORD_PROBLEMS[seed as usize % WORD_PROBLEMS.len()];
            let edits = edits(&team, &LANGUAGE);
            for edit in edits.iter().step_by(edits.len().div_ceil(MOST_EDITS)) {
                let edited = apply(&team, edit, &LANGUAGE).unwrap();
                reused += check(&env, case, &team, (edit, &edited), seed);
                forks += 1;
            }
        }
    }
    println!("{forks} forks, {reused} replies reused");
    assert!(forks > 1000 && reused > forks, "{forks} forks reused {reused}");
}

/// Returns how many replies the fork reused.
#[track_caller]
fn check(env: &RolloutEnv, case: &Case, team: &Plan, (edit, edited): (&Edit, &Edited), seed: u64) -> usize {
    let counterfactuals = counterfactuals(env);
    let cancel = CancellationToken::new();
    let memory = Arc::new(ReplyCache::default());
    let run = |plan: &Plan, withhold: &Option<(String, String)>, memory: Option<&Arc<ReplyCache>>| {
        wait(run(env, case, plan.source(), withhold.clone(), seed, memory.cloned()))
    };
    let original = run(team, &None, Some(&memory));
    let fork = run(&edited.plan, &edited.withhold, Some(&memory));
    let full = run(&edited.plan, &edited.withhold, None);
    assert_eq!(told(&fork), told(&full), "{} in\n{}", edit.describe(), team.source());

    // The engine says the same of it as the two full runs say.
    let found = wait(async {
        let original = counterfactuals.base(case, team, seed, &cancel).await.unwrap();
        counterfactuals.counterfactual(&original, edit, edited, &cancel).await.unwrap().known().unwrap()
    });
    let score = |trace: &Trace| env.score(case, trace, &trace.summary()).unwrap();
    let (before, after) = (score(&original), score(&full));
    let tokens = before.tokens as f64 - after.tokens as f64;
    let expected = (before.success() - after.success(), tokens, before.cost - after.cost);
    assert_eq!((found.success, found.tokens, found.cost), expected, "{}", edit.describe());
    let reward = before.reward.zip(after.reward).map(|(before, after)| before - after);
    assert_eq!(found.reward, reward, "{}", edit.describe());
    found.reused
}

async fn run(
    env: &RolloutEnv,
    case: &Case,
    text: &str,
    withhold: Option<(String, String)>,
    seed: u64,
    memory: Option<Arc<ReplyCache>>,
) -> Trace {
    let writer = Fixed { text: text.to_owned(), reviewer: Some(Arc::new(FakeReviewer)) };
    let options = RunOptions { cache: memory, withhold, ..RunOptions::default() };
    env.execute(case, Arc::new(writer), seed, &options).await.unwrap()
}

/// Everything a trace tells, byte for byte, but what reuse is about: when an event came, in which order beside those it
/// does not depend on, and who paid. What a reply cost is told in any case.
fn told(trace: &Trace) -> Vec<String> {
    let line = |event: &lemon_trace::Event| {
        let mut kind = event.kind.clone();
        let mut cost = event.spend.tokens();
        match &mut kind {
            EventKind::Return { reused, saved, attempts, .. } => {
                cost += saved.map_or(0, |saved| saved.tokens());
                (*reused, *saved, *attempts) = (false, None::<Spend>, 0);
            }
            EventKind::Delegate { reserved, .. } => *reserved = 0,
            _ => {}
        }
        // The causes of an event by what they are: their numbers follow the order.
        let cause = |edge: &lemon_trace::Edge| {
            let source = trace.events.iter().find(|event| event.id == edge.src).unwrap();
            let name = serde_json::to_value(&source.kind).unwrap();
            format!("{:?} {} {}", edge.kind, source.agent, name["type"])
        };
        let mut causes: Vec<String> = event.edges.iter().map(cause).collect();
        causes.sort();
        format!("{} {} {cost} {causes:?}", event.agent, serde_json::to_string(&kind).unwrap())
    };
    let mut told: Vec<String> = trace.events.iter().map(line).collect();
    told.sort();
    told
}
