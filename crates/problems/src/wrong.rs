//! Wrong solutions of the kinds that small models write.

use crate::problem::{Op, Problem, ProblemStep};
use lemon_num::Random;

/// Where an operand comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// The text, or common knowledge.
    Number(i64),
    /// The result of an earlier step.
    Result(usize),
}

/// The sources of all operands, where `told` are the numbers of the text. A number that is also an earlier result is taken for
/// that if nothing has used it yet: every result is there to be used.
pub(crate) fn sources(steps: &[ProblemStep], told: &[i64]) -> Vec<[Source; 2]> {
    let mut used = vec![false; steps.len()];
    let mut sources = Vec::with_capacity(steps.len());
    for (index, step) in steps.iter().enumerate() {
        sources.push([step.left, step.right].map(|value| {
            let earlier = |at: &usize| steps[*at].result == value && (!used[*at] || !told.contains(&value));
            match (0..index).rev().find(earlier) {
                Some(at) => {
                    used[at] = true;
                    Source::Result(at)
                }
                None => Source::Number(value),
            }
        }));
    }
    sources
}

/// A wrong solution: its steps and its answer, which is never the right one.
pub fn wrong(problem: &Problem, random: &mut Random) -> (Vec<ProblemStep>, i64) {
    let attempt = (0..40).find_map(|_| attempt(problem, random).filter(|steps| answer(steps) != Some(problem.answer)));
    let steps = attempt.unwrap_or_else(|| slipped(problem, problem.steps.len().saturating_sub(1), random));
    let answer = answer(&steps).unwrap_or(problem.answer + 1);
    (steps, answer)
}

fn answer(steps: &[ProblemStep]) -> Option<i64> {
    steps.last().map(|step| step.result)
}

fn attempt(problem: &Problem, random: &mut Random) -> Option<Vec<ProblemStep>> {
    let steps = &problem.steps;
    let at = random.below(steps.len());
    let mut rules: Vec<([Source; 2], Op)> =
        sources(steps, &problem.numbers).into_iter().zip(steps.iter().map(|step| step.op)).collect();
    match random.weighted(&[30, 25, 15, 12, 8, 10]) {
        0 => rules.get_mut(at)?.1 = *random.pick(&Op::ALL)?,
        1 => {
            // A number that the step does not need.
            let operand = random.below(2);
            rules.get_mut(at)?.0[operand] = Source::Number(*random.pick(&problem.numbers)?);
        }
        2 => {
            // A step too few: what used its result uses one of its operands.
            if rules.len() < 2 {
                return None;
            }
            let (operands, _) = rules.remove(at);
            let kept = operands[random.below(2)];
            for source in rules.iter_mut().flat_map(|(sources, _)| sources) {
                *source = match *source {
                    Source::Result(index) if index == at => kept,
                    Source::Result(index) if index > at => Source::Result(index - 1),
                    other => other,
                };
            }
        }
        3 => {
            // A step too many.
            let number = *random.pick(&problem.numbers)?;
            rules.push(([Source::Result(steps.len() - 1), Source::Number(number)], *random.pick(&Op::ALL)?));
        }
        4 => {
            // A number read wrongly.
            let operand = random.below(2);
            let source = &mut rules.get_mut(at)?.0[operand];
            let Source::Number(number) = *source else { return None };
            *source = Source::Number(misread(number, random));
        }
        _ => return Some(slipped(problem, at, random)),
    }
    recompute(&rules)
}

fn recompute(rules: &[([Source; 2], Op)]) -> Option<Vec<ProblemStep>> {
    let mut steps: Vec<ProblemStep> = Vec::with_capacity(rules.len());
    for (operands, op) in rules {
        let value = |source| match source {
            Source::Number(number) => Some(number),
            Source::Result(index) => steps.get(index).map(|step: &ProblemStep| step.result),
        };
        steps.push(ProblemStep::new(value(operands[0])?, *op, value(operands[1])?)?);
    }
    Some(steps)
}

/// The right steps with a wrong result in one of them, carried on as far as that works.
fn slipped(problem: &Problem, at: usize, random: &mut Random) -> Vec<ProblemStep> {
    let sources = sources(&problem.steps, &problem.numbers);
    let mut steps = problem.steps.clone();
    for index in at..steps.len() {
        let value = |source: Source| match source {
            Source::Number(number) => number,
            Source::Result(index) => steps[index].result,
        };
        let (left, right) = (value(sources[index][0]), value(sources[index][1]));
        let mut step = ProblemStep::new(left, steps[index].op, right).unwrap_or(steps[index]);
        if index == at {
            step.result = misread(step.result, random);
        }
        steps[index] = step;
    }
    steps
}

/// A number with one digit changed; another positive number in any case.
fn misread(number: i64, random: &mut Random) -> i64 {
    let place = [1, 1, 1, 10, 100][random.below(5)];
    let by = place * random.within(1, 3);
    if number > by && random.chance(0.5) { number - by } else { number + by }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_told_from_numbers() {
        let step = |left, op, right| ProblemStep::new(left, op, right).unwrap();
        let steps = [step(5, Op::Multiply, 3), step(15, Op::Add, 15), step(30, Op::Subtract, 4), step(30, Op::Add, 26)];
        let expected = [
            [Source::Number(5), Source::Number(3)],
            [Source::Result(0), Source::Number(15)],
            [Source::Result(1), Source::Number(4)],
            [Source::Result(1), Source::Result(2)],
        ];
        assert_eq!(sources(&steps, &[5, 3, 15, 4]), expected);
    }
}
