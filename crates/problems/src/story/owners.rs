//! Two or three persons and how many things each has, told by comparison.

use super::theme::THEMES;
use crate::person::Person;
use crate::problem::{Draft, Op, ProblemStep};
use crate::situation::{WORDED, written};
use crate::template::render;
use lemon_num::Random;

/// Third person, infinitive, and the two helping verbs.
const VERBS: [[&str; 4]; 9] = [
    ["has", "have", "does", "do"],
    ["has", "have", "does", "do"],
    ["collected", "collect", "did", "did"],
    ["found", "find", "did", "did"],
    ["bought", "buy", "did", "did"],
    ["sold", "sell", "did", "did"],
    ["counted", "count", "did", "did"],
    ["brought", "bring", "did", "did"],
    ["needs", "need", "does", "do"],
];

/// How `X` compares with `Y`, whose number is known before: `number(X) = number(Y) op n`.
#[rustfmt::skip]
const RELATIONS: &[(Op, Option<i64>, &[&str])] = &[
    (Op::Add, None, &[
        "{X} {has} {n} more {t} than {Y}.", "{X} {has} {n} {t} more than {Y}.", "{Y} {has} {n} fewer {t} than {X}.",
        "That is {n} fewer than {X} {has}.", "{X} {has} as many {t} as {Y} and {n} more.",
    ]),
    (Op::Subtract, None, &[
        "{X} {has} {n} fewer {t} than {Y}.", "{X} {has} {n} {t} less than {Y}.", "{Y} {has} {n} more {t} than {X}.",
        "That is {n} more than {X} {has}.",
    ]),
    (Op::Multiply, None, &["{X} {has} {n} times as many {t} as {Y}.", "For every {one} of {Y}, {X} {has} {n}."]),
    (Op::Multiply, Some(2), &["{X} {has} twice as many {t} as {Y}.", "{X} {has} double the number of {t} that {Y} {has}."]),
    (Op::Divide, Some(2), &["{X} {has} half as many {t} as {Y}.", "{X} {has} only half the {t} that {Y} {has}."]),
    (Op::Divide, None, &["{Y} {has} {n} times as many {t} as {X}.", "That is {n} times as many as {X} {has}."]),
];

/// A problem, or `None` where the numbers do not fit: then try again.
pub(crate) fn draft(random: &mut Random) -> Option<Draft> {
    let mut scene = Scene::draw(random)?;
    let question = scene.ask(random)?;
    let fits = (1..=5).contains(&scene.steps.len());
    fits.then_some(Draft {
        facts: scene.facts,
        question,
        steps: scene.steps,
        situation: format!("owners:{}", scene.parts),
    })
}

