//! A calculation in signs, taken apart into steps.

use crate::expression::{Expression, Fault, expression};
use crate::problem::Op;
use crate::situation::{Operand, StepRule};

/// Appends the steps of an expression of whole numbers; what each number is, `operand` says. Returns what stands for the result.
pub(super) fn append(
    text: &str,
    rules: &mut Vec<StepRule>,
    operand: &mut impl FnMut(i64, &[StepRule]) -> Option<Operand>,
) -> Option<Operand> {
    let parsed: Result<Expression, Fault> = expression(text);
    walk(&parsed.ok()?, rules, operand)
}

fn walk(
    expression: &Expression,
    rules: &mut Vec<StepRule>,
    operand: &mut impl FnMut(i64, &[StepRule]) -> Option<Operand>,
) -> Option<Operand> {
    match expression {
        Expression::Value(value) => operand(*value, rules),
        Expression::Name(_) => None,
        Expression::Apply(left, op, right) => {
            let (left, right) = (walk(left, rules, operand)?, walk(right, rules, operand)?);
            rules.push(StepRule { left, op: Op::of(*op)?, right });
            Some(Operand::Result(rules.len() - 1))
        }
    }
}

/// The rules that the last one needs, renumbered.
pub(super) fn needed(rules: &[StepRule]) -> Vec<StepRule> {
    let mut wanted = vec![false; rules.len()];
    if let Some(last) = wanted.last_mut() {
        *last = true;
    }
    for (index, rule) in rules.iter().enumerate().rev() {
        for operand in [rule.left, rule.right] {
            if let Operand::Result(at) = operand
                && wanted[index]
                && at < index
            {
                wanted[at] = true;
            }
        }
    }
    let position = |at: usize| wanted.iter().take(at).filter(|wanted| **wanted).count();
    let renumbered = |operand| match operand {
        Operand::Result(at) => Operand::Result(position(at)),
        other => other,
    };
    let kept = rules.iter().zip(&wanted).filter(|(_, wanted)| **wanted);
    kept.map(|(rule, _)| StepRule { left: renumbered(rule.left), right: renumbered(rule.right), ..*rule }).collect()
}
