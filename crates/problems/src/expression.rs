//! Conditions on the numbers of a situation: `a - b*c >= 2`.

use std::fmt;

/// A comparison of two expressions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    left: Expression,
    compare: Compare,
    right: Expression,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Expression {
    Value(i64),
    Name(char),
    Apply(Box<Expression>, char, Box<Expression>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Compare {
    Less,
    LessOrEqual,
    More,
    MoreOrEqual,
    Equal,
    Different,
}

/// The longer signs first: `<` begins `<=`.
const COMPARISONS: [(&str, Compare); 6] = [
    ("<=", Compare::LessOrEqual),
    (">=", Compare::MoreOrEqual),
    ("==", Compare::Equal),
    ("!=", Compare::Different),
    ("<", Compare::Less),
    (">", Compare::More),
];

/// Deeper parentheses are refused, so that no text can exhaust the stack.
const DEEPEST: usize = 32;

/// Why a text is no condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault(String);

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Condition {
    pub(crate) fn parse(text: &str) -> Result<Self, Fault> {
        let found = COMPARISONS.iter().find_map(|(sign, compare)| {
            let (left, right) = text.split_once(sign)?;
            Some((left, *compare, right))
        });
        let Some((left, compare, right)) = found else {
            return Err(Fault(format!("`{text}` compares nothing")));
        };
        Ok(Condition { left: expression(left)?, compare, right: expression(right)? })
    }

    /// Whether it holds. Where a value cannot be computed (a division by zero, an overflow), it does not.
    pub fn holds(&self, number: &impl Fn(char) -> Option<i64>) -> bool {
        let (Some(left), Some(right)) = (self.left.value(number), self.right.value(number)) else { return false };
        match self.compare {
            Compare::Less => left < right,
            Compare::LessOrEqual => left <= right,
            Compare::More => left > right,
            Compare::MoreOrEqual => left >= right,
            Compare::Equal => left == right,
            Compare::Different => left != right,
        }
    }

    /// The names it uses, with repetition.
    pub(crate) fn names(&self) -> Vec<char> {
        let mut names = Vec::new();
        self.left.collect_names(&mut names);
        self.right.collect_names(&mut names);
        names
    }
}

impl Expression {
    fn value(&self, number: &impl Fn(char) -> Option<i64>) -> Option<i64> {
        match self {
            Expression::Value(value) => Some(*value),
            Expression::Name(name) => number(*name),
            Expression::Apply(left, op, right) => {
                let (left, right) = (left.value(number)?, right.value(number)?);
                match op {
                    '+' => left.checked_add(right),
                    '-' => left.checked_sub(right),
                    '*' => left.checked_mul(right),
                    '/' => left.checked_div_euclid(right),
                    _ => left.checked_rem_euclid(right),
                }
            }
        }
    }

    fn collect_names(&self, names: &mut Vec<char>) {
        match self {
            Expression::Value(_) => {}
            Expression::Name(name) => names.push(*name),
            Expression::Apply(left, _, right) => {
                left.collect_names(names);
                right.collect_names(names);
            }
        }
    }
}

pub(crate) fn expression(text: &str) -> Result<Expression, Fault> {
    let mut rest = text.trim();
    let expression = sum(&mut rest, 0)?;
    match rest.chars().next() {
        None => Ok(expression),
        Some(stray) => Err(Fault(format!("`{stray}` has no place in `{}`", text.trim()))),
    }
}

fn sum(rest: &mut &str, depth: usize) -> Result<Expression, Fault> {
    chain(rest, &['+', '-'], |rest| chain(rest, &['*', '/', '%'], |rest| atom(rest, depth)))
}

/// Operations of one rank, from left to right.
fn chain(
    rest: &mut &str,
    operators: &[char],
    mut operand: impl FnMut(&mut &str) -> Result<Expression, Fault>,
) -> Result<Expression, Fault> {
    let mut left = operand(rest)?;
    while let Some(op) = rest.chars().next().filter(|op| operators.contains(op)) {
        *rest = rest[1..].trim_start(); // every operator is one byte
        left = Expression::Apply(Box::new(left), op, Box::new(operand(rest)?));
    }
    Ok(left)
}

fn atom(rest: &mut &str, depth: usize) -> Result<Expression, Fault> {
    if depth > DEEPEST {
        return Err(Fault("the parentheses are too deep".into()));
    }
    if let Some(inner) = rest.strip_prefix('(') {
        *rest = inner.trim_start();
        let inside = sum(rest, depth + 1)?;
        *rest = rest.strip_prefix(')').ok_or_else(|| Fault("a `(` is not closed".into()))?.trim_start();
        return Ok(inside);
    }
    let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (atom, length) = match rest.chars().next() {
        Some(name) if name.is_ascii_lowercase() => (Expression::Name(name), 1),
        Some(_) if digits > 0 => {
            let value = rest[..digits].parse().map_err(|_| Fault(format!("`{}` is too large", &rest[..digits])))?;
            (Expression::Value(value), digits)
        }
        Some(other) => return Err(Fault(format!("`{other}` is neither a number nor a name"))),
        None => return Err(Fault("an operand is missing".into())),
    };
    *rest = rest[length..].trim_start();
    Ok(atom)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// With a = 12, b = 5, c = 3.
    fn check(text: &str, expected: Result<bool, &str>) {
        let number = |name| match name {
            'a' => Some(12),
            'b' => Some(5),
            'c' => Some(3),
            _ => None,
        };
        let held = Condition::parse(text).map(|condition| condition.holds(&number)).map_err(|fault| fault.to_string());
        assert_eq!(held, expected.map_err(str::to_owned), "{text}");
    }

    #[test]
    fn arithmetic_and_comparisons() {
        check("a > b", Ok(true));
        check("a - b*c >= 2", Ok(false));
        check("(a - b)*c == 21", Ok(true));
        check("a - b - c == 4", Ok(true));
        check("a/b == 2", Ok(true));
        check("a % b != 2", Ok(false));
        check("a<=12", Ok(true));
        check("a < 12", Ok(false));
        check("a / (b - 5) == 0", Ok(false));
        check("x > 1", Ok(false));
    }

    #[test]
    fn faults_say_what_is_wrong() {
        check("a + b", Err("`a + b` compares nothing"));
        check("a > ", Err("an operand is missing"));
        check("(a > b", Err("a `(` is not closed"));
        check("a b > 1", Err("`b` has no place in `a b`"));
        check("A > 1", Err("`A` is neither a number nor a name"));
        check("a > 99999999999999999999", Err("`99999999999999999999` is too large"));
        check(&format!("{} > 1", "(".repeat(99)), Err("the parentheses are too deep"));
    }

    proptest! {
        #[test]
        fn never_panics(text in "[ab0-9+*/%()<>= é-]{0,24}", a: i64, b: i64) {
            if let Ok(condition) = Condition::parse(&text) {
                condition.holds(&|name| Some(if name == 'a' { a } else { b }));
            }
        }
    }
}