struct Scene {
    persons: [Person; 3],
    /// How many of the persons there are.
    count: usize,
    things: [&'static str; 2],
    verb: [&'static str; 4],
    worded: bool,
    /// For each person but the first: the other person, and how it compares. `None`: the number is told.
    relations: Vec<Option<(usize, Op, i64)>>,
    values: Vec<i64>,
    done: Vec<bool>,
    facts: Vec<String>,
    steps: Vec<ProblemStep>,
    parts: String,
}

impl Scene {
    fn draw(random: &mut Random) -> Option<Self> {
        let theme = random.pick(&THEMES)?;
        let high = *random.pick(&[12, 30, 60, 99, 300])?;
        let mut scene = Scene {
            persons: Person::draw(random),
            count: 2 + random.below(2),
            things: [theme.many, theme.one],
            verb: *random.pick(&VERBS)?,
            worded: random.chance(WORDED),
            relations: vec![None],
            values: vec![random.within(3, high)],
            done: vec![true],
            facts: Vec::new(),
            steps: Vec::new(),
            parts: String::new(),
        };
        let first = scene.tell("{X} {has} {n} {t}.", 0, 0, scene.values[0], random);
        scene.facts.push(first);
        for person in 1..scene.count {
            scene.relate(person, high, random)?;
        }
        Some(scene)
    }

    fn relate(&mut self, person: usize, high: i64, random: &mut Random) -> Option<()> {
        if random.chance(0.2) {
            let value = random.within(3, high);
            let text = self.tell("{X} {has} {n} {t}.", person, 0, value, random);
            self.facts.push(text);
            self.relations.push(None);
            self.values.push(value);
            self.done.push(true);
            return Some(());
        }
        let to = random.below(person);
        let kind = random.weighted(&[30, 30, 16, 8, 8, 8]);
        let (op, fixed, texts) = RELATIONS.get(kind)?;
        let n =
            fixed.unwrap_or_else(|| random.within(2, if matches!(op, Op::Multiply | Op::Divide) { 6 } else { high }));
        let value = ProblemStep::new(self.values[to], *op, n).filter(|step| step.result >= 2)?.result;
        let number = random.below(texts.len());
        let text = *texts.get(number)?;
        // `That` is what the sentence before tells.
        if text.starts_with("That") && to + 1 != person {
            return None;
        }
        let told = self.tell(text, person, to, n, random);
        self.facts.push(told);
        self.relations.push(Some((to, *op, n)));
        self.values.push(value);
        self.done.push(false);
        self.parts += &format!("{kind}.{number}.{to}-");
        Some(())
    }

    fn ask(&mut self, random: &mut Random) -> Option<String> {
        let kind = random.weighted(&[25, 25, 12, 20, 8, 10]);
        let (x, y) = (random.below(self.count), random.below(self.count));
        self.parts += &format!("{kind}.{x}.{y}");
        match kind {
            0 => {
                self.find(x)?;
                Some(self.tell("How many {t} {does} {X} {have}?", x, x, 0, random))
            }
            1 => {
                self.add_up(&(0..self.count).collect::<Vec<_>>())?;
                let texts =
                    "How many {t} {do} [they|these children|the friends] {have} [in all|together|altogether|in total]?";
                Some(self.tell(texts, 0, 0, 0, random))
            }
            2 if x != y => {
                self.add_up(&[x, y])?;
                Some(self.tell("How many {t} {do} {X} and {Y} {have} [together|altogether|in all]?", x, y, 0, random))
            }
            3 if self.values[x] > self.values[y] => {
                self.find(x)?;
                self.find(y)?;
                self.steps.push(ProblemStep::new(self.values[x], Op::Subtract, self.values[y])?);
                let text =
                    ["How many more {t} {does} {X} {have} than {Y}?", "How many fewer {t} {does} {Y} {have} than {X}?"];
                Some(self.tell(random.pick(&text)?, x, y, 0, random))
            }
            4 => {
                let sum = self.add_up(&(0..self.count).collect::<Vec<_>>())?;
                self.steps.push(ProblemStep::new(sum, Op::Divide, self.count as i64)?);
                let text = "They [put all the {t} together|collect everything] and share [equally|fairly]. How many {t} does each get?";
                let told = self.tell(text, 0, 0, 0, random);
                let (fact, question) = told.split_once(". ")?;
                self.facts.push(format!("{fact}."));
                Some(question.to_owned())
            }
            5 if x != y && self.verb[0] == "has" && self.values[x] > 2 => {
                // Only the receiver is asked for: what the giver had is a spare number.
                self.find(y)?;
                let n = random.within(2, self.values[x] - 1);
                self.steps.push(ProblemStep::new(self.values[y], Op::Add, n)?);
                let fact = self.tell("{X} gives {n} of [{X.his}|the] {t} to {Y}.", x, y, n, random);
                self.facts.push(fact);
                Some(self.tell("How many {t} does {Y} have then?", x, y, 0, random))
            }
            _ => None,
        }
    }

    /// Writes the steps that lead to a person's number.
    fn find(&mut self, person: usize) -> Option<()> {
        if let Some((to, op, n)) = self.relations[person].filter(|_| !self.done[person]) {
            self.find(to)?;
            self.steps.push(ProblemStep::new(self.values[to], op, n)?);
            self.done[person] = true;
        }
        Some(())
    }

    fn add_up(&mut self, persons: &[usize]) -> Option<i64> {
        let mut sum = None;
        for person in persons {
            self.find(*person)?;
            let value = self.values[*person];
            sum = Some(match sum {
                None => value,
                Some(so_far) => {
                    let step = ProblemStep::new(so_far, Op::Add, value)?;
                    self.steps.push(step);
                    step.result
                }
            });
        }
        sum
    }

    fn tell(&self, template: &str, x: usize, y: usize, n: i64, random: &mut Random) -> String {
        render(template, random, |key, _| match key {
            "X" => self.persons[x].name.to_owned(),
            "X.his" => self.persons[x].form("his").to_owned(),
            "Y" => self.persons[y].name.to_owned(),
            "n" => written(n, self.worded),
            "t" => self.things[0].to_owned(),
            "one" => self.things[1].to_owned(),
            "has" => self.verb[0].to_owned(),
            "have" => self.verb[1].to_owned(),
            "does" => self.verb[2].to_owned(),
            _ => self.verb[3].to_owned(),
        })
    }
}
