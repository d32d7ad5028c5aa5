//! A published problem with holes for its numbers.

use crate::problem::{Problem, ProblemStep};
use crate::situation::{StepRule, calculate, written};
use lemon_num::Random;

/// Most steps a template may have.
pub(super) const MOST_STEPS: usize = 5;

/// A text with holes for its numbers, and the calculation over them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    name: String,
    pieces: Vec<Piece>,
    slots: Vec<Slot>,
    rules: Vec<StepRule>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Piece {
    Text(String),
    /// The number of a slot, in words where it was.
    Number {
        slot: usize,
        in_words: bool,
    },
}

/// A number of the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Slot {
    pub value: i64,
    /// It stays as it is.
    pub fixed: bool,
}

impl Template {
    /// `None` unless the calculation comes out with the numbers as they were, and gives the answer.
    pub(super) fn new(pieces: Vec<Piece>, slots: Vec<Slot>, rules: Vec<StepRule>, answer: i64) -> Option<Self> {
        let template = Template { name: String::new(), pieces, slots, rules };
        let steps = template.steps(&template.values())?;
        let fits = steps.len() <= MOST_STEPS && steps.last()?.result == answer;
        fits.then_some(template)
    }

    pub(super) fn named(self, name: String) -> Self {
        Template { name, ..self }
    }

    /// Templates of one name look alike.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How many steps its solution has.
    pub(crate) fn steps_needed(&self) -> usize {
        self.rules.len()
    }

    /// A problem with other numbers of similar size, or with the same where no others were found that come out.
    pub fn problem(&self, random: &mut Random) -> Option<Problem> {
        let renumbered = (0..200).find_map(|_| {
            let draw = |slot: &Slot| if slot.fixed { slot.value } else { similar(slot.value, random) };
            let values: Vec<i64> = self.slots.iter().map(draw).collect();
            self.steps(&values).map(|steps| (values, steps))
        });
        let (values, steps) = match renumbered {
            Some(renumbered) => renumbered,
            None => (self.values(), self.steps(&self.values())?),
        };
        Problem::new(self.text(&values), steps, self.name.clone())
    }

    fn values(&self) -> Vec<i64> {
        self.slots.iter().map(|slot| slot.value).collect()
    }

    fn steps(&self, values: &[i64]) -> Option<Vec<ProblemStep>> {
        calculate(&self.rules, &|name| values.get(index(name)?).copied())
    }

    fn text(&self, values: &[i64]) -> String {
        let piece = |piece: &Piece| match piece {
            Piece::Text(text) => text.clone(),
            Piece::Number { slot, in_words } => {
                values.get(*slot).map_or(String::new(), |value| written(*value, *in_words))
            }
        };
        self.pieces.iter().map(piece).collect()
    }
}

/// The name of a slot in rules.
pub(super) fn slot_name(slot: usize) -> Option<char> {
    (b'a'..=b'z').nth(slot).map(char::from)
}

fn index(name: char) -> Option<usize> {
    (name as usize).checked_sub('a' as usize)
}

/// Another number of the same size, as round as it was.
fn similar(value: i64, random: &mut Random) -> i64 {
    let unit = [100, 10, 5].into_iter().find(|unit| value % unit == 0 && value >= unit * 3).unwrap_or(1);
    match value {
        ..=1 => value,
        2..=3 => random.within(2, 6),
        4..=9 => random.within(2, 12),
        _ => random.within((value / 2 / unit).max(2), value * 2 / unit) * unit,
    }
}
