//! Effort: how a capacity replies. The same model is several capacities where it is asked in several ways.

use crate::UnknownWord;
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};

/// How an agent of a capacity is asked to reply to a task with a short answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Style {
    /// The answer alone: a letter, a number, a few words.
    Brief,
    /// A Python program, which is run; what it prints is the answer.
    Program,
    /// Step by step, with the answer on the last line.
    Reasoned,
}

impl Style {
    /// Every style, the cheapest first.
    pub const ALL: &[Style] = &[Style::Brief, Style::Program, Style::Reasoned];

    /// As a configuration writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Style::Brief => "brief",
            Style::Program => "program",
            Style::Reasoned => "reasoned",
        }
    }

    /// Tokens of a typical reply: the medians of a 1.5 B instruct model on six public task sets, rounded.
    pub fn typical_tokens(self) -> u64 {
        match self {
            Style::Brief => 6,
            Style::Program => 70,
            Style::Reasoned => 270,
        }
    }

    /// Tokens that a reply may have where a configuration does not say.
    pub fn max_tokens(self) -> u64 {
        match self {
            Style::Brief => 64,
            Style::Program => 512,
            Style::Reasoned => 1024,
        }
    }

    fn about(self) -> &'static str {
        match self {
            Style::Brief => "gives the answer alone",
            Style::Program => "writes a program that computes the answer",
            Style::Reasoned => "works step by step",
        }
    }
}

impl fmt::Display for Style {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

impl FromStr for Style {
    type Err = UnknownWord;

    fn from_str(word: &str) -> Result<Self, UnknownWord> {
        Style::ALL.iter().copied().find(|style| style.as_str() == word).ok_or_else(|| UnknownWord(word.to_owned()))
    }
}

/// What an orchestrator is told of a capacity. It displays as nothing where nothing is known.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Effort {
    /// How it replies; as each role says where absent.
    pub style: Option<Style>,
    /// The price of a token, over that of the cheapest capacity that has a price.
    pub price: Option<f64>,
}

impl fmt::Display for Effort {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let style = self.style.map(|style| format!("{}, about {} tokens", style.about(), style.typical_tokens()));
        let price = self.price.map(|price| format!("{} × the lowest price", (price * 10.0).round() / 10.0));
        formatter.write_str(&style.into_iter().chain(price).collect::<Vec<_>>().join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn styles_are_read_as_they_are_written() {
        for style in Style::ALL {
            assert_eq!(style.as_str().parse(), Ok(*style));
            assert_eq!(serde_json::to_value(style).unwrap(), style.as_str());
            assert!(style.typical_tokens() < style.max_tokens());
        }
        assert_eq!("terse".parse::<Style>(), Err(UnknownWord("terse".to_owned())));
    }

    #[test]
    fn an_effort_says_what_is_known() {
        let told = |style, price| Effort { style, price }.to_string();
        assert_eq!(told(None, None), "");
        assert_eq!(told(Some(Style::Brief), None), "gives the answer alone, about 6 tokens");
        assert_eq!(told(None, Some(2.04)), "2 × the lowest price");
        let both = told(Some(Style::Program), Some(1.25));
        assert_eq!(both, "writes a program that computes the answer, about 70 tokens, 1.3 × the lowest price");
    }
}
