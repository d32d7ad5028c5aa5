//! Two evaluations of the same methods: before and after a change, or with other workers.

use crate::summary::runs::{PairedUnit, Runs, as_share, by_method};
use crate::{Evaluation, Row, SetUp};
use lemon_num::seed_of;
use lemon_num::stats::{self, RunCluster};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Items named one by one on each side of [`MethodComparison`].
const MOST_NAMED: usize = 20;

/// What changed from one evaluation, `a`, to another, `b`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EvalComparison {
    /// How the first was set up.
    pub a: SetUp,
    /// How the second was.
    pub b: SetUp,
    /// Differences of the set-up that may explain others, and methods that could not be compared.
    pub warnings: Vec<String>,
    /// Methods with items in common, by name.
    pub methods: Vec<MethodComparison>,
    /// Methods with runs in the first only, by name.
    pub methods_only_a: Vec<String>,
    /// Methods with runs in the second only, by name.
    pub methods_only_b: Vec<String>,
}

/// One method in both. What it compares is the mean of each item that both have, over the seeds that both have; where an
/// item has none in common, over all of each.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MethodComparison {
    pub method: String,
    /// Items in both.
    pub items: usize,
    /// Items in the first only.
    pub items_only_a: usize,
    /// Items in the second only.
    pub items_only_b: usize,
    /// Of the items in both, those without a seed in common. Their change contains the noise of both draws.
    pub unmatched_seeds: usize,
    /// Accuracy in the first and the second, on the items in both.
    pub accuracy: [f64; 2],
    /// Accuracy in the second less that in the first.
    pub change: f64,
    /// Its 95 % interval: bootstrap over items.
    pub interval: [f64; 2],
    /// Permutation test on the items' changes, two-sided.
    pub permutation_p: f64,
    /// The same after Holm's correction over the methods.
    pub holm_p: f64,
    /// Mean tokens a run in the first and the second.
    pub tokens: [f64; 2],
    /// Tokens in the second less those in the first.
    pub token_change: f64,
    /// Its 95 % interval.
    pub token_interval: [f64; 2],
    /// Items right in the second and not in the first. With several seeds, right is what more than half of the runs are.
    pub gained: Flips,
    /// Items right in the first and not in the second.
    pub lost: Flips,
}

/// Items that went one way.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Flips {
    /// How many.
    pub items: usize,
    /// The first of them.
    pub first: Vec<FlippedItem>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlippedItem {
    /// The set and split.
    pub set: String,
    /// The position in its set, in the first evaluation.
    pub item: usize,
    pub item_id: String,
}

/// What changed from `a` to `b`. Items are the same if set and id are; an id that stands at several positions of a set
/// is told apart by them.
pub fn compare(a: &Evaluation, b: &Evaluation) -> EvalComparison {
    let repeated: BTreeSet<(&str, &str)> = repeated_ids(&a.rows).chain(repeated_ids(&b.rows)).collect();
    let item = |row| (by_id(row, &repeated), 0);
    let (runs_a, runs_b) = (by_method(&a.rows, item), by_method(&b.rows, item));
    let only_in = |these: &BTreeMap<&str, Runs>, those: &BTreeMap<&str, Runs>| {
        these.keys().filter(|method| !those.contains_key(*method)).map(|method| (*method).to_owned()).collect()
    };
    let mut comparison = EvalComparison {
        a: a.set_up.clone(),
        b: b.set_up.clone(),
        warnings: set_up_warnings(&a.set_up, &b.set_up),
        methods: Vec::new(),
        methods_only_a: only_in(&runs_a, &runs_b),
        methods_only_b: only_in(&runs_b, &runs_a),
    };
    for (method, in_a) in &runs_a {
        let Some(in_b) = runs_b.get(method) else { continue };
        match compare_method(method, in_a, in_b) {
            Some(compared) => comparison.methods.push(compared),
            None => comparison.warnings.push(format!("no items in common: {method}")),
        }
    }
    let raw: Vec<f64> = comparison.methods.iter().map(|method| method.permutation_p).collect();
    for (method, adjusted) in comparison.methods.iter_mut().zip(stats::holm(&raw)) {
        method.holm_p = adjusted;
    }
    comparison
}

/// Sets and ids that stand at more than one position.
fn repeated_ids(rows: &[Row]) -> impl Iterator<Item = (&str, &str)> {
    let mut positions: BTreeMap<(&str, &str), BTreeSet<usize>> = BTreeMap::new();
    for row in rows {
        positions.entry((&row.set, &row.item_id)).or_default().insert(row.item);
    }
    positions.into_iter().filter(|(_, positions)| positions.len() > 1).map(|(id, _)| id)
}

fn by_id<'a>(row: &'a Row, repeated: &BTreeSet<(&str, &str)>) -> PairedUnit<'a> {
    let position = repeated.contains(&(&*row.set, &*row.item_id)).then_some(row.item);
    PairedUnit { set: &row.set, position, id: Some(&row.item_id) }
}

