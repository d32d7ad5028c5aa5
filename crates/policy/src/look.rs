//! What can be seen in a question, without knowing the answer or the set it comes from.

use crate::skills;
use lemon_world::{Family, Fitted, Skill, needs};

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// A number, worked out from the question.
    Number,
    /// One of five options or more, worked out from the question.
    Options,
    /// An answer that has to be known, mostly one of two to four options.
    Knowledge,
    /// A program.
    Program,
}

impl Kind {
    /// The kind of task that the simulated world would take it for.
    pub fn family(self) -> Family {
        match self {
            Kind::Number | Kind::Options => Family::Reckoning,
            Kind::Knowledge => Family::Knowing,
            Kind::Program => Family::Coding,
        }
    }
}

/// What is seen in a question.
#[derive(Debug, Clone, PartialEq)]
pub struct Sight {
    /// What is asked for.
    pub kind: Kind,
    /// How hard it looks: 0 is usual for its kind, harder is more. The weights of words, numbers and so on are those that
    /// were fitted to recorded models.
    pub difficulty: f64,
    /// What it takes, the most likely first; two at most.
    pub skills: Vec<&'static Skill>,
}

/// Looks at a question. A subject, where the task says one, is believed for the skills; nothing else hangs on it.
pub fn look(question: &str, subject: Option<&str>) -> Sight {
    let kind = kind(question);
    let skills = match (kind, subject) {
        (Kind::Knowledge, None) => skills::guess(question),
        _ => needs(kind.family(), question, subject),
    };
    let difficulty = Fitted::shipped().family(kind.family()).difficulty.of(question);
    Sight { kind, difficulty, skills }
}

fn kind(question: &str) -> Kind {
    if question.contains("def ") && question.contains("```") {
        return Kind::Program;
    }
    let options = question.lines().filter(|line| is_option(line)).count();
    match options {
        5.. => Kind::Options,
        2.. => Kind::Knowledge,
        _ if question.chars().any(|c| c.is_ascii_digit()) || asks_how_many(question) => Kind::Number,
        _ => Kind::Knowledge,
    }
}

/// `A) …`, as options are written.
pub fn is_option(line: &str) -> bool {
    let mut chars = line.chars();
    chars.next().is_some_and(|c| c.is_ascii_uppercase()) && chars.next() == Some(')')
}

fn asks_how_many(question: &str) -> bool {
    let question = question.to_lowercase();
    ["how many", "how much", "how old", "how far", "how long"].iter().any(|words| question.contains(words))
}

#[cfg(test)]
mod tests {
    use super::*;
    use lemon_task::{Item, SetName, compose};
    use lemon_world::{Preset, World};

    #[track_caller]
    fn check(question: &str, kind: Kind, skills: &[&str]) {
        let seen = look(question, None);
        let found: Vec<&str> = seen.skills.iter().map(|skill| skill.name).collect();
        assert_eq!((seen.kind, found.as_slice()), (kind, skills), "{question}");
        assert!(seen.difficulty.is_finite());
    }

    #[test]
    fn the_kind_and_the_skills_are_seen() {
        check(
            "A coat costs 80 dollars and is 15 percent off. What is the price?",
            Kind::Number,
            &["money", "percentages"],
        );
        check("How many legs do two cats have?", Kind::Number, &[]);
        check("Who wrote it?", Kind::Knowledge, &[]);
        check("Which acid is it?\n\nA) one\nB) two\nC) three\nD) four", Kind::Knowledge, &["chemistry"]);
        check("At which speed?\n\nA) 1\nB) 2\nC) 3\nD) 4\nE) 5", Kind::Options, &["rates"]);
        check(
            "Complete it.\n```python\ndef f(text: str):\n    \"\"\"Reverse the string.\"\"\"\n```",
            Kind::Program,
            &["strings"],
        );
        check("", Kind::Knowledge, &[]);
    }

    #[test]
    fn what_is_seen_is_what_the_world_sees() {
        for set in SetName::PUBLIC {
            let items: Vec<Item> = compose(set, 300, 5);
            let world = World::new(Preset::Calibrated, &items);
            for item in &items {
                let question = &item.task.question;
                let seen = look(question, item.task.subject.as_deref());
                assert_eq!(seen.kind.family(), Family::of(item), "{question}");
                assert_eq!(Some(seen.difficulty), world.difficulty(question));
                assert_eq!(seen.skills, needs(Family::of(item), question, item.task.subject.as_deref()));
            }
        }
    }
}
