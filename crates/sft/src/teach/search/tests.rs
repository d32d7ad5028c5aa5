//! A search finds what earns most for tasks that look alike, the same each time.

use super::*;
use crate::teach::SearchProgress;
use crate::teach::fixture::{Fixture, check_pairs};
use lemon_spec::{AnswerRule, validate};
use lemon_task::{SetName, compose};

fn quick() -> TeamSearchSettings {
    TeamSearchSettings { teams: 20, runs: 120, lesson_runs: 1, ..TeamSearchSettings::default() }
}

#[tokio::test]
async fn the_pooled_teams_are_few_valid_and_the_same_each_time() {
    let fixture = Fixture::new(&[SetName::Gsm8k, SetName::Mmlu], 60);
    let seen = std::sync::Mutex::new(Vec::new());
    let tell = |tried: &SearchProgress| seen.lock().unwrap().push(*tried);
    let context = TeachContext { watch: Some(&tell), ..fixture.context(3) };
    let best_teams = find(&context, &quick()).await.unwrap();
    assert!((2..=8).contains(&best_teams.teams.len()), "{:?}", best_teams.teams.keys());
    let seen = seen.into_inner().unwrap();
    let all = best_teams.teams.len() * quick().teams;
    assert!(seen.iter().all(|tried| tried.of == all) && seen.is_sorted_by_key(|tried| tried.teams), "{seen:?}");
    assert_eq!(seen.last().unwrap().teams, all);
    assert_eq!(find(&fixture.context(3), &quick()).await.unwrap().teams, best_teams.teams);
    let language = Language::default();
    for set in SetName::PUBLIC {
        for item in compose(set, 20, 8) {
            let team = best_teams.team(&item.task.question, None, &language, 1);
            assert!(validate(&render(&team).text, &language).is_ok());
        }
    }
    let pairs = teach(&fixture.context(3), &quick()).await.unwrap();
    check_pairs(&pairs);
    assert_eq!(pairs.len(), 120);
    let shape = |pair: &Pair| {
        let plan = validate(&pair.spec, &language).unwrap();
        let agents = plan.spec().agents.iter().map(|a| (a.base.clone(), a.capacity.clone(), a.after.clone(), a.share));
        format!("{:?}", agents.collect::<Vec<_>>())
    };
    let shapes: std::collections::HashSet<String> = pairs.iter().map(shape).collect();
    assert!(shapes.len() <= best_teams.teams.len());
}

#[tokio::test]
async fn one_team_may_be_found_for_all_among_votes_drawn_at_random() {
    let fixture = Fixture::new(&[SetName::Gsm8k], 60);
    let settings = TeamSearchSettings { pooling: Pooling::Kind, teams: 8, drawn: 8, ..quick() };
    let best_teams = find(&fixture.context(3), &settings).await.unwrap();
    let (cluster, found) = best_teams.teams.first_key_value().unwrap();
    assert_eq!((best_teams.teams.len(), cluster.band, found.runs), (1, 0, 120));
    // All eight to begin with were drawn, and nothing else was tried.
    let team = &found.team;
    assert!(team.agents.len() > 1 && team.answer.by == AnswerRule::Vote, "{team:?}");
    assert_eq!(teach(&fixture.context(3), &settings).await.unwrap().len(), 60);
}

#[tokio::test]
async fn a_given_team_is_taught_as_it_is() {
    let fixture = Fixture::new(&[SetName::Gsm8k], 30);
    let text = "agents:\n  - {id: a1, base: solver, capacity: medium, duty: <reworded>}\n  \
                - {id: a2, base: solver, capacity: large}\nanswer: {from: [a1, a2], by: vote}\n";
    let team = validate(text, &Language::default()).unwrap().spec().clone();
    let settings = TeamSearchSettings { team: Some(team.clone()), pooling: Pooling::Kind, two_rounds: true, ..quick() };
    let found = find(&fixture.context(3), &settings).await.unwrap().teams.into_values().next().unwrap();
    assert_eq!((found.team, found.staged, found.runs), (team, None, 120));
    for pair in teach(&fixture.context(3), &settings).await.unwrap() {
        let plan = validate(&pair.spec, &Language::default()).unwrap();
        let duties: Vec<Option<&str>> = plan.spec().agents.iter().map(|agent| agent.duty.as_deref()).collect();
        assert!(duties[0].is_some_and(|duty| duty.contains("phrase it") || duty.contains("Reword it")), "{duties:?}");
        assert_eq!(duties[1], None);
    }
}

#[tokio::test]
async fn challengers_only_ever_raise_what_the_best_earns() {
    let fixture = Fixture::new(&[SetName::Gsm8k], 60);
    let (seen, first_teams) = (std::sync::Mutex::new(Vec::new()), 10);
    let tell = |tried: &SearchProgress| seen.lock().unwrap().push(*tried);
    let context = TeachContext { watch: Some(&tell), ..fixture.context(5) };
    let settings = TeamSearchSettings {
        pooling: Pooling::Kind,
        teams: first_teams,
        challengers: 40,
        most_agents: 3,
        runs: 240,
        ..quick()
    };
    let best_teams = find(&context, &settings).await.unwrap();
    let found = best_teams.teams.first_key_value().unwrap().1;
    assert!(found.team.agents.len() <= 3 && found.runs == 240, "{found:?}");
    let seen = seen.into_inner().unwrap();
    assert!(seen.iter().all(|tried| tried.of == 50) && seen.is_sorted_by_key(|tried| tried.teams));
    // All challengers are measured with the same noise seeds, so a team that replaces the best did not earn less.
    let challenged: Vec<f64> =
        seen.iter().filter(|tried| tried.teams >= first_teams).skip(1).map(|tried| tried.best.reward).collect();
    assert!(challenged.len() >= 39 && challenged.is_sorted(), "{challenged:?}");
    assert!(challenged.first() < challenged.last(), "{challenged:?}");
}

