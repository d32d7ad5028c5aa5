//! Rows and figures of a test, and their tables.

use crate::evaluate::CriticEvaluation;
use crate::team::TeamCounts;
use lemon_num::Random;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Resamples of an interval.
const RESAMPLES: usize = 1_000;
/// Bins of the calibration error.
const BINS: usize = 10;

/// A method at a price.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CurveRow {
    /// The method.
    pub method: String,
    /// The price of 1,000 tokens, where the method has one.
    pub price: Option<f64>,
    /// Mean accuracy over sets.
    pub accuracy: f64,
    /// Its 95 % interval: tasks resampled within sets, and seeds.
    pub interval: [f64; 2],
    /// Mean weighted tokens over sets.
    pub tokens: f64,
    /// Mean rounds of calls.
    pub rounds: f64,
    /// Accuracy and tokens of each set.
    pub by_set: Vec<(f64, f64)>,
    /// Mutual information between the question and the first team, in bits.
    pub information: Option<f64>,
    /// Expected calibration error of the probability that the answer is right.
    pub calibration: Option<f64>,
}

/// A critic at a price beside a fixed method, task by task.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PairedRow {
    /// The fixed method.
    pub method: String,
    /// The price of 1,000 tokens that the critic acted under.
    pub price: f64,
    /// Accuracy of the critic less that of the method.
    pub accuracy: f64,
    /// Its 95 % interval.
    pub interval: [f64; 2],
    /// The paired permutation test over tasks, each averaged over seeds.
    pub p_accuracy: f64,
    /// Tokens of the critic over those of the method, less 1.
    pub tokens: f64,
    /// The same test of tokens.
    pub p_tokens: f64,
}

/// How far the interval of an accuracy may reach below that of another method before the two no longer count as equal.
const MARGIN: f64 = 0.02;
/// What counts as significant.
const SIGNIFICANT: f64 = 0.01;

impl PairedRow {
    /// Which of two claims the row supports: so much more accurate for no more tokens, or so much cheaper and as accurate.
    pub fn claim(&self) -> Option<&'static str> {
        let better = self.accuracy >= 0.02 && self.p_accuracy < SIGNIFICANT && self.tokens <= 0.0;
        let cheaper = self.tokens <= -0.4 && self.p_tokens < SIGNIFICANT && self.interval[0] > -MARGIN;
        match (better, cheaper) {
            (true, _) => Some("more accurate"),
            (false, true) => Some("cheaper"),
            (false, false) => None,
        }
    }
}

impl CriticEvaluation {
    /// The tables of the test, in Markdown.
    pub fn markdown(&self) -> String {
        let mut text = String::new();
        let sets = self.sets().iter().zip(self.tasks()).map(|(set, tasks)| format!("{set} ({tasks})"));
        let sets: Vec<String> = sets.collect();
        // Writing to a string never fails.
        let _ = writeln!(text, "| method | price | accuracy % | tokens | rounds | bits | ECE | {} |", sets.join(" | "));
        let _ = writeln!(text, "|---|---|---|---|---|---|---|{}", "---|".repeat(sets.len()));
        for row in self.curve() {
            let some = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), |value| format!("{value:.2}"));
            let by_set = row.by_set.iter().map(|(right, tokens)| format!("{:.1} @ {tokens:.0}", 100.0 * right));
            let _ = writeln!(
                text,
                "| {} | {} | {:.1} [{:.1}, {:.1}] | {:.0} | {:.2} | {} | {} | {} |",
                row.method,
                some(row.price),
                100.0 * row.accuracy,
                100.0 * row.interval[0],
                100.0 * row.interval[1],
                row.tokens,
                row.rounds,
                some(row.information),
                some(row.calibration),
                by_set.collect::<Vec<_>>().join(" | "),
            );
        }
        let (matched, best) = self.paired();
        for (title, rows) in [
            (
                "The critic beside each fixed method, at the price whose tokens come closest without exceeding the method's:",
                matched,
            ),
            (
                "The critic at every price beside the most accurate fixed method, and beside stopping on agreement:",
                best,
            ),
        ] {
            let _ = writeln!(
                text,
                "\n{title}\n\n| method | price | accuracy, points | p | tokens | p | claim |\n|---|---|---|---|---|---|---|"
            );
            for row in rows {
                let _ = writeln!(
                    text,
                    "| {} | {:.2} | {:+.1} [{:+.1}, {:+.1}] | {:.4} | {:+.0} % | {:.4} | {} |",
                    row.method,
                    row.price,
                    100.0 * row.accuracy,
                    100.0 * row.interval[0],
                    100.0 * row.interval[1],
                    row.p_accuracy,
                    100.0 * row.tokens,
                    row.p_tokens,
                    row.claim().unwrap_or("–"),
                );
            }
        }
        let (seeds, tasks) = (self.seeds(), self.tasks().iter().sum::<usize>());
        let _ = writeln!(
            text,
            "\n{tasks} tasks, {seeds} seeds. p: paired permutation test over tasks, each averaged over seeds; intervals \
             (95 %) resample tasks within sets, and seeds. Claims, at p < {SIGNIFICANT}: *more accurate*, at least 2 points \
             more for no more tokens; *cheaper*, at least 40 % fewer tokens, and the interval of the accuracy stays above \
             −{:.0} points.",
            100.0 * MARGIN
        );
        text
    }
}

