//! Figures of a study: picks what a comparison has for each, and `lemon-view` draws it.

#[cfg(test)]
mod tests;

use super::compare::{ArmDifference, ArmSummary, Comparison, Difference, Estimate, FamilySummary, SIGNIFICANT};
use super::regime::{arm_order, axes, value_order};
use lemon_view::study::{self, ArmBars, CurveLine, FamilyBar, ForestRow, Grid, MeanInterval, PairedMean, StopGroup};
use std::collections::BTreeSet;

pub use lemon_view::study::map;

/// The mean curves of these arms. Arms without one are named in the note.
pub fn curves(comparison: &Comparison, arms: &[&str]) -> String {
    let summary = |arm: &&&str| comparison.arm(arm).filter(|arm| !arm.curve.is_empty());
    let missing: Vec<&str> = arms.iter().filter(|arm| summary(arm).is_none()).copied().collect();
    let line = |arm: &ArmSummary| CurveLine {
        arm: arm.arm.clone(),
        seeds: arm.seeds,
        points: arm.curve.iter().map(|point| (point.worker_tokens, mean(point.reward))).collect(),
    };
    let lines: Vec<CurveLine> = arms.iter().filter_map(|arm| summary(&arm)).map(line).collect();
    study::curves(&origin(comparison), &lines, &missing)
}

/// The arms against this reference, the best first.
pub fn forest(comparison: &Comparison, reference: &str) -> String {
    let row = |arm_difference: &ArmDifference| ForestRow {
        arm: arm_difference.arm.clone(),
        pairs: arm_difference.pairs,
        reward: paired(&arm_difference.reward),
    };
    let against = comparison.against(reference);
    let rows: Vec<ForestRow> = against.into_iter().flat_map(|against| &against.arms).map(row).collect();
    study::forest(&origin(comparison), reference, &rows, SIGNIFICANT)
}

/// The families whose counterfactuals an arm ran.
pub fn economy(comparison: &Comparison, arm: &str) -> String {
    let bar = |(family, summary): (&lemon_spec::edit::Family, &FamilySummary)| FamilyBar {
        family: family.as_str(),
        measured: summary.free.saturating_add(summary.purchased),
        variance: summary.variance.mean,
        zeros: summary.zeros.mean,
        worth: summary.worth.mean,
        tokens: summary.tokens.mean,
    };
    let summary = comparison.arm(arm);
    let families: Vec<FamilyBar> = summary.into_iter().flat_map(|arm| &arm.families).map(bar).collect();
    study::economy(&origin(comparison), arm, summary.map_or(0, |arm| arm.seeds), &families)
}

/// The arms of a study of stopping; each comparison is a difficulty.
pub fn stops(comparisons: &[&Comparison]) -> String {
    let mut arms: Vec<&str> =
        comparisons.iter().flat_map(|comparison| &comparison.arms).map(|arm| arm.arm.as_str()).collect();
    arms.sort_by(|left, right| arm_order(left, right));
    arms.dedup();
    let bars = |arm: &ArmSummary| ArmBars {
        arm: arm.arm.clone(),
        seeds: arm.seeds,
        review: mean(arm.review),
        reward: mean(arm.reward),
        success: mean(arm.success),
        tokens: mean(arm.tokens),
    };
    let group = |comparison: &&Comparison| StopGroup {
        name: difficulty(comparison),
        arms: comparison.arms.iter().map(bars).collect(),
    };
    study::stops(&comparisons.iter().map(group).collect::<Vec<_>>(), &arms)
}

/// The value of a regime with one axis, or all of it.
fn difficulty(comparison: &Comparison) -> String {
    match (axes(&comparison.regime).as_slice(), comparison.regime.as_str()) {
        (_, "") => "all".to_owned(),
        ([(_, value)], _) => (*value).to_owned(),
        (_, regime) => regime.to_owned(),
    }
}

/// A row for each regime and a column for each arm.
pub fn grid_of_arms(comparisons: &[&Comparison], reference: &str) -> Grid {
    let mut columns: Vec<String> = Vec::new();
    let against = comparisons.iter().filter_map(|comparison| comparison.against(reference));
    for arm_difference in against.flat_map(|against| &against.arms) {
        if !columns.contains(&arm_difference.arm) {
            columns.push(arm_difference.arm.clone());
        }
    }
    columns.sort_by(|left, right| arm_order(left, right));
    let row = |comparison: &&Comparison| columns.iter().map(|arm| reward(comparison, reference, arm)).collect();
    let name = |comparison: &&Comparison| match comparison.regime.as_str() {
        "" => "(no regime)".to_owned(),
        regime => regime.to_owned(),
    };
    Grid {
        title: format!("Reward after training, against {reference}, by regime"),
        rows: comparisons.iter().map(name).collect(),
        cells: comparisons.iter().map(row).collect(),
        columns,
    }
}

/// One arm over two axes of regimes: the first down, the second across. Regimes without both are left out; where several
/// fall together, the first stands for them.
pub fn grid_of_axes(comparisons: &[&Comparison], reference: &str, arm: &str, down: &str, across: &str) -> Grid {
    let values = |axis: &str| {
        let all = comparisons.iter().filter_map(|comparison| value(&comparison.regime, axis));
        let mut values: Vec<&str> = all.collect::<BTreeSet<_>>().into_iter().collect();
        values.sort_by(|left, right| value_order(left, right));
        values
    };
    let (rows, columns) = (values(down), values(across));
    let cell = |row: &str, column: &str| {
        let is_here = |comparison: &&&Comparison| {
            let regime = &comparison.regime;
            value(regime, down) == Some(row) && value(regime, across) == Some(column)
        };
        comparisons.iter().find(is_here).and_then(|comparison| reward(comparison, reference, arm))
    };
    let name = |axis: &str, values: &[&str]| values.iter().map(|value| format!("{axis}={value}")).collect();
    Grid {
        title: format!("Reward of {arm} after training, against {reference}"),
        cells: rows.iter().map(|row| columns.iter().map(|column| cell(row, column)).collect()).collect(),
        rows: name(down, &rows),
        columns: name(across, &columns),
    }
}

fn value<'a>(regime: &'a str, axis: &str) -> Option<&'a str> {
    axes(regime).into_iter().find(|(name, _)| *name == axis).map(|(_, value)| value)
}

fn reward(comparison: &Comparison, reference: &str, arm: &str) -> Option<PairedMean> {
    let arm_difference = comparison.against(reference)?.arms.iter().find(|arm_difference| arm_difference.arm == arm)?;
    arm_difference.reward.estimate.mean.map(|_| paired(&arm_difference.reward))
}

/// Where a comparison comes from: `table`, or `map: noise=0.2`.
fn origin(comparison: &Comparison) -> String {
    match (comparison.study.as_str(), comparison.regime.as_str()) {
        (study, "") => format!("Study {study}"),
        (study, regime) => format!("Study {study}, {regime}"),
    }
}

fn mean(estimate: Estimate) -> MeanInterval {
    MeanInterval { mean: estimate.mean, interval: estimate.interval }
}

fn paired(difference: &Difference) -> PairedMean {
    let is_significant = difference.is_significant();
    PairedMean { estimate: mean(difference.estimate), p: difference.holm, is_significant }
}
