//! A team is made leaner, and what does not hold elsewhere is taken back.

use crate::common::{WORD_PROBLEMS, counterfactuals, plan, simulated, wait};
use crate::enumerable::{COMBINATIONS, cases, enumerable};
use lemon_profile::{Counterfactuals, Improvement, improve};
use lemon_rollout::Case;
use lemon_spec::validate;
use lemon_world::{AgentNoise, Preset};
use tokio_util::sync::CancellationToken;

fn improved(
    counterfactuals: &Counterfactuals<'_>,
    team: &str,
    cases: (&[Case], &[Case]),
    seeds: &[u64],
) -> (Improvement, Vec<String>) {
    let (plan, cancel, mut made) = (plan(team), CancellationToken::new(), Vec::new());
    let found = wait(improve(counterfactuals, &plan, cases, seeds, 16, &cancel, |step| made.push(step.change.clone())))
        .unwrap();
    // Every change made was either kept or taken back.
    assert!(found.steps.iter().chain(&found.taken_back).map(|step| &step.change).eq(&made));
    (found, made)
}

#[test]
fn the_seven_of_the_example_become_fewer_at_no_measurable_loss() {
    let seven = include_str!("../../../../examples/seven.yaml");
    let env = simulated(Preset::Calibrated, AgentNoise::Kept);
    let half = |odd: usize| WORD_PROBLEMS.iter().skip(odd).step_by(2).cloned().collect::<Vec<_>>();
    let (chosen_by, held_out) = (half(0), half(1));
    let (found, _) = improved(&counterfactuals(&env), seven, (&chosen_by, &held_out), &[1, 2]);
    for step in &found.steps {
        println!(
            "{}: {:+.3}, {:+.0} tokens; held out {:?}",
            step.change, step.success, step.tokens, step.held_out_change
        );
    }
    let ([before, tokens, _], [after, fewer, _]) = (found.before, found.after);
    println!(
        "success {before:.3} → {after:.3}, tokens {tokens:.0} → {fewer:.0}, {:?} in {:?}",
        found.change, found.interval
    );
    assert!(fewer <= 0.75 * tokens, "{fewer} of {tokens} tokens");
    let [_, high] = found.interval.unwrap();
    assert!(high >= 0.0 && found.change.unwrap() >= -0.01, "{:?}", found.interval);
    assert!(!found.steps.is_empty() && found.held_out == held_out.len());
    assert!(validate(&found.spec, &env.language).is_ok());
}

/// On the tasks that choose the team every worker is right; on the others only the strong are.
#[test]
fn what_does_not_hold_on_other_tasks_is_taken_back() {
    const TEAM: &str = "
agents:
  - {id: a, base: solver, capacity: large}
  - {id: b, base: solver, capacity: large}
answer: {from: [a], by: last}
";
    let env = enumerable();
    let tasks = |hard: i64| cases((0..40).map(|at| (at * 13 % COMBINATIONS, hard)));
    let (easy, harder) = (tasks(-10), tasks(2));
    let (found, told) = improved(&counterfactuals(&env), TEAM, (&easy, &harder), &[1]);
    assert_eq!(told[0], "b is removed");
    assert!(told[1..].iter().all(|change| change == "a runs one capacity level lower"), "{told:?}");
    assert_eq!((found.steps.len(), found.taken_back.len()), (1, 2), "{told:?}");
    assert_eq!((found.change, found.before[0], found.after[0]), (Some(0.0), 1.0, 1.0));
    assert!(found.after[1] < found.before[1]);
    for step in &found.taken_back {
        // On the tasks it was chosen by there was nothing to see.
        assert_eq!(step.success, 0.0);
        assert!(step.held_out_change.unwrap() < -0.1 && step.held_out_interval.unwrap()[1] < 0.0);
    }
    assert!(found.spec.contains("capacity: large") && !found.spec.contains("id: b"), "{}", found.spec);

    // Where both halves agree, all of it holds.
    let (found, _) = improved(&counterfactuals(&env), TEAM, (&easy, &easy), &[1]);
    assert_eq!((found.steps.len(), found.taken_back.len()), (3, 0));
}
