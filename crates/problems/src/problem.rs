//! A word problem with its solution.

use crate::wording;
use std::fmt;

/// A question in words, and the calculation that answers it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The whole text: story and question.
    pub question: String,
    /// The numbers as they occur in the text, in digits or in words.
    pub numbers: Vec<i64>,
    /// The calculation, one operation a step. At least one; the last result is the answer.
    pub steps: Vec<ProblemStep>,
    /// What is asked for.
    pub answer: i64,
    /// What the text was made of: problems of one situation never lie on both sides of the split.
    pub situation: String,
}

/// One operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProblemStep {
    /// The left operand.
    pub left: i64,
    /// What is done.
    pub op: Op,
    /// The right operand.
    pub right: i64,
    /// What comes out: a positive whole number.
    pub result: i64,
}

/// An operation on whole numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    /// `+`
    Add,
    /// `-`
    Subtract,
    /// `*`
    Multiply,
    /// `/`, even divisions only
    Divide,
}

/// No result of a step is larger: the models read digits one by one, and long ones teach nothing about stories.
pub(crate) const LARGEST: i64 = 99_999;

impl Problem {
    /// `None` without steps.
    pub(crate) fn new(question: String, steps: Vec<ProblemStep>, situation: String) -> Option<Self> {
        let answer = steps.last()?.result;
        Some(Problem { numbers: wording::numbers_in(&question), question, steps, answer, situation })
    }

    /// The right answer as a reply: a line for each step, then `#### N`.
    pub fn solution(&self) -> String {
        solution(&self.steps, self.answer)
    }
}

/// A line for each step, then `#### N`.
pub(crate) fn solution(steps: &[ProblemStep], answer: i64) -> String {
    let lines = steps.iter().map(|step| format!("{step}\n"));
    lines.chain([format!("#### {answer}")]).collect()
}

impl ProblemStep {
    /// `None` where no positive whole number of a fitting size comes out.
    pub fn new(left: i64, op: Op, right: i64) -> Option<Self> {
        let result = op.apply(left, right).filter(|result| (1..=LARGEST).contains(result))?;
        Some(ProblemStep { left, op, right, result })
    }

    /// Whether the result is that of the operation.
    pub fn holds(&self) -> bool {
        self.op.apply(self.left, self.right) == Some(self.result)
    }
}

impl Op {
    /// All of them.
    pub const ALL: [Op; 4] = [Op::Add, Op::Subtract, Op::Multiply, Op::Divide];

    /// The operation of a sign.
    pub fn of(sign: char) -> Option<Self> {
        Op::ALL.into_iter().find(|op| op.sign() == sign)
    }

    /// How it is written.
    pub fn sign(self) -> char {
        match self {
            Op::Add => '+',
            Op::Subtract => '-',
            Op::Multiply => '*',
            Op::Divide => '/',
        }
    }

    /// The result. `None` for a division with a rest or by zero, and for an overflow.
    pub fn apply(self, left: i64, right: i64) -> Option<i64> {
        match self {
            Op::Add => left.checked_add(right),
            Op::Subtract => left.checked_sub(right),
            Op::Multiply => left.checked_mul(right),
            Op::Divide => (left.checked_rem(right)? == 0).then(|| left / right),
        }
    }
}

impl fmt::Display for ProblemStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {} = {}", self.left, self.op.sign(), self.right, self.result)
    }
}

/// A problem before it is told: facts in order, the question, the calculation.
#[derive(Debug, Clone)]
pub(crate) struct Draft {
    pub facts: Vec<String>,
    pub question: String,
    pub steps: Vec<ProblemStep>,
    pub situation: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(left: i64, sign: char, right: i64, expected: Option<i64>) {
        let step = Op::of(sign).and_then(|op| ProblemStep::new(left, op, right));
        assert_eq!(step.map(|step| step.result), expected, "{left} {sign} {right}");
        assert!(step.is_none_or(|step| step.holds()));
    }

    #[test]
    fn steps_have_positive_whole_results() {
        check(24, '+', 6, Some(30));
        check(24, '-', 6, Some(18));
        check(24, '-', 24, None);
        check(24, '*', 6, Some(144));
        check(24, '/', 6, Some(4));
        check(24, '/', 5, None);
        check(24, '/', 0, None);
        check(i64::MIN, '/', -1, None);
        check(999, '*', 999, None);
        check(24, '^', 6, None);
    }

    #[test]
    fn a_solution_has_a_line_for_each_step() {
        let steps = [ProblemStep::new(5, Op::Multiply, 3).unwrap(), ProblemStep::new(24, Op::Subtract, 15).unwrap()];
        assert_eq!(solution(&steps, 9), "5 * 3 = 15\n24 - 15 = 9\n#### 9");
    }
}