#[tokio::test]
async fn what_one_task_promises_is_too_good_to_be_true() {
    let fixture = Fixture::new(&[SetName::Gsm8k], 40);
    let settings = TeamSearchSettings {
        pooling: Pooling::Task,
        teams: 8,
        runs: 2,
        lesson_runs: 4,
        ..TeamSearchSettings::default()
    };
    let found = find_each(&fixture.context(3), &settings).await.unwrap();
    let pairs = teach(&fixture.context(3), &settings).await.unwrap();
    check_pairs(&pairs);
    assert_eq!((found.len(), pairs.len()), (40, 40));
    let promised: f64 = found.iter().map(|found| found.earned.reward).sum();
    let fresh: f64 = pairs.iter().filter_map(|pair| pair.reward).sum();
    assert!(promised > fresh + 1.0, "{promised} and {fresh}");
}

#[tokio::test]
async fn a_cancelled_search_ends_without_pairs() {
    let fixture = Fixture::new(&[SetName::Svamp], 30);
    fixture.cancel.cancel();
    assert_eq!(find(&fixture.context(1), &quick()).await.unwrap().teams.len(), 0);
    assert_eq!(teach(&fixture.context(1), &quick()).await.unwrap(), []);
    let each = TeamSearchSettings { pooling: Pooling::Task, ..quick() };
    assert_eq!(teach(&fixture.context(1), &each).await.unwrap(), []);
}

#[tokio::test]
async fn where_rewards_are_unknown_the_rules_hold() {
    // Programs, without a sandbox.
    let fixture = Fixture::new(&[SetName::HumanEval, SetName::Gsm8k], 30);
    let best_teams = find(&fixture.context(1), &quick()).await.unwrap();
    assert!(best_teams.teams.keys().all(|cluster| cluster.kind == TaskKind::Number) && !best_teams.teams.is_empty());
    for settings in [quick(), TeamSearchSettings { pooling: Pooling::Task, teams: 3, runs: 1, ..quick() }] {
        let pairs = teach(&fixture.context(1), &settings).await.unwrap();
        check_pairs(&pairs);
        assert_eq!(pairs.len(), 60);
        assert_eq!(pairs.iter().filter(|pair| pair.reward.is_none()).count(), 30);
    }
}

#[test]
fn small_clusters_join_the_next_of_their_kind() {
    let fixture = Fixture::new(&[SetName::Svamp], 60);
    let at = |kind, band| TaskCluster { kind, band };
    let check = |sizes: &[(TaskKind, usize, usize)], expected: &[(TaskKind, usize, usize)]| {
        let clusters =
            sizes.iter().map(|(kind, band, size)| (at(*kind, *band), fixture.cases.iter().take(*size).collect()));
        let joined = joined(clusters.collect());
        let found: Vec<_> = joined.iter().map(|(cluster, cases)| (cluster.kind, cluster.band, cases.len())).collect();
        assert_eq!(found, expected);
    };
    use TaskKind::{Knowledge, Number};
    check(&[(Number, 0, 30), (Number, 1, 5), (Number, 2, 40)], &[(Number, 0, 30), (Number, 2, 45)]);
    check(&[(Number, 0, 30), (Number, 4, 5), (Knowledge, 0, 9)], &[(Number, 0, 35)]);
    check(&[(Number, 0, 3), (Knowledge, 0, 9)], &[(Number, 0, 3), (Knowledge, 0, 9)]);
    check(&[(Number, 0, 3), (Number, 1, 4), (Number, 2, 5)], &[(Number, 2, 12)]);
    check(&[], &[]);
}

#[test]
fn bands_go_from_easy_to_hard() {
    let band =
        |difficulty| TaskCluster::of(&TaskFeatures { kind: TaskKind::Number, difficulty, skills: Vec::new() }).band;
    assert_eq!([-2.0, -0.7, 0.0, 0.59, 0.6, 9.0].map(band), [0, 1, 2, 2, 3, 4]);
}

#[tokio::test]
async fn a_few_odd_questions_are_left_to_the_rules() {
    let mut fixture = Fixture::new(&[SetName::Gsm8k], 60);
    fixture.cases.extend(Fixture::new(&[SetName::Mmlu], 3).cases);
    let settings = TeamSearchSettings { pooling: Pooling::Kind, teams: 4, runs: 30, ..quick() };
    let best_teams = find(&fixture.context(3), &settings).await.unwrap();
    assert_eq!(best_teams.teams.keys().map(|cluster| cluster.kind).collect::<Vec<_>>(), [TaskKind::Number]);
    assert_eq!(teach(&fixture.context(3), &settings).await.unwrap().len(), 63);
}
