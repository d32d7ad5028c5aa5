//! Situations written by hand, and the problems they make.

use crate::expression::Condition;
use crate::parse::parse;
use crate::person::Person;
use crate::problem::{Draft, Op, ProblemStep};
use crate::template::render;
use crate::wording;
use flate2::read::ZlibDecoder;
use lemon_num::Random;
use std::io::Read;
use std::sync::LazyLock;

#[doc = include_str!("../FORMAT.md")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Situation {
    /// Its name, unique in its file.
    pub name: String,
    /// The numbers that are drawn.
    pub numbers: Vec<Number>,
    /// What has to hold of them.
    pub conditions: Vec<Condition>,
    /// The things that `{t}` may be.
    pub things: Vec<Thing>,
    /// The things that `{u}` may be.
    pub other_things: Vec<Thing>,
    /// The story, told completely by each of them.
    pub stories: Vec<String>,
    /// Sentences with a number that no question needs.
    pub extras: Vec<String>,
    /// What can be asked.
    pub questions: Vec<SituationQuestion>,
}

/// A number of a situation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Number {
    /// Its name in the templates.
    pub name: char,
    /// The least it can be.
    pub low: i64,
    /// The most it can be.
    pub high: i64,
    /// It is a multiple of this.
    pub multiple: i64,
}

/// A thing by its names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Thing {
    /// The plural.
    pub many: String,
    /// The singular.
    pub one: String,
}

/// A question in several wordings, and how it is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SituationQuestion {
    /// The wordings.
    pub texts: Vec<String>,
    /// The calculation.
    pub steps: Vec<StepRule>,
}

/// A step before its numbers are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepRule {
    /// The left operand.
    pub left: Operand,
    /// What is done.
    pub op: Op,
    /// The right operand.
    pub right: Operand,
}

/// What a rule computes with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operand {
    /// A number of the situation.
    Number(char),
    /// The result of an earlier step, from zero.
    Result(usize),
    /// What everybody knows: 7 days in a week.
    Constant(i64),
}

/// A file that ships with the crate, as the build script deflated it.
macro_rules! file {
    ($name:literal) => {
        (concat!($name, ".txt"), include_bytes!(concat!(env!("OUT_DIR"), "/", $name)))
    };
}

/// The files that ship with the crate.
const FILES: [(&str, &[u8]); 4] = [file!("market"), file!("nature"), file!("school"), file!("world")];

/// All situations that ship with the crate.
pub fn shipped() -> &'static [Situation] {
    static SHIPPED: LazyLock<Vec<Situation>> = LazyLock::new(|| {
        let files = FILES.iter().map(|(file, deflated)| {
            let mut text = String::new();
            ZlibDecoder::new(*deflated).read_to_string(&mut text).map_err(|error| format!("{file}: {error}"))?;
            parse(&text).map_err(|error| error.in_file(file).to_string())
        });
        // The texts are part of the program, and a test parses them.
        #[expect(clippy::panic, reason = "a file that ships is malformed")]
        files.flat_map(|file: Result<_, String>| file.unwrap_or_else(|error| panic!("{error}"))).collect()
    });
    &SHIPPED
}

/// Draws that are tried before numbers are given up on.
const TRIES: usize = 2_000;
/// The share of problems whose numbers come from other ranges than the author's.
const SCALED: f64 = 0.2;
/// The share of problems that write numbers in words.
pub(crate) const WORDED: f64 = 0.15;

impl Situation {
    /// A problem of this situation. `None` if no numbers that fit were drawn.
    pub(crate) fn draft(&self, random: &mut Random) -> Option<Draft> {
        let question = random.pick(&self.questions)?;
        self.draft_of(question, random)
    }

    pub(crate) fn draft_of(&self, question: &SituationQuestion, random: &mut Random) -> Option<Draft> {
        let Drawn { numbers, steps } = self.draw(question, random)?;
        let cast = Cast::draw(self, numbers, random);
        let mut facts = wording::sentences(&cast.tell(random.pick(&self.stories)?, random));
        // A question may bring facts of its own.
        facts.extend(wording::sentences(&cast.tell(random.pick(&question.texts)?, random)));
        let asked = facts.pop()?;
        if random.chance(0.5)
            && let Some(extra) = random.pick(&self.extras)
        {
            let extra = cast.tell(extra, random);
            insert(extra, &mut facts, &asked, random);
        }
        Some(Draft { facts, question: asked, steps, situation: self.name.clone() })
    }

    fn draw(&self, question: &SituationQuestion, random: &mut Random) -> Option<Drawn> {
        let scale = if random.chance(SCALED) { *random.pick(&[(1, 2), (2, 1), (3, 1), (5, 1)])? } else { (1, 1) };
        let scaled = (0..TRIES / 10).find_map(|_| self.try_draw(question, scale, random));
        scaled.or_else(|| (0..TRIES).find_map(|_| self.try_draw(question, (1, 1), random)))
    }

