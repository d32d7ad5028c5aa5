//! Reads the name of a method.

use super::{METHODS, Method, Variant};
use lemon_spec::Style;
use std::str::FromStr;

/// A name that no method has, or a number it does not take.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MethodError {
    /// There is none of that name.
    #[error("no method is called `{0}`")]
    Unknown(String),
    /// No capacity replies in its style.
    #[error(
        "`{name}` needs a capacity with `style = \"{style}\"`; an entry with `efforts = [\"{style}\", …]` makes one"
    )]
    NoStyle {
        /// The method.
        name: String,
        style: Style,
    },
    /// It takes no number.
    #[error("`{0}` takes no number")]
    NoNumber(String),
    /// Its number is out of range.
    #[error("`{name}` takes 1 to {most} {what}, not `{given}`")]
    Number {
        /// The method.
        name: String,
        /// What it counts.
        what: &'static str,
        /// How many at most.
        most: usize,
        /// What was given.
        given: String,
    },
    /// It has no such variant.
    #[error("`{name}` has no variant `{given}`; it has {known}")]
    NoVariant {
        /// The method.
        name: String,
        /// What was given.
        given: String,
        /// The variants it has.
        known: String,
    },
    /// It chooses capacities itself, or another source does.
    #[error("`{0}` takes no capacity")]
    NoCapacity(String),
}

impl FromStr for Method {
    type Err = MethodError;

    fn from_str(text: &str) -> Result<Self, MethodError> {
        let (text, capacity) = text.split_once('@').map_or((text, None), |(text, capacity)| (text, Some(capacity)));
        let mut parts = text.split('+');
        let text = parts.next().unwrap_or_default();
        let (name, number) = text.split_once(':').map_or((text, None), |(name, number)| (name, Some(number)));
        let kind =
            METHODS.iter().find(|kind| kind.name == name).ok_or_else(|| MethodError::Unknown(name.to_owned()))?;
        let number = match (kind.number, number) {
            (None, None) => 1,
            (None, Some(_)) => return Err(MethodError::NoNumber(name.to_owned())),
            (Some((_, default, _)), None) => default,
            (Some((what, _, most)), Some(given)) => {
                let number = given.parse().ok().filter(|number| (1..=most).contains(number));
                number.ok_or_else(|| MethodError::Number { name: name.into(), what, most, given: given.into() })?
            }
        };
        let variant = |given: &str| {
            let found = kind.variants.iter().find(|variant| variant.as_str() == given);
            found.copied().ok_or_else(|| MethodError::NoVariant {
                name: name.to_owned(),
                given: given.to_owned(),
                known: match kind.variants {
                    [] => "none".to_owned(),
                    known => known.iter().map(|variant| variant.as_str()).collect::<Vec<_>>().join(", "),
                },
            })
        };
        let mut variants = parts.map(variant).collect::<Result<Vec<Variant>, _>>()?;
        variants.sort_unstable();
        variants.dedup();
        let method = Method { kind, number, variants, capacity: None };
        match capacity {
            None => Ok(method),
            Some(capacity) => method.at(capacity).ok_or_else(|| MethodError::NoCapacity(name.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_names_and_numbers_are_named() {
        let error = |text: &str| text.parse::<Method>().unwrap_err().to_string();
        assert_eq!(error("coot"), "no method is called `coot`");
        assert_eq!(error("cot:3"), "`cot` takes no number");
        assert_eq!(error("debate:99"), "`debate` takes 1 to 8 rounds, not `99`");
        assert_eq!(error("sc-cot:x"), "`sc-cot` takes 1 to 64 agents, not `x`");
        assert_eq!(error("cot+long"), "`cot` has no variant `long`; it has none");
        assert_eq!(error("g-designer+wide"), "`g-designer` has no variant `wide`; it has cost, long");
        assert_eq!(error("masrouter@small"), "`masrouter` takes no capacity");
    }

    #[test]
    fn names_are_given_back_in_one_form() {
        let check = |given: &str, name: &str| assert_eq!(given.parse::<Method>().unwrap().name(), name);
        check("debate:2", "debate");
        check("debate:3", "debate:3");
        check("g-designer+long+cost@small", "g-designer+cost+long@small");
        check("agentprune:4+cost+cost@chosen", "agentprune:4+cost@chosen");
    }
}
