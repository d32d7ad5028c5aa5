//! Comparisons and arithmetic of template expressions.

use super::Run;
use super::value::{Outcome, Value, objection};
use minijinja::machinery::ast;

impl<'a> Run<'a> {
    pub(super) fn binary(&mut self, it: &'a ast::BinOp<'a>) -> Outcome<Value<'a>> {
        use ast::BinOpKind as Op;
        use ast::CompareOpKind as Compare;
        let left = self.value(&it.left)?;
        match it.op {
            Op::ScAnd if !left.is_true() => return Ok(left),
            Op::ScOr if left.is_true() => return Ok(left),
            Op::ScAnd | Op::ScOr => return self.value(&it.right),
            _ => {}
        }
        let right = self.value(&it.right)?;
        let comparison = match it.op {
            Op::Eq => Compare::Eq,
            Op::Ne => Compare::Ne,
            Op::Lt => Compare::Lt,
            Op::Lte => Compare::Lte,
            Op::Gt => Compare::Gt,
            Op::Gte => Compare::Gte,
            Op::In => Compare::In,
            Op::Concat => {
                let (left, right) = (self.budget.shown(&left)?, self.budget.shown(&right)?);
                return self.budget.joined(&[&left, &right]);
            }
            other => return self.arithmetic(other, &left, &right),
        };
        self.compare(comparison, &left, &right).map(Value::Bool)
    }

    pub(super) fn compare(&mut self, op: ast::CompareOpKind, left: &Value<'a>, right: &Value<'a>) -> Outcome<bool> {
        use ast::CompareOpKind as Op;
        use std::cmp::Ordering::{Equal, Greater, Less};
        self.budget.work((left.size() + right.size()) / 64)?;
        let order = match op {
            Op::Eq => return self.budget.equal(left, right),
            Op::Ne => return self.budget.equal(left, right).map(|equal| !equal),
            Op::In => return self.contains(right, left),
            Op::NotIn => return self.contains(right, left).map(|holds| !holds),
            _ => match (left, right) {
                (Value::Text(left), Value::Text(right)) => Some(left.cmp(right)),
                _ => left.number().zip(right.number()).and_then(|(left, right)| left.partial_cmp(&right)),
            },
        };
        let Some(order) = order else {
            return objection(format!("{} and {} have no order", left.kind(), right.kind()));
        };
        Ok(match op {
            Op::Lt => order == Less,
            Op::Lte => matches!(order, Less | Equal),
            Op::Gt => order == Greater,
            _ => matches!(order, Greater | Equal),
        })
    }

    fn contains(&mut self, container: &Value<'a>, item: &Value<'a>) -> Outcome<bool> {
        match (container, item) {
            (Value::Text(text), Value::Text(part)) => {
                self.budget.work(text.len() as u64 / 16)?;
                Ok(text.contains(&**part))
            }
            (Value::Map(map), Value::Text(key)) => Ok(map.get(key).is_some()),
            (Value::List(list), item) => {
                for one in &list.items {
                    if self.budget.equal(one, item)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            (Value::Undefined | Value::Text(_) | Value::Map(_), _) => Ok(false),
            (other, _) => objection(format!("{} contains nothing", other.kind())),
        }
    }

    pub(super) fn arithmetic(&mut self, op: ast::BinOpKind, left: &Value<'a>, right: &Value<'a>) -> Outcome<Value<'a>> {
        use ast::BinOpKind as Op;
        match (op, left, right) {
            (Op::Add, Value::Text(left), Value::Text(right)) => return self.budget.joined(&[left, right]),
            (Op::Add, Value::List(left), Value::List(right)) => {
                self.budget.work((left.items.len() + right.items.len()) as u64)?;
                return self.budget.list(left.items.iter().chain(&right.items).cloned().collect());
            }
            (Op::Mul, Value::Text(text), times) | (Op::Mul, times, Value::Text(text)) => {
                let times = times.integer().unwrap_or_default().max(0) as u64;
                self.budget.memory((text.len() as u64).saturating_mul(times))?;
                return self.budget.text(&text.repeat(times as usize));
            }
            _ => {}
        }
        let whole = |op: fn(i64, i64) -> Option<i64>| match (left.integer(), right.integer()) {
            (Some(left), Some(right)) => Some(op(left, right)),
            _ => None,
        };
        let exact = match op {
            Op::Add => whole(i64::checked_add),
            Op::Sub => whole(i64::checked_sub),
            Op::Mul => whole(i64::checked_mul),
            Op::FloorDiv => whole(i64::checked_div_euclid),
            Op::Rem => whole(i64::checked_rem_euclid),
            Op::Pow => whole(|base, power| base.checked_pow(u32::try_from(power).ok()?)),
            _ => None,
        };
        match (exact, left.number(), right.number()) {
            (Some(Some(number)), ..) => Ok(Value::Int(number)),
            (Some(None), ..) => objection("a number is too large, or divided by zero"),
            (None, Some(left), Some(right)) => Ok(Value::Float(match op {
                Op::Add => left + right,
                Op::Sub => left - right,
                Op::Mul => left * right,
                Op::Div => left / right,
                Op::FloorDiv => (left / right).floor(),
                Op::Rem => left.rem_euclid(right),
                Op::Pow => left.powf(right),
                _ => return objection("an operation is not known here"),
            })),
            (None, ..) => objection(format!("{} and {} cannot be computed with", left.kind(), right.kind())),
        }
    }
}
