use super::*;
use lemon_exec::worker::{AskError, Reply, Request, Worker};
use lemon_exec::{ReplyCache, Settings};
use lemon_spec::edit::{Change, Edit};
use lemon_spec::{Language, Plan, validate};
use lemon_task::{SetName, compose};
use lemon_trace::FailureKind;
use lemon_world::{Preset, World};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

const TEAM: &str = "agents:
  - {id: a1, base: solver, capacity: small}
  - {id: a2, base: critic, capacity: large, after: [a1]}
";

fn cases(set: SetName, count: usize) -> Vec<Case> {
    compose(set, count, 3).into_iter().map(|item| Case { set: set.as_str().into(), item }).collect()
}

fn env(cases: &[Case]) -> RolloutEnv {
    let backend = World::new(Preset::Calibrated, cases.iter().map(|case| &case.item)).backend();
    let settings = Settings { reuse: false, ..Settings::default() };
    RolloutEnv::new(backend, Arc::new(Language::default()), settings, Grader::new(None))
}

fn plan() -> Plan {
    validate(TEAM, &Language::default()).unwrap()
}

/// A fake: every call fails in this way.
struct FakeFailing(FailureKind);

#[async_trait::async_trait]
impl Worker for FakeFailing {
    async fn ask(&self, _: &Request) -> Result<Reply, AskError> {
        Err(AskError::free(self.0, "it fails"))
    }
}

#[tokio::test]
async fn the_same_seed_gives_the_same_outcome() {
    let cases = cases(SetName::Svamp, 4);
    let env = env(&cases);
    for case in &cases {
        let first = env.rollout(RolloutRequest::of_plan(case, &plan(), 7)).await.unwrap();
        let again = env.rollout(RolloutRequest::new(case, Team::Text(TEAM.to_owned()), 7)).await.unwrap();
        assert!(first.outcome.score().is_some());
        assert_eq!(first.outcome, again.outcome);
        assert_eq!(first.earned(), again.earned());
    }
}

#[tokio::test]
async fn missing_data_is_unknown_and_a_failure_of_the_team_is_wrong() {
    let cases = cases(SetName::Svamp, 1);
    for (kind, unknown) in [(FailureKind::Timeout, true), (FailureKind::NotRecorded, true), (FailureKind::Empty, false)]
    {
        let mut env = env(&cases);
        env.backend.worker = Arc::new(FakeFailing(kind));
        env.settings.retry.attempts = 1;
        let run = env.rollout(RolloutRequest::of_plan(&cases[0], &plan(), 1)).await.unwrap();
        match run.outcome {
            Outcome::Unknown(UnknownReason::WorkerFailed(failure)) => {
                assert!(unknown && failure.kind == kind, "{kind:?}")
            }
            Outcome::Scored(score) => assert!(!unknown && !score.right, "{kind:?}"),
            Outcome::Unknown(reason) => panic!("{kind:?}: {reason}"),
        }
    }
}

#[tokio::test]
async fn a_rejected_team_is_scored_and_a_cancelled_run_or_an_ungraded_program_is_not() {
    let cases = [cases(SetName::Svamp, 1), cases(SetName::HumanEval, 1)].concat();
    let env = env(&cases);
    let rejected = env.rollout(RolloutRequest::new(&cases[0], Team::Text("no team".to_owned()), 1)).await.unwrap();
    assert_eq!(rejected.earned().map(|earned| (earned.reward, earned.success)), Some((-1.0, 0.0)));
    let program = env.rollout(RolloutRequest::of_plan(&cases[1], &plan(), 1)).await.unwrap();
    assert_eq!(program.outcome, Outcome::Unknown(UnknownReason::NotGradable));
    let cancel = CancellationToken::new();
    cancel.cancel();
    let cancelled = env.rollout(RolloutRequest::of_plan(&cases[0], &plan(), 1).cancelled_by(&cancel)).await.unwrap();
    assert!(cancelled.is_cancelled() && cancelled.trace.events.is_empty());
    env.cancel.cancel();
    assert!(env.rollout(RolloutRequest::of_plan(&cases[0], &plan(), 1)).await.unwrap().is_cancelled());
}

#[tokio::test]
async fn a_counterfactual_is_a_full_run_of_the_edited_team() {
    let cases = cases(SetName::Svamp, 3);
    let env = env(&cases);
    let edit = Edit::new(Change::LowerCapacity { agent: "a2".to_owned() }, &plan());
    for case in &cases {
        let base = env.rollout(RolloutRequest::of_plan(case, &plan(), 5)).await.unwrap();
        let edited = env.counterfactual(&base, &edit).await.unwrap().unwrap();
        assert_eq!(edited.summary.agents.iter().map(|agent| agent.reused).collect::<Vec<_>>(), [true, false]);
        let text = TEAM.replace("large", "medium");
        let full = env.rollout(RolloutRequest::new(case, Team::Text(text), 5)).await.unwrap();
        let (edited, full) = (edited.outcome.score().unwrap(), full.outcome.score().unwrap());
        assert_eq!((edited.right, edited.reward, edited.tokens), (full.right, full.reward, full.tokens));
    }
    let base = env.rollout(RolloutRequest::of_plan(&cases[0], &plan(), 5)).await.unwrap();
    let none = Edit::new(Change::ResetDuty { agent: "a1".to_owned() }, &plan());
    assert!(env.counterfactual(&base, &none).await.unwrap().is_none());
    let text = env.rollout(RolloutRequest::new(&cases[0], Team::Text(TEAM.to_owned()), 5)).await.unwrap();
    assert!(matches!(env.counterfactual(&text, &edit).await, Err(RolloutError::NoPlan)));
}

#[tokio::test]
async fn only_the_cache_answers_where_workers_may_not_be_asked() {
    let cases = cases(SetName::Svamp, 1);
    let env = env(&cases);
    let cache: Arc<ReplyCache> = Arc::default();
    let request = |replies| RolloutRequest {
        options: RunOptions { cache: Some(cache.clone()), replies, ..RunOptions::default() },
        ..RolloutRequest::new(&cases[0], Team::Rounds(vec![TEAM.to_owned()]), 2)
    };
    let cold = env.rollout(request(Replies::CacheOnly)).await.unwrap();
    assert!(matches!(cold.outcome, Outcome::Unknown(UnknownReason::WorkerFailed(_))));
    let paid = env.rollout(request(Replies::Workers)).await.unwrap();
    let free = env.rollout(request(Replies::CacheOnly)).await.unwrap();
    let scores = (paid.outcome.score().unwrap(), free.outcome.score().unwrap());
    assert_eq!((scores.0.right, scores.0.reward), (scores.1.right, scores.1.reward));
    assert_eq!(free.summary.tokens.total, 0);
}
