//! A table told in sentences: rows are persons, or days of one person; columns are kinds of things.

use super::sum;
use crate::person::Person;
use crate::problem::{Draft, Op, ProblemStep};
use crate::situation::{WORDED, written};
use crate::story::theme::THEMES;
use lemon_num::Random;

/// Past tense and infinitive of what is done with the things.
const VERBS: [(&str, &str); 9] = [
    ("sold", "sell"),
    ("bought", "buy"),
    ("made", "make"),
    ("counted", "count"),
    ("packed", "pack"),
    ("carried", "carry"),
    ("brought", "bring"),
    ("found", "find"),
    ("saw", "see"),
];
const DAYS: [&str; 7] = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];
const QUALITIES: [[&str; 3]; 6] = [
    ["red", "blue", "green"],
    ["small", "large", "tiny"],
    ["old", "new", "broken"],
    ["round", "square", "flat"],
    ["white", "black", "yellow"],
    ["cheap", "plain", "fine"],
];

pub(super) fn draft(random: &mut Random) -> Option<Draft> {
    let table = Table::draw(random)?;
    let form = random.below(3);
    let facts = (0..table.cells.len()).map(|row| table.fact(row, form)).collect::<Option<_>>()?;
    let rows = [(); 2].map(|()| random.below(table.cells.len()));
    let columns = [(); 2].map(|()| random.below(table.columns));
    let ask = random.weighted(&[20, 25, 10, 10, 20, 15]);
    let (steps, question) = table.ask(ask, rows, columns)?;
    let situation =
        format!("table:{}:{}.{form}.{ask}.{rows:?}.{columns:?}.{}", table.by_day, table.cells.len(), table.verb.0);
    Some(Draft { facts, question, steps, situation })
}

struct Table {
    persons: [Person; 3],
    by_day: bool,
    first_day: usize,
    verb: (&'static str, &'static str),
    kinds: [String; 3],
    columns: usize,
    cells: Vec<Vec<i64>>,
    worded: bool,
}

impl Table {
    fn draw(random: &mut Random) -> Option<Self> {
        let (rows, columns) = (2 + random.below(2), 2 + usize::from(random.chance(0.3)));
        let high = *random.pick(&[12, 30, 60, 99, 250])?;
        Some(Table {
            persons: Person::draw(random),
            by_day: random.chance(0.4),
            first_day: random.below(5),
            verb: *random.pick(&VERBS)?,
            kinds: kinds(random)?,
            columns,
            cells: (0..rows).map(|_| (0..columns).map(|_| random.within(2, high)).collect()).collect(),
            worded: random.chance(WORDED),
        })
    }

    fn who(&self, row: usize) -> &'static str {
        self.persons[if self.by_day { 0 } else { row }].name
    }

    fn day(&self, row: usize) -> &'static str {
        DAYS[self.first_day + row]
    }

    fn fact(&self, row: usize, form: usize) -> Option<String> {
        let cells = self.cells.get(row)?.iter().zip(&self.kinds);
        let cells: Vec<String> = cells.map(|(cell, kind)| format!("{} {kind}", written(*cell, self.worded))).collect();
        let (last, others) = cells.split_last()?;
        let list = format!("{} and {last}", others.join(", "));
        let (who, verb) = (self.who(row), self.verb.0);
        Some(match (self.by_day, form) {
            (true, 0) => format!("On {} {who} {verb} {list}.", self.day(row)),
            (true, _) => format!("{who} {verb} {list} on {}.", self.day(row)),
            (false, 0) if row > 0 => format!("{who} {verb} {list}, too."),
            (false, _) => format!("{who} {verb} {list}."),
        })
    }

    /// A question about these rows and columns. `None` where it makes no sense.
    fn ask(&self, ask: usize, [r, q]: [usize; 2], [c, d]: [usize; 2]) -> Option<(Vec<ProblemStep>, String)> {
        let (who, verb) = (self.who(r), self.verb.1);
        let on_day = if self.by_day { format!(" on {}", self.day(r)) } else { String::new() };
        let than = if self.by_day {
            format!("on {} than on {}", self.day(r), self.day(q))
        } else {
            format!("than {}", self.who(q))
        };
        let (row, other_row) = (self.cells.get(r)?, self.cells.get(q)?);
        let (kind, other_kind) = (&self.kinds[c], &self.kinds[d]);
        match ask {
            0 => Some((sum(row)?, format!("How many things did {who} {verb}{on_day} in all?"))),
            1 => {
                let column: Vec<i64> = self.cells.iter().filter_map(|row| row.get(c).copied()).collect();
                let who = if self.by_day { who } else { "they" };
                Some((sum(&column)?, format!("How many {kind} did {who} {verb} in all?")))
            }
            2 | 3 if c != d => {
                let step = ProblemStep::new(*row.get(c)?, Op::Subtract, *row.get(d)?)?;
                let compared = if ask == 2 {
                    format!("more {kind} than {other_kind}")
                } else {
                    format!("fewer {other_kind} than {kind}")
                };
                Some((vec![step], format!("How many {compared} did {who} {verb}{on_day}?")))
            }
            4 if r != q => {
                let step = ProblemStep::new(*row.get(c)?, Op::Subtract, *other_row.get(c)?)?;
                Some((vec![step], format!("How many more {kind} did {who} {verb} {than}?")))
            }
            5 if r != q && self.columns == 2 => {
                let (mut steps, other) = (sum(row)?, sum(other_row)?);
                let last = ProblemStep::new(steps.last()?.result, Op::Subtract, other.last()?.result)?;
                steps.extend(other.into_iter().chain([last]));
                Some((steps, format!("Taking everything together, how many more things did {who} {verb} {than}?")))
            }
            _ => None,
        }
    }
}

/// Three kinds of things: of three themes, or of one theme in three qualities.
fn kinds(random: &mut Random) -> Option<[String; 3]> {
    let theme = random.below(THEMES.len());
    if random.chance(0.5) {
        let qualities = random.pick(&QUALITIES)?;
        return Some(qualities.map(|quality| format!("{quality} {}", THEMES[theme].many)));
    }
    let step = 1 + random.below(THEMES.len() / 3 - 1);
    Some([0, 1, 2].map(|index| THEMES[(theme + index * step) % THEMES.len()].many.to_owned()))
}
