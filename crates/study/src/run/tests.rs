use super::*;
use crate::plans::named;

/// A study of these arms that takes seconds.
fn small(arms: &[&str], change: impl Fn(&mut Recipe)) -> Study {
    let mut study = named("demo", None).unwrap();
    study.arms = arms.iter().map(|arm| Arm::named(arm).unwrap()).collect();
    (study.seeds, study.commit) = (vec![7], "abc".to_owned());
    let recipe = &mut study.regimes[0].recipe;
    (recipe.steps, recipe.worker_tokens) = (6, Some(40_000));
    (recipe.tasks.train, recipe.tasks.held_out) = (20, 4);
    recipe.update.learning_rate = 0.5;
    change(recipe);
    study
}

fn rows_of(study: &Study) -> Vec<StudyRow> {
    let folder = tempfile::tempdir().unwrap();
    let (rows, scratch) = (folder.path().join("rows.jsonl"), folder.path().join("runs"));
    let cancel = CancellationToken::new();
    run(study, &[], DeviceChoice::Cpu, (&rows, &scratch), 1, &cancel, |_, _, _| {}).unwrap()
}

#[test]
fn every_row_says_what_it_was_made_with() {
    let study = small(&["full", "plain-shared", "fixed-team"], |_| {});
    let rows = rows_of(&study);
    assert_eq!(rows.len(), 3);
    for row in &rows {
        let stamp = row.stamp.as_ref().unwrap();
        let trains = row.arm != "fixed-team";
        assert_eq!((row.seed, stamp.commit.as_str(), stamp.learning_rate), (7, "abc", 0.5));
        assert!(stamp.device.starts_with("cpu "), "{}: `{}`", row.arm, stamp.device);
        assert!(stamp.recipe.len() == 16 && stamp.seconds.is_finite());
        assert_eq!(stamp.worker_tokens, row.rollout_tokens + row.credit_tokens);
        assert!(stamp.worker_tokens > 0 && (stamp.policy_tokens > 0) == trains, "{}: {stamp:?}", row.arm);
        // The likeliest teams, then drawn ones, each task by itself.
        let temperatures: Vec<f32> = row.evaluations.iter().map(|it| it.temperature).collect();
        assert_eq!(temperatures, if trains { vec![0.0, 1.0] } else { vec![0.0] }, "{}", row.arm);
        let tasks = 4 * study.regimes[0].recipe.tasks.sets.len();
        assert!(row.evaluations.iter().all(|it| it.items.len() == tasks && it.items.iter().all(Option::is_some)));
        let greedy = &row.evaluations[0];
        let right: f64 = greedy.sets.values().map(|set| set.success * set.runs as f64).sum();
        assert!(
            (right / greedy.means.runs as f64 - greedy.means.success).abs() < 1e-9,
            "{}: {:?}",
            row.arm,
            greedy.sets
        );
        assert!(greedy.sets.values().all(|set| set.weighted_tokens > 0.0));
    }
    let of = |arm: &str| rows.iter().find(|row| row.arm == arm).and_then(|row| row.stamp.as_ref()).unwrap();
    assert_ne!(of("full").recipe, of("plain-shared").recipe);
    // The hash leaves the seed out.
    let other = Study { seeds: vec![8], ..small(&["full"], |_| {}) };
    assert_eq!(rows_of(&other)[0].stamp.as_ref().unwrap().recipe, of("full").recipe);
}

/// The divergence from the first policy counts in a study as it does in training.
#[test]
fn a_study_keeps_the_divergence_term() {
    let learned = |kl: f32| rows_of(&small(&["plain-shared"], |recipe| recipe.update.kl = kl)).remove(0).evaluations;
    let free = learned(0.0);
    assert_eq!(free, learned(0.0));
    assert_ne!(free, learned(5.0));
}
