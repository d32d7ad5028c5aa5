//! The built-in tool `calculator`: exact arithmetic with whole numbers, decimals and fractions.
//!
//! Every value is a fraction of two whole numbers, so `0.1 + 0.2` is `0.3`. What has no exact value (a root that does not come
//! out even) is an error, never an approximation. Values are bounded, so no expression takes long.

mod functions;
mod parse;

use num_bigint::BigInt;
use num_integer::Integer;
use num_rational::BigRational;
use num_traits::{One, Signed, ToPrimitive, Zero};

/// The longest expression.
const MOST_BYTES: usize = 4 << 10;
/// The largest value, in bits of numerator and denominator each: about 3,000 digits.
const MOST_BITS: u64 = 10_000;
/// Digits after the point of a decimal that does not end.
const DIGITS: usize = 20;

/// What the tool says of itself.
pub(crate) const DESCRIPTION: &str = "Evaluates one arithmetic expression exactly, with whole numbers, decimals and \
     fractions. Operators: + - * / // % ^ ! and parentheses; `%` after a number is a percentage (15% of 80). Functions: \
     abs, min, max, sum, mean, floor, ceil, round, sqrt, gcd, lcm, factorial, choose.";

/// Evaluates an expression. The result is `42`, `0.3 (3/10)` or `1/3 (about 0.33333333333333333333)`.
///
/// # Errors
/// A message for the agent that wrote it: what was expected, what was found, and where.
pub fn calculate(expression: &str) -> Result<String, String> {
    if expression.len() > MOST_BYTES {
        return Err(format!("the expression has {} bytes, at most {MOST_BYTES} are read", expression.len()));
    }
    parse::evaluate(expression).map(|value| show(&value))
}

fn show(value: &BigRational) -> String {
    if value.is_integer() {
        return value.numer().to_string();
    }
    match decimal(value) {
        Some(decimal) => format!("{decimal} ({}/{})", value.numer(), value.denom()),
        None => format!("{}/{} (about {})", value.numer(), value.denom(), rounded(value, DIGITS)),
    }
}

/// The decimal that equals the value, where there is one: the denominator has no factor but 2 and 5.
fn decimal(value: &BigRational) -> Option<String> {
    let mut rest = value.denom().clone();
    let mut count = |factor: i32| {
        let factor = BigInt::from(factor);
        let mut times = 0_usize;
        while rest.is_multiple_of(&factor) {
            rest /= &factor;
            times += 1;
        }
        times
    };
    let places = count(2).max(count(5));
    (rest.is_one() && places <= 100).then(|| rounded(value, places))
}

/// The value with this many digits after the point, halves rounded away from zero.
fn rounded(value: &BigRational, places: usize) -> String {
    let scale = BigInt::from(10).pow(u32::try_from(places).unwrap_or(u32::MAX));
    let scaled = (value * BigRational::from_integer(scale)).round().to_integer();
    let digits = format!("{:0>width$}", scaled.abs().to_string(), width = places + 1);
    let (whole, fraction) = digits.split_at(digits.len() - places);
    let sign = if scaled.is_negative() { "-" } else { "" };
    match places {
        0 => format!("{sign}{whole}"),
        _ => format!("{sign}{whole}.{fraction}"),
    }
}

/// The value, unless it is too large to go on with.
fn bounded(value: BigRational) -> Result<BigRational, String> {
    match value.numer().bits().max(value.denom().bits()) > MOST_BITS {
        true => Err("the value has more than 3,000 digits".to_owned()),
        false => Ok(value),
    }
}

/// `base` to the power of `exponent`, which must be whole unless the root comes out even.
fn power(base: &BigRational, exponent: &BigRational) -> Result<BigRational, String> {
    if !exponent.is_integer() {
        return match exponent.denom().to_u32() {
            Some(degree) => power(&root(base, degree)?, &BigRational::from_integer(exponent.numer().clone())),
            None => Err(format!("the exponent {} is not usable", show(exponent))),
        };
    }
    if base.is_one() || base.is_zero() && exponent.is_positive() {
        return Ok(base.clone());
    }
    if base.is_zero() && exponent.is_negative() {
        return Err("division by zero: 0 to a negative power".to_owned());
    }
    let too_large = || "the value has more than 3,000 digits".to_owned();
    let times = exponent.numer().abs().to_u64().ok_or_else(too_large)?;
    if (-base).is_one() {
        return Ok(if times.is_multiple_of(2) { BigRational::one() } else { base.clone() });
    }
    // A number of n bits to the power of t has at least (n - 1) t bits.
    let bits = base.numer().bits().max(base.denom().bits()).saturating_sub(1);
    if bits.saturating_mul(times) > MOST_BITS {
        return Err(too_large());
    }
    let times = i32::try_from(times).map_err(|_| too_large())?;
    bounded(base.pow(if exponent.is_negative() { -times } else { times }))
}

