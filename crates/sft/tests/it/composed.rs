//! Composed items live in a world as published ones do, and need everything that tasks can need.

use lemon_rollout::RolloutEnv;
use lemon_task::{Item, SetName, compose};
use lemon_world::{LEVELS, Preset, SKILLS, TaskFamily, World, needs};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

fn composed(count: usize) -> Vec<Item> {
    SetName::PUBLIC.into_iter().flat_map(|set| compose(set, count, 4)).collect()
}

#[test]
fn every_item_has_a_place_in_a_world() {
    let items = composed(200);
    let world = World::new(Preset::Calibrated, &items);
    assert_eq!(world.skipped(), 0);
    for item in &items {
        for level in 0..LEVELS.len() {
            let right = world.solo(&item.task.question, level);
            assert!(right.is_some_and(|right| (0.0..=1.0).contains(&right)), "{}", item.task.question);
        }
    }
}

#[test]
fn every_skill_is_needed_by_some_item() {
    let items = composed(600);
    let skills = |item: &Item| needs(TaskFamily::of(item), &item.task.question, item.task.subject.as_deref());
    let needed: BTreeSet<&str> = items.iter().flat_map(skills).map(|skill| skill.name).collect();
    assert_eq!(needed, SKILLS.iter().map(|skill| skill.name).collect());
}

#[test]
fn items_are_about_as_hard_as_published_ones() {
    // The published sets have medians between -0.7 and 0.3, and nine tenths of their items within three of each other.
    for set in SetName::PUBLIC {
        let items = compose(set, 800, 6);
        let world = World::new(Preset::Calibrated, &items);
        let mut difficulties: Vec<f64> =
            items.iter().filter_map(|item| world.difficulty(&item.task.question)).collect();
        difficulties.sort_by(f64::total_cmp);
        let at = |share: f64| difficulties[(share * (difficulties.len() - 1) as f64) as usize];
        assert!((-0.9..0.6).contains(&at(0.5)), "{set}: {}", at(0.5));
        assert!((0.4..4.0).contains(&(at(0.95) - at(0.05))), "{set}: {} to {}", at(0.05), at(0.95));
    }
}

/// Runs through the executor are right about as often as the world says.
#[tokio::test]
async fn teams_solve_them() {
    let items = compose(SetName::Gsm8k, 300, 9);
    let world = World::new(Preset::Calibrated, &items);
    let expected: f64 = items.iter().filter_map(|item| world.solo(&item.task.question, 2)).sum();
    let grader = lemon_rollout::Grader::new(None);
    let env = RolloutEnv::new(world.backend(), Arc::default(), Default::default(), grader);
    let mut found = BTreeMap::new();
    for item in items {
        let case = lemon_rollout::Case { set: "composed/gsm8k".into(), item };
        let text = "agents:\n  - {id: a1, base: solver, capacity: large}\n";
        let earned = env.run(&case, text, 1, &Default::default()).await.unwrap().unwrap();
        found.insert(case.item.position, earned.success);
    }
    let right: f64 = found.values().sum();
    // Four standard errors of a sum of 300 draws.
    assert!((right - expected).abs() < 4.0 * (300.0_f64 * 0.25).sqrt(), "{right} of {expected}");
}