/// The 95 % interval of a mean over sets: seeds are drawn anew, and tasks within each set.
pub(crate) fn interval(by_seed: &[Vec<f64>], set_of: &[usize], sets: usize) -> [f64; 2] {
    let members: Vec<Vec<usize>> =
        (0..sets).map(|set| (0..set_of.len()).filter(|task| set_of[*task] == set).collect()).collect();
    let mut random = Random::new(1);
    let mut means: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            let seeds: Vec<&Vec<f64>> = (0..by_seed.len()).filter_map(|_| random.pick(by_seed)).collect();
            let mut mean = 0.0;
            for tasks in &members {
                let mut sum = 0.0;
                for _ in tasks {
                    let task = random.pick(tasks).copied().unwrap_or_default();
                    sum += seeds.iter().filter_map(|seed| seed.get(task)).sum::<f64>();
                }
                mean += sum / (tasks.len() * seeds.len() * sets).max(1) as f64;
            }
            mean
        })
        .collect();
    means.sort_by(f64::total_cmp);
    let at = |share: f64| means.get((share * (means.len().saturating_sub(1)) as f64).round() as usize).copied();
    [at(0.025).unwrap_or_default(), at(0.975).unwrap_or_default()]
}

/// The mutual information between task and decision, in bits: the entropy of decisions over all tasks, less the mean
/// entropy of the decisions that different seeds make on one task. A policy that decides alike everywhere has 0.
pub(crate) fn mutual_information(by_seed: &[Vec<TeamCounts>]) -> f64 {
    let entropy = |decisions: &mut dyn Iterator<Item = TeamCounts>| {
        let mut counts: BTreeMap<TeamCounts, f64> = BTreeMap::new();
        decisions.for_each(|decision| *counts.entry(decision).or_default() += 1.0);
        let all: f64 = counts.values().sum();
        counts.values().map(|count| -(count / all) * (count / all).log2()).sum::<f64>()
    };
    let tasks = by_seed.iter().map(Vec::len).min().unwrap_or_default();
    let of_task = |task: usize| entropy(&mut by_seed.iter().filter_map(|seed| seed.get(task).copied()));
    let within = lemon_num::mean_of((0..tasks).map(of_task)).unwrap_or_default();
    (entropy(&mut by_seed.iter().flatten().copied()) - within).max(0.0)
}

/// The expected calibration error: how far apart predicted and observed shares are, over ten bins of equal width.
pub(crate) fn calibration_error(predictions: impl Iterator<Item = (f64, bool)>) -> f64 {
    let mut bins = [(0.0, 0.0, 0.0); BINS];
    for (expected, right) in predictions {
        let at = ((expected * BINS as f64) as usize).min(BINS - 1);
        let (sum, hits, count) = &mut bins[at];
        *sum += expected;
        *hits += f64::from(u8::from(right));
        *count += 1.0;
    }
    let all: f64 = bins.iter().map(|(_, _, count)| count).sum();
    bins.iter().map(|(sum, hits, _)| (sum - hits).abs() / all.max(1.0)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn information_is_zero_for_one_decision_and_one_bit_for_two() {
        let (a, b) = (TeamCounts([0, 1, 0]), TeamCounts([0, 0, 1]));
        assert_eq!(mutual_information(&[vec![a; 8], vec![a; 8]]), 0.0);
        assert!((mutual_information(&[vec![a, b, a, b], vec![a, b, a, b]]) - 1.0).abs() < 1e-12);
        assert!(mutual_information(&[vec![a, b, a, b], vec![b, a, b, a]]) < 1e-12, "seeds, not tasks, decide here");
    }

    #[test]
    fn a_claim_needs_a_difference_and_its_significance() {
        let row = |accuracy: f64, low: f64, p_accuracy: f64, tokens: f64| PairedRow {
            method: "m".into(),
            price: 0.1,
            accuracy,
            interval: [low, 2.0 * accuracy - low],
            p_accuracy,
            tokens,
            p_tokens: 0.0001,
        };
        assert_eq!(row(0.025, 0.01, 0.001, -0.1).claim(), Some("more accurate"));
        assert_eq!(row(0.025, 0.01, 0.02, -0.1).claim(), None);
        assert_eq!(row(0.025, 0.01, 0.001, 0.01).claim(), None);
        assert_eq!(row(0.0, -0.015, 0.9, -0.5).claim(), Some("cheaper"));
        assert_eq!(row(0.0, -0.025, 0.9, -0.5).claim(), None);
        assert_eq!(row(0.0, -0.015, 0.9, -0.3).claim(), None);
    }

    #[test]
    fn calibration_sees_overconfidence() {
        let honest = (0..100).map(|at| (0.75, at % 4 != 0));
        assert!(calibration_error(honest) < 1e-12);
        let boastful = (0..100).map(|at| (0.95, at % 2 == 0));
        assert!((calibration_error(boastful) - 0.45).abs() < 1e-9);
    }

    #[test]
    fn intervals_hold_the_mean_and_shrink() {
        let seeds = |count: usize| vec![(0..count).map(|at| (at % 2) as f64).collect::<Vec<f64>>(); 3];
        let width = |count: usize| {
            let sets: Vec<usize> = (0..count).map(|at| at % 2).map(|_| 0).collect();
            let [low, high] = interval(&seeds(count), &sets, 1);
            assert!(low <= 0.5 && high >= 0.5);
            high - low
        };
        assert!(width(40) > 2.0 * width(640));
    }
}
