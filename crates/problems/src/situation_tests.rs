use super::*;
use crate::problem::Problem;
use crate::tell::tell;
use std::collections::HashSet;

#[test]
fn there_are_a_thousand_situations_with_names_of_their_own() {
    let names: HashSet<&str> = shipped().iter().map(|situation| situation.name.as_str()).collect();
    assert_eq!(names.len(), shipped().len());
    assert!(names.len() > 1000, "{}", names.len());
}

#[test]
fn every_question_of_every_situation_makes_valid_problems() {
    let mut random = crate::seeded(1);
    for situation in shipped() {
        for question in &situation.questions {
            for _ in 0..20 {
                let draft = situation.draft_of(question, &mut random);
                let problem = draft.and_then(|draft| tell(draft, &mut random));
                let problem =
                    problem.unwrap_or_else(|| panic!("{}: nothing fits {:?}", situation.name, question.steps));
                check(&problem, question);
            }
        }
    }
}

fn check(problem: &Problem, question: &SituationQuestion) {
    assert_eq!(problem.steps.len(), question.steps.len());
    assert!(problem.steps.iter().all(|step| step.holds() && step.result > 0), "{problem:?}");
    assert_eq!(problem.steps.last().map(|step| step.result), Some(problem.answer));
    for (step, rule) in problem.steps.iter().zip(&question.steps) {
        for (value, operand) in [(step.left, rule.left), (step.right, rule.right)] {
            let told = !matches!(operand, Operand::Number(_)) || problem.numbers.contains(&value);
            assert!(told, "{value} is not told: {problem:?}");
        }
    }
    let text = &problem.question;
    assert!(!text.contains(['{', '}', '[', ']', '|']) && !text.contains("  "), "{text}");
    assert!(text.ends_with(['?', '.', '!', '"']), "{text}");
    assert!(!text.contains("$t") && !text.contains("$f"), "{text}");
}

#[test]
fn spare_sentences_do_not_come_between_a_pronoun_and_its_noun() {
    let mut random = crate::seeded(1);
    for _ in 0..50 {
        let mut facts = vec!["Ana had 5 pens.".to_owned(), "She lost 2.".to_owned(), "Omar had 3.".to_owned()];
        insert("Eva is 9.".into(), &mut facts, "How many has she?", &mut random);
        assert_eq!(facts, ["Ana had 5 pens.", "She lost 2.", "Eva is 9.", "Omar had 3."]);
    }
}
