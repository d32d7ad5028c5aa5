//! The runs for a spreadsheet: a header and one line a run, without their curves.

use crate::regime::{arm_order, order};
use crate::row::{Stamp, StudyRow};
use lemon_eval::report::quoted;
use lemon_train::metrics::Means;

const RUN: [&str; 14] = [
    "study",
    "regime",
    "arm",
    "seed",
    "steps",
    "rollout_tokens",
    "credit_tokens",
    "policy_tokens",
    "commit",
    "device",
    "recipe",
    "learning_rate",
    "seconds",
    "sampled_reward",
];
const MEANS: [&str; 9] = ["runs", "reward", "success", "tokens", "cost", "valid", "agents", "rounds", "review"];

/// All rows, sorted, so that the order in which runs ended does not show.
pub fn csv(rows: &[StudyRow]) -> String {
    let mut rows: Vec<&StudyRow> = rows.iter().collect();
    rows.sort_by(|left, right| {
        let study = left.study.cmp(&right.study);
        let arm = || arm_order(&left.arm, &right.arm);
        study.then_with(|| order(&left.regime, &right.regime)).then_with(arm).then(left.seed.cmp(&right.seed))
    });
    let of = |when: &str| MEANS.map(|name| format!("{when}_{name}")).join(",");
    let mut csv = format!("{},{},{}\n", RUN.join(","), of("before"), of("after"));
    for row in rows {
        let run = [
            quoted(&row.study),
            quoted(&row.regime),
            quoted(&row.arm),
            row.seed.to_string(),
            row.steps.to_string(),
            row.rollout_tokens.to_string(),
            row.credit_tokens.to_string(),
            stamped(row, |stamp| stamp.policy_tokens.to_string()),
            stamped(row, |stamp| quoted(&stamp.commit)),
            stamped(row, |stamp| quoted(&stamp.device)),
            stamped(row, |stamp| stamp.recipe.clone()),
            stamped(row, |stamp| stamp.learning_rate.to_string()),
            stamped(row, |stamp| format!("{:.1}", stamp.seconds)),
            row.evaluations.get(1).map_or_else(String::new, |it| rounded(it.means.reward)),
        ];
        csv.push_str(&[run.join(","), means(&row.before), means(&row.after)].join(","));
        csv.push('\n');
    }
    csv
}

fn means(means: &Means) -> String {
    let Means { runs, reward, success, tokens, cost, valid, agents, rounds, review } = means;
    let numbers = [reward, success, tokens, cost, valid, agents, rounds, review];
    format!("{runs},{}", numbers.map(|x| rounded(*x)).join(","))
}

/// Six places are more than any study can tell apart; what is not finite is empty.
fn rounded(x: f64) -> String {
    let rounded = (x * 1e6).round() / 1e6;
    if rounded.is_finite() { rounded.to_string() } else { String::new() }
}

/// A part of the stamp; empty in rows without one.
fn stamped(row: &StudyRow, part: fn(&Stamp) -> String) -> String {
    row.stamp.as_ref().map(part).unwrap_or_default()
}
