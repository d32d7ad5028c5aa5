//! What the rows come to: accuracy with intervals, tokens, paired tests, metrics by trace length.

mod band;
mod method;
mod pair;
pub(crate) mod runs;

use crate::{Evaluation, Row, SetUp};
use runs::PairedUnit;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// What an evaluation came to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// How it was set up.
    pub set_up: crate::SetUp,
    /// What is missing, where something is: then only what every method ran is compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partial: Option<Partial>,
    /// The methods, in the order asked for, over all sets.
    pub methods: Vec<MethodReport>,
    /// The same for each set alone; empty where there is only one.
    pub sets: Vec<SetResults>,
    /// Every pair of methods with runs in common, over all sets.
    pub pairs: Vec<PairReport>,
}

/// An evaluation that is not complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Partial {
    /// Runs there are.
    pub runs: usize,
    /// Runs there would be.
    pub of: usize,
    /// Runs of each method that are compared: those on items and seeds that every method has. 0: there are none, and each
    /// method is told by what it has.
    pub compared: usize,
}

impl Report {
    /// What the rows come to. They may be in any order, and some may be missing: methods without a run are left out, and
    /// the others are compared on what all of them ran.
    pub fn new(evaluation: &Evaluation) -> Report {
        let (set_up, training) = (&evaluation.set_up, &evaluation.training);
        let (partial, rows) = comparable(evaluation);
        let runs = runs::by_method(rows.iter().copied(), PairedUnit::by_position);
        let methods = in_order(&set_up.methods, runs);

        let mut by_set: BTreeMap<&str, Vec<&Row>> = BTreeMap::new();
        for row in rows {
            by_set.entry(&row.set).or_default().push(row);
        }
        let sets = if by_set.len() > 1 { in_order(&set_up.sets, by_set) } else { Vec::new() };
        let set_report = |(set, rows): (&str, Vec<&Row>)| {
            let methods = in_order(&set_up.methods, runs::by_method(rows, PairedUnit::by_position));
            SetResults { set: set.to_owned(), methods: method::reports(&methods, set, training) }
        };
        Report {
            set_up: set_up.clone(),
            partial,
            methods: method::reports(&methods, "", training),
            sets: sets.into_iter().map(set_report).collect(),
            pairs: pair::reports(&methods),
        }
    }
}

/// What is missing, and the rows that are compared: all of them, or those on items and seeds that every method has.
fn comparable(evaluation: &Evaluation) -> (Option<Partial>, Vec<&Row>) {
    let SetUp { methods, seeds, items, .. } = &evaluation.set_up;
    let of = methods.len().saturating_mul(seeds.len()).saturating_mul(*items);
    let mut methods_by_place: BTreeMap<(&str, usize, u64), BTreeSet<&str>> = BTreeMap::new();
    for row in &evaluation.rows {
        methods_by_place.entry((&row.set, row.item, row.seed)).or_default().insert(&row.method);
    }
    let runs: usize = methods_by_place.values().map(BTreeSet::len).sum();
    let all = || evaluation.rows.iter().collect();
    if runs >= of {
        return (None, all());
    }
    let present = evaluation.rows.iter().map(|row| &row.method).collect::<BTreeSet<_>>().len();
    methods_by_place.retain(|_, methods| methods.len() == present);
    let compared = methods_by_place.len();
    let shared = |row: &&Row| methods_by_place.contains_key(&(&*row.set, row.item, row.seed));
    let rows = if compared == 0 { all() } else { evaluation.rows.iter().filter(shared).collect() };
    (Some(Partial { runs, of, compared }), rows)
}

/// What was found under each name: first the names asked for, in that order, then any others.
fn in_order<'a, T>(asked_for: &[String], mut found: BTreeMap<&'a str, T>) -> Vec<(&'a str, T)> {
    let mut named: Vec<(&str, T)> = asked_for.iter().filter_map(|name| found.remove_entry(name.as_str())).collect();
    named.extend(found);
    named
}

/// The methods on one set.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SetResults {
    /// The set and split.
    pub set: String,
    /// The methods.
    pub methods: Vec<MethodReport>,
}

