//! An item of a world: how hard it is for each capacity, its right answer and the wrong ones people give.

use crate::draws;
use crate::preset::{Choices, FamilyFit, Fitted};
use crate::skill::{self, Skill, TaskFamily};
use lemon_num::Random;
use lemon_task::{Item, Key, SetName, grade};
use std::collections::HashMap;

/// Wrong answers an open question has; the first is the favourite.
const WRONG_ANSWERS: usize = 8;
/// The longest text that counts as a bare answer.
const BARE: usize = 48;

/// An item as the world knows it.
pub(crate) struct WorldItem {
    item: Item,
    pub family: TaskFamily,
    pub needs: Vec<&'static Skill>,
    /// From the features of its text.
    pub difficulty: f64,
    /// What the features do not say, for all capacities alike.
    shared: f64,
    /// … and for each capacity.
    own: Vec<f64>,
    /// The right answer as a reply states it: a number, a letter, a text, a program.
    pub right: String,
    /// Wrong ones, the favourite first.
    pub wrong: Vec<String>,
    /// What completes the program, where one is asked for.
    solution: Option<String>,
}

/// What the items of a world know of each other.
#[derive(Default)]
pub(crate) struct Known {
    /// Right texts: a wrong text is the right one of another task.
    texts: Vec<String>,
    /// What completes a program, by problem: one variant of a set publishes it, another does not.
    solutions: HashMap<(String, String), String>,
}

/// Right texts kept: a few serve all.
const MOST_TEXTS: usize = 64;

impl Known {
    pub fn add(&mut self, item: &Item) {
        match item.key() {
            Key::Text(text) if self.texts.len() < MOST_TEXTS => self.texts.push(text.to_owned()),
            Key::Code { entry_point, solution: Some(solution), .. } => {
                self.solutions.insert(problem(item, entry_point), solution.to_owned());
            }
            _ => {}
        }
    }

    fn solution<'a>(&'a self, item: &'a Item) -> Option<&'a str> {
        let Key::Code { entry_point, solution, .. } = item.key() else { return None };
        solution.or_else(|| self.solutions.get(&problem(item, entry_point)).map(String::as_str))
    }
}

/// What a problem is known by in every variant of its set: its number and its function. Neither is enough: two problems ask
/// for an `add`, and one is `HumanEval/53` here and `HumanEval_53_add` there.
fn problem(item: &Item, entry_point: &str) -> (String, String) {
    let number = item.task.id.split(|c: char| !c.is_ascii_digit()).find(|run| !run.is_empty());
    (number.unwrap_or_default().to_owned(), entry_point.to_owned())
}

/// An answer that an agent proposes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Proposal {
    Right,
    Wrong(String),
}

impl WorldItem {
    /// The item in a world of these figures; `None` if no right answer can be made up for it.
    pub fn new(item: &Item, fitted: &Fitted, known: &Known) -> Option<Self> {
        let family = TaskFamily::of(item);
        let fit = fitted.of(item);
        let question = &item.task.question;
        // A residual belongs to the question, not to a run: every seed meets the same item.
        let mut draws = draws::draws(fit.salt, &[question, "residual"]);
        let shared = draws.normal();
        let own = fit.levels.iter().map(|_| draws.normal()).collect();
        let solution = known.solution(item).map(str::to_owned);
        let (right, wrong) = answers(item, known, solution.as_deref(), &mut draws::draws(0, &[question, "answers"]))?;
        Some(WorldItem {
            family,
            needs: skill::needs(family, question, item.task.subject.as_deref()),
            difficulty: fit.difficulty.of(question),
            item: item.clone(),
            shared,
            own,
            right,
            wrong,
            solution,
        })
    }

