//! Who decides and who plans: judges, summarisers, planners.

use crate::common::*;
use lemon_exec::answer::extract;
use lemon_task::{Item, grade};
use lemon_world::{Preset, SkillFit, TaskFamily, World, fit, needs};

fn decides(base: &'static str, readings: Vec<String>) -> Asked {
    Asked { base, readings, ..Asked::default() }
}

fn short_items() -> impl Iterator<Item = &'static Item> {
    ITEMS.iter().filter(|item| !is_code(item))
}

#[test]
fn a_judge_never_invents_a_right_answer() {
    for preset in Preset::ALL {
        let (world, able, lucky) = (flat(preset, -100.0), flat(preset, 0.0), flat(preset, 100.0));
        let mut others = 0;
        for (seed, item) in (0..).zip(&*ITEMS) {
            let wrong = Asked::default().of(&world, item).text;
            for count in 1..4 {
                let asked = |base| Asked { seed, ..decides(base, vec![wrong.clone(); count]) };
                let verdict = asked("judge").of(&world, item).text;
                assert!(!is_right(item, &verdict), "{}: {verdict}", item.task.id);
                others += u32::from(is_right(item, &asked("expert").of(&able, item).text));
            }
            assert!(is_right(item, &decides("judge", vec![]).of(&lucky, item).text), "it can know by itself");
        }
        // An agent that tries again may find it, if it is not too hard.
        assert!(others > 0, "{}", preset.as_str());
    }
}

#[test]
fn a_judge_is_right_more_often_the_more_of_the_proposals_are() {
    let world = flat(Preset::Teams, -1.0);
    let judged = |rights: usize, wrongs: usize| {
        tally(&world, short_items().filter(|item| !has_handicap(item)), 20, |item| {
            let (right, wrong) = right_and_wrong(item);
            let readings = [vec![argued(&right); rights], vec![argued(&wrong); wrongs]].concat();
            Some((decides("judge", readings), 0.5))
        })
    };
    let rising = [judged(0, 3), judged(1, 2), judged(2, 1), judged(3, 0)];
    rising.windows(2).for_each(|pair| pair[1].check_above(&pair[0], "one more is right"));
}

#[track_caller]
fn check_summary(world: &World, item: &Item, answers: [&str; 3], expected: &str) {
    let readings = answers.map(argued).to_vec();
    for seed in 0..3 {
        let asked = Asked { seed, level: seed as usize, ..decides("summariser", readings.clone()) };
        let found = extract(&asked.of(world, item).text).unwrap();
        let same = |answer: &str| grade(item, answer).extracted;
        assert_eq!(same(&found), same(expected), "{answers:?} on {}", item.task.id);
    }
}

#[test]
fn a_summariser_takes_what_most_propose_and_of_equals_the_earliest() {
    let world = flat(Preset::Calibrated, 0.0);
    for item in short_items() {
        let (right, wrong) = right_and_wrong(item);
        let (right, wrong) = (right.as_str(), wrong.as_str());
        check_summary(&world, item, [wrong, right, right], right);
        check_summary(&world, item, [right, wrong, right], right);
        check_summary(&world, item, [right, wrong, wrong], wrong);
    }
    let item = short_items().find(|item| TaskFamily::of(item) == TaskFamily::Reckoning && !has_handicap(item)).unwrap();
    check_summary(&world, item, ["100001", "100002", "100003"], "100001");
    check_summary(&world, item, ["100003", "100002", "100001"], "100003");
}

#[test]
fn a_summariser_passes_programs_on() {
    let world = flat(Preset::Calibrated, 0.0);
    let [right, wrong] = [100.0, -100.0].map(|odds| flat(Preset::Calibrated, odds));
    for item in ITEMS.iter().filter(|item| is_code(item)) {
        let program = |by| Asked::default().of(by, item).text;
        let summary = |readings| is_right(item, &decides("summariser", readings).of(&world, item).text);
        assert!(summary(vec![program(&wrong), program(&right), program(&right)]));
        assert!(!summary(vec![program(&wrong), program(&right), program(&wrong)]));
    }
}

#[test]
fn a_plan_names_a_skill_and_carries_no_answer() {
    for odds in [100.0, -100.0] {
        let world = flat(Preset::Calibrated, odds);
        for (seed, item) in (0..).zip(&*ITEMS) {
            let needs = needs(TaskFamily::of(item), &item.task.question, item.task.subject.as_deref());
            for base in ["planner", "decomposer"] {
                let plan = Asked { seed, base, ..Asked::default() }.of(&world, item).text;
                assert_eq!(extract(&plan), None, "{plan}");
                let expected = match (odds > 0.0, needs.is_empty()) {
                    (true, false) => SkillFit::Helps,
                    (true, true) => SkillFit::Neutral,
                    (false, _) => SkillFit::Misses,
                };
                assert_eq!(fit(&needs, &plan), expected, "{plan}");
            }
        }
    }
}

#[test]
fn a_tester_writes_notes_on_programs_and_answers_elsewhere() {
    let world = flat(Preset::Calibrated, 100.0);
    for item in &*ITEMS {
        let reply = Asked { base: "tester", ..Asked::default() }.of(&world, item).text;
        assert_eq!(is_right(item, &reply), !is_code(item), "{reply}");
    }
}

#[test]
fn a_plan_from_one_agent_helps_the_next() {
    // What the planner hands on is what the reader's notes are: good plans raise, bad ones lower.
    let world = flat(Preset::Teams, 0.0);
    let by = |odds: f64| {
        let planners = flat(Preset::Teams, odds);
        tally(&world, plain_items().filter(|item| need(item).is_some()), 20, |item| {
            let plan = Asked { base: "planner", ..Asked::default() }.of(&planners, item).text;
            Some((Asked { readings: vec![plan], ..Asked::default() }, 0.5))
        })
    };
    by(100.0).check_above(&by(-100.0), "good plans against bad ones");
}
