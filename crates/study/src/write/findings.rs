//! What a table says, in sentences that claim no more than it shows.

use crate::compare::{ArmDifference, Difference, SIGNIFICANT, least_p};
use lemon_eval::report::words::{list, p_value};
use lemon_num::stats::holm;
use lemon_view::markup::markdown;

/// The findings about all arms against one reference.
pub fn findings(reference: &str, arm_differences: &[ArmDifference]) -> Vec<String> {
    let mut findings: Vec<String> = [
        ("Reward", "above", "below", (|arm_difference| arm_difference.reward) as fn(&ArmDifference) -> Difference),
        ("Success", "above", "below", |arm_difference| arm_difference.success),
        ("Tokens of a run", "more than", "fewer than", |arm_difference| arm_difference.tokens),
    ]
    .into_iter()
    .map(|(measure, more, less, value)| sentence(measure, more, less, reference, arm_differences, value))
    .collect();
    findings.extend(too_few(arm_differences));
    findings
}

/// Which arms differ, and which do not as far as can be told.
fn sentence(
    measure: &str,
    more: &str,
    less: &str,
    reference: &str,
    arm_differences: &[ArmDifference],
    value: fn(&ArmDifference) -> Difference,
) -> String {
    let names = |sign: Option<bool>| {
        let which = arm_differences.iter().filter(|arm_difference| {
            let difference = value(arm_difference);
            let is_up = difference.estimate.mean.is_some_and(|mean| mean > 0.0);
            difference.is_significant().then_some(is_up) == sign
        });
        list(&which.map(|arm_difference| markdown(&arm_difference.arm)).collect::<Vec<_>>())
    };
    let reference = markdown(reference);
    let parts = [
        (names(Some(true)), format!("{more} {reference}")),
        (names(Some(false)), format!("{less} {reference}")),
        (names(None), "not significantly different".to_owned()),
    ];
    let said: Vec<String> = parts
        .into_iter()
        .filter(|(names, _)| !names.is_empty())
        .map(|(names, what)| format!("{what}: {names}"))
        .collect();
    format!("{measure}, at Holm p < {SIGNIFICANT}: {}.", said.join("; "))
}

/// Whether there are too few pairs for any difference to be significant.
fn too_few(arm_differences: &[ArmDifference]) -> Option<String> {
    let pairs = arm_differences.iter().map(|arm_difference| arm_difference.pairs).min()?;
    let least = (least_p(pairs) * arm_differences.len() as f64).min(1.0);
    (least >= SIGNIFICANT).then(|| {
        format!(
            "With {pairs} pairs and {} compared, the smallest Holm p that an arm could get alone is {}: *not significant* says \
             little here.",
            if arm_differences.len() == 1 { "1 arm".to_owned() } else { format!("{} arms", arm_differences.len()) },
            p_value(least)
        )
    })
}

/// The p of rewards, corrected for all of these comparisons together. `None` where there is no p.
pub fn corrected_over_regimes(arm_differences: &[(&str, &ArmDifference)]) -> Vec<Option<f64>> {
    let p: Vec<f64> = arm_differences.iter().filter_map(|(_, arm_difference)| arm_difference.reward.p).collect();
    let mut corrected = holm(&p).into_iter();
    arm_differences.iter().map(|(_, arm_difference)| arm_difference.reward.p.and_then(|_| corrected.next())).collect()
}

/// In how many regimes each arm differs, by the p that is corrected for all of them.
pub fn findings_over_regimes(
    reference: &str,
    arm_differences: &[(&str, &ArmDifference)],
    map_p: &[Option<f64>],
) -> Vec<String> {
    // Above, below, and neither, by arm, in the order of their first regimes.
    let mut arms: Vec<(&str, [usize; 3])> = Vec::new();
    for ((_, arm_difference), p) in arm_differences.iter().zip(map_p) {
        let outcome = match (p.is_some_and(|p| p < SIGNIFICANT), arm_difference.reward.estimate.mean) {
            (true, Some(mean)) if mean > 0.0 => 0,
            (true, Some(_)) => 1,
            _ => 2,
        };
        if arms.iter().all(|(arm, _)| *arm != arm_difference.arm) {
            arms.push((&arm_difference.arm, [0; 3]));
        }
        arms.iter_mut().filter(|(arm, _)| *arm == arm_difference.arm).for_each(|(_, counts)| counts[outcome] += 1);
    }
    let reference = markdown(reference);
    let say = |(arm, [above, below, neither]): (&str, [usize; 3])| {
        format!(
            "{} against {reference}, at map p < {SIGNIFICANT}: above in {above}, below in {below}, not significantly different in \
             {neither} of {} regimes.",
            markdown(arm),
            above + below + neither
        )
    };
    arms.into_iter().map(say).collect()
}
