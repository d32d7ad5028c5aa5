//! What an agent is told: a duty that names what the task needs helps, one that names something else costs.

use crate::common::*;
use lemon_task::Item;
use lemon_world::{Choices, LEVELS, Preset, TaskFamily};

const SEEDS: u64 = 40;

/// Asks every agent in a way that should shift the log-odds by `shift`, and checks that it does, by more than chance.
#[track_caller]
fn check_shift(what: &str, shift: impl Fn(&Choices) -> f64, how: impl Fn(&Item) -> Option<Asked>) {
    for preset in Preset::ALL {
        let world = shipped(preset);
        let shift = shift(&preset.choices());
        let (mut shifted, mut unshifted) = (Tally::default(), Tally::default());
        for level in 0..LEVELS.len() {
            for item in &*ITEMS {
                let solo = world.solo(&item.task.question, level).unwrap();
                // Items that are as good as certain show nothing.
                let Some(asked) = how(item).filter(|_| solo > 0.1 && solo < 0.9) else { continue };
                for seed in 0..SEEDS {
                    let reply = Asked { seed, level, ..asked.clone() }.of(&world, item);
                    let right = is_right(item, &reply.text);
                    shifted.add(right, logistic(logit(solo) + shift));
                    unshifted.add(right, solo);
                }
            }
        }
        shifted.check(&format!("{what}, {}", preset.as_str()));
        if shift != 0.0 {
            let z = unshifted.z() * shift.signum();
            assert!(z > 4.0, "{what}, {}: the shift does not show, z = {z:.2}: {unshifted:?}", preset.as_str());
        }
    }
}

/// A skill of another kind of task, which no item here needs.
fn beside_the_point(item: &Item) -> &'static str {
    if TaskFamily::of(item) == TaskFamily::Reckoning { "philosophy" } else { "percentages" }
}

fn with_duty(duty: impl Into<String>) -> Option<Asked> {
    Some(Asked { duty: duty.into(), ..Asked::default() })
}

#[test]
fn a_duty_that_names_a_need_helps() {
    check_shift("a fitting duty", |c| c.duty, |item| with_duty(format!("See to the {} in it.", need(item)?)));
}

#[test]
fn a_duty_that_names_something_else_costs() {
    check_shift(
        "a duty beside the point",
        |c| -c.duty,
        |item| need(item).and_then(|_| with_duty(format!("See to the {} in it.", beside_the_point(item)))),
    );
}

#[test]
fn a_duty_that_names_nothing_changes_nothing() {
    check_shift("a neutral duty", |_| 0.0, |_| with_duty("Think first, then write."));
}

#[test]
fn a_role_can_name_the_need_too() {
    let expert = |item: &Item| {
        let role = format!("An authority on {}", need(item)?);
        Some(Asked { role, ..Asked::default() })
    };
    check_shift("a fitting role", |c| c.duty, expert);
}

/// Notes that name a skill and no answer.
fn notes(skill: &str) -> String {
    format!("1. Write down what is given and what is asked.\n2. Mind that this is about {skill} above all.")
}

fn reads(readings: Vec<String>) -> Option<Asked> {
    Some(Asked { readings, ..Asked::default() })
}

#[test]
fn notes_help_or_cost_like_duties() {
    check_shift("fitting notes", |c| c.plan, |item| reads(vec![notes(need(item)?)]));
    check_shift("misleading notes", |c| -c.plan, |item| reads(vec![notes(beside_the_point(item))]));
}

#[test]
fn many_notes_help_no_more_than_one_and_contrary_ones_cancel_out() {
    check_shift("three fitting notes", |c| c.plan, |item| reads(vec![notes(need(item)?); 3]));
    let contrary = |item: &Item| reads(vec![notes(need(item)?), notes(beside_the_point(item))]);
    check_shift("contrary notes", |_| 0.0, contrary);
}

#[test]
fn a_role_made_for_another_kind_of_task_costs() {
    let other = |item: &Item| if is_code(item) { "solver" } else { "programmer" };
    check_shift("the wrong role", |c| -c.wrong_role, |item| Some(Asked { base: other(item), ..Asked::default() }));
}

#[test]
fn an_answer_without_working_costs_on_word_problems_alone() {
    let duty = "Give the answer alone.";
    let reckoning = |item: &Item| TaskFamily::of(item) == TaskFamily::Reckoning;
    check_shift("without working", |c| -c.without_working, |item| with_duty(duty).filter(|_| reckoning(item)));
    check_shift("without working, elsewhere", |_| 0.0, |item| with_duty(duty).filter(|_| !reckoning(item)));
}
