//! Reads an expression and evaluates it on the way, by precedence climbing.

use super::{bounded, functions, power};
use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::{ToPrimitive, Zero};

/// How deep parentheses, signs and powers may nest.
const DEPTH: usize = 100;

pub(super) fn evaluate(text: &str) -> Result<BigRational, String> {
    let mut parser = Parser { characters: text.chars().collect(), at: 0, depth: 0 };
    let value = parser.sum()?;
    match parser.peek() {
        None => Ok(value),
        Some(',') => Err("found `,` outside a function: write numbers without separators, 1234 for 1,234".to_owned()),
        Some(_) => Err(parser.expected("an operator")),
    }
}

struct Parser {
    characters: Vec<char>,
    at: usize,
    depth: usize,
}

/// The operators that bind like `*`.
enum Product {
    Times,
    Divide,
    Floor,
    Modulo,
}

impl Parser {
    /// The next character that is no white space. Signs that people paste are read as those of the keyboard.
    fn peek(&mut self) -> Option<char> {
        while self.characters.get(self.at).is_some_and(|c| c.is_whitespace()) {
            self.at += 1;
        }
        self.characters.get(self.at).map(|character| match character {
            '−' | '–' => '-',
            '×' | '·' | '⋅' => '*',
            '÷' => '/',
            other => *other,
        })
    }

    fn take(&mut self, character: char) -> bool {
        let there = self.peek() == Some(character);
        self.at += usize::from(there);
        there
    }

    fn expected(&mut self, what: &str) -> String {
        match self.peek() {
            None => format!("expected {what}, found the end of the expression"),
            Some(found) => format!("expected {what}, found `{found}` at character {}", self.at + 1),
        }
    }