/// What a method came to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MethodReport {
    /// Its name.
    pub method: String,
    /// Runs.
    pub runs: usize,
    /// The share of right answers.
    pub accuracy: f64,
    /// Its 95 % interval.
    pub interval: [f64; 2],
    /// How the interval came about: `wilson` (one run an item) or `clustered bootstrap` (several seeds, or clusters of items).
    pub interval_kind: String,
    /// The share by the rule of the public repositories.
    pub legacy_accuracy: f64,
    /// Its interval.
    pub legacy_interval: [f64; 2],
    /// The mean reward; absent where runs on record have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reward: Option<f64>,
    /// The 95 % interval of that mean: bootstrap, clustered by item.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reward_interval: Option<[f64; 2]>,
    /// Mean tokens a run.
    pub tokens: f64,
    /// The 95 % interval of that mean: bootstrap, clustered by item.
    pub tokens_interval: [f64; 2],
    /// Mean tokens a run, by what they went into.
    pub tokens_by: TokenMeans,
    /// Tokens spent on learning before the first run, in all: those of a model that proposes teams too.
    pub training_tokens: Option<u64>,
    /// Mean cost of a run; absent where a run has none.
    pub usd: Option<f64>,
    /// Seconds a run: mean, median, 95th percentile.
    pub seconds: [f64; 3],
    /// Mean calls a run.
    pub calls: f64,
    /// Mean agents a run.
    pub agents: f64,
    /// No other method is as accurate for fewer tokens, or more accurate for as many.
    pub on_front: bool,
    /// How the runs ended: stop reasons, and `unfinished` where no end is on record.
    pub ends: BTreeMap<String, usize>,
    /// How the agents worked together, by trace length; only bands with runs, and only runs with a trace.
    pub bands: Vec<BandReport>,
}

/// Mean tokens a run, by what they went into.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct TokenMeans {
    /// Writing specifications.
    pub orchestrator: f64,
    /// Agents.
    pub workers: f64,
    /// Of all: attempts that were tried again.
    pub retried: f64,
    /// Of all: what failed for good.
    pub failed: f64,
}

/// The four groups of metrics over the runs of one band of trace lengths. A metric is the mean over the runs where it can
/// be measured, absent where there is none.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct BandReport {
    /// Events: `1–10`, `11–20`, `21–40`, `41–80`, `81+`.
    pub events: String,
    /// Runs.
    pub runs: usize,
    /// Task success.
    pub success: f64,
    /// Parallelism efficiency: T_serial / T_parallel.
    pub parallel_speedup: Option<f64>,
    /// Parallelism efficiency: the share of agents with a part in the answer.
    pub useful_agents: Option<f64>,
    /// Collaboration quality: how much of the messages had been said before.
    pub message_redundancy: Option<f64>,
    /// Collaboration quality: how much likelier an agent errs for having read an error. Pooled over the runs' agents
    /// rather than averaged, because single runs rarely have both groups.
    pub error_amplification: Option<f64>,
    /// Protocol overhead: coordination tokens over all tokens.
    pub protocol_overhead: Option<f64>,
}

/// Two methods on the same items.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PairReport {
    /// One.
    pub a: String,
    /// The other.
    pub b: String,
    /// (item, seed) pairs both ran.
    pub runs: usize,
    /// Accuracy of `a` less that of `b`, on those.
    pub difference: f64,
    /// Its 95 % interval: bootstrap, clustered by item.
    pub interval: [f64; 2],
    /// Both right.
    pub both: usize,
    /// Only `a` right.
    pub only_a: usize,
    /// Only `b` right.
    pub only_b: usize,
    /// Both wrong.
    pub neither: usize,
    /// McNemar's exact test, two-sided. Absent with several seeds or clusters: runs of one item, or of those like it, are not
    /// independent.
    pub mcnemar_p: Option<f64>,
    /// Permutation test on the items' differences, or the clusters', two-sided.
    pub permutation_p: f64,
    /// The permutation test's p after Holm's correction over all pairs.
    pub holm_p: f64,
    /// Mean tokens of `a` less those of `b`, on the same.
    pub token_difference: f64,
    /// Its 95 % interval.
    pub token_interval: [f64; 2],
}