    /// The log-odds that one agent of this capacity, alone and with nothing special about it, is right.
    pub fn log_odds(&self, fit: &FamilyFit, choices: &Choices, level: usize) -> Option<f64> {
        let figures = fit.levels.get(level.min(fit.levels.len().saturating_sub(1)))?;
        let own = self.own.get(level.min(self.own.len().saturating_sub(1)))?;
        let field = self.needs.first().and_then(|need| figures.fields.get(need.name)).copied().unwrap_or(0.0);
        let options = if self.item.set() == SetName::Aqua { choices.options } else { 0.0 };
        let fixed = figures.at(self.difficulty) + field + choices.level_shift - options;
        Some(fixed + figures.shared * self.shared + figures.own * own)
    }

    /// What a text proposes as the answer; `None` if it proposes none.
    pub fn proposal(&self, text: &str) -> Option<Proposal> {
        if let Key::Code { entry_point, .. } = self.item.key() {
            let is_program = text.contains(&format!("def {entry_point}"));
            let is_right = self.solution.as_ref().is_some_and(|solution| text.contains(solution.trim_end()));
            return is_program.then(|| if is_right { Proposal::Right } else { Proposal::Wrong(text.to_owned()) });
        }
        let stated = lemon_exec::answer::extract(text);
        let stated = stated.as_deref().or(Some(text.trim()).filter(|text| text.len() <= BARE && !text.is_empty()))?;
        let grade = grade(&self.item, stated);
        match grade.verdict.is_right() {
            true => Some(Proposal::Right),
            false => Some(Proposal::Wrong(grade.extracted.unwrap_or_else(|| stated.to_owned()))),
        }
    }

    /// A wrong answer: the favourite with this probability, else another.
    pub fn wrong_answer(&self, favourite: f64, draws: &mut Random) -> String {
        let others = self.wrong.get(1..).unwrap_or_default();
        let wrong = match draws.chance(favourite) || others.is_empty() {
            true => self.wrong.first(),
            false => draws.pick(others),
        };
        wrong.cloned().unwrap_or_default()
    }

    /// The figures of this item.
    pub fn fit<'a>(&self, fitted: &'a Fitted) -> &'a FamilyFit {
        fitted.of(&self.item)
    }

    pub fn is_code(&self) -> bool {
        self.family == TaskFamily::Coding
    }
}

fn answers(item: &Item, known: &Known, solution: Option<&str>, draws: &mut Random) -> Option<(String, Vec<String>)> {
    match item.key() {
        Key::Number(gold) => {
            let wrong = wrong_numbers(item, &gold, draws);
            Some((gold, wrong))
        }
        Key::Choice { options, answer } => {
            let letter = |index: usize| char::from(b'A' + index.min(25) as u8).to_string();
            let mut wrong: Vec<String> = (0..options.len()).filter(|index| *index != answer).map(letter).collect();
            draws.shuffle(&mut wrong);
            Some((letter(answer), wrong))
        }
        Key::Text(gold) => {
            let differs = |other: &&String| !grade(item, &format!("Answer: {other}")).verdict.is_right();
            let mut wrong: Vec<String> = known.texts.iter().filter(differs).cloned().collect();
            draws.shuffle(&mut wrong);
            wrong.truncate(WRONG_ANSWERS);
            if wrong.is_empty() {
                wrong.extend(["unknown", "something else"].map(str::to_owned).iter().find(differs).cloned());
            }
            Some((gold.to_owned(), wrong))
        }
        Key::Code { prompt, .. } => {
            let program = |body: &str| format!("{}\n{}", prompt.trim_end(), body.trim_end());
            let wrong = (1..=3).map(|attempt| program(&format!("    raise ValueError(\"case {attempt} is missing\")")));
            Some((program(solution?), wrong.collect()))
        }
    }
}

