//! The tables of a study as Markdown. Results of `write!` are dropped: writing to a `String` cannot fail.

use super::findings::{corrected_over_regimes, findings, findings_over_regimes};
use super::{FEW_REGIMES, FIXED_TEAM, Figures, ONE_AGENT, STOP, credited, map_references};
use crate::compare::{ArmDifference, ArmSummary, Comparison, Difference, Estimate, FamilySummary, TokenRatio};
use lemon_eval::report::words::{NONE, few, number, p_value, percent, plural, points, signed, token_difference};
use lemon_view::markup::markdown;
use std::fmt::Write;

const NOTES: &str = "\
- The unit is the run: *n* counts seeds. Intervals in brackets are 95 % intervals of a mean over seeds, by Student's t.
- Arms with the same regime and seed saw the same tasks in the same order. Differences are paired by seed; seeds that only one
  of both arms has are left out, and their number is given.
- Runs end at the same budget of worker tokens, rollouts and counterfactuals together: differences are at equal worker tokens.
  *At equal steps* compares the last step at which all runs of both arms were evaluated.
- *p*: two-sided, by flipping the signs of the paired differences: all assignments up to 16 pairs, 9,999 random ones beyond.
  *Holm p*: corrected for all arms of that table, each measure for itself. **Bold**: Holm p < 0.05. Anything else is not
  significant and is no finding, whatever its size.
- *Tokens to reach*: worker tokens until the reference's final reward less 0.01 on the mean curve, over what the reference needs
  itself. Its interval redraws seeds; it is rough, and not corrected for anything.
";

/// Everything in one document.
pub fn tables(comparisons: &[Comparison], figures: &Figures, rows: usize, command: &str) -> String {
    let mut out = "# Tables of the study\n\nGenerated; edits are lost. The command that makes it:\n\n".to_owned();
    // Indented, which no text can end.
    for line in command.lines() {
        // Writing to a string cannot fail, here and below.
        let _ = writeln!(out, "    {line}");
    }
    if comparisons.is_empty() {
        out.push_str("\nThere are no runs: nothing was compared.\n");
        return out;
    }
    let used: usize = comparisons.iter().flat_map(|comparison| &comparison.arms).map(|arm| arm.seeds).sum();
    let _ = write!(out, "\n{} in [rows.csv](rows.csv).", plural(rows, "run"));
    if used < rows {
        let _ = write!(out, " {} the last of each counts.", stand_twice(rows - used));
    }
    let _ = write!(out, "\n\n{NOTES}");
    for regimes in comparisons.chunk_by(|left, right| left.study == right.study) {
        write_study(&mut out, regimes, figures);
    }
    out
}

fn stand_twice(repeated: usize) -> String {
    if repeated == 1 { "1 stands there twice:".to_owned() } else { format!("{repeated} stand there more than once:") }
}

fn write_study(out: &mut String, regimes: &[Comparison], figures: &Figures) {
    let Some(study) = regimes.first().map(|comparison| comparison.study.as_str()) else { return };
    let _ = write!(out, "\n## Study {}\n", markdown(study));
    write_figures(out, figures, study, None);
    if regimes.len() > 1 {
        write_over_regimes(out, regimes);
    }
    for comparison in regimes {
        if !comparison.regime.is_empty() || regimes.len() > 1 {
            let regime = if comparison.regime.is_empty() { "(no regime)" } else { &comparison.regime };
            let _ = write!(out, "\n### {}\n", markdown(regime));
        }
        write_figures(out, figures, study, Some(&comparison.regime));
        write_arms(out, comparison);
        // The comparisons of many regimes are in the one table above.
        if regimes.len() <= FEW_REGIMES || study == STOP {
            comparison.against.iter().for_each(|against| write_against(out, &against.reference, &against.arms));
        }
        if let Some(arm) = credited(comparison).and_then(|arm| comparison.arm(arm)) {
            write_families(out, arm);
        }
    }
}

fn write_figures(out: &mut String, figures: &Figures, study: &str, regime: Option<&str>) {
    for figure in figures.of(study, regime) {
        let _ = write!(out, "\n![{}]({})\n", markdown(&figure.about), figure.file);
    }
}

/// All regimes of a study against each reference, with a correction for all of them.
fn write_over_regimes(out: &mut String, regimes: &[Comparison]) {
    let regimes: Vec<&Comparison> = regimes.iter().collect();
    for reference in map_references(&regimes) {
        let arm_differences: Vec<(&str, &ArmDifference)> = regimes
            .iter()
            .filter_map(|comparison| Some((comparison.regime.as_str(), comparison.against(reference)?)))
            .flat_map(|(regime, against)| against.arms.iter().map(move |arm_difference| (regime, arm_difference)))
            .collect();
        let map_p = corrected_over_regimes(&arm_differences);
        let _ = write!(
            out,
            "\nReward against **{}** in all regimes. *Map p* is Holm's over all {} rows of this table:\n\n\
             | regime | arm | pairs | reward | p | Holm p | map p | tokens to reach |\n|---|---|---|---|---|---|---|---|\n",
            markdown(reference),
            arm_differences.len()
        );
        for ((regime, arm_difference), map_p) in arm_differences.iter().zip(&map_p) {
            let _ = writeln!(
                out,
                "| {} | {} | {} | {} | {} | {} | {} | {} |",
                markdown(regime),
                markdown(&arm_difference.arm),
                pairs(arm_difference),
                difference(&arm_difference.reward, |x| signed(x, 3)),
                p(arm_difference.reward.p),
                p(arm_difference.reward.holm),
                p(*map_p),
                ratio(arm_difference.token_ratio.as_ref()),
            );
        }
        for finding in findings_over_regimes(reference, &arm_differences, &map_p) {
            let _ = write!(out, "\n{finding}\n");
        }
    }
}

