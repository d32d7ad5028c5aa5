//! Made-up rows for tests. They are results of nothing.

use super::row::{EvalPoint, StudyRow};
use lemon_credit::economy::FamilyReport;
use lemon_num::{Random, seed_of};
use lemon_spec::edit::Family;
use lemon_train::metrics::Means;

/// A run that came to this reward.
pub fn row(arm: &str, seed: u64, reward: f64) -> StudyRow {
    let before = Means { runs: 60, reward: 0.9, success: 0.8, tokens: 2_000.0, agents: 4.0, ..Means::default() };
    StudyRow {
        study: "table".to_owned(),
        regime: String::new(),
        arm: arm.to_owned(),
        seed,
        steps: 40,
        rollout_tokens: 900,
        credit_tokens: 100,
        before,
        after: Means { reward, success: reward / 1.4, tokens: 1_000.0 * reward, agents: 1.5, review: 0.25, ..before },
        curve: Vec::new(),
        stamp: None,
        evaluations: Vec::new(),
        families: [].into(),
    }
}

/// A run with a curve that rises to this reward and looks every ten steps, as noisy as real ones.
pub fn learned(study: &str, regime: &str, arm: &str, seed: u64, reward: f64) -> StudyRow {
    let mut random = Random::new(seed_of(&[study, regime, arm, &seed.to_string()]));
    let offset = 0.02 * (Random::new(seed).next_u64() as f64 / u64::MAX as f64 - 0.5);
    let mut noise = || offset + 0.02 * (random.next_u64() as f64 / u64::MAX as f64 - 0.5);
    let mut run = StudyRow { study: study.to_owned(), regime: regime.to_owned(), ..row(arm, seed, reward + noise()) };
    run.steps = if arm.starts_with("plain") { 120 } else { 100 };
    run.credit_tokens = if arm.starts_with("plain") { 0 } else { 2_500_000 };
    run.rollout_tokens = 20_000_000 - run.credit_tokens + seed * 1_000;
    let total = run.rollout_tokens + run.credit_tokens;
    run.curve = (0..=run.steps / 10)
        .map(|look| {
            let share = look as f64 / (run.steps / 10) as f64;
            let rise = 1.0 - (-3.5 * share).exp();
            let reward = if share < 1.0 { 0.9 + (run.after.reward - 0.9) * rise + noise() } else { run.after.reward };
            EvalPoint {
                step: 10 * look,
                worker_tokens: total * look / (run.steps / 10),
                means: Means { reward, ..run.before },
            }
        })
        .collect();
    if !arm.starts_with("plain") {
        // A table of choices has no roles of its own.
        let families = Family::ALL.into_iter().filter(|family| *family != Family::Role).take(7);
        run.families = families.zip(1..).map(|(family, at)| (family, report(at, noise()))).collect();
    }
    run
}

fn report(at: u64, noise: f64) -> FamilyReport {
    let cheap = at > 4;
    FamilyReport {
        free: if cheap { 4_000 + 300 * at } else { 200 * at },
        purchased: if cheap { 20 } else { 700 / at },
        declined: 90 * at,
        capped: 10,
        tokens: if cheap { 1_200 } else { 900_000 / at },
        worth: (at != 6).then_some(if cheap { 30.0 * at as f64 } else { 0.2 * at as f64 } + noise),
        mean: Some(0.02 + noise),
        absolute: Some(0.2),
        variance: Some(if cheap { 0.05 } else { 0.3 } + noise),
        zeros: Some(if cheap { 0.8 } else { 0.3 } + noise),
    }
}

/// A whole study of every kind.
pub fn studies() -> Vec<StudyRow> {
    let mut rows = Vec::new();
    let table = [
        ("full", 1.194),
        ("plain-shared", 1.183),
        ("plain", 1.168),
        ("global", 1.111),
        ("preference", 1.163),
        ("no-agent", 1.188),
        ("no-stop", 1.190),
        ("no-common", 1.150),
        ("simplify", 1.181),
    ];
    for seed in 0..12 {
        rows.extend(table.iter().map(|(arm, reward)| learned("table", "", arm, seed, *reward)));
        for (noise, gain) in [("0.1", 0.03), ("0.2", 0.012), ("0.5", 0.0)] {
            for (team, more) in [("2", -0.02), ("10", 0.01)] {
                let regime = format!("noise={noise} team={team}");
                let arms = [("full", 1.1 + gain + more), ("plain-shared", 1.1), ("plain", 1.09)];
                rows.extend(arms.iter().map(|(arm, reward)| learned("map", &regime, arm, seed, *reward)));
            }
        }
        for (at, difficulty) in [(0.0, "easy"), (1.0, "middle"), (2.0, "hard")] {
            let regime = format!("difficulty={difficulty}");
            let arms =
                [("never", 0.0, 0.0), ("always", 1.0, 0.03), ("random", 0.5, 0.01), ("trained", 0.45 * at, 0.05)];
            for (arm, review, gain) in arms {
                let mut run = learned("stop", &regime, arm, seed, 1.2 - 0.3 * at + gain);
                run.after.review = review;
                run.after.tokens = 500.0 + 300.0 * at + 400.0 * review;
                rows.push(run);
            }
        }
    }
    // A seed that only one arm has.
    rows.push(learned("table", "", "full", 99, 1.2));
    rows
}
