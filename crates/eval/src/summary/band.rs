//! Metrics by the length of the trace.

use super::BandReport;
use super::runs::as_share;
use crate::Row;
use std::collections::HashMap;

/// The most events of a band, and its name.
const BANDS: [(u64, &str); 5] = [(10, "1–10"), (20, "11–20"), (40, "21–40"), (80, "41–80"), (u64::MAX, "81+")];

/// The bands that have runs. A run without a trace is in none.
pub fn reports(rows: &[&Row]) -> Vec<BandReport> {
    let mut least = 1;
    let mut reports = Vec::new();
    for (most, name) in BANDS {
        let within: Vec<&Row> =
            rows.iter().copied().filter(|row| (least..=most).contains(&row.metrics.events)).collect();
        if !within.is_empty() {
            reports.push(report(name, &within));
        }
        least = most.saturating_add(1);
    }
    reports
}

fn report(name: &str, rows: &[&Row]) -> BandReport {
    BandReport {
        events: name.to_owned(),
        runs: rows.len(),
        success: mean(rows, |row| Some(as_share(row.right))).unwrap_or_default(),
        parallel_speedup: mean(rows, |row| row.metrics.parallel_speedup),
        useful_agents: mean(rows, |row| row.metrics.useful_agents),
        message_redundancy: mean(rows, |row| row.metrics.message_redundancy),
        error_amplification: error_amplification(rows),
        protocol_overhead: mean(rows, |row| row.metrics.protocol_overhead),
    }
}

/// The mean over the runs where it can be measured.
fn mean(rows: &[&Row], metric: impl Fn(&Row) -> Option<f64>) -> Option<f64> {
    let values: Vec<f64> = rows.iter().filter_map(|row| metric(row)).collect();
    ratio(values.iter().sum(), values.len() as f64)
}

/// `P(wrong | some parent is wrong) / P(wrong | none is)`, over the graded agents all of whose parents are graded: the
/// definition of [`lemon_trace::Metrics::error_amplification`].
fn error_amplification(rows: &[&Row]) -> Option<f64> {
    // (wrong, all) of the agents that read nothing wrong, and of those that did.
    let mut groups = [(0.0, 0.0); 2];
    for row in rows {
        let grades: HashMap<&str, bool> =
            row.agents.iter().filter_map(|agent| Some((&*agent.id, agent.right?))).collect();
        for agent in &row.agents {
            let Some(right) = agent.right else { continue };
            let read: Option<Vec<bool>> = agent.after.iter().map(|parent| grades.get(&**parent).copied()).collect();
            let Some(read) = read else { continue };
            let (wrong, all) = &mut groups[usize::from(read.contains(&false))];
            *wrong += as_share(!right);
            *all += 1.0;
        }
    }
    let [(wrong_alone, alone), (wrong_misled, misled)] = groups;
    ratio(ratio(wrong_misled, misled)?, ratio(wrong_alone, alone)?)
}

/// `part / whole`, or nothing where there is no whole to measure by.
fn ratio(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| part / whole)
}
