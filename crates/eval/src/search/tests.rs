use super::*;
use lemon_exec::Settings;
use lemon_rollout::Grader;
use lemon_spec::{Language, validate};
use lemon_task::{SetName, Source, load};
use lemon_world::{Preset, World};
use std::sync::Arc;

fn cases() -> Vec<Case> {
    let items = load(&Source::Sample, SetName::Gsm8k, "test").unwrap().items;
    items.into_iter().map(|item| Case { set: "gsm8k/test".into(), item }).collect()
}

fn env(preset: Preset, cases: &[Case]) -> RolloutEnv {
    let backend = World::new(preset, cases.iter().map(|case| &case.item)).backend();
    let settings = Settings { reuse: false, ..Settings::default() };
    RolloutEnv::new(backend, Arc::new(Language::default()), settings, Grader::new(None))
}

async fn found(preset: Preset, settings: &SearchSettings) -> Vec<FoundTeam> {
    let cases = cases();
    search(&env(preset, &cases), &cases, settings, &CancellationToken::new(), |_, _| {}).await.unwrap()
}

const QUICK: SearchSettings = SearchSettings { teams: 60, price: 0.01, seed: 1, items: 100 };

#[tokio::test]
async fn a_search_follows_its_seed() {
    let first = found(Preset::Teams, &QUICK).await;
    assert_eq!(first, found(Preset::Teams, &QUICK).await);
    assert_ne!(first, found(Preset::Teams, &SearchSettings { seed: 2, ..QUICK }).await);
}

#[tokio::test]
async fn what_is_found_is_valid_and_its_figures_agree() {
    for preset in Preset::ALL {
        let teams = found(preset, &QUICK).await;
        let level = |name: &str| Best::Alone(name.to_owned());
        let best: Vec<&Best> = teams.iter().map(|team| &team.best).collect();
        assert_eq!(best, [&Best::Value, &Best::Accuracy, &level("small"), &level("medium"), &level("large")]);
        for team in &teams {
            let plan = validate(&team.spec, &Language::default()).unwrap();
            assert_eq!(
                (plan.agents().len(), team.items, team.runs),
                (team.agents, cases().len(), FRESH * cases().len())
            );
            assert!(team.interval[0] <= team.accuracy && team.accuracy <= team.interval[1]);
            assert!((team.value - (team.accuracy - QUICK.price * team.weighted_tokens / 1000.0)).abs() < 1e-9);
            assert_eq!(team.over_alone.is_none(), team.agents == 1);
        }
        for (alone, weight) in teams[2..].iter().zip([1.0, 3.0, 8.0]) {
            assert_eq!(alone.agents, 1);
            assert!((alone.weighted_tokens - weight * alone.tokens).abs() < 1e-6);
        }
    }
}

#[tokio::test]
async fn a_very_high_price_leaves_one_small_agent() {
    let expensive = found(Preset::Teams, &SearchSettings { price: 10.0, ..QUICK }).await;
    assert_eq!((expensive[0].agents, &expensive[0].spec), (1, &expensive[2].spec));
    let free = found(Preset::Teams, &SearchSettings { price: 0.0, ..QUICK }).await;
    assert_eq!(free[0].spec, free[1].spec);
    assert!(free[0].accuracy >= free[2].accuracy);
}

#[tokio::test]
async fn no_more_teams_are_tried_than_asked_for() {
    let cases = cases();
    let env = env(Preset::Calibrated, &cases);
    for (teams, counted) in [(1, vec![1]), (40, vec![30, 40]), (75, vec![30, 54, 75])] {
        let mut seen = Vec::new();
        let settings = SearchSettings { teams, items: 4, ..QUICK };
        let progress = |tried, all| {
            seen.push(tried);
            assert_eq!(all, teams);
        };
        let found = search(&env, &cases, &settings, &CancellationToken::new(), progress).await.unwrap();
        assert_eq!((seen, found[0].items), (counted, 4));
    }
}

#[tokio::test]
async fn nothing_is_found_where_nothing_may_run() {
    let cases = cases();
    let env = env(Preset::Calibrated, &cases);
    let cancelled = CancellationToken::new();
    cancelled.cancel();
    assert_eq!(search(&env, &cases, &QUICK, &cancelled, |_, _| {}).await.unwrap(), []);
    assert_eq!(search(&env, &[], &QUICK, &CancellationToken::new(), |_, _| {}).await.unwrap(), []);
}

#[test]
fn runs_are_gathered_by_item() {
    let sums: Vec<(f64, u32)> = by_item(&[1.0, 2.0, 3.0, 10.0, 20.0], 3).iter().map(|it| (it.sum, it.runs)).collect();
    assert_eq!(sums, [(11.0, 2), (22.0, 2), (3.0, 1)]);
    assert!(by_item(&[], 3).is_empty() && by_item(&[], 0).is_empty());
}

#[test]
fn cases_are_drawn_without_repeating_one() {
    let cases = cases();
    let positions = |most, seed| -> Vec<usize> {
        drawn(&cases, most, &mut Random::new(seed)).iter().map(|case| case.item.position).collect()
    };
    let mut all = positions(usize::MAX, 1);
    assert_ne!(all, positions(usize::MAX, 2));
    assert_eq!(positions(5, 1), all[..5]);
    all.sort_unstable();
    assert_eq!(all, (0..cases.len()).collect::<Vec<_>>());
}
