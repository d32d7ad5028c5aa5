//! Features of a task that follow from its question, without its answer or the set it comes from.

use crate::skills;
use lemon_world::{Fitted, Skill, TaskFamily, needs};

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TaskKind {
    /// A number, worked out from the question.
    Number,
    /// One of five options or more, worked out from the question.
    Options,
    /// An answer that has to be known, mostly one of two to four options.
    Knowledge,
    Program,
}

impl TaskKind {
    /// The family of tasks in the simulated world.
    pub fn family(self) -> TaskFamily {
        match self {
            TaskKind::Number | TaskKind::Options => TaskFamily::Reckoning,
            TaskKind::Knowledge => TaskFamily::Knowing,
            TaskKind::Program => TaskFamily::Coding,
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct TaskFeatures {
    /// What is asked for.
    pub kind: TaskKind,
    /// The estimated difficulty: 0 is the mean of its kind, higher is harder. The weights of words, numbers and so on were fitted to
    /// recorded models.
    pub difficulty: f64,
    /// The skills it needs, the most likely first; two at most.
    pub skills: Vec<&'static Skill>,
}

/// Computes the features of a question. A known subject decides the skills and nothing else.
pub fn featurize(question: &str, subject: Option<&str>) -> TaskFeatures {
    let kind = kind(question);
    let skills = match (kind, subject) {
        (TaskKind::Knowledge, None) => skills::guess(question),
        _ => needs(kind.family(), question, subject),
    };
    let difficulty = Fitted::shipped().family(kind.family()).difficulty.of(question);
    TaskFeatures { kind, difficulty, skills }
}

fn kind(question: &str) -> TaskKind {
    if question.contains("def ") && question.contains("```") {
        return TaskKind::Program;
    }
    let options = question.lines().filter(|line| is_option(line)).count();
    match options {
        5.. => TaskKind::Options,
        2.. => TaskKind::Knowledge,
        _ if question.chars().any(|c| c.is_ascii_digit()) || asks_how_many(question) => TaskKind::Number,
        _ => TaskKind::Knowledge,
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
    fn check(question: &str, kind: TaskKind, skills: &[&str]) {
        let seen = featurize(question, None);
        let found: Vec<&str> = seen.skills.iter().map(|skill| skill.name).collect();
        assert_eq!((seen.kind, found.as_slice()), (kind, skills), "{question}");
        assert!(seen.difficulty.is_finite());
    }

    #[test]
    fn the_kind_and_the_skills_are_seen() {
        check(
            "A coat costs 80 dollars and is 15 percent off. What is the price?",
            TaskKind::Number,
            &["money", "percentages"],
        );
        check("How many legs do two cats have?", TaskKind::Number, &[]);
        check("Who wrote it?", TaskKind::Knowledge, &[]);
        check("Which acid is it?\n\nA) one\nB) two\nC) three\nD) four", TaskKind::Knowledge, &["chemistry"]);
        check("At which speed?\n\nA) 1\nB) 2\nC) 3\nD) 4\nE) 5", TaskKind::Options, &["rates"]);
        check(
            "Complete it.\n```python\ndef f(text: str):\n    \"\"\"Reverse the string.\"\"\"\n```",
            TaskKind::Program,
            &["strings"],
        );
        check("", TaskKind::Knowledge, &[]);
    }

    #[test]
    fn what_is_seen_is_what_the_world_sees() {
        for set in SetName::PUBLIC {
            let items: Vec<Item> = compose(set, 300, 5);
            let world = World::new(Preset::Calibrated, &items);
            for item in &items {
                let question = &item.task.question;
                let seen = featurize(question, item.task.subject.as_deref());
                assert_eq!(seen.kind.family(), TaskFamily::of(item), "{question}");
                assert_eq!(Some(seen.difficulty), world.difficulty(question));
                assert_eq!(seen.skills, needs(TaskFamily::of(item), question, item.task.subject.as_deref()));
            }
        }
    }
}
