//! A profile spends what it may and no more, says what it did not measure, and is the same each time.

use crate::common::{WORD_PROBLEMS, counterfactuals, plan, profile_of, simulated, work};
use async_trait::async_trait;
use lemon_credit::advice::Recommendation;
use lemon_credit::choose::ChoiceRule;
use lemon_exec::Worker;
use lemon_exec::worker::{AskError, Reply, Request};
use lemon_profile::{Profile, ProfileWork};
use lemon_rollout::RolloutEnv;
use lemon_spec::edit::edits;
use lemon_world::{AgentNoise, Preset};
use proptest::prelude::*;
use serde_json::Value;
use std::sync::Arc;

const TEAM: &str = "
agents:
  - {id: one, base: solver, capacity: small}
  - {id: two, base: solver, capacity: medium}
  - {id: check, base: critic, capacity: medium, after: [one, two]}
answer: {from: [one, two, check], by: vote}
";

fn spending(env: &RolloutEnv, budget: Option<u64>, width: usize, policy: ChoiceRule) -> Profile {
    let plan = plan(TEAM);
    let work = ProfileWork { budget: budget.into(), width, policy, ..work(&plan, &WORD_PROBLEMS[..6], &[3, 4]) };
    profile_of(&counterfactuals(env), &work)
}

const POLICIES: [ChoiceRule; 2] = [ChoiceRule::Information { floor: 0.05 }, ChoiceRule::Effect { floor: 0.05 }];

/// What everything costs in tokens, and what the last run needs on top to be allowed to begin.
const EVERYTHING: u64 = 1_000_000;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn no_budget_is_overdrawn_and_what_was_not_measured_is_absent(
        budget in prop_oneof![0u64..40_000, 0u64..400_000],
        width in 1usize..40,
        policy in prop::sample::select(POLICIES.to_vec()),
    ) {
        let env = simulated(Preset::Teams, AgentNoise::Kept);
        let found = spending(&env, Some(budget), width, policy);
        prop_assert!(found.reuse.tokens <= budget, "{} of {budget}", found.reuse.tokens);
        let counterfactuals: u64 = found.effects.iter().map(|effect| effect.spent).sum();
        prop_assert!(counterfactuals <= found.reuse.tokens);
        prop_assert_eq!(found.effects.len(), edits(&plan(TEAM), &env.language).len());
        for effect in &found.effects {
            let measured = effect.n > 0;
            let present = [effect.effect, effect.tokens, effect.cost, effect.zeros].map(|value| value.is_some());
            prop_assert_eq!(present, [measured; 4], "{}", effect.change);
            prop_assert_eq!(effect.verdict == Recommendation::NotMeasured, !measured, "{}", effect.advice);
            prop_assert!(measured || (effect.spent == 0 && effect.interval.is_none()));
        }
        prop_assert!(!found.complete || found.effects.iter().all(|effect| effect.n == 12));
    }
}

#[test]
fn both_policies_measure_the_same_once_the_budget_allows_everything() {
    let env = simulated(Preset::Teams, AgentNoise::Kept);
    let unlimited = spending(&env, None, 8, ChoiceRule::default());
    assert!(unlimited.complete);
    for policy in POLICIES {
        let enough = spending(&env, Some(EVERYTHING), 8, policy);
        assert!(enough.complete && enough.reuse.tokens < EVERYTHING);
        assert_eq!(estimates(&enough), estimates(&unlimited));
        // A part of that measures a part of it.
        let some = spending(&env, Some(unlimited.reuse.tokens / 2), 1, policy);
        let pairs = |profile: &Profile| profile.effects.iter().map(|effect| effect.n).sum::<u64>();
        assert!(!some.complete && 0 < pairs(&some) && pairs(&some) < pairs(&unlimited), "{}", pairs(&some));
    }
}

/// What was found, and what it cost altogether. Two counterfactuals of a run may ask the same: the first one pays, and
/// which that is depends on how many run at a time.
fn estimates(profile: &Profile) -> Value {
    let mut told = serde_json::to_value(profile).unwrap();
    for effect in told["effects"].as_array_mut().unwrap() {
        (effect["spent"], effect["reused"]) = (Value::Null, Value::Null);
    }
    told["accounts"] = Value::Null;
    told
}

#[test]
fn the_same_seeds_give_the_same_profile_whatever_the_width() {
    let env = simulated(Preset::Teams, AgentNoise::Fresh);
    let first = spending(&env, None, 1, ChoiceRule::default());
    for width in [7, 64] {
        let other = spending(&env, None, width, ChoiceRule::default());
        assert_eq!(estimates(&other), estimates(&first), "{width} at a time");
    }
    for (policy, budget) in [(POLICIES[0], None), (POLICIES[0], Some(60_000)), (POLICIES[1], Some(60_000))] {
        let again = || serde_json::to_string(&spending(&env, budget, 4, policy)).unwrap();
        assert_eq!(again(), again());
    }
}

/// A fake: workers that let others go first, as an endpoint does.
struct FakeSlow(Arc<dyn Worker>);

#[async_trait]
impl Worker for FakeSlow {
    async fn ask(&self, request: &Request) -> Result<Reply, AskError> {
        for _ in 0..5 {
            tokio::task::yield_now().await;
        }
        self.0.ask(request).await
    }
}

/// A run is promised far more tokens than it needs. Those promised to others are not lost to a run that comes meanwhile.
#[test]
fn a_budget_goes_as_far_with_many_at_once_as_with_one() {
    let mut env = simulated(Preset::Teams, AgentNoise::Kept);
    let everything = spending(&env, None, 1, ChoiceRule::default());
    env.backend.worker = Arc::new(FakeSlow(env.backend.worker));
    let reviewed = TEAM.to_owned() + "next: review";
    let promised = counterfactuals(&env).most(&WORD_PROBLEMS[0], &plan(&reviewed)).tokens;
    assert!(promised * 16 > everything.reuse.tokens, "too little to stand in each other's way");
    let budget = everything.reuse.tokens + 2 * promised;
    for width in [1, 16] {
        let found = spending(&env, Some(budget), width, ChoiceRule::default());
        assert!(found.complete && found.reuse.tokens <= budget, "{width} at a time");
        assert_eq!(found.baseline.runs, 12);
        assert_eq!(estimates(&found)["effects"], estimates(&everything)["effects"]);
    }
}