/// Numbers people arrive at by a slip: a factor, a step too many, a number of the question.
fn wrong_numbers(item: &Item, gold: &str, draws: &mut Random) -> Vec<String> {
    let value: f64 = gold.trim_end_matches('%').replace(',', "").parse().unwrap_or(0.0);
    let given = numbers_in(&item.task.question);
    let first = given.first().copied().unwrap_or(3.0);
    let mut candidates = vec![value * 2.0, value / 2.0, value + first, value - first, value * 10.0];
    candidates.extend(given.iter().copied().take(6));
    candidates.extend(given.windows(2).flat_map(|pair| [pair[0] + pair[1], pair[0] * pair[1], pair[0] - pair[1]]));
    candidates.extend((1..=WRONG_ANSWERS).map(|step| value + step as f64));
    let mut wrong: Vec<String> = Vec::new();
    for candidate in candidates {
        let text = (candidate * 100.0).round() / 100.0;
        let text = text.to_string();
        let right = grade(item, &format!("Answer: {text}")).verdict.is_right();
        if !right && text != "NaN" && text != "inf" && text != "-inf" && !wrong.contains(&text) {
            wrong.push(text);
        }
    }
    // Steps away from the value come last and only fill up.
    let likely = wrong.len().saturating_sub(WRONG_ANSWERS).max(WRONG_ANSWERS.min(wrong.len()));
    draws.shuffle(wrong.get_mut(..likely).unwrap_or_default());
    wrong.truncate(WRONG_ANSWERS);
    wrong
}

/// The numbers in a text.
pub(crate) fn numbers_in(text: &str) -> Vec<f64> {
    let bare = text.replace(',', "");
    let runs = bare.split(|c: char| !c.is_ascii_digit() && c != '.').map(|run| run.trim_matches('.'));
    runs.filter_map(|run| run.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use lemon_task::{Source, Verdict, load};

    /// The items of all samples, in one world.
    fn all() -> Vec<(Item, WorldItem)> {
        let load = |set| load(&Source::Sample, set, "test").unwrap().items;
        let items: Vec<Item> = SetName::PUBLIC.into_iter().flat_map(load).collect();
        let mut known = Known::default();
        items.iter().for_each(|item| known.add(item));
        let make = |item: Item| {
            let made = WorldItem::new(&item, Fitted::shipped(), &known).unwrap();
            (item, made)
        };
        items.into_iter().map(make).collect()
    }

    #[test]
    fn right_answers_are_right_and_wrong_ones_are_several_and_wrong() {
        for (item, made) in all() {
            assert_eq!(made.proposal(&format!("Answer: {}", made.right)), Some(Proposal::Right), "{}", made.right);
            assert!(made.wrong.len() >= 3, "{}: {:?}", item.task.question, made.wrong);
            for (at, wrong) in made.wrong.iter().enumerate() {
                assert!(!made.wrong[..at].contains(wrong), "twice: {wrong}");
                let proposal = made.proposal(&format!("Answer: {wrong}"));
                assert!(matches!(proposal, Some(Proposal::Wrong(_))), "{}: {wrong}", item.task.question);
                assert_ne!(grade(&item, wrong).verdict, Verdict::Right);
            }
        }
    }

    #[test]
    fn what_states_no_answer_proposes_none() {
        let notes = "First see what is given, then what is asked, and settle the rest in order.";
        for (_, made) in all() {
            assert_eq!(made.proposal(notes), None);
            assert_eq!(made.proposal("  "), None);
        }
    }

    #[test]
    fn a_favourite_is_given_as_often_as_it_should() {
        for (_, made) in all() {
            let mut draws = draws::draws(1, &[]);
            let mut given =
                |favourite| (0..400).filter(|_| made.wrong_answer(favourite, &mut draws) == made.wrong[0]).count();
            assert_eq!((given(1.0), given(0.0)), (400, 0));
            // Four standard errors.
            assert!(given(0.6).abs_diff(240) < 40);
        }
    }

    #[test]
    fn numbers_are_found_however_they_are_written() {
        let check = |text: &str, expected: &[f64]| assert_eq!(numbers_in(text), expected, "{text}");
        check("3 pens and 1,250.5 pencils.", &[3.0, 1250.5]);
        check("From 7-9, at $4.50 each.", &[7.0, 9.0, 4.5]);
        check("None at all. 1.2.3 is none.", &[]);
        check("", &[]);
    }
}