/// An item in both evaluations: the runs to compare.
struct Matched<'a> {
    runs: [Vec<&'a Row>; 2],
    same_seeds: bool,
}

impl<'a> Matched<'a> {
    fn new(a: &BTreeMap<(usize, u64), &'a Row>, b: &BTreeMap<(usize, u64), &'a Row>) -> Matched<'a> {
        let pick = |these: &BTreeMap<(usize, u64), &'a Row>, those: &BTreeMap<(usize, u64), &'a Row>| -> Vec<&'a Row> {
            these.iter().filter(|(seed, _)| those.contains_key(seed)).map(|(_, row)| *row).collect()
        };
        let paired = [pick(a, b), pick(b, a)];
        let all = || [a, b].map(|seeds| seeds.values().copied().collect());
        let same_seeds = paired.iter().all(|rows| !rows.is_empty());
        Matched { runs: if same_seeds { paired } else { all() }, same_seeds }
    }

    /// The means in both. An item has a run at least.
    fn means(&self, quantity: impl Fn(&Row) -> f64) -> [f64; 2] {
        self.runs.each_ref().map(|rows| rows.iter().map(|row| quantity(row)).sum::<f64>() / rows.len() as f64)
    }
}

/// Without the adjusted p, which the other methods have a part in.
fn compare_method(method: &str, a: &Runs, b: &Runs) -> Option<MethodComparison> {
    let matched = a.iter().filter_map(|(item, in_a)| Some(Matched::new(in_a, b.get(item)?)));
    let items: Vec<Matched> = matched.collect();
    if items.is_empty() {
        return None;
    }
    let right: Vec<[f64; 2]> = items.iter().map(|item| item.means(|row| as_share(row.right))).collect();
    let tokens: Vec<[f64; 2]> = items.iter().map(|item| item.means(|row| row.tokens.total as f64)).collect();
    let (changes, token_changes) = (changes(&right), changes(&tokens));
    let seed = |of: &str| seed_of(&[method, of]);
    let flips = |flipped: fn([bool; 2]) -> bool| {
        let is_right = right.iter().map(|means| means.map(|mean| mean > 0.5));
        Flips::new(items.iter().zip(is_right).filter(|(_, right)| flipped(*right)).map(|(item, _)| item))
    };
    Some(MethodComparison {
        method: method.to_owned(),
        items: items.len(),
        items_only_a: a.len() - items.len(),
        items_only_b: b.len() - items.len(),
        unmatched_seeds: items.iter().filter(|item| !item.same_seeds).count(),
        accuracy: means(&right),
        change: stats::mean(&changes),
        interval: stats::difference_interval(&changes, Some([-1.0, 1.0]), seed("accuracy")),
        permutation_p: stats::permutation(
            &changes.iter().map(|change| change.sum).collect::<Vec<_>>(),
            seed("permutation"),
        ),
        holm_p: 1.0,
        tokens: means(&tokens),
        token_change: stats::mean(&token_changes),
        token_interval: stats::difference_interval(&token_changes, None, seed("tokens")),
        gained: flips(|[a, b]| b && !a),
        lost: flips(|[a, b]| a && !b),
    })
}

fn changes(items: &[[f64; 2]]) -> Vec<RunCluster> {
    items.iter().map(|[a, b]| RunCluster { sum: b - a, runs: 1 }).collect()
}

fn means(items: &[[f64; 2]]) -> [f64; 2] {
    let mean = |side: usize| items.iter().map(|item| item[side]).sum::<f64>() / items.len() as f64;
    [mean(0), mean(1)]
}

impl Flips {
    fn new<'a>(flipped: impl Iterator<Item = &'a Matched<'a>>) -> Flips {
        let mut rows: Vec<&Row> = flipped.filter_map(|item| item.runs[0].first().copied()).collect();
        // By place: as text, item 10 would come before item 2.
        rows.sort_by_key(|row| (&row.set, row.item));
        let name =
            |row: &&Row| FlippedItem { set: row.set.to_string(), item: row.item, item_id: row.item_id.to_string() };
        Flips { items: rows.len(), first: rows.iter().take(MOST_NAMED).map(name).collect() }
    }
}

fn set_up_warnings(a: &SetUp, b: &SetUp) -> Vec<String> {
    let mut warnings = Vec::new();
    let mut differ = |what: &str, a: String, b: String| {
        if a != b {
            warnings.push(format!("{what} differ: {a}; {b}"));
        }
    };
    let capacity = |set_up: &SetUp| set_up.capacity.clone().unwrap_or_else(|| "mixed".to_owned());
    differ("workers", a.workers.clone(), b.workers.clone());
    differ("capacities", capacity(a), capacity(b));
    differ("sets", listed(&a.sets), listed(&b.sets));
    differ("seeds", listed(&a.seeds), listed(&b.seeds));
    warnings
}

/// The entries once each, sorted.
fn listed<T: Ord + ToString>(entries: &[T]) -> String {
    let entries: BTreeSet<&T> = entries.iter().collect();
    entries.into_iter().map(T::to_string).collect::<Vec<_>>().join(", ")
}
