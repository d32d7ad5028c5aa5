//! The form of the answer that a task wants: open text, a short answer, a choice, a number, code or JSON.
//!
//! Prompts, extraction and votes follow it. It is read off the question, or given with the task.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The form of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Form {
    /// A text to be read: an explanation, a letter, a plan. The whole reply is the answer.
    #[default]
    Open,
    /// A word or a phrase.
    Short,
    /// One of the options that the question lists.
    Choice,
    Number,
    /// A program, a function, a query.
    Code,
    /// A JSON value.
    Json,
}

/// A word that names no form.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown form `{0}`; expected one of open, short, choice, number, code, json")]
pub struct UnknownForm(pub String);

impl Form {
    /// Every form.
    pub const ALL: [Form; 6] = [Form::Open, Form::Short, Form::Choice, Form::Number, Form::Code, Form::Json];

    /// As users write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Form::Open => "open",
            Form::Short => "short",
            Form::Choice => "choice",
            Form::Number => "number",
            Form::Code => "code",
            Form::Json => "json",
        }
    }

    /// Whether two agents can be expected to give the same answer in the same words, so that a vote means something.
    pub fn is_short(self) -> bool {
        matches!(self, Form::Short | Form::Choice | Form::Number)
    }

    /// The form that a question asks for, read off its words. What is not clear is open text: there the whole reply counts.
    pub fn of(question: &str) -> Form {
        let text = question.to_lowercase();
        let words: Vec<&str> =
            text.split(|c: char| !c.is_alphanumeric() && c != '\'').filter(|it| !it.is_empty()).collect();
        if lists_options(question) {
            Form::Choice
        } else if asks_for_json(&words) {
            Form::Json
        } else if asks_for_code(question, &words) {
            Form::Code
        } else if asks_for_text(&words) {
            Form::Open
        } else if asks_for_number(&text, &words) {
            Form::Number
        } else if asks_for_fact(&text, &words) {
            Form::Short
        } else {
            Form::Open
        }
    }
}

impl fmt::Display for Form {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

impl FromStr for Form {
    type Err = UnknownForm;

