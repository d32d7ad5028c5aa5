//! The world against the record of real models, where that is at hand.

use crate::common::*;
use lemon_task::{Item, SetName, Source, grade, load, splits};
use lemon_world::outcomes::{self, Observed};
use lemon_world::{Fitted, LEVELS, Preset, Recorded, Recordings, World, check, check_real};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

fn items(data: &Path, set: SetName) -> Vec<Item> {
    load(&Source::Folder(data.to_owned()), set, "test").unwrap().items
}

#[test]
fn the_shipped_figures_keep_to_the_record() {
    let Some(data) = public_data() else { return };
    let check = check(Fitted::shipped(), &data).unwrap();
    for figure in &check.figures {
        assert!(figure.holds(), "{figure:?}");
    }
    assert!(check.holds());
    let bounded = check.figures.iter().filter(|figure| figure.bound.is_some()).count();
    // Two sets with four accuracies of three levels and six joint figures each, and the debates' cells.
    assert!(bounded >= 2 * (12 + 6), "{bounded}");
}

/// Within their bounds, or as close as half of the recorded items can tell.
#[test]
fn the_real_preset_keeps_to_the_items_it_was_not_fitted_to() {
    let Some(data) = public_data().filter(|data| data.join("outcomes/real_qwen_solve.jsonl.gz").exists()) else {
        return;
    };
    let check = check_real(Fitted::real(), &data).unwrap();
    assert!(check.figures.len() > 80, "{}", check.figures.len());
    for figure in &check.figures {
        assert!(figure.is_compatible(), "{figure:?}");
    }
    let within = check.figures.iter().filter(|figure| figure.holds()).count();
    assert!(within * 4 >= check.figures.len() * 3, "{within} of {}", check.figures.len());
}

#[test]
fn other_figures_do_not() {
    let Some(data) = public_data() else { return };
    let mut fitted = Fitted::shipped().clone();
    fitted.reckoning.levels[1].level -= 1.0;
    let failing = check(&fitted, &data).unwrap();
    assert!(failing.figures.iter().any(|f| f.set == "gsm8k" && f.level == Some("medium") && !f.holds()));
    assert!(failing.figures.iter().filter(|figure| figure.set != "gsm8k").all(|figure| figure.holds()));
}

#[track_caller]
fn check_read(items: Result<Vec<Observed>, outcomes::OutcomesError>, count: usize, samples: u32, shares: [f64; 3]) {
    let items = items.unwrap();
    assert_eq!(items.len(), count);
    for item in &items {
        assert_eq!(
            item.levels.iter().map(|tally| tally.samples).collect::<Vec<_>>(),
            [samples; 3],
            "{}",
            item.question
        );
        assert!(item.levels.iter().all(|tally| tally.right <= tally.samples));
    }
    for (level, expected) in shares.into_iter().enumerate() {
        let share = items.iter().filter_map(|item| item.share(level)).sum::<f64>() / count as f64;
        assert!((share - expected).abs() < 0.0006, "{}: {share}", LEVELS[level]);
    }
}

#[test]
fn the_record_is_read_whole() {
    let Some(data) = public_data() else { return };
    check_read(outcomes::gsm8k(&data), 660, 1, [0.5, 0.795, 0.853]);
    check_read(outcomes::mmlu(&data), 7032, 20, [0.353, 0.548, 0.644]);
    check_read(outcomes::humaneval(&data), 164, 10, [0.451, 0.770, 0.848]);
    assert!(outcomes::debates(&data).unwrap().len() > 50);
}

/// The items of a set by question.
fn by_question(data: &Path, set: SetName) -> HashMap<String, Item> {
    items(data, set).into_iter().map(|item| (item.task.question.trim().to_owned(), item)).collect()
}

#[test]
fn recorded_replies_are_graded_as_the_record_grades_them() {
    let Some(data) = public_data() else { return };
    let tasks = by_question(&data, SetName::Gsm8k);
    let observed: HashMap<_, _> =
        outcomes::gsm8k(&data).unwrap().into_iter().map(|item| (item.question.trim().to_owned(), item)).collect();
    let (mut agree, mut all) = (0.0, 0.0);
    for (question, replies) in outcomes::replies(&data, SetName::Gsm8k).unwrap() {
        for reply in replies {
            let right = grade(&tasks[&question], &reply.text).verdict.is_right();
            agree += f64::from(u8::from(Some(f64::from(u8::from(right))) == observed[&question].share(reply.level)));
            all += 1.0;
        }
    }
    println!("{agree} of {all} agree");
    assert!(all == 1980.0 && agree / all >= 0.98, "{agree} of {all}");
}

#[test]
fn recorded_workers_serve_whole_sets() {
    let Some(data) = public_data() else { return };
    for (set, on_record) in [(SetName::Gsm8k, 660), (SetName::Mmlu, 7000)] {
        let observed = match set {
            SetName::Gsm8k => outcomes::gsm8k(&data),
            _ => outcomes::mmlu(&data),
        };
        let ladder = LEVELS.map(String::from);
        let recordings = Arc::new(Recordings::read(&data, &[set], &ladder).unwrap());
        let worker = Recorded::new(recordings.clone(), None);
        let tasks = by_question(&data, set);
        let known: Vec<_> = observed.unwrap().into_iter().filter(|item| recordings.knows(&item.question)).collect();
        assert!(known.len() >= on_record, "{set}: {}", known.len());
        for item in known.iter().step_by(known.len() / 100) {
            let task = &tasks[item.question.trim()];
            for level in 0..LEVELS.len() {
                let said = |seed| ask(&worker, &Asked { level, seed, ..Asked::default() }.request(task)).unwrap();
                assert_eq!(said(3), said(3));
                let share = item.levels[level].right as f64 / f64::from(item.levels[level].samples);
                let right = (0..400).filter(|seed| grade(task, &said(*seed).text).verdict.is_right()).count();
                // The seed draws among the samples; graders may differ on a long reply.
                let off = right as f64 / 400.0 - share;
                assert!(set == SetName::Gsm8k || off.abs() < 0.125, "{right} of 400, {share}");
            }
        }
    }
}

#[test]
fn public_tasks_are_answered_as_the_world_decided() {
    let Some(data) = public_data() else { return };
    let all: Vec<Item> = SetName::PUBLIC
        .into_iter()
        .flat_map(|set| {
            let split = splits(set).find(|split| split.name == split.of && split.name == "test");
            split.map(|_| items(&data, set)).unwrap_or_default()
        })
        .collect();
    assert!(all.len() > 15_000, "{}", all.len());
    for right in [true, false] {
        let mut fitted = Fitted::shipped().clone();
        for family in [&mut fitted.reckoning, &mut fitted.knowing, &mut fitted.coding] {
            for level in &mut family.levels {
                (level.level, level.characters) = (if right { 1000.0 } else { -1000.0 }, 0.0);
            }
        }
        let world = World::with_figures(fitted, Preset::Calibrated, &all);
        assert_eq!(world.skipped(), 0);
        for (seed, item) in (0..).zip(all.iter().filter(|item| !is_code(item))) {
            let reply = Asked { seed, ..Asked::default() }.of(&world, item).text;
            assert_eq!(is_right(item, &reply), right, "{}: {reply}", item.task.question);
        }
    }
}
