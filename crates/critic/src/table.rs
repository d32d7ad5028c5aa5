//! Every prefix of every task with what the critic would answer there: the rows that the worth of teams is learned from.

use crate::linear::LogisticModel;
use crate::prefix::{Known, Standpoint, TEXT_VIEWS, standpoint};
use crate::task::{RecordedTask, Served};
use crate::team::TeamCounts;
use crate::text::Group;

/// One prefix of a task.
#[derive(Debug, Clone)]
pub(crate) struct Cell {
    pub stand: Standpoint,
    /// Whether the answer there is right.
    pub right: bool,
    /// Whether several replies state an answer, all the same.
    pub agrees: bool,
    /// What the prefix cost.
    pub tokens: f64,
}

/// The prefixes of a task with one order of its replies, by position; `None`: not on record.
pub(crate) struct Table {
    pub available: [usize; 3],
    pub cells: Vec<Option<Cell>>,
    /// Whether confidences are hidden.
    pub hide_sure: bool,
}

impl Table {
    pub fn new(
        served: &Served<'_>,
        group: Group,
        model: Option<&LogisticModel>,
        views: &[f64; TEXT_VIEWS],
        numbers: &[f64],
    ) -> Self {
        let available = served.available();
        let known = Known { views, numbers, hide_sure: served.hide_sure };
        let fits = |counts: TeamCounts| counts.counts().iter().zip(available).all(|(count, most)| *count <= most);
        let cell = |counts: TeamCounts| fits(counts).then(|| Cell::new(served, counts, group, model, known));
        Table { available, cells: TeamCounts::all().map(cell).collect(), hide_sure: served.hide_sure }
    }

    pub fn get(&self, counts: TeamCounts) -> Option<&Cell> {
        self.cells.get(counts.position())?.as_ref()
    }
}

impl Cell {
    fn new(
        served: &Served<'_>,
        counts: TeamCounts,
        group: Group,
        model: Option<&LogisticModel>,
        known: Known<'_>,
    ) -> Self {
        let replies = served.prefix(counts);
        let seen: Vec<_> = replies.iter().map(|reply| &reply.seen).collect();
        let stand = standpoint(model, &seen, group != Group::Code, known);
        let answered = stand.support.first().copied().unwrap_or_default();
        // Where no reply states an answer, the first one is all there is.
        let right = replies.get(answered).is_some_and(|reply| reply.right);
        let stated = seen.iter().filter(|reply| reply.answer.is_some()).count();
        let agrees = stated > 1 && stand.support.len() == stated;
        Cell { stand, right, agrees, tokens: served.tokens(counts) }
    }
}

/// The orders of replies that a task is learned from: in every second one confidences are hidden.
pub(crate) fn draws(task: &RecordedTask, seed: u64, count: usize) -> impl Iterator<Item = Served<'_>> {
    (0..count).map(move |draw| task.serve(lemon_num::mixed_seed(seed, &["draw", &draw.to_string()]), draw % 2 == 1))
}