    fn from_str(word: &str) -> Result<Self, UnknownForm> {
        Form::ALL.into_iter().find(|form| form.as_str() == word).ok_or_else(|| UnknownForm(word.to_owned()))
    }
}

/// Whether the question lists options with letters from A on: lines or groups like `A) …`, `(B) …`, `C. …`, `Option D: …`.
fn lists_options(question: &str) -> bool {
    let marks = |letter: char| {
        question.char_indices().any(|(at, c)| {
            let before = question.get(..at).unwrap_or_default();
            let after = question.get(at + c.len_utf8()..).unwrap_or_default();
            let opened = before.ends_with('(');
            let alone =
                before.chars().next_back().is_none_or(|c| c.is_whitespace() || matches!(c, '(' | '[' | '"' | '\''));
            let named = before.ends_with("Option ") && after.starts_with(':');
            let begins_line = before.trim_end_matches([' ', '\t']).chars().next_back().is_none_or(|c| c == '\n');
            let closed = after.starts_with(')') || begins_line && after.starts_with(['.', ':']);
            c == letter && alone && (named || closed || opened && after.starts_with(')'))
        })
    };
    marks('A') && marks('B') || marks('a') && marks('b') && marks('c')
}

fn asks_for_json(words: &[&str]) -> bool {
    const VERBS: [&str; 14] = [
        "return", "output", "give", "reply", "respond", "only", "as", "in", "valid", "produce", "print", "write",
        "format", "make",
    ];
    words.contains(&"json") && words.iter().any(|word| VERBS.contains(word)) && !words.contains(&"explain")
}

/// A program is asked for by a verb and a thing to program, or the question is one: a signature with a docstring.
fn asks_for_code(question: &str, words: &[&str]) -> bool {
    const VERBS: [&str; 14] = [
        "write",
        "fix",
        "implement",
        "complete",
        "create",
        "define",
        "refactor",
        "correct",
        "debug",
        "repair",
        "make",
        "give",
        "return",
        "rewrite",
    ];
    const THINGS: [&str; 15] = [
        "function",
        "program",
        "script",
        "class",
        "method",
        "query",
        "regex",
        "regexp",
        "macro",
        "decorator",
        "subroutine",
        "generator",
        "one-liner",
        "code",
        "snippet",
    ];
    const LANGUAGES: [&str; 16] = [
        "python",
        "sql",
        "javascript",
        "typescript",
        "rust",
        "java",
        "bash",
        "c++",
        "golang",
        "ruby",
        "perl",
        "html",
        "css",
        "haskell",
        "kotlin",
        "regex",
    ];
    let begins = |head: &str| question.lines().any(|line| line.trim_start().starts_with(head));
    let signature = begins("def ") || begins("fn ") || begins("class ") || question.contains("```");
    let has = |list: &[&str]| words.iter().any(|word| list.contains(word));
    // "Write a class reunion invitation": a thing alone is not enough, a language or a call is.
    let named = has(&LANGUAGES) || question.contains("()") || question.split_whitespace().any(is_call) || signature;
    (has(&VERBS) && has(&THINGS) && named)
        || begins("def ") && question.contains(':')
        || begins("fn ") && question.contains('{')
}

/// `count_vowels(s)`: a name with its parameters.
fn is_call(word: &str) -> bool {
    word.split_once('(').is_some_and(|(name, rest)| {
        rest.contains(')')
            && name.chars().next().is_some_and(|c| c.is_alphabetic())
            && name.chars().all(|c| c.is_alphanumeric() || c == '_')
    })
}

/// Whether a text is to be written, whatever else the question says.
fn asks_for_text(words: &[&str]) -> bool {
    const FIRST: [&str; 34] = [
        "write",
        "explain",
        "describe",
        "list",
        "plan",
        "summarise",
        "summarize",
        "translate",
        "compose",
        "draft",
        "suggest",
        "compare",
        "discuss",
        "outline",
        "rewrite",
        "rephrase",
        "paraphrase",
        "tell",
        "create",
        "design",
        "give",
        "name",
        "help",
        "recommend",
        "correct",
        "proofread",
        "why",
        "hi",
        "hello",
        "hey",
        "thanks",
        "brainstorm",
        "imagine",
        "prove",
    ];
    const ANYWHERE: [&str; 15] = [
        "explain",
        "essay",
        "poem",
        "haiku",
        "story",
        "email",
        "letter",
        "summary",
        "table",
        "paragraph",
        "paragraphs",
        "sentences",
        "why",
        "step-by-step",
        "itinerary",
    ];
    let polite =
        |word: &&&str| !matches!(**word, "please" | "can" | "could" | "you" | "would" | "kindly" | "me" | "to");
    let first = words.iter().find(polite);
    first.is_some_and(|first| FIRST.contains(first)) || words.iter().any(|word| ANYWHERE.contains(word))
}

/// "How many", "how much", or a quantity that is asked for in a text with numbers.
fn asks_for_number(text: &str, words: &[&str]) -> bool {
    const PHRASES: [&str; 15] = [
        "how many",
        "how much",
        "how long",
        "how old",
        "how far",
        "how fast",
        "how tall",
        "how often",
        "what percent",
        "what fraction",
        "calculate",
        "compute",
        "what is the total",
        "what was the total",
        "find the",
    ];
    const QUANTITIES: [&str; 28] = [
        "total",
        "sum",
        "cost",
        "price",
        "average",
        "mean",
        "number",
        "amount",
        "profit",
        "difference",
        "percentage",
        "age",
        "distance",
        "speed",
        "area",
        "volume",
        "weight",
        "height",
        "length",
        "score",
        "balance",
        "remainder",
        "product",
        "change",
        "value",
        "perimeter",
        "probability",
        "income",
    ];
    let has_number = text.chars().any(|c| c.is_ascii_digit())
        || words.iter().any(|word| {
            matches!(*word, "one" | "two" | "three" | "four" | "five" | "six" | "ten" | "dozen" | "half" | "twice")
        });
    let asked = PHRASES.iter().any(|phrase| text.contains(phrase));
    let quantity = text.contains("what") && words.iter().any(|word| QUANTITIES.contains(word));
    let sum = text.starts_with("what is ")
        && text.chars().any(|c| matches!(c, '+' | '*' | '×' | '/' | '=' | '-'))
        && has_number;
    has_number && (asked || quantity) || sum || text.contains("how many")
}

/// One question that a word or a phrase answers.
fn asks_for_fact(text: &str, words: &[&str]) -> bool {
    const FIRST: [&str; 20] = [
        "what", "which", "who", "whom", "whose", "when", "where", "is", "are", "was", "were", "does", "do", "did",
        "can", "has", "have", "in", "at", "on",
    ];
    let short = words.len() <= 40 && text.trim_end().ends_with('?');
    short && words.first().is_some_and(|first| FIRST.contains(&first.trim_end_matches("'s")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check(question: &str, form: Form) {
        assert_eq!(Form::of(question), form, "{question}");
    }

    #[test]
    fn numbers_are_asked_for_in_many_ways() {
        check("A baker makes 24 rolls and sells 3 boxes of 6. How many are left?", Form::Number);
        check("A jacket costs 80 dollars and is 15 % off. What does it cost?", Form::Number);
        check("How much is 3 kg of apples at 2 euros a kilo?", Form::Number);
        check("Anna is twice as old as Ben, who is 12. How old is Anna?", Form::Number);
        check("What is 12 * 7?", Form::Number);
        check("Tom drives 60 miles in 2 hours. What is his speed in miles per hour?", Form::Number);
    }

    #[test]
    fn options_make_a_choice() {
        check("What is 2 + 2?\nA) 3\nB) 4\nC) 5", Form::Choice);
        check("Which gas do plants take up?\nA. oxygen\nB. carbon dioxide\nC. helium", Form::Choice);
        check("Pick one: (A) red (B) blue", Form::Choice);
        check("The sky is\nOption A: blue\nOption B: green", Form::Choice);
        check("Explain the difference between vitamin A and vitamin B.", Form::Open);
    }

    #[test]
    fn programs_are_code() {
        check("Write a Python function double(x) that returns twice x.", Form::Code);
        check("Fix this function:\n\ndef f(x):\n    return x +", Form::Code);
        check("Write an SQL query that lists all customers.", Form::Code);
        check("def add(a, b):\n    \"\"\"Add two numbers.\"\"\"\n", Form::Code);
        check("Write an invitation to our class reunion.", Form::Open);
        check("What does a Python decorator do?", Form::Short);
    }

    #[test]
    fn texts_are_open() {
        for question in [
            "hi",
            "Explain why ice floats.",
            "Write a polite email to my neighbour about the noise.",
            "Plan a weekend in Oslo for two people.",
            "Translate into German: \"How many apples are there?\"",
            "List five things to pack, one per line.",
            "Is 57 a prime number? Answer yes or no and say why.",
            "Can you summarise this: 12 people came.",
            "",
        ] {
            check(question, Form::Open);
        }
    }

    #[test]
    fn facts_are_short_and_objects_are_json() {
        check("What is the capital of Peru?", Form::Short);
        check("Which planet is the smallest?", Form::Short);
        check("Who wrote Faust?", Form::Short);
        check("Return only JSON, an object with the key \"city\".", Form::Json);
        check("List three colours as a JSON array.", Form::Json);
    }

    #[test]
    fn words_name_forms() {
        for form in Form::ALL {
            assert_eq!(form.as_str().parse(), Ok(form));
        }
        assert!("essay".parse::<Form>().is_err());
    }

    proptest! {
        #[test]
        fn every_text_has_a_form(question in "(?s).{0,300}") {
            let form = Form::of(&question);
            prop_assert_eq!(Form::of(&question), form);
        }
    }
}
