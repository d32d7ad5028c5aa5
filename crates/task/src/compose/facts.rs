//! Questions of knowledge: tables of facts, turned into questions both ways, negated, and as pairs of statements.

mod computing;
mod humanities;
mod law;
mod life;
mod matter;
mod medicine;
mod reckoned;
mod scenes;
mod society;
mod world;

use super::tell;
use lemon_num::Random;
pub(super) use reckoned::STORIES;

/// Facts of one kind.
pub(super) struct Table {
    /// The MMLU subject they belong to.
    pub subject: &'static str,
    /// Questions that name the first of a pair, at `{}`, and ask for the second.
    pub asks: &'static [&'static str],
    /// Questions that name the second and ask for the first.
    pub backs: &'static [&'static str],
    /// A sentence that states a pair, with `{a}` and `{b}`; empty where none reads well.
    pub says: &'static str,
    /// The pairs.
    pub rows: &'static [(&'static str, &'static str)],
}

/// All tables.
pub(super) const TABLES: &[&[Table]] = &[
    computing::TABLES,
    humanities::TABLES,
    law::TABLES,
    life::TABLES,
    matter::TABLES,
    medicine::TABLES,
    society::TABLES,
    world::TABLES,
];

/// A question with four options.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Question {
    pub subject: &'static str,
    pub text: String,
    pub options: [String; 4],
    /// The position of the right one.
    pub answer: usize,
}

/// In so many of a hundred questions something is reckoned rather than known.
const RECKONED: usize = 15;
/// How much is said before a question.
const SCENES: [usize; 8] = [0, 0, 0, 1, 1, 1, 2, 3];

/// A question. `None` if what was drawn does not go together.
pub(super) fn question(random: &mut Random) -> Option<Question> {
    let question = if random.percent(RECKONED) { reckoned(random) } else { known(random) }?;
    let field = question.subject.replace('_', " ");
    let count = *random.pick(&SCENES)?;
    let mut text = String::new();
    for scene in random.some(scenes::SCENES, count) {
        text.push_str(&tell::Teller::new(random).fill(&scene.replace("(field)", &field))?);
        text.push(' ');
    }
    Some(Question { text: tell::sentences(&text) + if count > 0 { " " } else { "" } + &question.text, ..question })
}

/// A question of a table.
fn known(random: &mut Random) -> Option<Question> {
    let tables = TABLES.iter().map(|tables| tables.len()).sum();
    let at = random.below(tables);
    let table = TABLES.iter().flat_map(|tables| tables.iter()).nth(at)?;
    match random.below(20) {
        0..4 if !table.says.is_empty() => statement(table, random),
        4..6 if !table.says.is_empty() => two_statements(table, random),
        6..11 if !table.backs.is_empty() => named(table.subject, table.backs, &turned(table), random),
        _ if !table.asks.is_empty() => named(table.subject, table.asks, table.rows, random),
        _ => named(table.subject, table.backs, &turned(table), random),
    }
}

/// The pairs the other way round.
fn turned(table: &Table) -> Vec<(&'static str, &'static str)> {
    table.rows.iter().map(|(a, b)| (*b, *a)).collect()
}

/// Names the first of a pair and asks for the second, among the seconds of other pairs.
fn named(
    subject: &'static str,
    asks: &[&str],
    rows: &[(&'static str, &'static str)],
    random: &mut Random,
) -> Option<Question> {
    let ask = random.pick(asks)?;
    let (given, right) = *random.pick(rows)?;
    let fits = |option: &str| rows.iter().any(|(a, b)| *a == given && *b == option);
    let mut others: Vec<&str> = rows.iter().map(|(_, b)| *b).filter(|option| !fits(option)).collect();
    others.sort_unstable();
    others.dedup();
    arranged(subject, ask.replace("{}", given), right, &random.some(&others, 3), random)
}

/// Asks which of four statements is true, or which is false.
fn statement(table: &Table, random: &mut Random) -> Option<Question> {
    let asks_for_true = random.percent(55);
    let rows = random.some(table.rows, 4);
    let said = |at: usize, truth: bool, random: &mut Random| {
        let (a, b) = *rows.get(at)?;
        if truth { Some(say(table, a, b)) } else { falsely(table, a, random) }
    };
    let right = said(0, asks_for_true, random)?;
    let mut others = Vec::new();
    for at in 1..4 {
        others.push(said(at, !asks_for_true, random)?);
    }
    let others: Vec<&str> = others.iter().map(String::as_str).collect();
    let asks: &[&str] = match asks_for_true {
        true => &[
            "Which of the following statements is true?",
            "Which of these is correct?",
            "Only one of these statements holds. Which one?",
        ],
        false => &[
            "Which of the following statements is false?",
            "All of the following are correct EXCEPT",
            "Which of these statements is not true?",
        ],
    };
    let ask = random.pick(asks)?;
    arranged(table.subject, (*ask).to_owned(), &right, &others, random)
}

/// Two statements, each true or false.
fn two_statements(table: &Table, random: &mut Random) -> Option<Question> {
    const OPTIONS: [&str; 4] = ["True, True", "False, False", "True, False", "False, True"];
    let rows = random.some(table.rows, 2);
    let mut truths = Vec::new();
    let mut text = String::new();
    for (number, (a, b)) in rows.iter().enumerate() {
        let truth = random.percent(50);
        let said = if truth { say(table, a, b) } else { falsely(table, a, random)? };
        text.push_str(&format!("{}Statement {} | {said}", if number == 0 { "" } else { " " }, number + 1));
        truths.push(if truth { "True" } else { "False" });
    }
    let right = truths.join(", ");
    let answer = OPTIONS.iter().position(|option| *option == right)?;
    Some(Question { subject: table.subject, text, options: OPTIONS.map(str::to_owned), answer })
}

fn say(table: &Table, a: &str, b: &str) -> String {
    tell::sentences(&table.says.replace("{a}", a).replace("{b}", b))
}

/// A false statement about `a`: with a second that belongs to others only.
fn falsely(table: &Table, a: &str, random: &mut Random) -> Option<String> {
    let fits = |option: &str| table.rows.iter().any(|(known, b)| *known == a && *b == option);
    let wrong: Vec<&str> = table.rows.iter().map(|(_, b)| *b).filter(|option| !fits(option)).collect();
    random.pick(&wrong).map(|b| say(table, a, b))
}

/// A question with something to reckon; near misses are the other options.
fn reckoned(random: &mut Random) -> Option<Question> {
    let (subject, story) = random.pick(STORIES)?;
    let told = tell::tell(story, random)?;
    let values = super::near_misses(told.answer, &told.given, 3, random);
    let written = |value: i64| super::with_unit(value, told.unit);
    let others: Vec<String> = values.into_iter().map(written).collect();
    let others: Vec<&str> = others.iter().map(String::as_str).collect();
    let text = format!("{} {}", told.body, told.ask);
    arranged(subject, text.trim().to_owned(), &written(told.answer), &others, random)
}

/// The right option at a position drawn for it.
fn arranged(
    subject: &'static str,
    text: String,
    right: &str,
    others: &[&str],
    random: &mut Random,
) -> Option<Question> {
    let [one, two, three] = *others else { return None };
    let answer = random.below(4);
    let mut options = [one, two, three, right];
    options.swap(answer, 3);
    Some(Question { subject, text, options: options.map(str::to_owned), answer })
}
