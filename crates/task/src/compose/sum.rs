//! Formulas of stories: whole numbers, letters and the four operations, worked out exactly.

/// The value of a formula: `None` if it cannot be worked out or is not whole.
pub(super) fn whole(formula: &str, value_of: &dyn Fn(char) -> Option<i64>) -> Option<i64> {
    let mut reader = Reader { rest: formula.as_bytes(), value_of };
    let value = reader.sum()?;
    (reader.next().is_none() && value.1 == 1).then_some(value.0)
}

/// The formula with numbers for letters.
pub(super) fn written(formula: &str, text_of: &dyn Fn(char) -> Option<String>) -> String {
    let write = |c: char| match c.is_ascii_alphabetic() {
        true => text_of(c).unwrap_or_default(),
        false => c.to_string(),
    };
    formula.chars().map(write).collect()
}

/// A fraction in lowest terms with a positive denominator.
type Ratio = (i64, i64);

fn ratio(over: i64, under: i64) -> Option<Ratio> {
    let divisor = gcd(over.checked_abs()?, under.checked_abs()?);
    if under == 0 || divisor == 0 {
        return None;
    }
    Some((over / divisor * under.signum(), under.checked_abs()? / divisor))
}

fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

struct Reader<'a> {
    rest: &'a [u8],
    value_of: &'a dyn Fn(char) -> Option<i64>,
}

impl Reader<'_> {
    fn next(&mut self) -> Option<u8> {
        while let [b' ', rest @ ..] = self.rest {
            self.rest = rest;
        }
        self.rest.first().copied()
    }

    fn take(&mut self, wanted: &[u8]) -> Option<u8> {
        let found = self.next().filter(|byte| wanted.contains(byte))?;
        self.rest = self.rest.get(1..)?;
        Some(found)
    }

    fn sum(&mut self) -> Option<Ratio> {
        let mut value = self.product()?;
        while let Some(sign) = self.take(b"+-") {
            let (over, under) = self.product()?;
            let over = if sign == b'+' { over } else { over.checked_neg()? };
            let cross = value.0.checked_mul(under)?.checked_add(over.checked_mul(value.1)?)?;
            value = ratio(cross, value.1.checked_mul(under)?)?;
        }
        Some(value)
    }

    fn product(&mut self) -> Option<Ratio> {
        let mut value = self.factor()?;
        while let Some(sign) = self.take(b"*/") {
            let (over, under) = self.factor()?;
            let (over, under) = if sign == b'*' { (over, under) } else { (under, over) };
            value = ratio(value.0.checked_mul(over)?, value.1.checked_mul(under)?)?;
        }
        Some(value)
    }

    fn factor(&mut self) -> Option<Ratio> {
        if self.take(b"(").is_some() {
            let value = self.sum()?;
            self.take(b")")?;
            return Some(value);
        }
        let first = self.next()?;
        if first.is_ascii_alphabetic() {
            self.rest = self.rest.get(1..)?;
            return Some(((self.value_of)(char::from(first))?, 1));
        }
        let length = self.rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (digits, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some((std::str::from_utf8(digits).ok()?.parse().ok()?, 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(formula: &str, expected: Option<i64>) {
        let value_of = |c| (c == 'a').then_some(12);
        assert_eq!(whole(formula, &value_of), expected, "{formula}");
    }

    #[test]
    fn formulas_are_worked_out_exactly() {
        check("2+3*4", Some(14));
        check("(2+3)*4", Some(20));
        check("a-2-3", Some(7));
        check("a/5*10", Some(24));
        check("a/5", None);
        check("1/3+1/6+1/2", Some(1));
        check("5-9", Some(-4));
        check("6/(2-5)", Some(-2));
    }

    #[test]
    fn what_is_no_formula_has_no_value() {
        for formula in ["", "b", "2+", "2 2", "(2", "2)", "1/0", "1/(a-12)", "*", "9999999999999*9999999999999", "é"] {
            check(formula, None);
        }
    }

    #[test]
    fn letters_are_written_as_numbers() {
        assert_eq!(written("(a+b)*2", &|c| Some(if c == 'a' { "7" } else { "(1-x)" }.to_owned())), "(7+(1-x))*2");
    }
}
