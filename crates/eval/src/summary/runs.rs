//! Rows by method, item and seed, so that nothing depends on the order they were written in.

use crate::Row;
use lemon_num::stats::RunCluster;
use std::collections::BTreeMap;

/// The runs of a method: by what counts as one draw, then by position and seed.
pub type Runs<'a> = BTreeMap<PairedUnit<'a>, BTreeMap<(usize, u64), &'a Row>>;

/// What makes two rows rows of the same draw: an item, or a cluster of items that look alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PairedUnit<'a> {
    pub set: &'a str,
    pub position: Option<usize>,
    pub id: Option<&'a str>,
}

impl<'a> PairedUnit<'a> {
    /// Within one evaluation, an item is its place, since ids may be missing or stand twice; with others like it, its cluster.
    pub fn by_position(row: &'a Row) -> (PairedUnit<'a>, usize) {
        (PairedUnit { set: &row.set, position: Some(row.cluster.unwrap_or(row.item)), id: None }, row.item)
    }
}

/// The runs of each method. A run that was made twice counts once: the one with the greater id. `item` says what draw a row
/// belongs to, and where in it.
pub fn by_method<'a>(
    rows: impl IntoIterator<Item = &'a Row>,
    item: impl Fn(&'a Row) -> (PairedUnit<'a>, usize),
) -> BTreeMap<&'a str, Runs<'a>> {
    let mut methods: BTreeMap<&str, Runs> = BTreeMap::new();
    for row in rows {
        let (item, place) = item(row);
        let runs = methods.entry(&row.method).or_default().entry(item).or_default();
        let kept = runs.entry((place, row.seed)).or_insert(row);
        if row.run_id > kept.run_id {
            *kept = row;
        }
    }
    methods
}

/// All runs, in a fixed order.
pub fn rows<'a>(runs: &Runs<'a>) -> Vec<&'a Row> {
    runs.values().flat_map(BTreeMap::values).copied().collect()
}

/// A quantity of the runs, by draw.
pub fn clusters(runs: &Runs, quantity: impl Fn(&Row) -> f64) -> Vec<RunCluster> {
    runs.values().map(|seeds| seeds.values().map(|row| quantity(row)).collect()).collect()
}

/// 1 if it holds, else 0: its mean is a share.
pub fn as_share(holds: bool) -> f64 {
    f64::from(u8::from(holds))
}
