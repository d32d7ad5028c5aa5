//! The generator as a whole.

use lemon_problems::{Generator, Lesson, LessonForm, Lessons, Mix, Problem, ProblemPart, seeded};
use std::collections::HashSet;

fn problems(seed: u64, part: ProblemPart, count: usize) -> Vec<Problem> {
    let mut generator = Generator::new(seed, part);
    (0..count).map(|_| generator.problem()).collect()
}

#[test]
fn problems_are_valid() {
    for problem in problems(1, ProblemPart::Train, 20_000) {
        assert!((1..=5).contains(&problem.steps.len()), "{problem:?}");
        assert!(problem.steps.iter().all(|step| step.holds() && step.result > 0), "{problem:?}");
        assert_eq!(problem.steps.last().map(|step| step.result), Some(problem.answer));
        let text = &problem.question;
        assert!(!text.contains(['{', '}', '[', ']', '|']) && !text.contains("  ") && !text.contains(".."), "{text}");
    }
}

/// Numbers that a text may mean without a digit.
const KNOWN: [i64; 22] = [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 13, 20, 24, 25, 30, 50, 52, 60, 100, 365, 500, 1000];

#[test]
fn every_number_of_a_calculation_is_told_or_known_or_computed() {
    for problem in problems(2, ProblemPart::Train, 20_000) {
        for (index, step) in problem.steps.iter().enumerate() {
            for value in [step.left, step.right] {
                let computed = problem.steps[..index].iter().any(|earlier| earlier.result == value);
                assert!(computed || problem.numbers.contains(&value) || KNOWN.contains(&value), "{value}: {problem:?}");
            }
        }
    }
}

#[test]
fn the_parts_share_no_situation_and_no_question() {
    let set = |part| {
        let problems = problems(3, part, 6_000);
        let situations: HashSet<String> = problems.iter().map(|problem| problem.situation.clone()).collect();
        let questions: HashSet<String> = problems.into_iter().map(|problem| problem.question).collect();
        (situations, questions)
    };
    let (train, dev, review) = (set(ProblemPart::Train), set(ProblemPart::Dev), set(ProblemPart::Review));
    for (one, other) in [(&train, &dev), (&train, &review), (&dev, &review)] {
        assert!(one.0.is_disjoint(&other.0));
        let shared: Vec<&String> = one.1.intersection(&other.1).collect();
        assert!(shared.is_empty(), "{shared:?}");
    }
    let share = |part: ProblemPart| {
        let of_part = lemon_problems::shipped().iter().filter(|situation| ProblemPart::of(&situation.name) == part);
        100 * of_part.count() / lemon_problems::shipped().len()
    };
    assert!((4..=8).contains(&share(ProblemPart::Dev)), "{}", share(ProblemPart::Dev));
    assert!((16..=24).contains(&share(ProblemPart::Review)), "{}", share(ProblemPart::Review));
}

#[test]
fn texts_are_diverse() {
    let problems = problems(4, ProblemPart::Train, 5_000);
    let skeleton = |problem: &Problem| {
        let words = problem.question.split_whitespace().filter(|word| word.chars().all(|c| c.is_ascii_lowercase()));
        words.collect::<Vec<_>>().join(" ")
    };
    let skeletons: HashSet<String> = problems.iter().map(skeleton).collect();
    assert!(skeletons.len() > 4_000, "{} of 5,000", skeletons.len());
}

#[test]
fn samples_read_well() {
    let text: Vec<String> = problems(5, ProblemPart::Train, 30)
        .iter()
        .map(|problem| format!("[{}]\n{}\n{}\n", problem.situation, problem.question, problem.solution()))
        .collect();
    insta::assert_snapshot!("problems", text.join("\n"));
}

#[test]
fn a_lesson_of_each_form_reads_well() {
    let mut generator = Generator::new(6, ProblemPart::Train);
    let mut random = seeded(6);
    let lessons = LessonForm::ALL.map(|form| {
        let problem = loop {
            let problem = generator.problem();
            if problem.steps.len() > 1 {
                break problem;
            }
        };
        let lesson = Lesson::new(&problem, form, &mut random);
        format!("{}{}\n", lesson.prompt, lesson.reply)
    });
    insta::assert_snapshot!("lessons", lessons.join("\n"));
}

#[test]
fn noise_is_for_learning_only() {
    let questions =
        |part| Lessons::new(8, part, Mix::default()).take(300).map(|lesson| lesson.prompt).collect::<Vec<_>>();
    let mut generator = Generator::new(8, ProblemPart::Dev);
    for prompt in questions(ProblemPart::Dev) {
        let question = lemon_problems::prompt(LessonForm::Solve, &generator.problem().question, &[]);
        assert_eq!(prompt.lines().next(), question.lines().next());
    }
    let mut generator = Generator::new(8, ProblemPart::Train);
    let changed = questions(ProblemPart::Train).into_iter().filter(|prompt| {
        let question = lemon_problems::prompt(LessonForm::Solve, &generator.problem().question, &[]);
        prompt.lines().next() != question.lines().next()
    });
    let changed = changed.count();
    assert!((190..=270).contains(&changed), "{changed} of 300");
}