fn write_arms(out: &mut String, comparison: &Comparison) {
    out.push_str(
        "\n| arm | n | reward | sampled | regret | success, % | tokens a run | agents | review, % | steps | worker tokens | of them credit |\n\
         |---|---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    let fixed = [ONE_AGENT, FIXED_TEAM].into_iter().filter_map(|arm| comparison.arm(arm)?.reward.mean);
    let best = fixed.reduce(f64::max);
    for arm in &comparison.arms {
        let ArmSummary { reward, sampled, success, tokens, agents, review, steps, worker_tokens, credit_share, .. } =
            arm;
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            markdown(&arm.arm),
            arm.seeds,
            estimate(reward, |x| format!("{x:.3}")),
            estimate(sampled, |x| format!("{x:.3}")),
            best.zip(reward.mean).map_or_else(|| NONE.to_owned(), |(best, own)| signed(best - own, 3)),
            estimate(success, hundredths),
            estimate(tokens, number),
            estimate(agents, |x| format!("{x:.2}")),
            estimate(review, hundredths),
            steps.mean.map_or_else(|| NONE.to_owned(), few),
            worker_tokens.mean.map_or_else(|| NONE.to_owned(), number),
            credit_share.map_or_else(|| NONE.to_owned(), percent),
        );
    }
}

fn write_against(out: &mut String, reference: &str, arm_differences: &[ArmDifference]) {
    if arm_differences.is_empty() {
        let _ = write!(out, "\nThere is no other arm to compare with {}.\n", markdown(reference));
        return;
    }
    let _ = write!(out, "\nAgainst **{}**, paired by seed:\n\n", markdown(reference));
    out.push_str(
        "| arm | pairs | reward | over seeds and tasks | p | Holm p | success, points | Holm p | tokens a run | Holm p \
         | tokens to reach | reward at equal steps | Holm p |\n\
         |---|---|---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    for arm_difference in arm_differences {
        let steps = arm_difference.equal_steps.map_or_else(
            || NONE.to_owned(),
            |equal| format!("{} (step {})", difference(&equal.reward, |x| signed(x, 3)), equal.step),
        );
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {steps} | {} |",
            markdown(&arm_difference.arm),
            pairs(arm_difference),
            difference(&arm_difference.reward, |x| signed(x, 3)),
            arm_difference
                .bootstrap
                .map_or_else(|| NONE.to_owned(), |[low, high]| format!("[{}, {}]", signed(low, 3), signed(high, 3))),
            p(arm_difference.reward.p),
            p(arm_difference.reward.holm),
            difference(&arm_difference.success, points),
            p(arm_difference.success.holm),
            difference(&arm_difference.tokens, token_difference),
            p(arm_difference.tokens.holm),
            ratio(arm_difference.token_ratio.as_ref()),
            p(arm_difference.equal_steps.and_then(|equal| equal.reward.holm)),
        );
    }
    for finding in findings(reference, arm_differences) {
        let _ = write!(out, "\n{finding}\n");
    }
}

fn write_families(out: &mut String, arm: &ArmSummary) {
    let _ = write!(out, "\nWhat counterfactuals told and cost in **{}**:\n\n", markdown(&arm.arm));
    out.push_str(
        "| family | free | purchased | declined | capped | mean Δ | Var(Δ) | exact zeros, % | worth | worker tokens a run |\n\
         |---|---|---|---|---|---|---|---|---|---|\n",
    );
    for (family, summary) in &arm.families {
        let FamilySummary { free, purchased, declined, capped, tokens, worth, mean, variance, zeros } = summary;
        let count = |count: &u64| number(*count as f64);
        let _ = writeln!(
            out,
            "| {family} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            count(free),
            count(purchased),
            count(declined),
            count(capped),
            estimate(mean, |x| signed(x, 3)),
            estimate(variance, |x| format!("{x:.3}")),
            estimate(zeros, hundredths),
            estimate(worth, |x| format!("{x:.2}")),
            estimate(tokens, number),
        );
    }
}

/// A share in a column of percent.
fn hundredths(share: f64) -> String {
    few(100.0 * share)
}

fn pairs(arm_difference: &ArmDifference) -> String {
    match arm_difference.unpaired {
        0 => arm_difference.pairs.to_string(),
        unpaired => format!("{} ({unpaired} left out)", arm_difference.pairs),
    }
}

fn estimate(estimate: &Estimate, written: impl Fn(f64) -> String) -> String {
    match (estimate.mean, estimate.interval) {
        (None, _) => NONE.to_owned(),
        (Some(mean), None) => written(mean),
        (Some(mean), Some([low, high])) => format!("{} [{}, {}]", written(mean), written(low), written(high)),
    }
}

fn difference(difference: &Difference, written: impl Fn(f64) -> String) -> String {
    let text = estimate(&difference.estimate, written);
    if difference.is_significant() { format!("**{text}**") } else { text }
}

fn p(p: Option<f64>) -> String {
    p.map_or_else(|| NONE.to_owned(), p_value)
}

fn ratio(ratio: Option<&TokenRatio>) -> String {
    let Some(ratio) = ratio else { return NONE.to_owned() };
    let written = |ratio: Option<f64>| ratio.map_or_else(|| "never".to_owned(), |ratio| format!("{ratio:.2}×"));
    match ratio.interval {
        None => written(ratio.ratio),
        Some([low, high]) => format!("{} [{}, {}]", written(ratio.ratio), written(low), written(high)),
    }
}