    /// Numbers from ranges that are `scale` times as wide, if they fit.
    fn try_draw(&self, question: &SituationQuestion, scale: (i64, i64), random: &mut Random) -> Option<Drawn> {
        let mut draw = |number: &Number| {
            // Spare numbers keep to what makes sense: no person is 180 years old.
            let (times, parts) = if uses(question, number.name) { scale } else { (1, 1) };
            let high = (number.high * times / parts).clamp(number.low, 999);
            let least = (number.low + number.multiple - 1) / number.multiple;
            random.within(least, high / number.multiple) * number.multiple
        };
        let numbers: Vec<(char, i64)> = self.numbers.iter().map(|number| (number.name, draw(number))).collect();
        let value = |name| numbers.iter().find(|(other, _)| *other == name).map(|(_, value)| *value);
        if !self.conditions.iter().all(|condition| condition.holds(&value)) {
            return None;
        }
        let steps = calculate(&question.steps, &value)?;
        Some(Drawn { numbers, steps })
    }
}

/// Numbers that fit, and what is computed with them.
struct Drawn {
    numbers: Vec<(char, i64)>,
    steps: Vec<ProblemStep>,
}

fn uses(question: &SituationQuestion, name: char) -> bool {
    question.steps.iter().any(|rule| [rule.left, rule.right].contains(&Operand::Number(name)))
}

/// The steps with numbers. `None` where one does not come out positive and even.
pub(crate) fn calculate(rules: &[StepRule], number: &impl Fn(char) -> Option<i64>) -> Option<Vec<ProblemStep>> {
    let mut steps: Vec<ProblemStep> = Vec::with_capacity(rules.len());
    for rule in rules {
        let value = |operand| match operand {
            Operand::Number(name) => number(name),
            Operand::Result(index) => steps.get(index).map(|step| step.result),
            Operand::Constant(value) => Some(value),
        };
        steps.push(ProblemStep::new(value(rule.left)?, rule.op, value(rule.right)?)?);
    }
    Some(steps)
}

/// Puts a spare sentence where no pronoun after it can be taken for something in it.
fn insert(extra: String, facts: &mut Vec<String>, question: &str, random: &mut Random) {
    const PRONOUNS: [&str; 20] = [
        "he", "she", "it", "they", "him", "her", "his", "their", "its", "them", "this", "that", "these", "those",
        "ones", "others", "then", "both", "each", "rest",
    ];
    let leads_back =
        |text: &str| wording::words(text).any(|word| PRONOUNS.iter().any(|pronoun| pronoun.eq_ignore_ascii_case(word)));
    let mut places: Vec<usize> = (1..facts.len()).filter(|place| !leads_back(&facts[*place])).collect();
    if !leads_back(question) {
        places.push(facts.len());
    }
    if let Some(place) = random.pick(&places) {
        facts.insert(*place, extra);
    }
}

/// What fills the holes of one problem.
struct Cast<'a> {
    persons: [Person; 3],
    things: [Option<&'a Thing>; 2],
    numbers: Vec<(char, i64)>,
    /// Numbers that are written in words.
    worded: Vec<i64>,
}

impl<'a> Cast<'a> {
    fn draw(situation: &'a Situation, numbers: Vec<(char, i64)>, random: &mut Random) -> Self {
        let first = random.pick(&situation.things);
        let others: Vec<&Thing> = situation.other_things.iter().filter(|thing| Some(*thing) != first).collect();
        let worded = random.chance(WORDED);
        let in_words = numbers.iter().map(|(_, number)| *number).filter(|_| worded && random.chance(0.7)).collect();
        Cast {
            numbers,
            worded: in_words,
            things: [first, random.pick(&others).copied()],
            persons: Person::draw(random),
        }
    }

    fn tell(&self, template: &str, random: &mut Random) -> String {
        render(template, random, |key, before| self.value(key, before))
    }

    fn value(&self, key: &str, before: &str) -> String {
        let (name, form) = key.split_once('.').unwrap_or((key, ""));
        let thing = |thing: Option<&Thing>| {
            thing.map_or(String::new(), |thing| if form == "one" { thing.one.clone() } else { thing.many.clone() })
        };
        match name {
            "P" => self.persons[0].form(form).to_owned(),
            "Q" => self.persons[1].form(form).to_owned(),
            "R" => self.persons[2].form(form).to_owned(),
            "t" => thing(self.things[0]),
            "u" => thing(self.things[1]),
            _ => {
                let number = self.numbers.iter().find(|(number, _)| name.chars().eq([*number]));
                number.map_or(String::new(), |(_, number)| {
                    // Dollars are written in digits.
                    written(*number, self.worded.contains(number) && !before.ends_with('$'))
                })
            }
        }
    }
}

/// A number as it stands in a text: in words where wanted, and where there is a short one.
pub(crate) fn written(number: i64, in_words: bool) -> String {
    let word = wording::in_words(number).filter(|_| in_words);
    word.map_or_else(|| number.to_string(), str::to_owned)
}

#[cfg(test)]
#[path = "situation_tests.rs"]
mod tests;
