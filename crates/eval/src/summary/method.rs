//! One method at a time.

use super::runs::{Runs, as_share, clusters, rows};
use super::{MethodReport, TokenMeans, band};
use crate::{Row, Training};
use lemon_num::seed_of;
use lemon_num::stats::{self, RunCluster};
use lemon_trace::StopReason;
use std::collections::BTreeMap;

/// The methods on one set, or on all, which has no name.
pub fn reports(methods: &[(&str, Runs)], set: &str, training: &[Training]) -> Vec<MethodReport> {
    let mut reports: Vec<MethodReport> =
        methods.iter().map(|(method, runs)| report(method, runs, set, training)).collect();
    mark_front(&mut reports);
    reports
}

fn report(method: &str, runs: &Runs, set: &str, training: &[Training]) -> MethodReport {
    let rows = rows(runs);
    let seed = |of: &str| seed_of(&[method, set, of]);
    let right = clusters(runs, |row| as_share(row.right));
    let legacy_right = clusters(runs, |row| as_share(row.legacy_right));
    let tokens = clusters(runs, |row| row.tokens.total as f64);
    let rewards = rows.iter().all(|row| row.reward.is_some());
    let rewards = rewards.then(|| clusters(runs, |row| row.reward.unwrap_or_default()));
    let learned: Vec<&Training> = training.iter().filter(|training| training.method == method).collect();
    let (interval, interval_kind) = accuracy_interval(&right, seed("accuracy"));
    MethodReport {
        method: method.to_owned(),
        runs: rows.len(),
        accuracy: stats::mean(&right),
        interval,
        interval_kind: interval_kind.to_owned(),
        legacy_accuracy: stats::mean(&legacy_right),
        legacy_interval: accuracy_interval(&legacy_right, seed("legacy accuracy")).0,
        reward: rewards.as_deref().map(stats::mean),
        reward_interval: rewards.as_deref().map(|rewards| stats::mean_interval(rewards, None, seed("reward"))),
        tokens: stats::mean(&tokens),
        tokens_interval: stats::mean_interval(&tokens, None, seed("tokens")),
        tokens_by: TokenMeans {
            orchestrator: mean(&rows, |row| row.tokens.orchestrator as f64),
            workers: mean(&rows, |row| row.tokens.workers as f64),
            retried: mean(&rows, |row| row.tokens.retried as f64),
            failed: mean(&rows, |row| row.tokens.failed as f64),
        },
        training_tokens: (!learned.is_empty())
            .then(|| learned.iter().fold(0, |sum, training| training.all_tokens().saturating_add(sum))),
        usd: rows.iter().map(|row| row.usd).sum::<Option<f64>>().map(|usd| usd / rows.len() as f64),
        seconds: seconds(&rows),
        calls: mean(&rows, |row| row.calls as f64),
        agents: mean(&rows, |row| row.agents.len() as f64),
        on_front: false,
        ends: ends(&rows),
        bands: band::reports(&rows),
    }
}

/// The interval of a share, and how it came about.
fn accuracy_interval(right: &[RunCluster], seed: u64) -> ([f64; 2], &'static str) {
    if right.iter().all(|item| item.runs == 1) {
        let count = right.iter().filter(|item| item.sum > 0.0).count();
        return (stats::wilson(count as u64, right.len() as u64), "wilson");
    }
    (stats::mean_interval(right, Some([0.0, 1.0]), seed), "clustered bootstrap")
}

/// There are no reports of no rows.
fn mean(rows: &[&Row], quantity: impl Fn(&Row) -> f64) -> f64 {
    rows.iter().map(|row| quantity(row)).sum::<f64>() / rows.len() as f64
}

fn seconds(rows: &[&Row]) -> [f64; 3] {
    let mut sorted: Vec<f64> = rows.iter().map(|row| row.wall_s).collect();
    sorted.sort_by(f64::total_cmp);
    [mean(rows, |row| row.wall_s), nearest_rank(&sorted, 50), nearest_rank(&sorted, 95)]
}

/// The smallest value that at least so many percent do not exceed.
fn nearest_rank(sorted: &[f64], percent: usize) -> f64 {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or_default()
}

fn ends(rows: &[&Row]) -> BTreeMap<String, usize> {
    let mut ends = BTreeMap::new();
    for row in rows {
        *ends.entry(row.stop_reason.map_or("unfinished", StopReason::as_str).to_owned()).or_default() += 1;
    }
    ends
}

fn mark_front(reports: &mut [MethodReport]) {
    let points: Vec<(f64, f64)> = reports.iter().map(|report| (report.tokens, report.accuracy)).collect();
    for report in reports {
        let beaten = |(tokens, accuracy): &(f64, f64)| {
            *accuracy >= report.accuracy && *tokens < report.tokens
                || *accuracy > report.accuracy && *tokens <= report.tokens
        };
        report.on_front = !points.iter().any(beaten);
    }
}
