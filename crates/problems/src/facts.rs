//! Small worlds of several facts, of which a question needs few: a table, two kinds of things, a list of prices.

mod kinds;
mod prices;
mod table;

use crate::problem::{Draft, Op, ProblemStep};
use lemon_num::Random;

/// A problem, or `None` where the numbers do not fit: then try again.
pub(crate) fn draft(random: &mut Random) -> Option<Draft> {
    match random.weighted(&[40, 35, 25]) {
        0 => table::draft(random),
        1 => kinds::draft(random),
        _ => prices::draft(random),
    }
}

/// The steps that add numbers up; none for a single one.
fn sum(numbers: &[i64]) -> Option<Vec<ProblemStep>> {
    let (first, rest) = numbers.split_first()?;
    let mut steps: Vec<ProblemStep> = Vec::new();
    for number in rest {
        let so_far = steps.last().map_or(*first, |step| step.result);
        steps.push(ProblemStep::new(so_far, Op::Add, *number)?);
    }
    Some(steps)
}
