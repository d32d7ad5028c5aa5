//! Faults of a solution that arithmetic shows without the answer.

use crate::problem::{Op, ProblemStep};
use crate::wording;

/// Signs that a solution is wrong. None of them proves it: what is needed may be common knowledge, and what is told may be
/// there to confuse. But a model that goes astray mostly leaves one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Doubts {
    /// A step does not come out as it says.
    pub false_step: bool,
    /// A step takes a number that was neither told nor found before.
    pub foreign_number: bool,
    /// No step takes some number that was told.
    pub unused_number: bool,
}

/// What is doubtful about a reply.
///
/// ```
/// use lemon_problems::{Doubts, doubts};
///
/// let question = "Ana has 32 pens and gives 3 to each of 4 friends. How many are left?";
/// assert_eq!(doubts(question, "3 * 4 = 12\n32 - 12 = 20\n#### 20"), Doubts::default());
/// assert!(doubts(question, "32 - 34 = 8\n#### 8").false_step);
/// ```
pub fn doubts(question: &str, reply: &str) -> Doubts {
    let told = wording::numbers_in(question);
    let steps: Vec<ProblemStep> = reply.lines().filter_map(step).collect();
    let found_before = |at: usize, number: i64| steps.iter().take(at).any(|step| step.result == number);
    let is_foreign = |(at, step): (usize, &ProblemStep)| {
        [step.left, step.right].iter().any(|it| !told.contains(it) && !found_before(at, *it))
    };
    let is_unused = |number: &i64| !steps.iter().any(|step| [step.left, step.right].contains(number));
    Doubts {
        false_step: !steps.iter().all(ProblemStep::holds),
        foreign_number: steps.iter().enumerate().any(is_foreign),
        unused_number: told.iter().any(is_unused),
    }
}

/// A line that says `24 - 15 = 9`.
fn step(line: &str) -> Option<ProblemStep> {
    let mut words = line.split_whitespace();
    let mut next = || words.next();
    let (left, sign, right, equals, result) = (next()?, next()?, next()?, next()?, next()?);
    let mut sign = sign.chars();
    let op = sign.next().filter(|_| sign.next().is_none()).and_then(Op::of)?;
    let step = ProblemStep { left: left.parse().ok()?, op, right: right.parse().ok()?, result: result.parse().ok()? };
    (equals == "=" && next().is_none()).then_some(step)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generator::{Generator, ProblemPart};
    use proptest::prelude::*;

    fn check(reply: &str, expected: [bool; 3]) {
        let question = "Maya had 24 stickers. She gave 3 to each of five friends and bought 1,200. How many has she?";
        let Doubts { false_step, foreign_number, unused_number } = doubts(question, reply);
        assert_eq!([false_step, foreign_number, unused_number], expected, "{reply}");
    }

    #[test]
    fn doubts_are_seen() {
        check("5 * 3 = 15\n24 - 15 = 9\n9 + 1200 = 1209\n#### 1209", [false, false, false]);
        check("5 * 3 = 16\n24 - 16 = 8\n8 + 1200 = 1208\n#### 1208", [true, false, false]);
        check("24 - 3 = 21\n21 + 1200 = 1221\n#### 1221", [false, false, true]);
        check("24 - 7 = 17\n#### 17", [false, true, true]);
        // A number has to be found before it is taken.
        check("24 - 15 = 9\n5 * 3 = 15\n9 + 1200 = 1209\n#### 1209", [false, true, false]);
        check("24 / 0 = 1\n#### 1", [true, true, true]);
        check("#### 9", [false, false, true]);
        check("99999999999999999999 + 1 = 2\n5 ** 3 = 2\n5 * 3\n#### 2", [false, false, true]);
    }

    proptest! {
        #[test]
        fn right_solutions_have_no_false_steps(seed: u64) {
            let problem = Generator::new(seed, ProblemPart::Train).problem();
            prop_assert!(!doubts(&problem.question, &problem.solution()).false_step);
        }

        #[test]
        fn any_text_can_be_doubted(question in any::<String>(), reply in any::<String>()) {
            let seen = doubts(&question, &reply);
            prop_assert_eq!(seen, doubts(&question, &reply));
        }
    }
}
