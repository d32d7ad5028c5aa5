//! How steady workers are: a chosen figure for studies.

use crate::common::*;
use lemon_exec::answer;
use lemon_task::Item;
use lemon_world::{Choices, LEVELS, Preset, World};
use std::collections::HashSet;

const SEEDS: u64 = 8;

fn world(steadiness: f64) -> World {
    shipped(Preset::Calibrated).with_choices(Choices { steadiness, ..Preset::Calibrated.choices() })
}

/// How often two agents of a level that differ by their seed alone give the same answer, over all items but programs.
fn agreement(world: &World, level: usize) -> f64 {
    let (mut same, mut all) = (0.0, 0.0);
    for item in ITEMS.iter().filter(|item| !is_code(item)) {
        let answer = |seed| answer::vote_key(&answer::extract_or_all(&reply(world, item, level, seed)));
        let answers: Vec<String> = (0..SEEDS).map(answer).collect();
        for (at, one) in answers.iter().enumerate() {
            for other in answers.iter().skip(at + 1) {
                same += f64::from(u8::from(one == other));
                all += 1.0;
            }
        }
    }
    same / all
}

fn reply(world: &World, item: &Item, level: usize, seed: u64) -> String {
    Asked { level, seed, ..Asked::default() }.of(world, item).text
}

fn accuracy(world: &World, level: usize) -> f64 {
    let solo: Vec<f64> = ITEMS.iter().filter_map(|item| world.solo(&item.task.question, level)).collect();
    solo.iter().sum::<f64>() / solo.len() as f64
}

#[test]
fn steadier_workers_agree_with_themselves_more_often() {
    let [noisy, default, steady] = [0.5, 1.0, 3.0].map(world);
    for (level, name) in LEVELS.iter().enumerate() {
        let [a, b, c] = [&noisy, &default, &steady].map(|world| agreement(world, level));
        assert!(a + 0.03 < b && b + 0.03 < c, "{name}: {a} {b} {c}");
    }
}

#[test]
fn the_order_of_levels_is_kept_and_odds_are_multiplied() {
    let default = world(1.0);
    for steadiness in [0.5, 3.0] {
        let world = world(steadiness);
        let [small, medium, large] = [0, 1, 2].map(|level| accuracy(&world, level));
        assert!(small < medium && medium < large, "{steadiness}: {small} {medium} {large}");
        for item in &*ITEMS {
            let question = &item.task.question;
            let [one, other] = [&default, &world].map(|world| world.solo(question, 1).unwrap());
            assert!((other - logistic(steadiness * logit(one))).abs() < 1e-9, "{}", item.task.id);
        }
    }
}

#[test]
fn what_is_drawn_follows_the_probability() {
    for steadiness in [0.5, 3.0] {
        let world = world(steadiness);
        let solo = |item: &Item| Some((Asked::default(), world.solo(&item.task.question, 0)?));
        tally(&world, &*ITEMS, SEEDS, solo).check(&format!("steadiness {steadiness}"));
    }
}

#[test]
fn chosen_figures_of_its_own_give_a_world_its_own_name() {
    let default = shipped(Preset::Calibrated);
    for item in ITEMS.iter().take(20) {
        assert_eq!(reply(&world(1.0), item, 0, 7), reply(&default, item, 0, 7));
    }
    let names: HashSet<String> = [0.5, 1.0, 3.0].map(|steadiness| world(steadiness).backend().name).into();
    assert!(names.len() == 3 && names.contains("sim (calibrated)"), "{names:?}");
    let identity = |world: World| world.backend().levels[0].identity.clone();
    assert_eq!(identity(world(1.0)), "sim/calibrated/small");
    assert_ne!(identity(world(3.0)), identity(world(0.5)));
}
