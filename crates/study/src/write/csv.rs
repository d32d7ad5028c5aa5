//! The runs for a spreadsheet: a header and one line a run, without their curves.

use crate::regime::{arm_order, order};
use crate::row::StudyRow;
use lemon_eval::report::quoted;
use lemon_train::metrics::Means;

const RUN: [&str; 7] = ["study", "regime", "arm", "seed", "steps", "rollout_tokens", "credit_tokens"];
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
        ];
        csv.push_str(&[run.join(","), means(&row.before), means(&row.after)].join(","));
        csv.push('\n');
    }
    csv
}

fn means(means: &Means) -> String {
    let Means { runs, reward, success, tokens, cost, valid, agents, rounds, review } = means;
    let numbers = [reward, success, tokens, cost, valid, agents, rounds, review];
    // Six places are more than any study can tell apart; what is not finite is empty.
    let rounded = numbers.map(|x| (x * 1e6).round() / 1e6);
    let numbers = rounded.map(|x| if x.is_finite() { x.to_string() } else { String::new() });
    format!("{runs},{}", numbers.join(","))
}