/// The exact root of this degree.
fn root(value: &BigRational, degree: u32) -> Result<BigRational, String> {
    let none = || format!("{} has no exact root of degree {degree}", show(value));
    if degree == 0 || u64::from(degree) > MOST_BITS || value.is_negative() && degree.is_multiple_of(2) {
        return Err(none());
    }
    let (numer, denom) = (value.numer().nth_root(degree), value.denom().nth_root(degree));
    match numer.pow(degree) == *value.numer() && denom.pow(degree) == *value.denom() {
        true => Ok(BigRational::new(numer, denom)),
        false => Err(none()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(expression: &str, expected: &str) {
        assert_eq!(calculate(expression).as_deref(), Ok(expected), "{expression}");
    }

    fn refuse(expression: &str, expected: &str) {
        let fault = calculate(expression).unwrap_err();
        assert!(fault.contains(expected), "{expression}: {fault}");
    }

    #[test]
    fn arithmetic_is_exact() {
        check("0.1 + 0.2", "0.3 (3/10)");
        check("1/3 + 1/6", "0.5 (1/2)");
        check("1/3", "1/3 (about 0.33333333333333333333)");
        check("-2/3", "-2/3 (about -0.66666666666666666667)");
        check("2 ^ 100", "1267650600228229401496703205376");
        check("2 ** -3", "0.125 (1/8)");
        check("1e-3 * 1_000", "1");
        check("100! / 98!", "9900");
        check("12.50 * 4 - 3", "47");
        check("−3 × 4 ÷ 2 · 5", "-30");
        check("$1200 * 1.05^2", "1323");
    }

    #[test]
    fn operators_bind_as_usual() {
        check("2 + 3 * 4", "14");
        check("-2 ^ 2", "-4");
        check("(-2) ^ 2", "4");
        check("2 ^ 3 ^ 2", "512");
        check("2 ^ -1", "0.5 (1/2)");
        check("7 // 2", "3");
        check("-7 // 2", "-4");
        check("-7 % 3", "2");
        check("7 % (2 + 1)", "1");
        check("2(3 + 4)", "14");
        check("3!!", "720");
        check("--3", "3");
    }

    #[test]
    fn percentages_and_modulo_are_told_apart() {
        check("15% of 80", "12");
        check("80 * (1 - 25%)", "60");
        check("50% + 1", "1.5 (3/2)");
        check("50% - 1", "-0.5 (-1/2)");
        check("10 % 4", "2");
        check("10 % max(3, 4)", "2");
    }

    #[test]
    fn functions_are_exact_or_refuse() {
        check("sqrt(16) + sqrt(9/4)", "5.5 (11/2)");
        check("27 ^ (1/3)", "3");
        check("max(1, 2/3, 0.5) - min(4, -4)", "5");
        check("round(2.5) + round(-2.5)", "0");
        check("round(3.14159, 2)", "3.14 (157/50)");
        check("floor(-1.5) + ceil(1.2)", "0");
        check("mean(1, 2, 3, 4)", "2.5 (5/2)");
        check("sum(1, 2, 3)", "6");
        check("gcd(12, 18) + lcm(4, 6)", "18");
        check("choose(52, 5)", "2598960");
        check("factorial(5) + abs(-1)", "121");
        refuse("sqrt(2)", "2 has no exact root of degree 2");
        refuse("sqrt(-4)", "no exact root");
        refuse("2 ^ 0.5", "no exact root of degree 2");
        refuse("gcd(1.5, 2)", "`gcd` takes whole numbers, got 1.5");
        refuse("factorial(-1)", "`factorial` takes whole numbers of at least 0, got -1");
        refuse("sqrt()", "`sqrt` takes 1 argument, got 0");
        refuse("round(1, 2, 3)", "`round` takes 1 or 2 arguments, got 3");
        refuse("max()", "`max` takes at least 1 argument, got 0");
    }

    #[test]
    fn faults_name_their_place() {
        refuse("", "expected a number, found the end");
        refuse("1 +", "expected a number, found the end");
        refuse("1 + * 2", "expected a number, found `*` at character 5");
        refuse("(1 + 2", "expected `)`, found the end");
        refuse("1 2", "expected an operator, found `2` at character 3");
        refuse("1 / (3 - 3)", "division by zero");
        refuse("5 % 0", "division by zero");
        refuse("0 ^ -1", "division by zero");
        refuse("foo(1)", "unknown name `foo`");
        refuse("flor(1)", "did you mean `floor`?");
        refuse("x + 1", "unknown name `x`");
        refuse("1,234 + 1", "separators");
        refuse("1 = 1", "expected an operator, found `=`");
        refuse("1.2.3", "expected an operator, found `.`");
    }

    #[test]
    fn nothing_takes_long() {
        refuse("9^9^9", "more than 3,000 digits");
        refuse("9999!", "more than 3,000 digits");
        refuse("1e999999999", "more than 3,000 digits");
        refuse("choose(1000000000, 500000000)", "3,000 digits");
        refuse(&"(".repeat(4_000), "nested more than");
        refuse(&"-".repeat(4_000), "nested more than");
        refuse(&format!("2{}", "^2".repeat(2_000)), "");
        refuse(&"1".repeat(5_000), "at most 4096 are read");
        check("1 ^ (10 ^ 100)", "1");
        check("(-1) ^ (10 ^ 15 + 1)", "-1");
    }

    proptest! {
        #[test]
        fn agrees_with_whole_numbers(a in -1_000_000_i64..1_000_000, b in 1_i64..1_000_000, c in -1_000_i64..1_000) {
            let expected = (a - c) * b + a.div_euclid(b) - a.rem_euclid(b);
            prop_assert_eq!(calculate(&format!("({a} - ({c})) * {b} + {a} // {b} - ({a}) % {b}")), Ok(expected.to_string()));
        }

        #[test]
        fn never_panics(text in "[0-9a-z+*/^%!(),. $-]{0,40}") {
            let _ = calculate(&text);
        }
    }
}