    /// Runs `read` one level deeper.
    fn deeper<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T, String>) -> Result<T, String> {
        if self.depth == DEPTH {
            return Err(format!("the expression is nested more than {DEPTH} deep"));
        }
        self.depth += 1;
        let value = read(self);
        self.depth -= 1;
        value
    }

    fn sum(&mut self) -> Result<BigRational, String> {
        let mut value = self.product()?;
        loop {
            value = match self.peek() {
                Some('+') => {
                    self.at += 1;
                    value + self.product()?
                }
                Some('-') => {
                    self.at += 1;
                    value - self.product()?
                }
                _ => return Ok(value),
            };
            value = bounded(value)?;
        }
    }

    fn product(&mut self) -> Result<BigRational, String> {
        let mut value = self.signed()?;
        while let Some(operator) = self.product_operator() {
            let right = self.signed()?;
            if right.is_zero() && !matches!(operator, Product::Times) {
                return Err("division by zero".to_owned());
            }
            value = bounded(match operator {
                Product::Times => value * right,
                Product::Divide => value / right,
                Product::Floor => (value / right).floor(),
                Product::Modulo => &value - (&value / &right).floor() * right,
            })?;
        }
        Ok(value)
    }

    fn product_operator(&mut self) -> Option<Product> {
        match self.peek()? {
            '*' => {
                self.at += 1;
                Some(Product::Times)
            }
            '/' => {
                self.at += 1;
                Some(if self.take('/') { Product::Floor } else { Product::Divide })
            }
            '%' => {
                self.at += 1;
                Some(Product::Modulo)
            }
            // `2(3 + 4)` and `15% of 80`.
            '(' => Some(Product::Times),
            _ if self.word_ahead() == "of" => {
                self.at += "of".len();
                Some(Product::Times)
            }
            _ => None,
        }
    }

    fn signed(&mut self) -> Result<BigRational, String> {
        match self.peek() {
            Some('-') => {
                self.at += 1;
                Ok(-self.deeper(Self::signed)?)
            }
            Some('+') => {
                self.at += 1;
                self.deeper(Self::signed)
            }
            _ => self.power(),
        }
    }

    fn power(&mut self) -> Result<BigRational, String> {
        let base = self.postfix()?;
        let doubled = self.peek() == Some('*') && self.characters.get(self.at + 1) == Some(&'*');
        if !doubled && self.peek() != Some('^') {
            return Ok(base);
        }
        self.at += if doubled { 2 } else { 1 };
        // Powers bind to the right, and before a sign on their left.
        let exponent = self.deeper(Self::signed)?;
        power(&base, &exponent)
    }

    fn postfix(&mut self) -> Result<BigRational, String> {
        let mut value = self.operand()?;
        loop {
            match self.peek() {
                Some('!') => {
                    self.at += 1;
                    value = functions::call("factorial", vec![value])?;
                }
                Some('%') if self.is_percentage() => {
                    self.at += 1;
                    value /= BigInt::from(100);
                }
                _ => return Ok(value),
            }
        }
    }

    /// Whether the `%` ahead is a percentage: nothing follows that `%` could divide by. A sign after it is an operator.
    fn is_percentage(&mut self) -> bool {
        let here = self.at;
        self.at += 1;
        let next = self.peek();
        let of = self.word_ahead() == "of";
        self.at = here;
        let operand = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '(' | '$');
        of || !next.is_some_and(operand)
    }

    fn operand(&mut self) -> Result<BigRational, String> {
        // An amount of money is its number.
        self.take('$');
        match self.peek() {
            Some('(') => {
                self.at += 1;
                let value = self.deeper(Self::sum)?;
                match self.take(')') {
                    true => Ok(value),
                    false => Err(self.expected("`)`")),
                }
            }
            Some(c) if c.is_ascii_digit() || c == '.' => self.number(),
            Some(c) if c.is_ascii_alphabetic() => self.function(),
            _ => Err(self.expected("a number")),
        }
    }

    fn word_ahead(&self) -> String {
        self.characters.iter().skip(self.at).take_while(|c| c.is_ascii_alphabetic()).collect()
    }

    fn function(&mut self) -> Result<BigRational, String> {
        let name = self.word_ahead();
        functions::check_name(&name)?;
        self.at += name.len();
        if !self.take('(') {
            return Err(self.expected(&format!("`(` after `{name}`")));
        }
        let mut arguments = Vec::new();
        while !self.take(')') {
            if !arguments.is_empty() && !self.take(',') {
                return Err(self.expected("`,` or `)`"));
            }
            arguments.push(self.deeper(Self::sum)?);
        }
        functions::call(&name, arguments)
    }

    /// Digits with `_` between them.
    fn digits(&mut self) -> String {
        let mut digits = String::new();
        while let Some(character) = self.characters.get(self.at).filter(|c| c.is_ascii_digit() || **c == '_') {
            if *character != '_' {
                digits.push(*character);
            }
            self.at += 1;
        }
        digits
    }

    fn number(&mut self) -> Result<BigRational, String> {
        let start = self.at;
        let mut digits = self.digits();
        let mut places = 0;
        if self.characters.get(self.at) == Some(&'.') {
            self.at += 1;
            let fraction = self.digits();
            places = fraction.len();
            digits += &fraction;
        }
        let whole: BigInt = match digits.parse() {
            Ok(whole) => whole,
            Err(_) => {
                self.at = start;
                return Err(self.expected("a number"));
            }
        };
        let ten = BigRational::from_integer(BigInt::from(10));
        let exponent = self.exponent().unwrap_or_default() - BigInt::from(places);
        let scale = power(&ten, &BigRational::from_integer(exponent))?;
        bounded(BigRational::from_integer(whole) * scale)
    }

    /// The exponent of `1e-3`, if there is one.
    fn exponent(&mut self) -> Option<BigInt> {
        let here = self.at;
        if !matches!(self.characters.get(self.at), Some('e' | 'E')) {
            return None;
        }
        self.at += 1;
        let negative = self.characters.get(self.at) == Some(&'-');
        if matches!(self.characters.get(self.at), Some('-' | '+')) {
            self.at += 1;
        }
        // Without digits it is no exponent: the letter is read again as what it is.
        let exponent: Option<BigInt> = self.digits().parse().ok();
        if exponent.is_none() {
            self.at = here;
        }
        exponent.map(|exponent| if negative { -exponent } else { exponent })
    }
}

/// A whole number of at least zero that fits.
pub(super) fn small(value: &BigRational) -> Option<u64> {
    value.is_integer().then(|| value.numer().to_u64()).flatten()
}
