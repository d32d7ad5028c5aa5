use super::*;
use lemon_exec::Settings;
use lemon_rollout::Grader;
use lemon_spec::{Language, validate};
use lemon_task::{SetName, Source as Tasks, load};
use lemon_world::{Preset, World};
use proptest::prelude::*;
use std::sync::Arc;

fn cases() -> Vec<Case> {
    let items = load(&Tasks::Sample, SetName::Gsm8k, "test").unwrap().items;
    items.into_iter().map(|item| Case { set: "gsm8k/test".into(), item }).collect()
}

fn env(cases: &[Case]) -> RolloutEnv {
    let backend = World::new(Preset::Calibrated, cases.iter().map(|case| &case.item)).backend();
    let settings = Settings { reuse: false, ..Settings::default() };
    RolloutEnv::new(backend, Arc::new(Language::default()), settings, Grader::new(None))
}

async fn learned(method: &str, seed: u64, cancel: &CancellationToken) -> Training {
    let cases = cases();
    let method = method.parse().unwrap();
    learn(&env(&cases), &method, None, &cases, seed, cancel).await.unwrap()
}

#[tokio::test]
async fn learning_follows_the_seed_and_says_what_it_cost() {
    let cancel = CancellationToken::new();
    let first = learned("agentprune", 1, &cancel).await;
    assert_eq!(first, learned("agentprune", 1, &cancel).await);
    assert_ne!(first.spec, learned("agentprune", 2, &cancel).await.spec);
    assert_eq!(first.runs, (PASSES * cases().len()) as u64);
    assert!(first.tokens > 6 * 100 * first.runs, "{}", first.tokens);
    let plan = validate(&first.spec, &Language::default()).unwrap();
    assert_eq!(plan.agents().len(), 6);
    // Of ten edges 2 are pruned, then 2 of eight; five more lead to the last agent.
    assert_eq!(plan.agents().iter().map(|agent| agent.parents.len()).sum::<usize>(), 6 + 5);
}

#[tokio::test]
async fn dropout_eliminates_an_agent_and_costs_twice() {
    let trained = learned("agentdropout", 1, &CancellationToken::new()).await;
    assert_eq!(validate(&trained.spec, &Language::default()).unwrap().agents().len(), 5);
    assert_eq!(trained.runs, 2 * (PASSES * cases().len()) as u64);
}

#[tokio::test]
async fn where_nothing_can_be_learned_nothing_is_run() {
    let never = CancellationToken::new();
    let cancelled = CancellationToken::new();
    cancelled.cancel();
    for (method, cancel) in [("agentprune:1", &never), ("agentdropout:1", &never), ("agentdropout", &cancelled)] {
        let trained = learned(method, 1, cancel).await;
        assert_eq!((trained.method.as_str(), trained.runs, trained.tokens), (method, 0, 0));
        assert!(validate(&trained.spec, &Language::default()).is_ok(), "{}", trained.spec);
    }
}

#[test]
fn the_last_agent_is_no_weaker_than_the_others() {
    let language = Language::default();
    let last = |number, capacity, code| Crowd::new(number, capacity, &language.capacities, code).last;
    assert_eq!((last(5, None, false).base.as_str(), last(5, None, false).capacity.as_str()), ("judge", "large"));
    assert_eq!(last(2, None, false).capacity, "medium");
    assert_eq!(last(1, None, false).capacity, "small");
    assert_eq!(last(5, Some("small"), false).capacity, "small");
    assert_eq!(last(5, None, true).base, "programmer");
}

#[test]
fn a_run_is_measured_against_its_item_and_at_first_against_its_batch() {
    let outcome = |right| Trial { right: Some(right), ..Trial::default() };
    let mut baselines = [Mean::default(); 4];
    let first = advantages(&[outcome(true), outcome(false), outcome(false), outcome(false)], &mut baselines);
    assert_eq!(first, [0.75, -0.25, -0.25, -0.25]);
    let second = advantages(&[outcome(true), outcome(true), outcome(false), outcome(false)], &mut baselines);
    assert_eq!(second, [0.0, 1.0, 0.0, 0.0]);
    assert_eq!(advantages(&[outcome(false)], &mut baselines[1..2]), [-0.5]);
    // What is unknown moves nothing and counts towards no mean.
    let mut fresh = [Mean::default(); 3];
    assert_eq!(advantages(&[outcome(true), Trial::default(), outcome(false)], &mut fresh), [0.5, 0.0, -0.5]);
    assert_eq!(fresh.map(|mean| mean.count), [1.0, 0.0, 1.0]);
}

#[test]
fn the_lightest_agent_is_dropped_but_never_the_last() {
    let language = Language::default();
    let mut crowd = Crowd::new(5, None, &language.capacities, false);
    let mut policy = EdgePolicy::new(10);
    let of_third: Vec<bool> = crowd.edges().map(|(reader, read)| reader == 2 || read == 2).collect();
    policy.learn(&[of_third], &[-1.0]);
    crowd.drop_agents(&policy);
    let ids: Vec<&str> = crowd.agents.iter().map(|agent| agent.id.as_str()).collect();
    assert_eq!(ids, ["a1", "a2", "a4", "a5"]);
    for _ in 0..9 {
        crowd.drop_agents(&EdgePolicy::new(crowd.edges().count()));
    }
    assert_eq!(crowd.agents.len(), 1);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_graph_of_any_crowd_is_a_valid_team(
        number in 1_usize..=12,
        capacity in prop::option::of(prop::sample::select(vec!["small", "large"])),
        code: bool,
        seed: u64,
        pruned in 0_usize..5,
        dropped in 0_usize..3,
    ) {
        let language = Language::default();
        let mut crowd = Crowd::new(number, capacity, &language.capacities, code);
        (0..dropped).for_each(|_| crowd.drop_agents(&EdgePolicy::new(crowd.edges().count())));
        let mut policy = EdgePolicy::new(crowd.edges().count());
        (0..pruned).for_each(|_| policy.prune(PRUNED));
        let graph = policy.draw(&mut Random::new(seed));
        let plan = validate(&crowd.spec(&graph), &language).unwrap();
        let edges = graph.iter().filter(|there| **there).count();
        prop_assert_eq!(plan.agents().len(), crowd.agents.len() + 1);
        prop_assert_eq!(plan.agents().iter().map(|agent| agent.parents.len()).sum::<usize>(), edges + crowd.agents.len());
        prop_assert!(graph.iter().zip(policy.kept()).all(|(there, kept)| kept || !there));
    }
}
