//! How often a single agent is right: as often as the world says.

use crate::common::*;
use lemon_task::Item;
use lemon_world::{LEVELS, Preset, TaskFamily};

const SEEDS: u64 = 40;

#[track_caller]
fn check_shares(preset: Preset, level: usize) {
    let world = shipped(preset);
    let mut all = Tally::default();
    // Errors of single items could cancel out: their squares cannot.
    let (mut squares, mut items) = (0.0, 0.0);
    for item in &*ITEMS {
        let solo = world.solo(&item.task.question, level).unwrap();
        let one = tally(&world, [item], SEEDS, |_| Some((Asked { level, ..Asked::default() }, solo)));
        all.cases += one.cases;
        all.happened += one.happened;
        all.expected += one.expected;
        all.variance += one.variance;
        if one.variance > 2.0 {
            squares += one.z().powi(2);
            items += 1.0;
        }
    }
    let what = format!("{} of {}", LEVELS[level], preset.as_str());
    all.check(&what);
    let spread = (2.0f64 / items).sqrt();
    assert!((squares / items - 1.0).abs() < 5.0 * spread, "{what}: {squares} over {items} items");
}

#[test]
fn shares_are_the_probabilities_of_the_world() {
    for preset in Preset::ALL {
        (0..LEVELS.len()).for_each(|level| check_shares(preset, level));
    }
}

fn mean_solo<'a>(preset: Preset, level: usize, items: impl Iterator<Item = &'a Item>) -> f64 {
    let world = shipped(preset);
    let solo: Vec<f64> = items.map(|item| world.solo(&item.task.question, level).unwrap()).collect();
    solo.iter().sum::<f64>() / solo.len() as f64
}

#[test]
fn a_higher_level_is_right_more_often() {
    for preset in Preset::ALL {
        for family in [TaskFamily::Reckoning, TaskFamily::Knowing, TaskFamily::Coding] {
            let of_level = |level| mean_solo(preset, level, ITEMS.iter().filter(|item| TaskFamily::of(item) == family));
            let [small, medium, large] = [0, 1, 2].map(of_level);
            assert!(small <= medium && medium <= large, "{preset:?} {family:?}: {small} {medium} {large}");
        }
    }
}

#[test]
fn workers_of_the_teams_preset_are_weaker_on_every_item() {
    let (calibrated, teams) = (shipped(Preset::Calibrated), shipped(Preset::Teams));
    for item in &*ITEMS {
        for level in 0..LEVELS.len() {
            let [strong, weak] = [&calibrated, &teams].map(|world| world.solo(&item.task.question, level).unwrap());
            let shift = Preset::Teams.choices().level_shift;
            assert!((logit(strong) + shift - logit(weak)).abs() < 1e-6 && weak < strong, "{}", item.task.id);
        }
    }
}

#[test]
fn every_item_has_a_difficulty_and_probabilities() {
    let world = shipped(Preset::Calibrated);
    assert_eq!(world.skipped(), 0);
    for item in &*ITEMS {
        let question = &item.task.question;
        assert!(world.difficulty(question).unwrap().is_finite());
        for level in 0..LEVELS.len() {
            let solo = world.solo(question, level).unwrap();
            assert!(solo > 0.0 && solo < 1.0, "{solo}");
            assert_eq!(world.solo(&format!("\n {question} "), level), Some(solo), "spaces around it do not matter");
        }
        assert_eq!(world.solo(question, 9), world.solo(question, 2), "a level beyond the last is the last");
    }
    assert_eq!(world.solo("Unheard of?", 0), None);
    assert_eq!(world.difficulty("Unheard of?"), None);
}

#[test]
fn a_longer_question_with_more_numbers_is_harder() {
    let difficulty = &lemon_world::Fitted::shipped().reckoning.difficulty;
    let short = "Ann has 3 pens and buys 2. How many has she?";
    let long = "Ann has 3 pens, twice as many pencils and 40 % fewer books than pencils. Each day of the week she buys two \
                pens, gives one to each of her 3 friends, and has half of the rest left. How many has she after a year?";
    assert!(difficulty.of(long) > difficulty.of(short));
    assert!(difficulty.of("").is_finite() && difficulty.of(&"9".repeat(5000)).is_finite());
}
