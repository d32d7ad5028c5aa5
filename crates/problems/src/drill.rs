//! Bare arithmetic, so that stories need not teach it.

use crate::problem::{Draft, Op, ProblemStep};
use lemon_num::Random;

/// A calculation in signs or in words.
pub(crate) fn draft(random: &mut Random) -> Option<Draft> {
    if random.chance(0.5) { in_signs(random) } else { in_words(random) }
}

fn in_signs(random: &mut Random) -> Option<Draft> {
    let count = 1 + random.weighted(&[40, 40, 20]);
    let mut terms: Vec<i64> = vec![term(random)];
    let mut ops = Vec::new();
    for _ in 0..count {
        ops.push(*random.pick(&Op::ALL)?);
        terms.push(if matches!(ops.last(), Some(Op::Multiply | Op::Divide)) {
            random.within(2, 12)
        } else {
            term(random)
        });
    }
    let mut text = terms.first()?.to_string();
    for (op, term) in ops.iter().zip(terms.iter().skip(1)) {
        text += &format!(" {} {term}", op.sign());
    }
    let steps = by_rank(terms, ops)?;
    let frames = [
        "What is {}?",
        "{} = ?",
        "Calculate {}.",
        "How much is {}?",
        "Work out {}.",
        "Find the value of {}.",
        "What does {} give?",
    ];
    let question = random.pick(&frames)?.replace("{}", &text);
    Some(Draft { facts: Vec::new(), situation: format!("drill:{text}"), question, steps })
}

/// Products and quotients first, then sums and differences, each from left to right.
fn by_rank(mut terms: Vec<i64>, mut ops: Vec<Op>) -> Option<Vec<ProblemStep>> {
    let mut steps = Vec::new();
    while !ops.is_empty() {
        let high = ops.iter().position(|op| matches!(op, Op::Multiply | Op::Divide));
        let at = high.unwrap_or(0);
        let step = ProblemStep::new(terms[at], ops.remove(at), terms.remove(at + 1))?;
        terms[at] = step.result;
        steps.push(step);
    }
    Some(steps)
}

fn in_words(random: &mut Random) -> Option<Draft> {
    let start = term(random);
    let mut now = start;
    let mut facts =
        vec![format!("{} {start}.", random.pick(&["Start with", "Take", "Begin with", "Think of the number"])?)];
    let mut steps = Vec::new();
    for _ in 0..1 + random.weighted(&[30, 40, 30]) {
        let op = *random.pick(&Op::ALL)?;
        let n = if matches!(op, Op::Add | Op::Subtract) { term(random) } else { random.within(2, 12) };
        let step = ProblemStep::new(now, op, n)?;
        let texts: [&str; 3] = match op {
            Op::Add => ["Add {}", "Then add {}", "Increase it by {}"],
            Op::Subtract => ["Take away {}", "Subtract {}", "Then subtract {}"],
            Op::Multiply => ["Multiply by {}", "Then multiply it by {}", "Make it {} times as large"],
            Op::Divide => ["Divide by {}", "Then divide it by {}", "Split it into {} equal parts and take one"],
        };
        facts.push(format!("{}.", random.pick(&texts)?.replace("{}", &n.to_string())));
        now = step.result;
        steps.push(step);
    }
    let question =
        *random.pick(&["What do you get?", "What is the result?", "Which number is it now?", "What is it now?"])?;
    let situation = format!("drill:{}", facts.join(" "));
    Some(Draft { facts, question: question.to_owned(), steps, situation })
}

fn term(random: &mut Random) -> i64 {
    let high = [9, 20, 50, 99, 400][random.weighted(&[20, 25, 25, 20, 10])];
    random.within(2, high)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(terms: &[i64], signs: &str, expected: Option<&str>) {
        let ops = signs.chars().map(|sign| Op::of(sign).unwrap()).collect();
        let steps = by_rank(terms.to_vec(), ops).map(|steps| {
            let lines: Vec<String> = steps.iter().map(ProblemStep::to_string).collect();
            lines.join("; ")
        });
        assert_eq!(steps.as_deref(), expected, "{terms:?} {signs}");
    }

    #[test]
    fn products_come_before_sums() {
        check(&[12, 7, 3], "+*", Some("7 * 3 = 21; 12 + 21 = 33"));
        check(&[12, 7, 3], "-+", Some("12 - 7 = 5; 5 + 3 = 8"));
        check(&[12, 6, 3, 2], "/-*", None);
        check(&[12, 2, 3, 2], "/-/", None);
        check(&[20, 8, 2, 3], "-/*", Some("8 / 2 = 4; 4 * 3 = 12; 20 - 12 = 8"));
    }
}
